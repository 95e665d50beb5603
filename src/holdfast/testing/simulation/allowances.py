"""What Kafka's model allows to be lost, and why. The only place that forgives anything.

A loss is a set of batches that were below a high watermark and are not in the log of a new leader.
It is allowed in three cases only, each bound to one election; all else that is missing, changed or
taken back is a broken promise. What only acks=0 or acks=1 acknowledged
was promised to nobody, so that its loss needs no allowance; it counts as committed, and as
promised to whoever could read it, as soon as a high watermark has passed it.

Rules: losses.md#acknowledged-is-not-synced, losses.md#the-last-replica-standing,
elections.md#unclean-election.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from holdfast.testing.simulation.chain import Entry, Name


class Reason(StrEnum):
    """Why a committed batch may be gone."""

    # Somebody asked for availability instead: a replica that is not known to hold everything leads.
    # What it lacks is lost, and what it wrote by itself takes the place.
    UNCLEAN = "unclean election"
    # Acknowledged means replicated, not synced. The last member of the ISR lost power or its disk,
    # and without eligible leader replicas it is still the only one that may lead (the "last replica
    # standing"). It may lack what it had and lost by that, and nothing else. This covers losing
    # power everywhere at once, too: the members leave the ISR one by one.
    LAST_REPLICA = "the last replica standing lost power"
    # With eligible leader replicas that one is struck off. Only when all of ISR and ELR have lost
    # power may the last known leader come back, with the same bound.
    LAST_KNOWN_LEADER = "all eligible replicas lost power; the last known leader came back"


@dataclass(frozen=True, slots=True)
class Forgiveness:
    """What epochs from `since` until `epoch` wrote from `offset` until `end` may be lost."""

    epoch: int
    offset: int
    reason: Reason
    end: float = inf
    since: int = 0

    def covers(self, epoch: int, offset: int) -> bool:
        """Whether a record that `epoch` wrote at `offset` may be gone. None of unknown epochs."""
        return self.since <= epoch < self.epoch and self.offset <= offset < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """How one leader epoch of a partition began, as committed metadata say."""

    leader: int
    isr_before: tuple[int, ...]
    elr_before: tuple[int, ...]
    elr_after: tuple[int, ...]  # as the same record leaves it
    last_known: tuple[int, ...]  # before, and as the same record says
    elr_on: bool
    unclean_allowed: bool  # by a configuration in force, or because an operator asked for it
    recovering: bool = False  # an unclean one went before, and whom it chose has never led

    @property
    def is_clean(self) -> bool:
        """Whether the new leader is one that is known to hold all that is committed."""
        return self.leader in self.isr_before or self.leader in self.elr_before

    @property
    def is_legal(self) -> bool:
        """Whether the rules let this one lead at all."""
        return self.is_clean or self.unclean_allowed or self.is_last_known

    @property
    def is_last_known(self) -> bool:
        """Whether nobody was left that has everything, and who led last came back (4.9)."""
        return self.elr_on and not self.elr_after and self.leader in self.last_known


def allowed(
    election: Election, lacking: Iterable[Entry], lost: Mapping[Name, str]
) -> Reason | None:
    """Say why a new leader may lack these committed batches; None: it may not.

    `lost`: what this replica had, and lost by a power cut or with its disk.
    """
    lost_them = all(entry.name in lost for entry in lacking)
    if election.is_clean:
        alone = election.isr_before == (election.leader,) and not election.elr_on
        return Reason.LAST_REPLICA if alone and lost_them else None
    if election.unclean_allowed:
        return Reason.UNCLEAN
    if election.is_last_known and lost_them:
        return Reason.LAST_KNOWN_LEADER
    return None


@dataclass(slots=True)
class Allowances:
    """What has been forgiven in one partition."""

    given: list[Forgiveness] = field(default_factory=list)
    _begun: dict[int, int] = field(default_factory=dict)  # by epoch: its leader's log end then
    _unclean: dict[int, int] = field(default_factory=dict)  # by epoch: the last one in its log

    def began(self, epoch: int, log_end: int) -> None:
        """A node begins to lead, maybe late, when later epochs have begun."""
        log_end = self._begun.setdefault(epoch, log_end)
        for later, latest in self._unclean.items():
            self._unknown_to(later, latest, epoch, log_end)

    def began_uncleanly(self, epoch: int, latest: int) -> None:
        """A leader was chosen by an unclean election, and `latest` is the last epoch in its log.

        What epochs behind that one wrote is none of its records, wherever those began: one that was
        chosen with nothing began at 0, and may not know yet that it leads no longer.
        """
        self._unclean[epoch] = latest
        for earlier, log_end in self._begun.items():
            self._unknown_to(epoch, latest, earlier, log_end)

    def _unknown_to(self, epoch: int, latest: int, earlier: int, log_end: int) -> None:
        if latest < earlier < epoch and not self.covers(earlier, log_end):
            self.given.append(Forgiveness(epoch, log_end, Reason.UNCLEAN, since=earlier))

    def covers(self, epoch: int, offset: int, committed_in: int = -1) -> bool:
        """Whether a record that `epoch` wrote at `offset` may be gone.

        `committed_in`: in whose epoch it was committed. What a leader has committed was not lost
        by its own election, nor by those before it.
        """
        return any(each.covers(epoch, offset) for each in self.given if committed_in < each.epoch)

    def cover_any_of(self, epochs: Iterable[int]) -> bool:
        """Whether anything that one of these epochs wrote may be gone, wherever it stood."""
        return any(each.since <= epoch < each.epoch for epoch in epochs for each in self.given)

    def reaches(self, offset: int) -> bool:
        """Whether anything that some epoch wrote at `offset` may be gone."""
        return any(each.offset <= offset < each.end for each in self.given)
