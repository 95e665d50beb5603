"""Whether a log is still the one that was planned and read, as leader epochs tell it.

Owns the epochs of a range. An unclean election cuts a log and goes on behind the cut with other
records; a leader that was cut off has a log of before. Neither shows in offsets, both in epochs:
within one log they never go back, and each of them ends where the next one begins.

Rules: replication.md#diverging-logs.
"""

from __future__ import annotations

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import Access, Plan, ReadError
from holdfast.pipelines.reading.fetched_batches import Batch
from holdfast.pipelines.reading.wire_client import Lead, WireClient


class History:
    """The history of one range's log, held against that of each new leader."""

    def __init__(
        self,
        client: WireClient,
        partition: Partition,
        bounds: tuple[int, int],
        access: Access,
        plan: Plan,
    ) -> None:
        self._client = client
        self._partition = partition
        self._start, self._end = bounds
        self._access = access
        self._plan = plan
        self._held_against = -1
        self.last_epoch = -1  # of the last batch that came

    @property
    def least_epoch(self) -> int:
        """Return the newest epoch that is known of: who leads in an older one was cut off."""
        return max(self._plan.start_epoch, self._plan.end_epoch, self.last_epoch)

    def is_newer(self, epoch: int) -> bool:
        """Return whether who leads in `epoch` may have a log that ends before the plan does.

        In the epoch of the plan, or one before it, records up to there were in the log, so whoever
        knows less was cut off. Without epochs nothing can be told apart.
        """
        return epoch > self._plan.end_epoch >= 0

    def hold_against(self, lead: Lead, position: int) -> None:
        """Look, before `position` is asked for, whether a leader's log goes on from what was read.

        DataLossError: what was planned is gone, and that is to fail. ReadError: what was read is.
        DriverError: the leader does not say.
        """
        if lead.epoch <= self._held_against:
            return
        cut = self._cut(lead, position, self.last_epoch, was_read=True)
        if cut is not None:
            raise self.parted(position, cut)
        planned = ((self._start, self._plan.start_epoch), (self._end, self._plan.end_epoch))
        for offset, epoch in planned:
            cut = self._cut(lead, offset, epoch)
            if cut is not None:
                self._access.cut(
                    self._partition,
                    f"an election cut the log: from offset {cut} on, up to {offset}, are other "
                    f"records now than leader epoch {epoch} had",
                )
                break
        self._held_against = lead.epoch

    def _cut(self, lead: Lead, offset: int, epoch: int, *, was_read: bool = False) -> int | None:
        """Return where a leader's log parts from one that was read up to `offset` in `epoch`.

        Of a batch that `was_read` the log has something in its epoch, or is another one. A leader
        may have told of an end and written nothing in its epoch.
        """
        if not 0 <= epoch < lead.epoch:
            return None
        end = self._client.epoch_end(*self._partition, lead, epoch)
        if end is None:
            return None
        is_another = end.offset < offset or (was_read and 0 <= end.epoch < epoch)
        return min(end.offset, offset) if is_another else None

    def read(self, batches: list[Batch]) -> None:
        """Take the epochs of batches that came. ReadError: they go back."""
        if {fields[2] for _, fields in batches} == {self.last_epoch}:
            return  # there may be a batch for each record
        for _, fields in batches:
            base_offset, epoch = fields[0], fields[2]
            if base_offset >= self._end:
                return
            if 0 <= epoch < self.last_epoch:
                raise self._mixed(
                    f"the batch at offset {base_offset} is of leader epoch {epoch}, behind one "
                    f"of epoch {self.last_epoch}"
                )
            self.last_epoch = max(epoch, self.last_epoch)

    def parted(self, position: int, cut: int) -> ReadError:
        """Return what is raised when records that were read are no longer in the log."""
        said = f"an election cut the log at offset {cut}, when it was read up to {position}"
        if self._access.fails_on_cut:
            self._access.cut(self._partition, said)
        return self._mixed(said)

    def _mixed(self, said: str) -> ReadError:
        return ReadError(f"{self._partition}: {said}: the range has to be read anew")
