"""Makes true histories of a group from a seed, and such with one planted fault.

A model of a coordinator that does as Kafka does: it hands a partition over only once its owner has
released it, is dead, or has been silent for too long; it refuses the commits of all others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from holdfast.judge.groups.history import (
    Assigned,
    CalmBegan,
    CalmEnded,
    CommitAcknowledged,
    CommitAsked,
    CommitRefused,
    CommittedSeen,
    CommitUnknown,
    ConsumerFault,
    GroupExpected,
    Joined,
    Left,
    Processed,
    Revoked,
    Started,
)
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.history import Acknowledged, Delivered, Event, ReadEnd, Unknown

SILENCE_MS = 60.0
STUCK_MS = 500.0
PLANTS: dict[str, GroupAnomaly] = {
    "the coordinator forgets a commit": GroupAnomaly.COMMIT_LOST,
    "an older offset is shown": GroupAnomaly.MOVED_BACK,
    "an offset of nobody's is shown": GroupAnomaly.INVENTED,
    "an owner begins behind what is committed": GroupAnomaly.SKIPPED,
    "a record is processed, and again": GroupAnomaly.PROCESSED_TWICE,
    "what was committed is processed again": GroupAnomaly.PROCESSED_TWICE,
    "a healthy owner's partition is given away": GroupAnomaly.TWO_OWNERS,
    "it is given to two at once": GroupAnomaly.TWO_OWNERS,
    "who knows that it is out goes on": GroupAnomaly.TWO_OWNERS,
    "who has given it up goes on": GroupAnomaly.TWO_OWNERS,
    "a commit of a past owner is taken": GroupAnomaly.STRAY_COMMIT,
    "an owner stands still in calm": GroupAnomaly.STUCK,
    "nobody is given a partition in calm": GroupAnomaly.STUCK,
}


@dataclass(slots=True, eq=False)
class Hold:
    """What a member believes of a partition."""

    epoch: int
    position: int | None = None  # None: it has not asked yet
    committed: int = -1
    wish: int = -1  # committed ahead of processing
    knows_out: bool = False


@dataclass(slots=True, eq=False)
class Member:
    name: str
    process: str
    instance: str | None
    state: str = ""  # "", STOP, CUT, KILL
    was_troubled: bool = False
    sign_ms: float = 0.0  # when the history shows that it did
    last_ms: float = 0.0  # when the coordinator heard of it
    holds: dict[int, Hold] = field(default_factory=dict)


@dataclass(slots=True)
class Part:
    number: int
    offsets: list[int] = field(default_factory=list)  # at which records stand
    acked: set[int] = field(default_factory=set)
    end: int = 0
    owner: Member | None = None
    epoch: int = 0
    committed: int | None = None
    acknowledged: list[int] = field(default_factory=list)  # offsets that owners know committed
    on_its_way: list[tuple[Member, int, int]] = field(default_factory=list)  # commits in doubt
    done: set[int] = field(default_factory=set)
    # What may still take effect: of this owner, or of one before until one is acknowledged.
    doubt: bool = False
    old_doubt: bool = False
    operated: bool = False

    @property
    def sure(self) -> bool:
        return not self.doubt and not self.old_doubt


class GroupWorld:
    """One run of one group; `made` is its history."""

    def __init__(self, seed: int, plant: str | None = None, steps: int = 150) -> None:
        self.chance = chance = random.Random(seed)
        self.plant = plant
        self.planted = False
        self.events: list[tuple[float, int, Event]] = []
        self.now = 1000.0
        self.epoch = 0
        self.numbers = 0
        self.before = chance.random() < 0.2 and plant is None  # commits before it processes
        self.eager = chance.random() < 0.4
        self.parts = [Part(number) for number in range(chance.choice([1, 2, 3]))]
        self.members: list[Member] = []
        lag = {"looks_may_lag": True} if plant is None and seed % 2 else {}
        self.say(GroupExpected, "lab", group="g", topics=("foo",), silence_ms=SILENCE_MS, **lag)
        for _ in range(chance.choice([1, 2, 3])):
            self.join()
        for _ in range(steps):
            self.now += chance.choice([0.01, 0.25, 1.0, 3.0, 20.0])
            self.step()
        self.settle()

    @property
    def history(self) -> list[Event]:
        """In the order of the clock."""
        return [event for _, _, event in sorted(self.events, key=lambda each: each[:2])]

    def say(self, kind: type[Event], process: str, at: float | None = None, **values: Any) -> Event:
        at_ms = self.now if at is None else at
        event = kind(at_ms=at_ms, wall_ms=int(at_ms), process=process, **values)
        self.events.append((at_ms, len(self.events), event))
        self.now += 0.001
        return event

    def of(self, kind: type[Event], member: Member, part: Part, **values: Any) -> Event:
        where: dict[str, Any] = {"group": "g", "topic": "foo", "partition": part.number}
        return self.say(kind, member.process, member=member.name, **where, **values)

    def fires(self, plant: str, probability: float = 0.5) -> bool:
        """Whether the fault is to be planted here: once in a run."""
        if self.plant != plant or self.planted or self.chance.random() > probability:
            return False
        self.planted = True
        return True

    # -- what may happen -----------------------------------------------------------------------

    def step(self) -> None:
        moves = [
            (self.produce, 5), (self.work, 9), (self.commit, 4), (self.hand_over, 2),
            (self.trouble, 1), (self.join, 1), (self.leave, 1), (self.look, 1), (self.rest, 1),
            (self.operate, 1), (self.arrive, 2),
        ]  # fmt: skip
        move = self.chance.choices([m for m, _ in moves], [w for _, w in moves])[0]
        move()

    def produce(self, part: Part | None = None, certain: bool = False) -> None:
        part = part or self.chance.choice(self.parts)
        for _ in range(self.chance.randint(1, 4)):
            if self.chance.random() < 0.1:
                part.end += 1  # a marker, or what compaction took
            offset, part.end = part.end, part.end + 1
            self.numbers += 1
            part.offsets.append(offset)
            values: dict[str, Any] = {
                "topic": "foo",
                "partition": part.number,
                "id": f"p:{self.numbers}",
            }
            if certain or self.chance.random() < 0.9:
                part.acked.add(offset)
                late = self.chance.choice([0.0, 0.0, 2.0, 15.0]) if not certain else 0.0
                self.say(Acknowledged, "p", self.now + late, offset=offset, **values)
            else:
                self.say(Unknown, "p", error="_MSG_TIMED_OUT", **values)

    def able(self) -> list[Member]:
        return [each for each in self.members if each.state in {"", "CUT"}]

    def healthy(self) -> list[Member]:
        return [each for each in self.members if not each.state]

    def held(self, able: bool = True) -> list[tuple[Member, Part, Hold]]:
        return [
            (member, self.parts[number], hold)
            for member in (self.able() if able else self.healthy())
            for number, hold in member.holds.items()
        ]

    def work(self) -> None:
        held = self.held()
        if held:
            member, part, hold = self.chance.choice(held)
            self.process(member, part, hold, self.chance.randint(1, 5))

    def process(self, member: Member, part: Part, hold: Hold, most: int) -> None:
        if hold.position is None and not self.begin(member, part, hold):
            return
        assert hold.position is not None
        if hold.knows_out:
            return
        if part.owner is not member and not member.state and self.is_late(member):
            return
        for offset in [each for each in part.offsets if each >= hold.position][:most]:
            if self.before and hold.committed <= offset:
                return
            self.do(member, part, offset)
            hold.position = offset + 1
            if part.owner is member and self.fires("a record is processed, and again"):
                self.do(member, part, offset)

    def do(self, member: Member, part: Part, offset: int) -> None:
        begin_ms = self.now
        self.now += self.chance.choice([0.0, 0.5])
        self.of(Processed, member, part, offset=offset, begin_ms=begin_ms)
        part.done.add(offset)

    def is_late(self, member: Member) -> bool:
        """Whether who was thrown out must have heard of it by now: then it stops by itself."""
        for number in member.holds:
            if self.parts[number].owner is not member:
                self.out(member, self.parts[number])
                return True
        return False

    def begin(self, member: Member, part: Part, hold: Hold) -> bool:
        """Ask for the committed offset, and set the position."""
        if member.state == "CUT" and part.owner is member:
            return False
        begin_ms = self.now
        self.now += 0.5
        told = part.committed
        sure = part.acknowledged
        forgets = part.owner is member and part.sure and len(sure) > 1 and sure[-1] > sure[0]
        if forgets and self.fires("the coordinator forgets a commit"):
            told = part.committed = sure[0]
        offset, reset = (0, "earliest") if told is None else (told, "")
        if part.owner is member and part.acked - part.done and told is not None:
            behind = [each for each in part.offsets if each > max(part.acked - part.done)]
            waiting = [each for each in part.acked - part.done if each >= offset]
            if behind and waiting and self.fires("an owner begins behind what is committed"):
                offset, reset = behind[0], "latest"
                self.of(Started, member, part, committed=told, offset=offset, reset=reset,
                        begin_ms=begin_ms)  # fmt: skip
                self.do(member, part, offset)
                hold.position = offset + 1
                self.commit_of(member, part, hold, certain=True)
                return False
        self.of(
            Started, member, part, committed=told, offset=offset, reset=reset, begin_ms=begin_ms
        )
        hold.position = offset
        covered = [each for each in part.done if told and each < told]
        is_sure = part.sure and part.owner is member
        if covered and is_sure and self.fires("what was committed is processed again"):
            self.do(member, part, max(covered))
        return True

    # -- commits -------------------------------------------------------------------------------

    def commit(self) -> None:
        held = [each for each in self.held() if each[2].position is not None]
        if held:
            self.commit_of(*self.chance.choice(held))

    def commit_of(self, member: Member, part: Part, hold: Hold, certain: bool = False) -> None:
        assert hold.position is not None
        offset = hold.position
        if self.before:
            later = [each + 1 for each in part.offsets if each >= offset][:3]
            offset = later[-1] if later else offset
        self.numbers += 1
        where: dict[str, Any] = {
            "group": "g", "topic": "foo", "partition": part.number, "id": f"c:{self.numbers}"
        }  # fmt: skip
        self.say(CommitAsked, member.process, member=member.name, offset=offset, epoch=hold.epoch,
                 **where)  # fmt: skip
        is_owner = part.owner is member and hold.epoch == part.epoch
        fate = "answered" if certain else self.chance.choice(
            ["answered", "answered", "answered", "answered", "late", "unanswered", "lost"]
        )  # fmt: skip
        if member.state == "CUT":
            fate = self.chance.choice(["on its way", "lost"]) if is_owner else "lost"
        taken = (
            part.owner not in {None, member}
            and not member.state
            and self.fires("a commit of a past owner is taken", 1)
        )
        if taken or (is_owner and fate in {"answered", "late", "unanswered"}):
            part.committed = offset
            member.last_ms = self.now
        late_ms = 0.0 if fate != "late" else self.chance.choice([5.0, 30.0])
        if fate in {"answered", "late"} and not is_owner and not taken:
            self.say(CommitRefused, member.process, error="UNKNOWN_MEMBER_ID", **where)
            hold.knows_out = True
            self.out(member, part)
            return
        if taken or fate in {"answered", "late"}:
            self.say(CommitAcknowledged, member.process, self.now + 0.2 + late_ms, **where)
            self.now += 0.3
            hold.committed = offset
            if fate == "answered":
                member.sign_ms = self.now - 1.0
            part.acknowledged.append(offset)
            part.doubt |= fate == "late"
            part.old_doubt = False
            if taken:
                self.out(member, part)
            return
        part.doubt = True
        if fate == "on its way":
            part.on_its_way.append((member, hold.epoch, offset))
        if self.chance.random() < 0.7:
            self.say(CommitUnknown, member.process, error="_TIMED_OUT", **where)
        if self.before and is_owner:
            hold.committed = offset  # it goes on as if it were

    def arrive(self) -> None:
        """A commit that was on its way arrives, and is taken if its member still owns that."""
        for part in self.parts:
            if part.on_its_way:
                member, epoch, offset = part.on_its_way.pop(0)
                if part.owner is member and part.epoch == epoch and member.state != "KILL":
                    part.committed = offset
                return

    def out(self, member: Member, part: Part) -> None:
        """A member hears that a partition is not its own any more."""
        goes_on = self.plant == "who knows that it is out goes on"
        hold = member.holds.pop(part.number)
        self.of(Revoked, member, part, lost=True)
        left = [
            each for each in part.offsets if hold.position is not None and each >= hold.position
        ]
        if goes_on and left and self.fires("who knows that it is out goes on", 1):
            self.do(member, part, left[0])

    # -- members -------------------------------------------------------------------------------

    def join(self) -> None:
        if len(self.healthy()) >= 4:
            return
        self.numbers += 1
        instance = f"i{self.numbers}" if self.chance.random() < 0.3 else None
        member = Member(f"m{self.numbers}", f"w{self.numbers}", instance, last_ms=self.now)
        self.members.append(member)
        self.say(Joined, member.process, group="g", member=member.name, epoch=self.epoch)

    def release(self, part: Part, member: Member) -> None:
        """Its owner gives a partition up; mostly it commits first."""
        hold = member.holds[part.number]
        if hold.position is not None and self.chance.random() < 0.7:
            self.commit_of(member, part, hold)
        if part.number in member.holds:
            hold = member.holds.pop(part.number)
            self.of(Revoked, member, part)
            left = [
                each for each in part.offsets if hold.position is not None and each >= hold.position
            ]
            if left and self.fires("who has given it up goes on", 1):
                self.now += 1.0
                self.do(member, part, left[0])
        if part.owner is member:
            part.owner = None

    def hand_over(self) -> None:
        part = self.chance.choice(self.parts)
        heirs = self.healthy()
        if not heirs:
            return
        owner = part.owner
        if self.eager and self.chance.random() < 0.5:
            for each in self.parts:
                self.free(each)
        else:
            self.free(part)
        if part.owner is not None:
            steals = owner is not None and not owner.state and part.number in owner.holds
            others = [each for each in heirs if each is not owner]
            if not steals or not others:
                return
            is_well = not part.owner.was_troubled
            if is_well and self.now - part.owner.sign_ms < SILENCE_MS / 2:
                if self.fires("a healthy owner's partition is given away"):
                    self.give(part, others[0])
                elif self.fires("it is given to two at once"):
                    self.epoch -= 1
                    part.epoch, self.epoch = self.epoch + 1, part.epoch - 1
                    self.give(part, others[0])
                    self.epoch = max(self.epoch, part.epoch)
            return
        heirs = [m for m in heirs if all(self.parts[n].owner is m for n in m.holds)]
        for each in self.parts:
            if each.owner is None and heirs:
                self.give(each, self.chance.choice(heirs))

    def free(self, part: Part) -> None:
        """Take a partition from its owner, as far as that may be."""
        owner = part.owner
        if owner is None:
            return
        if not owner.state:
            if self.planted_theft():
                return
            if self.now - owner.last_ms > 2 * SILENCE_MS and self.chance.random() < 0.3:
                for each in self.parts:  # it was silent for too long, and does not know it is out
                    if each.owner is owner:
                        each.owner = None
            elif part.number in owner.holds:
                self.release(part, owner)
        else:
            part.owner = None

    def planted_theft(self) -> bool:
        thefts = {"a healthy owner's partition is given away", "it is given to two at once"}
        return self.plant in thefts and not self.planted and self.chance.random() < 0.5

    def give(self, part: Part, member: Member) -> None:
        self.epoch += 1
        part.on_its_way.clear()
        late = member.holds.get(part.number)
        if late is not None:
            self.out(member, part)
        part.old_doubt, part.doubt = part.old_doubt or part.doubt, False
        part.owner, part.epoch = member, self.epoch
        member.last_ms = member.sign_ms = self.now
        member.holds[part.number] = Hold(self.epoch)
        self.say(Joined, member.process, group="g", member=member.name, epoch=self.epoch)
        self.of(Assigned, member, part, epoch=self.epoch, instance=member.instance)
        if self.chance.random() < 0.7:
            self.begin(member, part, member.holds[part.number])

    def leave(self) -> None:
        found = self.healthy()
        if len(found) > 1:
            self.close(self.chance.choice(found))

    def close(self, member: Member) -> None:
        for number in list(member.holds):
            part = self.parts[number]
            if part.owner is member:
                self.release(part, member)
            else:
                self.out(member, part)
        self.say(Left, member.process, group="g", member=member.name)
        self.members.remove(member)

    def trouble(self) -> None:
        found = self.healthy()
        if len(found) < 2:
            return
        member = self.chance.choice(found)
        member.was_troubled = True
        member.state = self.chance.choice(["KILL", "KILL", "STOP", "CUT"])
        self.say(ConsumerFault, "lab", consumer=member.process, action=member.state)
        if member.state == "KILL" and member.instance is not None and self.chance.random() < 0.6:
            self.return_static(member)

    def return_static(self, dead: Member) -> None:
        """A static member's next life takes what the one before had, in the same epoch."""
        self.numbers += 1
        member = Member(f"m{self.numbers}", f"w{self.numbers}", dead.instance, last_ms=self.now)
        self.members.append(member)
        self.say(Joined, member.process, group="g", member=member.name, epoch=self.epoch)
        for part in self.parts:
            if part.owner is dead:
                part.on_its_way.clear()
                part.owner = member
                member.holds[part.number] = Hold(part.epoch)
                self.of(Assigned, member, part, epoch=part.epoch, instance=member.instance)
        self.members.remove(dead)

    def rest(self) -> None:
        """Trouble ends for one."""
        found = [each for each in self.members if each.state in {"STOP", "CUT"}]
        if found:
            self.heal(self.chance.choice(found))

    def heal(self, member: Member) -> None:
        action = "CONT" if member.state == "STOP" else "HEAL"
        member.state = ""
        self.say(ConsumerFault, "lab", consumer=member.process, action=action)
        for number in list(member.holds):
            part, hold = self.parts[number], member.holds[number]
            if part.owner is not member:  # it does not know that yet
                some = [each for each in part.offsets if hold.position is not None]
                for offset in [e for e in some if e >= (hold.position or 0)][
                    : self.chance.randint(0, 3)
                ]:
                    if not (self.before and hold.committed <= offset):
                        self.do(member, part, offset)
                        hold.position = offset + 1
                if hold.position is None:
                    self.out(member, part)
                else:
                    self.commit_of(member, part, hold, certain=True)

    def look(self) -> None:
        part = self.chance.choice(self.parts)
        told, sure = part.committed, part.acknowledged
        is_older = bool(sure) and part.sure and sure[-1] > min(sure)
        if is_older and self.fires("an older offset is shown"):
            told = min(sure)
        if self.fires("an offset of nobody's is shown", 0.3):
            told = part.end + 100
        begin_ms = self.now
        self.now += 0.5
        self.say(CommittedSeen, "observer", group="g", topic="foo", partition=part.number,
                 offset=told, begin_ms=begin_ms)  # fmt: skip

    def operate(self) -> None:
        """An operator moves the offset of a partition that nobody has."""
        part = self.chance.choice(self.parts)
        if self.plant is not None or part.owner is not None or self.chance.random() < 0.5:
            return
        self.numbers += 1
        offset = self.chance.choice([0, *part.offsets])
        where: dict[str, Any] = {
            "group": "g", "topic": "foo", "partition": part.number, "id": f"c:{self.numbers}"
        }  # fmt: skip
        self.say(CommitAsked, "operator", offset=offset, **where)
        part.committed, part.operated = offset, True
        self.now += 0.5
        self.say(CommitAcknowledged, "operator", **where)
        self.now += 0.5

    def skipped(self) -> int | None:
        """Return how many records were skipped, as the model knows; None: an operator moved it."""
        if any(part.operated for part in self.parts):
            return None
        total = 0
        for part in self.parts:
            reached = max([0, *(o + 1 for o in part.done), *part.acknowledged[-1:]])
            due = set(part.offsets) if self.read else part.acked
            total += len({offset for offset in due if offset < reached} - part.done)
        return total

    # -- the end -------------------------------------------------------------------------------

    def settle(self) -> None:
        """All is healed, every partition is owned and read to its end; then all is read once."""
        self.now += 40.0
        for member in list(self.members):
            if member.state in {"STOP", "CUT"}:
                self.heal(member)
            elif member.state == "KILL":
                self.members.remove(member)
        if not self.healthy():
            self.join()
        for member in list(self.members):
            for number in list(member.holds):
                if self.parts[number].owner is not member:
                    self.out(member, self.parts[number])
        self.say(CalmBegan, "lab", group="g", stuck_ms=STUCK_MS)
        orphan = self.fires("nobody is given a partition in calm", 1)
        for part in self.parts:
            if orphan and part is self.parts[0]:
                if part.owner is not None and part.number in part.owner.holds:
                    self.release(part, part.owner)
                    part.owner = None
                continue
            if part.owner not in self.members:
                self.give(part, self.chance.choice(self.healthy()))
        for part in self.parts:
            self.produce(part, certain=True)
        still = self.fires("an owner stands still in calm", 1)
        for part in self.parts:
            owner = part.owner
            if owner is None or (still and part is self.parts[0]):
                continue
            hold = owner.holds[part.number]
            while [each for each in part.offsets if each >= (hold.position or 0)]:
                before = hold.position
                if hold.position is not None and self.before:
                    self.commit_of(owner, part, hold, certain=True)
                self.process(owner, part, hold, 3)
                if before == hold.position and before is not None:
                    break
            if hold.position is not None:
                self.commit_of(owner, part, hold, certain=True)
        self.now += STUCK_MS * 3
        self.say(CalmEnded, "lab", group="g")
        for member in list(self.members):
            self.close(member)
        self.read = self.chance.random() < 0.7
        if self.read:
            self.now += 50.0
            self.read_back()

    def read_back(self) -> None:
        for part in self.parts:
            for offset in part.offsets:
                self.say(Delivered, "final", topic="foo", partition=part.number, offset=offset,
                         digest="d")  # fmt: skip
            self.say(ReadEnd, "final", topic="foo", partition=part.number, begin=0, end=part.end)
