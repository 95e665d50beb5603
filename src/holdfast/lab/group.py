"""A group in a run: its members, what is done to them, and the waits and checks about them.

What is hurt is written into the history before it is done, and the end of a trouble once it is
over: without that the judge would excuse nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import committed, described
from holdfast.clients.workload.verifiable_member import MORE
from holdfast.judge.groups.history import CalmBegan, CalmEnded, ConsumerFault, GroupExpected
from holdfast.judge.groups.verdict import Commits
from holdfast.lab.group_members import MODULE, Held, Member
from holdfast.lab.group_observer import GroupObserver
from holdfast.lab.parameters import LabError
from holdfast.lab.report.words import describe
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.steps.mishaps import asking
from holdfast.lab.steps.wants import names
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import AdminError

WAITED_FOR = frozenset({Commits.AFTER.flag, Commits.BEFORE.flag})  # commits that are answered
STUCK_MS = 15_000.0  # in calm; longer than any retry of a client
SETTLE_S = 60.0  # for members to share the partitions, on a slow machine
_SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "CONT": signal.SIGCONT}


class Group:
    """One group of a run. Its members read the run's topic."""

    def __init__(self, run: Run, name: str, protocol: str, **flags: object) -> None:
        """`flags`: what every member is told, beside what follows from the run's parameters."""
        parameters = run.parameters
        name = name_in(run, name)
        self.run = run
        self.name = name
        self.protocol = protocol
        self.members: list[Member] = []  # that live, those that stand still included
        self.all: list[Member] = []
        self.session_ms = parameters.group_session_ms
        self._flags: dict[str, object] = {
            "group": name,
            "protocol": protocol,
            "commits": "after" if parameters.commits is None else parameters.commits.flag,
            "session_ms": self.session_ms,
            "max_poll_ms": int(1.5 * self.session_ms),
            **flags,
        }
        self._observer = GroupObserver(
            run.cluster.bootstrap_servers, name, run.topic, run.partitions, run.history
        )
        run.record(
            GroupExpected,
            group=name,
            topics=(run.topic,),
            silence_ms=float(max(self.session_ms, int(str(self._flags["max_poll_ms"])))),
            looks_may_lag=parameters.early_watermark,
        )
        self._observer.start()
        run.relied_on.append(self._observer)
        run.end_with_clients(self._observer.stop)

    # -- members ---------------------------------------------------------------------------------

    def start(self, name: str, **flags: object) -> Member:
        """Start a member; `flags` change or add to what every one is told. Its name is new.

        `place` among them is where in the run's network it stands; without it, outside.
        """
        place = flags.pop("place", None)
        assert place is None or isinstance(place, str), place
        told = {**self._flags, "hold": self._hold_of(name), **flags}
        member = self.run.start_client(name, MODULE, told, Member, place)
        self.members.append(member)
        self.all.append(member)
        return member

    def start_several(self, count: int, prefix: str = "", **flags: object) -> list[Member]:
        """Start members, and wait until they share the partitions."""
        begun = [self.start(f"{prefix or self.name}-{n}", **flags) for n in range(1, count + 1)]
        self.wait_shared()
        return begun

    def leave(self, *members: Member) -> None:
        """Ask members to finish what they are at, commit, and leave; wait until they have ended."""
        for member in members:
            self.run.say(f"consumer {member.name} is asked to leave")
            self.members.remove(member)
            member.may_end()
            member.signal(signal.SIGTERM)
        for member in members:
            member.wait()

    def fault(self, action: str, *members: Member) -> float:
        """Send KILL, STOP or CONT to members, at one instant; return when, in monotonic ms."""
        if action != "CONT":
            for member in members:
                self.note_fault(action, member)
        at_ms = time.monotonic() * 1000
        for member in members:
            if action == "KILL":
                member.kill()
                self.members.remove(member)
            else:
                member.signal(_SIGNALS[action])
        if action == "CONT":
            for member in members:
                self.note_fault(action, member)
        return at_ms

    def note_fault(self, action: str, member: Member) -> None:
        """Write down what is about to be done to a member, or what is over."""
        event = self.run.record(ConsumerFault, consumer=member.name, action=action)
        self.run.say(describe(event))

    def hold(self, places: Mapping[Member, int], *, leaving: bool = False) -> dict[Member, Held]:
        """Let members stand still, each behind so many records of a batch; wait until all do.

        Their heartbeats go on: they look busy. `let_go` ends that. `leaving`: only in a batch of
        more records, so that some are left.
        """
        before = {member: len(member.told.held) for member in places}
        for member, done in places.items():
            self._hold_of(member.name).write_text(f"{done}{MORE if leaving else ''}")
        for member in places:
            self.run.wait(
                f"{member.name} to stand still in a batch",
                lambda member=member: len(member.told.held) > before[member],  # type: ignore[misc]
                WORK_S,
            )
        return {member: member.told.held[-1] for member in places}

    def let_go(self, *members: Member) -> None:
        for member in members:
            self._hold_of(member.name).unlink(missing_ok=True)

    def _hold_of(self, name: str) -> Path:
        return self.run.history.parent / f"{name}.hold"

    # -- waits -----------------------------------------------------------------------------------

    def wait_shared(self, members: Sequence[Member] | None = None) -> None:
        """Wait until these members (None: all) own all partitions, each one, and have begun.

        LabError, behind a failed check: they don't come to. So the group is broken, not the run.
        """
        those = self.members if members is None else members
        # A machine that takes its time to start processes breaks no promise.
        self.run.wait(
            f"the members of {self.name} to begin",
            lambda: all(member.history.exists() for member in those),
            SETTLE_S,
        )
        self._must(
            lambda: self.is_shared(those),
            "its members share the partitions",
            "each partition is one's, and everybody has its share",
            lambda: "; ".join(f"{m.name}: {names(sorted(m.told.begun))}" for m in those),
            SETTLE_S,
        )

    def _must(
        self,
        condition: Callable[[], bool],
        what: str,
        expected: str,
        seen: Callable[[], str],
        bound_s: float,
    ) -> None:
        """Wait for what a group has to come to. LabError, behind a failed check: it does not."""
        if self.run.soon(condition, bound_s):
            return
        told = f"{seen()}, after {bound_s:.0f} s"
        self.run.check(f"{self.name}: {what}", expected, told, kept=False, late=True)
        raise LabError(f"group {self.name} is stuck: {what}: {told}")

    def is_shared(self, members: Iterable[Member]) -> bool:
        """Whether these members own all partitions, each is one's, and everybody has its share."""
        owned = [set(member.told.begun) for member in members]
        wanted = list(self.run.partitions)
        is_fair = max(map(len, owned), default=0) - min(map(len, owned), default=0) <= 1
        return is_fair and sorted(p for each in owned for p in each) == wanted

    def owner(self, partition: int) -> Member | None:
        return next((each for each in self.members if partition in each.told.begun), None)

    def wait_processed(self, producer: Worker, bound_s: float = SETTLE_S) -> None:
        """Wait until all up to the last record acknowledged by now is processed by somebody.

        LabError, behind a failed check: it is not.
        """
        wanted = producer.tail.poll().ends

        def left() -> dict[int, int]:
            positions = self.positions()
            ends = {p: end - positions.get(p, 0) for p, end in wanted.items()}
            return {p: count for p, count in ends.items() if count > 0}

        self._must(
            lambda: not left(),
            "all that was acknowledged is processed",
            "nothing is left",
            lambda: ", ".join(f"{count:,} records of P{p} are left" for p, count in left().items()),
            bound_s,
        )

    def position(self, partition: int) -> int:
        """Behind the highest offset that any member has processed."""
        return self.positions().get(partition, 0)

    def positions(self) -> dict[int, int]:
        """Return the same of all partitions in which any was; each history is looked at once."""
        found: dict[int, int] = {}
        for each in self.all:
            for partition, position in each.told.positions.items():
                found[partition] = max(position, found.get(partition, 0))
        return found

    def committed(self) -> dict[int, int]:
        """Return what is committed, by partition. LabError: nobody says."""
        with asking(f"what {self.name} has committed can't be asked for"):
            found = committed(Coordinators(self.run.driver), [self.name])[self.name]
            if isinstance(found, AdminError):
                raise found
        return {p: each.offset for (_, p), each in found.items()}

    def expect_progress(self, when: str, bound_s: float = SETTLE_S) -> None:
        """Check that records of every partition are processed that are not by now."""
        before = self.positions()

        def silent() -> list[int]:
            now = self.positions()
            return [p for p in self.run.partitions if now.get(p, 0) <= before.get(p, 0)]

        self.run.soon(lambda: not silent(), bound_s)
        left = silent()
        seen = f"nothing of {names(left)} in {bound_s:.0f} s" if left else "every partition"
        name = f"{self.name}, {when}: goes on"
        self.run.check(name, "every partition", seen, kept=not left, late=True)

    @property
    def waits_for_commits(self) -> bool:
        """Whether its members commit by themselves, and are told what becomes of it."""
        return self._flags["commits"] in WAITED_FOR

    def commits(self) -> dict[Member, int]:
        """Return how many commits of each member that owns something were acknowledged."""
        return {each: each.told.commits for each in self.members if each.told.begun}

    def expect_commits(self, what: str, bound_s: float = SETTLE_S) -> bool:
        """Check that a commit of every member is taken that is not by now.

        Where none is, everything may be done again for ever, and nothing would be broken.
        """
        before = self.commits()
        kept = self.run.soon(lambda: not silent_since(before), bound_s)
        silent = ", ".join(silent_since(before))
        seen = f"none of {silent} in {bound_s:.0f} s" if silent else "of every member"
        name = f"{self.name}, {what}"
        return self.run.check(name, "a commit of every member", seen, kept=kept, late=True)

    def begin_calm(self, stuck_ms: float = STUCK_MS) -> None:
        """Leave the group in peace: from here on nothing may wait for longer than so."""
        self.run.record(CalmBegan, group=self.name, stuck_ms=stuck_ms)

    def wait_looked(self) -> None:
        """Wait until all that is committed by now was looked at.

        A look that is never answered would never see a committed offset go back. LabError, behind a
        failed check: nobody is told.
        """
        since_ms = time.monotonic() * 1000
        self._must(
            lambda: self._observer.looked_ms > since_ms,
            "who is no member is told what it has committed",
            "an answer",
            lambda: "none",
            SETTLE_S,
        )

    def end_calm(self) -> None:
        self.run.record(CalmEnded, group=self.name)

    # -- the coordinator -------------------------------------------------------------------------

    def coordinator(self, via: Driver | None = None) -> int:
        """Return who coordinates the group, asked `via` these brokers. LabError: nobody says."""
        coordinators = Coordinators(via or self.run.driver)
        with asking(f"the coordinator of {self.name} can't be found"):
            described(coordinators, [self.name])
            try:
                return coordinators.of(self.name).node
            except KeyError:
                raise LabError(f"group {self.name} has no coordinator") from None


def silent_since(before: Mapping[Member, int]) -> list[str]:
    """Return the members of which no commit was acknowledged since."""
    return [member.name for member, count in before.items() if member.told.commits <= count]


def name_in(run: Run, name: str) -> str:
    """Return what a group of a run is called, which its steps call so. Twice is as once."""
    return name if name.startswith(run.group_prefix) else run.group_prefix + name
