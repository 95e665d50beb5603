"""A group in a run: its members, what is done to them, and the waits and checks about them.

What is hurt is written into the history before it is done, and the end of a trouble once it is
over: without that the judge would excuse nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import committed, described
from holdfast.judge.groups.history import CalmBegan, CalmEnded, ConsumerFault, GroupExpected
from holdfast.judge.history import Acknowledged
from holdfast.lab.group_members import MODULE, Held, Member
from holdfast.lab.group_observer import GroupObserver
from holdfast.lab.parameters import LabError
from holdfast.lab.report.words import describe
from holdfast.lab.run import WORK_S, Run, asking
from holdfast.lab.steps.wants import names
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import AdminError

STUCK_MS = 15_000.0  # in calm; longer than any retry of a client
SETTLE_S = 60.0  # for members to share the partitions, on a slow machine
_SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "CONT": signal.SIGCONT}


class Group:
    """One group of a run. Its members read the run's topic."""

    def __init__(self, run: Run, name: str, protocol: str, **flags: object) -> None:
        """`flags`: what every member is told, beside what follows from the run's parameters."""
        parameters = run.parameters
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
        )
        self._observer.start()
        run.end_with_clients(self._observer.stop)

    # -- members ---------------------------------------------------------------------------------

    def start(self, name: str, **flags: object) -> Member:
        """Start a member; `flags` change or add to what every one is told. Its name is new."""
        told = {**self._flags, "hold": self._hold_of(name), **flags}
        member = self.run.start_client(name, MODULE, told, Member)
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

    def hold(self, places: Mapping[Member, int]) -> dict[Member, Held]:
        """Let members stand still, each behind so many records of a batch; wait until all do.

        Their heartbeats go on: they look busy. `let_go` ends that.
        """
        before = {member: len(member.told.held) for member in places}
        for member, done in places.items():
            self._hold_of(member.name).write_text(str(done))
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
        """Wait until these members (None: all) own all partitions, each one, and have begun."""
        those = self.members if members is None else members
        self.run.wait(
            f"group {self.name} to share its partitions", lambda: self.is_shared(those), SETTLE_S
        )

    def is_shared(self, members: Iterable[Member]) -> bool:
        """Whether these members own all partitions, each is one's, and everybody has its share."""
        owned = [set(member.told.begun) for member in members]
        wanted = list(self.run.partitions)
        is_fair = max(map(len, owned), default=0) - min(map(len, owned), default=0) <= 1
        return is_fair and sorted(p for each in owned for p in each) == wanted

    def owner(self, partition: int) -> Member | None:
        return next((each for each in self.members if partition in each.told.begun), None)

    def wait_processed(self, producer: Worker, bound_s: float = SETTLE_S) -> None:
        """Wait until all that was acknowledged by now is processed by somebody."""
        wanted = {p: producer.tail.poll().count(Acknowledged, p) for p in self.run.partitions}
        self.run.wait(
            f"group {self.name} to process all",
            lambda: all(self.position(p) >= end for p, end in wanted.items()),
            bound_s,
        )

    def position(self, partition: int) -> int:
        """Behind the highest offset that any member has processed."""
        return max((each.told.positions.get(partition, 0) for each in self.all), default=0)

    def committed(self) -> dict[int, int]:
        """Return what is committed, by partition. LabError: nobody says."""
        with asking(f"what {self.name} has committed can't be asked for"):
            found = committed(Coordinators(self.run.driver), [self.name])[self.name]
            if isinstance(found, AdminError):
                raise found
        return {p: each.offset for (_, p), each in found.items()}

    def expect_progress(self, when: str, bound_s: float = SETTLE_S) -> None:
        """Check that records of every partition are processed that are not by now."""
        before = {p: self.position(p) for p in self.run.partitions}

        def silent() -> list[int]:
            return [p for p, position in before.items() if self.position(p) <= position]

        self.run.soon(lambda: not silent(), bound_s)
        left = silent()
        seen = f"nothing of {names(left)} in {bound_s:.0f} s" if left else "every partition"
        self.run.check(f"{self.name}, {when}: goes on", "every partition", seen, kept=not left)

    def begin_calm(self, stuck_ms: float = STUCK_MS) -> None:
        """Leave the group in peace: from here on nothing may wait for longer than so."""
        self.run.record(CalmBegan, group=self.name, stuck_ms=stuck_ms)

    def end_calm(self) -> None:
        self.run.record(CalmEnded, group=self.name)

    # -- the coordinator -------------------------------------------------------------------------

    def coordinator(self) -> int:
        """Return who coordinates the group. LabError: nobody says."""
        coordinators = Coordinators(self.run.driver)
        with asking(f"the coordinator of {self.name} can't be found"):
            described(coordinators, [self.name])
            try:
                return coordinators.of(self.name).node
            except KeyError:
                raise LabError(f"group {self.name} has no coordinator") from None
