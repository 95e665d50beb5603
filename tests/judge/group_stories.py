"""Hand-made histories of a group: for each rule what breaks it, and what excuses that."""

# ruff: noqa: E501 - one row, one line
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.judge.groups import history as events
from holdfast.judge.groups.checker import judge_groups
from holdfast.judge.groups.verdict import GroupAnomaly, GroupJudgement
from holdfast.judge.history import (
    Acknowledged,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    Fault,
    ReadEnd,
    Retention,
)

SILENCE_MS = 100.0
STUCK_MS = 50.0


class GroupStory:
    """One thing follows the other, a millisecond apart; members "a", "b" of processes "wa", "wb"."""

    def __init__(self, records: int = 6, expected: bool = True) -> None:
        self.events: list[Event] = []
        self.now_ms = 1000.0
        if expected:
            self.add(events.GroupExpected, "lab", topics=("foo",), silence_ms=SILENCE_MS)
        self.ack(*range(records))

    def add(self, kind: type[Event], process: str, **values: Any) -> GroupStory:
        self.now_ms += 1.0
        if issubclass(kind, events.GroupEvent):
            values["group"] = "g"
        if issubclass(kind, events.GroupPartitionEvent | Acknowledged | ReadEnd | Delivered
                      | Retention | DeleteRecords | DeletionRefused):  # fmt: skip
            values |= {"topic": "foo", "partition": 0}
        self.events.append(
            kind(at_ms=self.now_ms, wall_ms=int(self.now_ms), process=process, **values)
        )
        return self

    def pause(self, ms: float) -> GroupStory:
        self.now_ms += ms
        return self

    def ack(self, *offsets: int) -> GroupStory:
        for offset in offsets:
            self.add(Acknowledged, "p", id=f"p:{offset}", offset=offset)
        return self

    def join(self, member: str, epoch: int = 1) -> GroupStory:
        return self.add(events.Joined, f"w{member}", member=member, epoch=epoch)

    def own(
        self, member: str, epoch: int = 1, committed: int | None = None, *, began: float = 0.0,
        offset: int | None = None, reset: str = "earliest", instance: str | None = None,
    ) -> GroupStory:  # fmt: skip
        self.give(member, epoch, instance=instance)
        return self.start(member, committed, offset=offset, reset=reset, began=began)

    def give(self, member: str, epoch: int = 1, instance: str | None = None) -> GroupStory:
        return self.add(
            events.Assigned, f"w{member}", member=member, epoch=epoch, instance=instance
        )

    def start(
        self, member: str, committed: int | None = None, *, offset: int | None = None,
        reset: str = "earliest", began: float = 0.0,
    ) -> GroupStory:  # fmt: skip
        at = (committed or 0) if offset is None else offset
        return self.add(events.Started, f"w{member}", member=member, committed=committed, offset=at,
                        reset=reset, begin_ms=self.now_ms + 1.0 - began)  # fmt: skip

    def do(self, member: str, *offsets: int, took: float = 0.0) -> GroupStory:
        for offset in offsets:
            begin_ms = self.now_ms + 1.0 - took
            self.add(
                events.Processed, f"w{member}", member=member, offset=offset, begin_ms=begin_ms
            )
        return self

    def ask(self, member: str, offset: int | None, name: str = "", epoch: int = -1) -> GroupStory:
        return self.add(events.CommitAsked, f"w{member}", member=member, offset=offset,
                        id=name or f"{member}{offset}", epoch=epoch)  # fmt: skip

    def yes(self, name: str) -> GroupStory:
        return self.add(events.CommitAcknowledged, "w", id=name)

    def no(self, name: str, error: str = "UNKNOWN_MEMBER_ID") -> GroupStory:
        return self.add(events.CommitRefused, "w", id=name, error=error)

    def doubt(self, name: str) -> GroupStory:
        return self.add(events.CommitUnknown, "w", id=name, error="_TIMED_OUT")

    def commit(self, member: str, offset: int | None, epoch: int = -1) -> GroupStory:
        self.numbers = getattr(self, "numbers", 0) + 1
        name = f"n{self.numbers}"
        return self.ask(member, offset, name, epoch).yes(name)

    def seen(self, offset: int | None, began: float = 0.0) -> GroupStory:
        begin_ms = self.now_ms + 1.0 - began
        return self.add(events.CommittedSeen, "observer", offset=offset, begin_ms=begin_ms)

    def revoke(self, member: str, *, lost: bool = False) -> GroupStory:
        return self.add(events.Revoked, f"w{member}", member=member, lost=lost)

    def leave(self, member: str) -> GroupStory:
        return self.add(events.Left, f"w{member}", member=member)

    def fault(self, member: str, action: str) -> GroupStory:
        return self.add(events.ConsumerFault, "lab", consumer=f"w{member}", action=action)

    def node_fault(self) -> GroupStory:
        return self.add(Fault, "lab", action="KILL", node=0)

    def calm(self) -> GroupStory:
        return self.add(events.CalmBegan, "lab", stuck_ms=STUCK_MS)

    def uncalm(self) -> GroupStory:
        return self.add(events.CalmEnded, "lab")

    def read(self, begin: int, end: int, *lacking: int) -> GroupStory:
        for offset in range(begin, end):
            if offset not in lacking:
                self.add(Delivered, "final", offset=offset, digest="d")
        return self.add(ReadEnd, "final", begin=begin, end=end)

    def retain(self, ms: int | None) -> GroupStory:
        return self.add(Retention, "lab", retention_ms=ms)

    def delete(self, offset: int) -> GroupStory:
        return self.add(DeleteRecords, "lab", offset=offset)

    def deny(self, offset: int) -> GroupStory:
        return self.add(DeletionRefused, "lab", offset=offset)

    def judged(self) -> GroupJudgement:
        return judge_groups(sorted(self.events, key=lambda event: event.at_ms))


def said(judgement: GroupJudgement) -> Counter[str]:
    """Return what was found, and how much was excused."""
    found: Counter[str] = Counter({each: judgement.count(each) for each in GroupAnomaly})
    counts = judgement.counts
    found["repeated"] = counts.repeated
    found["operator"] = counts.skipped_by_operator
    found["expired"] = counts.expired
    return +found


def S(records: int = 6, expected: bool = True) -> GroupStory:  # noqa: N802 - the rows below
    return GroupStory(records, expected)


def two(committed: int = 2, done: int = 4) -> GroupStory:
    """Member a has processed so many, and has committed some."""
    return S().join("a").join("b").own("a").do("a", *range(done)).commit("a", committed)


def lag(story: GroupStory) -> GroupStory:
    """What is told to be committed may be older for a while, as of Apache Kafka."""
    story.events[0] = msgspec.structs.replace(story.events[0], looks_may_lag=True)
    return story


def stolen() -> GroupStory:
    """Member a was cut off, and b has its partition."""
    return two(2, 2).fault("a", "CUT").own("b", 2, 2).do("b", 2, 3)


SKIPPED, LOST = GroupAnomaly.SKIPPED.value, GroupAnomaly.COMMIT_LOST.value
BACK, INVENTED = GroupAnomaly.MOVED_BACK.value, GroupAnomaly.INVENTED.value
TWICE, OWNERS = GroupAnomaly.PROCESSED_TWICE.value, GroupAnomaly.TWO_OWNERS.value
STRAY, STUCK = GroupAnomaly.STRAY_COMMIT.value, GroupAnomaly.STUCK.value

ROWS: list[tuple[str, Callable[[], GroupStory], dict[str, int]]] = [
    ("all of it", lambda: two(6, 6), {}),
    ("a released owner, repeats", lambda: two().revoke("a").own("b", 2, 2).do("b", 2, 3, 4), {"repeated": 2}),
    ("the same one again", lambda: two().revoke("a").own("a", 2, 2).do("a", 2), {"repeated": 1}),
    # -- commits
    ("begins before a commit", lambda: two().revoke("a").own("b", 2).do("b", 0, 1, 2), {LOST: 1, TWICE: 2, "repeated": 1}),
    ("an unknown commit counts", lambda: two().ask("a", 4).doubt("a4").revoke("a").own("b", 2, 4), {}),
    ("an unknown commit may be none", lambda: two().ask("a", 4).doubt("a4").revoke("a").own("b", 2, 2), {}),
    ("an unknown one of long ago", lambda: two().ask("a", 3).doubt("a3").revoke("a").own("b", 2, 2).do("b", 2, 3).commit("b", 4).revoke("b").own("a", 3, 3), {LOST: 1, "repeated": 2}),
    ("its owner's own, unknown, moves it back", lambda: two(2, 4).ask("a", 1).doubt("a1").commit("a", 4).revoke("a").own("b", 2, 1), {}),
    ("its owner's own, acknowledged, moves it back", lambda: two(4, 4).commit("a", 1).revoke("a").own("b", 2, 1).do("b", 1), {"repeated": 1}),
    ("what stood before it moved back", lambda: two(4, 4).commit("a", 1).revoke("a").own("b", 2, 4), {INVENTED: 1}),
    ("no answer yet, then refused", lambda: two().ask("a", 4).revoke("a").own("b", 2, 4).no("a4"), {INVENTED: 1}),
    ("no answer yet, then acknowledged", lambda: two().ask("a", 4).revoke("a").own("b", 2, 4).yes("a4"), {}),
    ("refused, and another commit says the same", lambda: two().ask("a", 4, "x").ask("a", 4).revoke("a").own("b", 2, 4).no("a4"), {}),
    ("refused", lambda: two().ask("a", 4).no("a4", "REBALANCE_IN_PROGRESS").revoke("a").own("b", 2, 4), {INVENTED: 1}),
    ("acknowledged late, and not seen", lambda: two().ask("a", 4).revoke("a").own("b", 2, 2).yes("a4"), {LOST: 1}),
    ("acknowledged late, and so is the next", lambda: two().ask("a", 3).ask("a", 4).revoke("a").own("b", 2, 4).yes("a3").yes("a4"), {}),
    ("two at once, either may be the last", lambda: two().ask("a", 3).ask("a", 4).revoke("a").own("b", 2, 3).yes("a3").yes("a4"), {}),
    ("nobody's", lambda: two().revoke("a").own("b", 2, 3), {INVENTED: 1}),
    ("nothing is committed, and was", lambda: two(1, 1).revoke("a").own("b", 2, None), {LOST: 1}),
    ("an operator moves it back", lambda: two().revoke("a").commit("", 0).own("b", 2, 0).do("b", 0), {"repeated": 1}),
    ("an operator removes it", lambda: two().revoke("a").commit("", None).own("b", 2, None).do("b", 0), {"repeated": 1}),
    ("an operator moves it on", lambda: two(4, 4).revoke("a").commit("", 6).own("b", 2, 6).ack(6).do("b", 6), {"operator": 2}),
    ("a member moves it on", lambda: two(4, 4).commit("a", 6).revoke("a").own("b", 2, 6).ack(6).do("b", 6), {SKIPPED: 2}),
    ("shown as it is", lambda: two().seen(2), {}),
    ("shown as it was before any", lambda: two().seen(None), {BACK: 1}),
    ("shown as it was when it was asked", lambda: two(2, 4).commit("a", 4).seen(2, began=2.5), {}),
    ("shown an older one", lambda: two(2, 4).commit("a", 4).seen(2, began=0.5), {BACK: 1}),
    ("shown one of nobody's", lambda: two().seen(9), {INVENTED: 1}),
    ("shown an older one for a while", lambda: lag(two(2, 4).commit("a", 4).seen(2).seen(2).seen(4)), {}),
    ("shown an older one to the end", lambda: lag(two(2, 4).commit("a", 4).seen(4).seen(2).seen(2)), {BACK: 1}),
    ("shown an older one, and then one of nobody's", lambda: lag(two(2, 4).commit("a", 4).seen(2).seen(9)), {INVENTED: 1}),
    ("shown an older one for too long", lambda: lag(two(2, 4).commit("a", 4).seen(2).pause(10_001).seen(2).seen(2).seen(4)), {BACK: 2}),
    ("shown an older one twice, for a while", lambda: lag(two(2, 4).commit("a", 4).seen(2).seen(4).pause(10_001).seen(2).seen(4)), {}),
    ("an owner is shown an older one", lambda: lag(two(2, 4).commit("a", 4).revoke("a").own("b", 2, 2).seen(4)), {LOST: 1}),
    ("an older one is taken, however looks lag", lambda: lag(stolen().commit("b", 4).commit("a", 2).seen(2)), {STRAY: 1, BACK: 1}),
    ("a stray one is taken", lambda: stolen().commit("b", 4).commit("a", 2), {STRAY: 1, BACK: 1}),
    ("a stray one that is not lower", lambda: stolen().commit("a", 2), {STRAY: 1}),
    ("a stray one stands from then on", lambda: stolen().commit("a", 3).revoke("b").own("c", 3, 3), {STRAY: 1}),
    ("a stray one is refused", lambda: stolen().ask("a", 2).no("a2"), {}),
    ("a stray one is refused, and stands", lambda: stolen().ask("a", 1).no("a1").revoke("b").own("c", 3, 1), {LOST: 1}),
    ("a stray one in doubt does not stand", lambda: stolen().ask("a", 1).doubt("a1").revoke("b").own("c", 3, 1), {LOST: 1}),
    ("of a generation that has passed", lambda: S().own("a", 2).do("a", 0).commit("a", 1, epoch=1), {STRAY: 1}),
    ("of its generation", lambda: S().own("a", 2).do("a", 0).commit("a", 1, epoch=2), {}),
    ("of who owns nothing", lambda: S().own("a").do("a", 0).commit("b", 1), {STRAY: 1}),
    # -- processed twice
    ("again at once", lambda: two(4, 4).do("a", 3), {TWICE: 1}),
    ("behind what it was told", lambda: two().revoke("a").own("b", 2, 2, offset=1).do("b", 1, 2), {TWICE: 1, "repeated": 1}),
    # -- skipped
    ("passed over", lambda: S().own("a").do("a", 0, 2), {SKIPPED: 1}),
    ("committed, and nobody did it", lambda: S().own("a").do("a", 0).commit("a", 3), {SKIPPED: 2}),
    ("asked, and nobody did it", lambda: S().own("a").do("a", 0).ask("a", 3).doubt("a3"), {}),
    ("what nobody has", lambda: S(0).ack(0, 2).own("a").do("a", 0, 2), {}),
    ("what was unknown, and was read", lambda: S(0).ack(0, 2).own("a").do("a", 0, 2).read(0, 3), {SKIPPED: 1}),
    ("what the log has lost", lambda: S(3).own("a").do("a", 0, 2).read(0, 3, 1), {}),
    ("what is behind the last read", lambda: S(5).own("a").do("a", 0, 1, 2, 4).read(0, 3), {SKIPPED: 1}),
    ("what was there before", lambda: S(3).own("a", offset=2, reset="latest").do("a", 2), {}),
    ("the earliest is the earliest", lambda: S(3).own("a", offset=2).do("a", 2), {SKIPPED: 2}),
    ("reset to the latest again", lambda: S(3).own("a", offset=1, reset="latest").revoke("a").own("b", 2, offset=2, reset="latest").do("b", 2), {SKIPPED: 1}),
    ("reset by age", lambda: S(3).retain(5).own("a", offset=2).do("a", 2).read(2, 3), {"expired": 2}),
    ("no policy", lambda: S(3).retain(None).own("a", offset=2).do("a", 2).read(2, 3), {SKIPPED: 2}),
    ("a policy that came later", lambda: S(3).own("a", offset=2).retain(5).do("a", 2).read(2, 3), {SKIPPED: 2}),
    ("by age, and it is all there", lambda: S(3).retain(5).own("a", offset=2).do("a", 2).read(0, 3), {SKIPPED: 2}),
    ("by age, and it was no reset", lambda: S(3).retain(5).own("a").do("a", 2).read(2, 3), {SKIPPED: 2}),
    ("by name", lambda: S(3).delete(1).own("a", offset=2).do("a", 2).read(2, 3), {SKIPPED: 1, "expired": 1}),
    ("by name, and refused", lambda: S(3).delete(1).deny(1).own("a", offset=2).do("a", 2).read(2, 3), {SKIPPED: 2}),
    ("out of the log's range", lambda: two(2, 2).delete(4).revoke("a").own("b", 2, 2, offset=4).do("b", 4, 5).read(4, 6), {"expired": 2}),
    # -- owners
    ("given away in no trouble", lambda: two().own("b", 2, 2), {OWNERS: 1}),
    ("given away in trouble", lambda: two().fault("a", "STOP").own("b", 2, 2), {}),
    ("given away after trouble", lambda: two().fault("a", "STOP").fault("a", "CONT").own("b", 2, 2), {}),
    ("trouble is over, it has committed", lambda: two(2, 3).fault("a", "STOP").fault("a", "CONT").commit("a", 3).own("b", 2, 3), {OWNERS: 1}),
    ("trouble is over, it was told its epoch", lambda: two().fault("a", "STOP").fault("a", "CONT").join("a").own("b", 2, 2), {OWNERS: 1}),
    ("trouble is over, it was given another", lambda: two().revoke("a").fault("a", "STOP").fault("a", "CONT").give("a").own("b", 2, 2), {OWNERS: 1}),
    ("the other's trouble", lambda: two().fault("b", "STOP").fault("b", "CONT").own("b", 2, 2), {OWNERS: 1}),
    ("given away for its silence", lambda: two().pause(SILENCE_MS).own("b", 2, 2), {}),
    ("a shorter silence", lambda: two().pause(SILENCE_MS - 10).own("b", 2, 2), {OWNERS: 1}),
    ("no silence was named", lambda: S(6, expected=False).own("a").pause(999).own("b", 2), {OWNERS: 1}),
    ("after it was lost", lambda: two().revoke("a", lost=True).own("b", 2, 2), {}),
    ("after it left", lambda: two().leave("a").own("b", 2, 2), {}),
    ("two in one epoch", lambda: two().revoke("a").own("b", 1, 2), {OWNERS: 1}),
    ("a static member's next life", lambda: S().own("a", instance="i").own("b", instance="i"), {}),
    ("another's instance", lambda: S().own("a", instance="i").own("b", instance="j"), {OWNERS: 1}),
    ("told too late", lambda: S().fault("a", "CUT").own("b", 2).own("a", 1), {}),
    ("it has not heard", lambda: stolen().do("a", 2, 3), {"repeated": 2}),
    ("it has heard", lambda: stolen().ask("a", 2).no("a2").do("a", 2), {OWNERS: 1}),
    ("it was at it when it heard", lambda: stolen().ask("a", 2).no("a2").do("a", 2, took=3.5), {"repeated": 1}),
    ("that is no word of it", lambda: stolen().ask("a", 2).no("a2", "REBALANCE_IN_PROGRESS").do("a", 2), {"repeated": 1}),
    ("its generation has passed", lambda: stolen().ask("a", 2).no("a2", "ILLEGAL_GENERATION").do("a", 2), {OWNERS: 1}),
    ("its generation had passed, the partition not", lambda: two(2, 2).ask("a", 2).no("a2", "ILLEGAL_GENERATION").fault("a", "CUT").own("b", 2, 2).do("a", 2), {}),
    ("healed, it hears soon", lambda: stolen().fault("a", "HEAL").pause(SILENCE_MS - 10).do("a", 2), {"repeated": 1}),
    ("healed, and long so", lambda: stolen().fault("a", "HEAL").pause(SILENCE_MS + 10).do("a", 2), {OWNERS: 1}),
    ("cut off for long", lambda: stolen().pause(SILENCE_MS + 10).do("a", 2), {"repeated": 1}),
    ("healed of the other trouble", lambda: stolen().fault("a", "CONT").pause(SILENCE_MS + 10).do("a", 2), {"repeated": 1}),
    ("it has given it up", lambda: two().revoke("a").do("a", 4), {OWNERS: 1}),
    ("it was at it when it gave it up", lambda: two().revoke("a").do("a", 4, took=1.5), {}),
    ("it was at it at the very moment", lambda: two().revoke("a").do("a", 4, took=1.0), {}),
    ("it was at it when it gave it up, for the second time", lambda: two().revoke("a").do("a", 3, took=1.5), {TWICE: 1}),
    ("it heard at the very moment", lambda: stolen().ask("a", 2).no("a2").do("a", 2, took=1.0), {"repeated": 1}),
    ("healed, and it hears at the last moment", lambda: stolen().fault("a", "HEAL").pause(SILENCE_MS - 1).do("a", 2), {"repeated": 1}),
    ("a successor, and no trouble, for long", lambda: two(2, 2).own("b", 2, 2).pause(SILENCE_MS + 1).do("a", 4), {OWNERS: 2, SKIPPED: 2}),
    ("nobody saw it join, and it goes on", lambda: S().own("a").do("a", 0).own("b", 2).do("a", 1), {OWNERS: 1}),
    ("it has left", lambda: two().leave("a").do("a", 4), {OWNERS: 1}),
    ("it never had it", lambda: S().do("a", 0), {OWNERS: 1}),
    ("it did not ask where to begin", lambda: S().give("a").do("a", 0), {OWNERS: 1}),
    # -- stuck
    ("nobody in calm", lambda: S().join("a").calm().pause(60).uncalm(), {STUCK: 1}),
    ("nobody in calm, to the end", lambda: S().join("a").calm().pause(60).join("a"), {STUCK: 1}),
    ("nobody for just so long", lambda: S().join("a").calm().pause(STUCK_MS - 1).uncalm(), {}),
    ("nobody for a while", lambda: S().join("a").calm().pause(40).uncalm(), {}),
    ("no calm", lambda: S().join("a").pause(60).own("a").do("a", 0), {}),
    ("no member", lambda: S().calm().pause(60).uncalm(), {}),
    ("a member since lately", lambda: S().calm().pause(60).join("a").pause(40).uncalm(), {}),
    ("a member in trouble", lambda: S().join("a").fault("a", "STOP").calm().pause(60).uncalm(), {}),
    ("a member in trouble no more", lambda: S().join("a").fault("a", "STOP").fault("a", "CONT").calm().pause(60).uncalm(), {STUCK: 1}),
    ("a dead member", lambda: S().join("a").fault("a", "KILL").calm().pause(60).uncalm(), {}),
    ("a dead member, another one lives", lambda: S().join("a").join("b").fault("a", "KILL").calm().pause(60).uncalm(), {STUCK: 1}),
    ("a member that left", lambda: S().join("a").leave("a").calm().pause(60).uncalm(), {}),
    ("before it left", lambda: S().join("a").calm().pause(60).leave("a"), {STUCK: 1}),
    ("a fault ends the calm", lambda: S().join("a").join("b").calm().pause(40).fault("b", "STOP").pause(40).uncalm(), {}),
    ("a node's fault ends the calm", lambda: S().join("a").calm().pause(40).node_fault().pause(40).uncalm(), {}),
    ("nothing waits", lambda: S(1).join("a").own("a").do("a", 0).calm().pause(60).uncalm(), {}),
    ("processed before it was acknowledged", lambda: S(1).join("a").own("a").do("a", 0, 1).ack(1).calm().pause(60).uncalm(), {}),
    ("what comes in calm", lambda: S(1).join("a").own("a").do("a", 0).calm().pause(60).ack(1).pause(40).uncalm(), {}),
    ("what comes in calm, and waits", lambda: S(1).join("a").own("a").do("a", 0).calm().ack(1).pause(60).uncalm(), {STUCK: 1}),
    ("an owner that stands", lambda: S(2).join("a").own("a").do("a", 0).calm().pause(60).do("a", 1).pause(60).uncalm(), {STUCK: 1}),
    ("an owner that works", lambda: S(3).join("a").own("a").calm().pause(40).do("a", 0).pause(40).do("a", 1).pause(40).do("a", 2), {}),
    ("another owner has to do it again", lambda: two(2, 6).revoke("a").own("b", 2, 2).calm().pause(60).uncalm(), {STUCK: 1}),
    ("the dead don't come back with their name", lambda: S().join("a").fault("a", "KILL").add(events.Joined, "wa", member="c", epoch=2).leave("c").calm().pause(60).uncalm(), {}),
    ("what waited before the calm", lambda: S().join("a").pause(60).calm().pause(20).uncalm(), {}),
    ("one wait is told once", lambda: S().join("a").join("b").calm().pause(60).leave("a").uncalm(), {STUCK: 1}),
    ("all is done, and its owner is gone", lambda: S(1).join("a").own("a").do("a", 0).revoke("a").calm().pause(60).uncalm(), {}),
    ("a past owner's work is none", lambda: stolen().calm().pause(40).do("a", 2).pause(40).uncalm(), {STUCK: 1, "repeated": 1}),
]  # fmt: skip  # one a line
