"""Voters that come and go (KIP-853): which set counts in whose log, and the hand that changes it.

Owns the oracle's own reading of the records that name voters. A set counts from the moment at which
it is appended, committed or not, so that each replica may have one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from holdfast.testing.simulated_client import AnswerError, ClusterClient, RetryError, refusal
from holdfast.testing.simulated_cluster import CONTROLLER_PORT, SimulatedCluster
from holdfast.testing.simulation.chain import Entry, Name
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.wire.administration import add_voter, remove_voter
from holdfast.wire.batch import ControlType, batches, read_control_type, read_records
from holdfast.wire.codec import decode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.control import VotersRecord


class Voters:
    """The sets of voters that the metadata log has named."""

    def __init__(self, beginning: Callable[[], Sequence[int]]) -> None:
        """`beginning`: who the voters are before the log names any."""
        self._beginning = beginning
        self._sets: dict[Name, tuple[int, ...]] = {}
        self._committed: tuple[int, ...] | None = None

    def saw(self, entry: Entry, batch: bytes) -> None:
        """Take in a batch that somebody has appended."""
        for at, header in batches(memoryview(batch)):
            for record in read_records(memoryview(batch)[at:]) if header.is_control else ():
                if read_control_type(record.key) == ControlType.KRAFT_VOTERS:
                    named = decode(VotersRecord, 0, record.value or b"")
                    self._sets[entry.name] = tuple(each.voter_id for each in named.voters)

    def commit(self, entry: Entry) -> bool:
        """True: with this batch another set is committed."""
        found = self._sets.get(entry.name)
        changed = found is not None and found != self._committed
        self._committed = found or self._committed
        return changed

    def counting(self, replica: Replica) -> Sequence[int]:
        """Whose copies count for what this replica commits."""
        entries = reversed(replica.chain.entries) if self._sets else ()
        found = (self._sets[entry.name] for entry in entries if entry.name in self._sets)
        return next(found, None) or self._committed or self._beginning()


class Roll:
    """Asks for voters, as an operator does."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._directories: dict[int, bytes] = {}  # controller -> the id of its disk

    def voters(self) -> tuple[int, ...]:
        """The voters as the active controller has them; none when nobody is active."""
        active = self._cluster.active_controller()
        quorum = self._cluster.quorum_of(active) if active is not None else None
        return quorum.voters.ids if quorum is not None else ()

    async def grow(self) -> None:
        """Make every controller a voter, one after another."""
        client = self._cluster.client("operator")
        for node in self._cluster.controllers[1:]:
            await self._cluster.until(
                lambda node=node: self._directory(node) is not None,  # type: ignore[misc]
                f"controller {node} runs",
            )
            await client.until(partial(self._join, client, node))
        client.close()

    async def _join(self, client: ClusterClient, node: int) -> None:
        try:
            await self.change(client, node, joins=True)
        except AnswerError as error:
            if error.code is not ErrorCode.DUPLICATE_VOTER:
                raise RetryError(f"controller {node} becomes a voter", error.code) from error

    async def change(self, client: ClusterClient, node: int, *, joins: bool) -> None:
        """Ask once that a controller be a voter, or none any more. OSError: there is no answer."""
        directory = self._directory(node)
        if directory is None:
            raise refusal("change of voters", ErrorCode.VOTER_NOT_FOUND)
        listener = ("CONTROLLER", self._cluster.machine(node).name, CONTROLLER_PORT)
        asked = (
            add_voter(None, node, directory, [listener], timeout_ms=3000)
            if joins
            else remove_voter(None, node, directory)
        )
        await client.perform(asked, "change of voters")

    def _directory(self, node: int) -> bytes | None:
        quorum = self._cluster.quorum_of(node)
        if quorum is not None:
            self._directories[node] = quorum.key.directory_id
        return self._directories.get(node)
