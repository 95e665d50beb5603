"""A follower's half of a fetch session, against a leader's half that does what Apache Kafka's does.

Goal: nothing that a leader has to say is lost, and nothing is asked that it knows already. Method:
a model of Kafka's FetchSession (a request updates first and forgets then; an answer holds what has
records or a high watermark other than the one it said last); by hand, and by random stories in
which answers are lost, left unread, refused and misplaced.
Rules: replication.md#sessions-between-brokers. Seen to fail: with an epoch that isn't advanced, a
partition that isn't forgotten, `doubt` that only names it, or what is forgotten and named at once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.follower_session import FollowerSession, Position, Question
from holdfast.core.replica.session_cache import EPOCH_MAX
from holdfast.wire.errors import ErrorCode

TOPIC = bytes(16)
News: TypeAlias = tuple[int, int]  # the end, the high watermark
HERE = Position(leader_epoch=1, end=0, last_epoch=-1, start=0)


def key(index: int) -> PartitionKey:
    return TOPIC, index


@dataclass
class Replica:
    """What a follower holds, and what it has heard."""

    position: Position = HERE
    high_watermark: int = -1


@dataclass
class Leader:
    """Kafka's half: what it has, and what it has said of it in this session."""

    gives: bool = True
    ends: dict[PartitionKey, int] = field(default_factory=dict)
    marks: dict[PartitionKey, int] = field(default_factory=dict)  # high watermarks
    id: int = 0
    epoch: int = 0
    members: dict[PartitionKey, Position] = field(default_factory=dict)
    said: dict[PartitionKey, int] = field(default_factory=dict)  # of the high watermarks
    named: int = 0
    made: int = 0

    def answer(self, asked: Question) -> tuple[int, dict[PartitionKey, News]] | ErrorCode:
        """Return the session's id, and for each partition with news what is so."""
        self.named += len(asked.named)
        if asked.session_epoch == 0:
            self.made += 1
            self.id = self.made if self.gives else 0
            self.epoch = 1
            self.members, self.said = dict(asked.named), {}
            assert not asked.forgotten
        elif asked.session_id != self.id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif asked.session_epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1
            self.members |= asked.named
            for gone in asked.forgotten:  # after the others, as Kafka's `update` does
                self.members.pop(gone, None)
                self.said.pop(gone, None)
        news = {
            each: (self.ends[each], self.marks.get(each, 0))
            for each, position in self.members.items()
            if self.said.get(each) != self.marks.get(each, 0) or position.end < self.ends[each]
        }
        self.said |= {each: mark for each, (_, mark) in news.items()}
        return self.id, news


@dataclass
class Follower:
    """Applies answers: what it is given it holds then."""

    session: FollowerSession
    replicas: dict[PartitionKey, Replica] = field(default_factory=dict)

    def follow(self, *indexes: int) -> None:
        for index in indexes:
            self.replicas[key(index)] = Replica()
            self.session.forget(key(index))
            self.session.name(key(index))

    def position(self, each: PartitionKey) -> Position | None:
        found = self.replicas.get(each)
        return None if found is None else found.position

    def next(self) -> Question:
        asked = self.session.next(self.position)
        assert asked is not None
        return asked

    def round(self, leader: Leader) -> dict[PartitionKey, News]:
        """Ask once, and take the answer in."""
        answer = leader.answer(self.next())
        assert not isinstance(answer, ErrorCode), answer
        self.session.answered(answer[0])
        for each, news in answer[1].items():
            self.take(each, news)
        return answer[1]

    def take(self, each: PartitionKey, news: News) -> None:
        told = self.session.told(each)
        if told is None:
            return
        replica = self.replicas[each]
        if replica.position.end != told.end:
            self.session.doubt(each)
            return
        replica.position = replica.position._replace(end=news[0])
        replica.high_watermark = news[1]
        self.session.settle(each, replica.position)


def pair(*indexes: int, named_max: int = 1000, gives: bool = True) -> tuple[Leader, Follower]:
    leader, follower = Leader(gives=gives), Follower(FollowerSession(named_max))
    leader.ends = {key(index): 0 for index in indexes}
    follower.follow(*indexes)
    return leader, follower


def test_a_session_begins_with_everything_and_then_names_what_moved() -> None:
    leader, follower = pair(0, 1, 2)
    first = follower.next()
    assert (first.session_id, first.session_epoch, list(first.named)) == (
        0, 0, [key(0), key(1), key(2)],
    )  # fmt: skip
    answer = leader.answer(first)
    assert not isinstance(answer, ErrorCode)
    follower.session.answered(answer[0])
    for each, news in answer[1].items():
        follower.take(each, news)
    assert follower.next() == Question(leader.id, 1, {}, [], has_more=False)
    follower.session.answered(leader.id)
    leader.epoch = 2
    leader.ends[key(1)] = 5
    assert follower.round(leader) == {key(1): (5, 0)}
    assert follower.next() == Question(leader.id, 3, {key(1): HERE._replace(end=5)}, [], False)


def test_a_leader_without_sessions_is_always_asked_for_everything() -> None:
    """And for what has moved last: an answer is filled from its beginning."""
    leader, follower = pair(0, 1, 2, gives=False)
    follower.round(leader)
    leader.ends[key(0)] = 3
    follower.round(leader)
    asked = follower.next()
    assert (asked.session_epoch, list(asked.named)) == (0, [key(1), key(2), key(0)])


@pytest.mark.parametrize("gives", [True, False])
def test_thousands_are_told_in_several_requests_where_there_are_sessions(gives: bool) -> None:
    leader, follower = pair(*range(7), named_max=3, gives=gives)
    sizes = []
    while follower.session.news:
        before = leader.named
        follower.round(leader)
        sizes.append(leader.named - before)
    assert sizes == ([3, 3, 1] if gives else [3, 7])
    assert leader.members.keys() == follower.replicas.keys()


def test_what_has_moved_is_named_however_much_it_is() -> None:
    """Seen to fail: what was left for the next request the leader sent once more, up to twice."""
    leader, follower = pair(*range(7), named_max=3)
    while follower.session.news:
        follower.round(leader)
    leader.ends = dict.fromkeys(leader.ends, 5)
    follower.round(leader)
    follower.follow(7, 8, 9, 10)
    leader.ends |= {key(index): 0 for index in (7, 8, 9, 10)}
    asked = follower.next()
    moved = [each for each in asked.named if asked.named[each].end == 5]
    assert sorted(moved) == [key(index) for index in range(7)]
    assert len(asked.named) == 7 + 3, "and of what is new so many"
    assert asked.has_more


def test_what_is_not_followed_any_more_is_forgotten() -> None:
    leader, follower = pair(0, 1)
    follower.round(leader)
    del follower.replicas[key(0)]
    follower.session.forget(key(0))
    asked = follower.next()
    assert (asked.named, asked.forgotten) == ({}, [key(0)])
    leader.answer(asked)
    assert list(leader.members) == [key(1)]


def test_what_is_not_to_be_asked_for_now_is_forgotten_until_it_is_named_again() -> None:
    """As a throttled replica when the quota is used up."""
    leader, follower = pair(0, 1)
    leader.ends[key(0)] = 2
    follower.round(leader)
    held_back = follower.replicas.pop(key(0))
    assert follower.next()[2:4] == ({}, [key(0)])
    follower.session.answered(leader.id)
    follower.replicas[key(0)] = held_back
    follower.session.name(key(0))
    assert follower.next()[2:4] == ({key(0): held_back.position}, [])


def test_an_answer_about_what_was_removed_and_has_come_again_is_of_another_life() -> None:
    """The leader forgets it first: what it said last was said to the former one."""
    leader, follower = pair(0, 1)
    follower.round(leader)
    leader.ends[key(0)] = 4
    asked = follower.next()
    follower.follow(0)  # while that is at the leader
    answer = leader.answer(asked)
    assert not isinstance(answer, ErrorCode)
    follower.session.answered(answer[0])
    assert answer[1] == {key(0): (4, 0)}
    assert follower.session.told(key(0)) is None
    asked = follower.next()
    assert (asked.forgotten, asked.named, asked.has_more) == ([key(0)], {}, True)
    leader.answer(asked)
    follower.session.answered(leader.id)
    assert follower.round(leader) == {key(0): (4, 0)}


def test_a_session_of_which_nothing_stays_is_ended_by_the_next_one() -> None:
    leader, follower = pair(0)
    follower.round(leader)
    follower.session.doubt(key(0))
    asked = follower.next()
    assert (asked.session_id, asked.session_epoch, list(asked.named)) == (1, 0, [key(0)])
    follower.session.answered(2)
    follower.session.forget(key(0))
    assert not follower.session.is_needed
    assert follower.session.next(follower.position) is None


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 1),
    ],
)
def test_a_refused_session_begins_anew(error: ErrorCode, session_id: int) -> None:
    leader, follower = pair(0, 1)
    follower.round(leader)
    follower.next()
    follower.session.refused(error)
    asked = follower.next()
    assert (asked.session_id, asked.session_epoch, len(asked.named)) == (session_id, 0, 2)


def test_a_session_that_the_leader_ended_or_mistook_begins_anew() -> None:
    for answered in (0, 99):
        leader, follower = pair(0)
        follower.round(leader)
        follower.next()
        follower.session.answered(answered)
        assert follower.next().session_epoch == 0


def test_after_the_largest_epoch_comes_the_first() -> None:
    leader, follower = pair(0)
    follower.round(leader)
    follower.session._epoch = leader.epoch = EPOCH_MAX
    follower.round(leader)
    assert follower.next().session_epoch == 1


@pytest.mark.parametrize("gives", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_in_any_story_the_follower_hears_all(seed: int, gives: bool) -> None:
    draw = random.Random(seed)
    leader, follower = pair(*range(5), named_max=draw.choice([2, 1000]), gives=gives)
    for _ in range(300):
        moved = key(draw.randrange(5))
        if draw.random() < 0.3:
            leader.ends[moved] += 1
        elif draw.random() < 0.3:
            leader.marks[moved] = leader.ends[moved]
        asked = follower.session.next(follower.position)
        if draw.random() < 0.2:  # while it is at the leader
            index = draw.randrange(5)
            if key(index) in follower.replicas and draw.random() < 0.5:
                del follower.replicas[key(index)]
                follower.session.forget(key(index))
            else:
                follower.follow(index)
        if asked is None:
            continue
        chance = draw.random()
        answer = leader.answer(asked)
        if isinstance(answer, ErrorCode):
            follower.session.refused(answer)
        elif chance < 0.1:
            follower.session.lost()
        else:
            follower.session.answered(answer[0])
            for each, news in answer[1].items():
                if draw.random() < 0.2 and follower.session.told(each) is not None:
                    follower.session.doubt(each)
                else:
                    follower.take(each, news)
        if chance > 0.95:
            leader.id += 7  # it has put the session away
    follower.follow(*(index for index in range(5) if key(index) not in follower.replicas))
    for _ in range(20):  # now nothing happens any more
        asked = follower.next()
        answer = leader.answer(asked)
        if isinstance(answer, ErrorCode):
            follower.session.refused(answer)
            continue
        follower.session.answered(answer[0])
        for each, news in answer[1].items():
            follower.take(each, news)
    for index in range(5):
        heard = follower.replicas[key(index)]
        assert heard.position.end == leader.ends[key(index)]
        assert heard.high_watermark == leader.marks.get(key(index), 0)
    assert not follower.session.news
    assert leader.members.keys() == follower.replicas.keys()
    before = leader.named
    follower.round(leader)
    assert leader.named == before + (0 if gives else 5), "what is known was named again"
