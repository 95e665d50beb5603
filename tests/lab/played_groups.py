"""Groups of a run that is played: their members share partitions, are silent, and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from tests.lab.played import Played
from tests.lab.played_cluster import FAR

from holdfast.lab.group_members import Held

BATCH, RESULTS = 10, 3
EMPTY_MS = 3000.0  # that an empty group waits before it begins
OUT = "UNKNOWN_MEMBER_ID"
SILENT = frozenset({"STOP", "CUT"})


@dataclass(slots=True)
class Told:
    """What a member's history says."""

    begun: dict[int, int] = field(default_factory=dict)
    begun_ms: dict[int, float] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    processed: Counter[int] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    assignments: int = 0
    revocations: int = 0
    epoch: int = 1
    commits: int = 0
    results_refused: int = 0

    def poll(self) -> None: ...

    @property
    def in_vain(self) -> Counter[str]:
        return +self.refusals


@dataclass(eq=False, slots=True)
class Member:
    name: str
    history: Path
    flags: Mapping[str, object]
    told: Told = field(default_factory=Told)


class PlayedGroup:
    """What stands in for `Group`."""

    def __init__(self, played: Any, name: str, protocol: str, **flags: object) -> None:
        self.run = played
        self._played: Played = played
        self.name = name
        self.protocol = protocol
        self.flags = flags
        self.members: list[Member] = []
        self.all: list[Member] = []
        self.session_ms = played.parameters.group_session_ms
        self.waits_for_commits = True
        self._silent: dict[Member, str] = {}
        self._out: set[Member] = set()
        self._kept: dict[object, dict[int, int]] = {}  # by an instance that is away
        shown = {k: v.name if isinstance(v, Path) else v for k, v in flags.items()}
        told = ", ".join(f"{key}={value}" for key, value in shown.items())
        self._played.do(f"group {name}: {told}")

    # -- members ---------------------------------------------------------------------------------

    def start(self, name: str, **flags: object) -> Member:
        told = {**self.flags, **flags}
        known = {key: value for key, value in flags.items() if key != "bootstrap_server"}
        self._played.do(" ".join([f"member {name}", *map(str, known.items())]))
        member = Member(name, Path(name), told)
        self.members.append(member)
        self.all.append(member)
        if "work_ms" in flags:
            self._work_slowly(member)
        kept = self._kept.pop(flags.get("instance"), None)
        if kept is not None:
            member.told.begun = dict(kept)
            if self._played.lie.is_restless:
                self._give(self.members[0], 0)
        return member

    def _work_slowly(self, member: Member) -> None:
        """Let a member be thrown out unless it polls while it works."""
        lie, told = self._played.lie, member.told
        if "pause" in member.flags:
            told.commits = 0 if lie.is_hoarding else 1
            told.revocations = int(lie.is_restless)
            told.refusals += Counter({OUT: int(lie.is_leaky)})
            return
        told.commits = int(lie.is_leaky)
        error = "NOT_COORDINATOR" if lie.is_restless else OUT
        told.refusals += Counter({error: 0 if lie.is_hoarding else 1})

    def start_several(self, count: int, prefix: str = "", **flags: object) -> list[Member]:
        begun = [self.start(f"{prefix or self.name}-{n}", **flags) for n in range(1, count + 1)]
        self.wait_shared()
        return begun

    def leave(self, *members: Member) -> None:
        for member in list(members):
            self._played.do(f"{member.name} leaves")
            self.members.remove(member)
            if "instance" in member.flags:
                self._kept[member.flags["instance"]] = dict(member.told.begun)
            member.told.begun = {}

    def fault(self, action: str, *members: Member) -> float:
        for member in list(members):
            self.note_fault(action, member)
            if action == "KILL":
                self.members.remove(member)
        return self._played.now_ms

    def note_fault(self, action: str, member: Member) -> None:
        self._played.do(f"{action} {member.name}")
        if action in SILENT:
            self._silent[member] = action
        elif self._silent.pop(member, None) is not None:
            member.told.processed[0] += BATCH
            member.told.assignments += self._played.lie.is_restless
            member.told.results_refused += not self._played.lie.is_leaky
            if member in self._out:
                self._answer_late(member)

    def _answer_late(self, member: Member) -> None:
        """Let who was out commit: it is refused."""
        self._out.discard(member)
        member.told.begun = {}
        if self._played.lie.is_leaky:
            member.told.commits += 1
        else:
            member.told.refusals[OUT] += 1

    def hold(self, places: Mapping[Member, int], *, leaving: bool = False) -> dict[Member, Held]:
        words = ", ".join(f"{member.name} behind {done}" for member, done in places.items())
        self._played.do(f"hold {words}{', some are left' if leaving else ''}")
        return {member: Held(done, BATCH) for member, done in places.items()}

    def let_go(self, *members: Member) -> None:
        self._played.do(f"let go {', '.join(member.name for member in members)}")

    # -- waits and checks ------------------------------------------------------------------------

    def wait_shared(self, members: Sequence[Member] | None = None) -> None:
        """Share the partitions out: who has too much gives it up, who is silent loses it."""
        those = self.members if members is None else list(members)
        self._played.do(f"shared by {', '.join(member.name for member in those)}")
        if not self._played.lie.is_hasty:
            if any(member not in those for member in self.members):
                self._played.now_ms += self.session_ms
            if not any(member.told.begun for member in those):
                self._played.now_ms += EMPTY_MS
        self._out |= {member for member in self.members if member not in those}
        self._share(those)

    def _share(self, those: Sequence[Member]) -> None:
        count = len(self._played.partitions)
        most = -(-count // max(len(those), 1))
        owned = {p for member in those for p in member.told.begun}
        if len(owned) == count and all(member.told.begun for member in those):
            return
        eager = self.flags.get("assignor") == "range"
        free = [p for p in self._played.partitions if p not in owned]
        for member in those:
            told = member.told
            while len(told.begun) > most or (told.begun and len(those) > count - len(free) > most):
                free.append(told.begun.popitem()[0])
                told.revocations += 1
            if eager and member.told.begun:
                told.revocations += len(told.begun)
                told.epoch += 1
        for partition in free:
            self._give(min(those, key=lambda each: len(each.told.begun)), partition)

    def _give(self, member: Member, partition: int) -> None:
        reset = member.flags.get("reset")
        begins = FAR if (reset == "latest") != self._played.lie.is_forgetful else 0
        member.told.begun[partition] = begins if reset else 0
        member.told.begun_ms[partition] = self._played.now_ms
        member.told.assignments += 1

    def wait_processed(self, producer: Any, _bound_s: float = 0.0) -> None:
        self._played.do(f"{self.name} has processed all of {producer.name}")

    def wait_looked(self) -> None:
        self._played.do(f"{self.name} was looked at")

    def begin_calm(self, _stuck_ms: float = 0.0) -> None:
        self._played.do(f"{self.name} is left in peace")

    def end_calm(self) -> None:
        self._played.do(f"{self.name} is in peace no more")

    def expect_progress(self, when: str, _bound_s: float = 0.0) -> None:
        kept = not (self._played.lie.is_deaf and self._played.is_lying)
        self._played.check(f"{self.name}, {when}: goes on", "every partition", "", kept=kept)

    def expect_commits(self, what: str, _bound_s: float = 0.0) -> bool:
        kept = not (self._played.lie.is_deaf and self._played.is_lying)
        for member in self.members:
            member.told.commits += kept
        return self._played.check(f"{self.name}, {what}", "of every member", "", kept=kept)

    def commits(self) -> dict[Member, int]:
        return {each: each.told.commits - 1 for each in self.members}

    def committed(self) -> dict[int, int]:
        return {} if self._played.lie.is_hoarding else dict.fromkeys(self._played.partitions, BATCH)

    def position(self, _partition: int) -> int:
        return RESULTS

    def positions(self) -> dict[int, int]:
        return dict.fromkeys(self._played.partitions, RESULTS)

    def coordinator(self, _via: object = None) -> int:
        """Return who coordinates: the first broker that is there, and answers."""
        up = sorted(self._played.view.brokers)
        return 0 if self._played.lie.is_humble else up[0]


class PlayedSink:
    """What stands in for the table that members put their results into."""

    def __init__(self, played: Played) -> None:
        self._played = played

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def switch(self, name: str) -> float:
        self._played.do(f"the output is {name}'s")
        return self._played.now_ms


def rows(played: Played) -> list[Any]:
    """Return the results in such a table: one is missing, or there twice, where somebody lies."""
    found = [
        SimpleNamespace(partition=p, offset=offset, at_ms=played.now_ms)
        for p in played.partitions
        for offset in range(RESULTS)
    ]
    if played.lie.is_hoarding:
        found.pop()
    return found + found[:1] if played.lie.is_leaky else found
