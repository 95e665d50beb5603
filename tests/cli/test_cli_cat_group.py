"""`holdfast cat -G` without a cluster: kcat's lines, and that only what was written is committed.

Method: a consumer that gives out what a test tells it to, and notes what it is told to commit.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.cli.cat import cat_group
from holdfast.cli.cat.cat_format import Message, Start
from holdfast.cli.cat.cat_group import GroupConsumption, cooperates, rebalance_words
from holdfast.cli.cat.cat_modes import Until
from holdfast.cli.exit_status import CommandError

EOF = KafkaError._PARTITION_EOF


class Given:
    """A message of librdkafka's, or an error."""

    def __init__(self, partition: int, offset: int, *, time: int = 5, error: int = 0) -> None:
        self._partition, self._offset, self._time, self._error = partition, offset, time, error

    def error(self) -> Any:
        return KafkaError(self._error) if self._error else None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return (1, self._time)

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d.%d" % (self._partition, self._offset)

    def headers(self) -> None:
        return None


def end(partition: int, offset: int) -> Given:
    return Given(partition, offset, error=EOF)


class Stand:
    """A consumer. Before each poll it does what the test put there; then it gives messages."""

    def __init__(self, polls: Sequence[Any]) -> None:
        self.polls = list(polls)
        self.stored: dict[int, int] = {}
        self.assigned: list[list[TopicPartition]] = []
        self.paused: list[int] = []
        self.lost: set[int] = set()

    def consume(self, _most: int, _seconds: float) -> list[Given]:
        step = self.polls.pop(0)
        if callable(step):
            step()
            return []
        return list(step)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.append(partitions)

    incremental_assign = assign

    def memberid(self) -> str:
        return "m-1"

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused += [each.partition for each in partitions]

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        for each in offsets:
            if each.partition in self.lost:
                raise KafkaException(KafkaError(KafkaError._STATE))
            self.stored[each.partition] = each.offset

    def get_watermark_offsets(self, _partition: Any, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return (2, 9)


Capture = pytest.CaptureFixture[bytes]


def write(message: Message) -> bytes:
    return (message.value or b"") + b"\n"


def membership(
    consumer: Any, *, start: Start | None = None, cooperative: bool = False, **until: Any
) -> cat_group._Membership:
    known: dict[str, Any] = {
        "stop_ms": None,
        "count": None,
        "exit_at_end": False,
        "quiet": False,
        "unbuffered": False,
        "timeout_s": 5.0,
    }
    asked = GroupConsumption(group="g", topics=["t"], start=start, until=Until(**(known | until)))
    return cat_group._Membership(consumer, asked, write, is_cooperative=cooperative)


def parts(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in numbers]


class Coordinated:
    """A consumer whose coordinator refuses with these, one after the other, and then answers."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return asked


def consumption(timeout_s: float) -> GroupConsumption:
    until = Until(
        stop_ms=None, count=None, exit_at_end=False, quiet=True, unbuffered=False,
        timeout_s=timeout_s,
    )  # fmt: skip
    return GroupConsumption(group="g", topics=["t"], start=None, until=until)


def test_a_coordinator_that_is_just_being_made_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the first group of a new cluster is read, too. Method: what its brokers say at first.

    Seen to end in "no broker keeps this group: Broker: Not coordinator" at once.
    """
    monkeypatch.setattr(cat_group, "RETRY_S", 0.001)
    consumer = Coordinated(*cat_group.COMING)
    cat_group._check_groups(consumer, consumption(60))
    assert consumer.codes == []


def test_a_coordinator_is_waited_for_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cat_group, "RETRY_S", 0.001)
    coming = KafkaError.NOT_COORDINATOR
    for seconds, codes in ((0.01, [coming] * 300), (60, [KafkaError._STATE, coming])):
        consumer = Coordinated(*codes)
        with pytest.raises(CommandError, match="no broker keeps this group"):
            cat_group._check_groups(consumer, consumption(seconds))
        assert consumer.codes


def test_only_what_was_written_is_committed(capsysbinary: Capture) -> None:
    """Goal: -c N leaves the rest to the next one. Method: more than N in one poll."""
    consumer = Stand([[Given(0, 4), Given(0, 5), Given(1, 7), Given(0, 6), Given(1, 8)]])
    member = membership(consumer, count=3)
    member.assigned(consumer, parts(0, 1))
    member.run()
    assert capsysbinary.readouterr().out == b"0.4\n0.5\n1.7\n"
    assert consumer.stored == {0: 6, 1: 8}


class ClosedPipe(io.BytesIO):
    """Takes what fits into a buffer, and whose reader has gone."""

    def flush(self) -> None:
        raise BrokenPipeError


def test_nothing_is_committed_of_what_could_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who reads the pipe has all that is committed. Method: a pipe that has closed."""
    consumer = Stand([[Given(0, 4)]])
    member = membership(consumer, quiet=True)
    member.assigned(consumer, parts(0))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=ClosedPipe(), flush=lambda: None))
    with pytest.raises(BrokenPipeError):
        member.run()
    assert consumer.stored == {}


def test_it_ends_where_all_partitions_end(capsysbinary: Capture) -> None:
    """Goal: -e waits for each that it has. Method: one end, a message behind it, then both ends."""
    consumer = Stand([[Given(0, 4), end(0, 5)], [Given(0, 5)], [end(1, 0), end(0, 6)]])
    member = membership(consumer, exit_at_end=True)
    member.assigned(consumer, parts(0, 1))
    member.run()
    written = capsysbinary.readouterr()
    assert written.out == b"0.4\n0.5\n"
    assert written.err.splitlines()[1:] == [
        b"% Reached end of topic t [0] at offset 5",
        b"% Reached end of topic t [1] at offset 0",
        b"% Reached end of topic t [0] at offset 6: exiting",
    ]


def test_it_waits_until_it_is_given_something() -> None:
    """Goal: no end before the group has said what is whose. Method: nothing, twice, then all."""
    consumer = Stand([[], []])
    member = membership(consumer, exit_at_end=True)
    consumer.polls += [lambda: member.assigned(consumer, []), []]
    consumer.polls += [lambda: member.assigned(consumer, parts(0)), [end(0, 3)]]
    member.run()
    assert consumer.polls == []


def test_a_partition_that_was_taken_away(capsysbinary: Capture) -> None:
    """Goal: what others have now doesn't hold up the end, nor is it committed here."""
    consumer = Stand([])
    member = membership(consumer, exit_at_end=True)
    consumer.polls = [
        lambda: member.assigned(consumer, parts(0, 1)),
        lambda: member.revoked(consumer, parts(1)),
        [Given(1, 7), Given(0, 4), end(0, 5)],
    ]
    consumer.lost = {1}
    member.run()
    assert capsysbinary.readouterr().out == b"1.7\n0.4\n"
    assert consumer.stored == {0: 5}


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (None, [-1001, -1001]),
        (Start(offset=0), [2, -1001]),
        (Start(offset=-3), [6, -1001]),
        (Start(offset=5), [5, -1001]),
    ],
)
def test_where_it_begins(start: Start | None, offsets: list[int]) -> None:
    """Goal: -o counts once, so that nothing is read twice. Method: the same partition, twice."""
    consumer = Stand([])
    member = membership(consumer, start=start)
    for _ in range(2):
        member.assigned(consumer, parts(0))
        member.revoked(consumer, parts(0))
    assert [each[0].offset for each in consumer.assigned] == offsets


def test_a_time_to_stop_at(capsysbinary: Capture) -> None:
    """Goal: -o e@MS. Method: a later message in each partition, which nobody has read then."""
    consumer = Stand([[Given(0, 4), Given(1, 7, time=90), Given(0, 5, time=95)]])
    member = membership(consumer, stop_ms=90)
    member.assigned(consumer, parts(0, 1))
    member.run()
    assert (capsysbinary.readouterr().out, consumer.stored) == (b"0.4\n", {0: 5})
    assert consumer.paused == [1, 0]


@pytest.mark.parametrize(
    ("what", "cooperative", "lost", "words"),
    [
        ("assigned", False, False, "Group g rebalanced (memberid m-1): assigned: t [0], u [3]"),
        ("revoked", False, True, "Group g rebalanced (memberid m-1): revoked: t [0], u [3]"),
        (
            "assigned",
            True,
            False,
            (
                "Group g rebalanced: incremental assignment of 2 partition(s) "
                "(memberid m-1, COOPERATIVE rebalance protocol): t [0], u [3]"
            ),
        ),
        (
            "revoked",
            True,
            True,
            (
                "Group g rebalanced: incremental revoke of 2 partition(s) "
                "(memberid m-1, assignment lost, COOPERATIVE rebalance protocol): t [0], u [3]"
            ),
        ),
    ],
)
def test_kcats_lines(what: str, cooperative: bool, lost: bool, words: str) -> None:
    given = [("t", 0), ("u", 3)]
    found = rebalance_words("g", "m-1", what, given, is_cooperative=cooperative, lost=lost)
    assert found == words


def test_who_cooperates() -> None:
    assert cooperates({"group.protocol": "consumer"})
    assert cooperates({"partition.assignment.strategy": "cooperative-sticky"})
    assert not cooperates({"group.protocol": "classic", "partition.assignment.strategy": "range"})
    assert not cooperates({})
