"""`holdfast cat -G`: a member of a consumer group, with kcat's words about what it is given.

Offsets are committed of what was written out and no more: a message that is read and not printed,
because -c is reached or the pipe has closed, is the group's next one.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.cli.cat import cat_format as formats
from holdfast.cli.cat.cat_modes import (
    BATCH,
    POLL_S,
    Settings,
    Until,
    client_settings,
    made,
    read,
    started,
    unreachable,
)
from holdfast.cli.exit_status import CommandError
from holdfast.cli.shared_options import did_you_mean

PATTERN = "^"  # begins a topic that is a regular expression
# What librdkafka tells its caller at once, of a coordinator that is being made, moves or loads.
COMING = frozenset(
    {
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
RETRY_S = 0.1
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumption:
    """Which group and topics, from where, and when to stop. `start` None: what is committed."""

    group: str
    topics: Sequence[str]
    start: formats.Start | None
    until: Until


def consume_in_group(
    settings: Settings, consumption: GroupConsumption, write: formats.Write
) -> None:
    """Write messages as a member of a group until the end, the count, the time, or Ctrl-C."""
    ours = {
        "group.id": consumption.group,
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
    }
    given = client_settings(settings)
    consumer = made(Consumer, ours | given)
    membership = _Membership(consumer, consumption, write, is_cooperative=cooperates(settings))
    try:
        with _left_on_sigterm():
            membership.leaders = _leaders(consumer, settings, consumption)
            _check_groups(consumer, consumption)
            consumer.subscribe(
                list(consumption.topics),
                on_assign=membership.assigned,
                on_revoke=membership.revoked,
                on_lost=membership.lost,
            )
            membership.say("Waiting for group rebalance")
            membership.run()
    except KafkaException as error:
        raise CommandError(f"-G {consumption.group}: {error.args[0].str()}") from None
    except KeyboardInterrupt:
        return  # how one ends a consumer
    finally:
        sys.stdout.flush()
        consumer.close()  # commits what is stored, and leaves


@contextmanager
def _left_on_sigterm() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C: who ends without leaving keeps its partitions for a session."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def cooperates(settings: Settings) -> bool:
    """Say whether partitions are given and taken one by one, not all at once."""
    if settings.get("group.protocol") == "consumer":
        return True
    return "cooperative" in settings.get("partition.assignment.strategy", "")


def _leaders(
    consumer: Any, settings: Settings, consumption: GroupConsumption
) -> dict[Partition, int]:
    """Return who leads what. CommandError: nobody answers, or a topic isn't there."""
    try:
        known = consumer.list_topics(timeout=consumption.until.timeout_s).topics
    except KafkaException as error:
        raise unreachable(settings, error) from None
    for topic in consumption.topics:
        if topic not in known and not topic.startswith(PATTERN):
            raise CommandError(
                f"-G {consumption.group}: there is no topic {topic}.{did_you_mean(topic, [*known])}"
            )
    return {
        (topic, number): found.leader
        for topic, described in known.items()
        for number, found in described.partitions.items()
    }


def _check_groups(consumer: Any, consumption: GroupConsumption) -> None:
    """Ask for an offset, with a bound: a member would wait for ever where there are no groups."""
    end = time.monotonic() + consumption.until.timeout_s
    while True:
        left = max(end - time.monotonic(), RETRY_S)
        try:
            consumer.committed([TopicPartition(consumption.topics[0], 0)], left)
        except KafkaException as error:
            refusal = error.args[0]
            if refusal.code() in COMING and time.monotonic() < end:
                time.sleep(RETRY_S)
                continue
            raise CommandError(
                f"-G {consumption.group}: no broker keeps this group: {refusal.str()}. "
                "-m SECONDS waits longer."
            ) from None
        return


class _Membership:
    """One member: what it has been given, how far it is, and what it has written."""

    def __init__(
        self,
        consumer: Any,
        consumption: GroupConsumption,
        write: formats.Write,
        *,
        is_cooperative: bool,
    ) -> None:
        self._consumer = consumer
        self._asked = consumption
        self._until = consumption.until
        self._write = write
        self._is_cooperative = is_cooperative
        self.leaders: dict[Partition, int] = {}
        self._held: dict[Partition, bool] = {}  # true: at its end
        self._begun: set[Partition] = set()  # -o counts once; then what is committed does
        self._count = 0

    # -- what the group says -------------------------------------------------------------------

    def assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._tell("assigned", partitions)
        begin = [self._place(each) for each in partitions]
        self._held |= {(each.topic, each.partition): False for each in begin}
        if self._is_cooperative:
            consumer.incremental_assign(begin)
        else:
            consumer.assign(begin)

    def revoked(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._tell("revoked", partitions)
        self._let_go(partitions)

    def lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        self._tell("revoked", partitions, lost=True)
        self._let_go(partitions)

    def _let_go(self, partitions: Sequence[Any]) -> None:
        for each in partitions:
            self._held.pop((each.topic, each.partition), None)

    def _place(self, partition: Any) -> TopicPartition:
        key = (partition.topic, partition.partition)
        if self._asked.start is None or key in self._begun:
            return TopicPartition(*key)
        self._begun.add(key)
        return started(
            self._consumer, self._asked.start, key, self._until.timeout_s, quiet=self._until.quiet
        )

    def _tell(self, what: str, partitions: Sequence[Any], *, lost: bool = False) -> None:
        self.say(
            rebalance_words(
                self._asked.group,
                self._consumer.memberid() or "",
                what,
                [(each.topic, each.partition) for each in partitions],
                is_cooperative=self._is_cooperative,
                lost=lost,
            )
        )

    # -- messages ------------------------------------------------------------------------------

    def run(self) -> None:
        batch = 1 if self._until.unbuffered else BATCH
        while not self._is_over():
            messages = self._consumer.consume(batch, POLL_S)
            written: dict[Partition, int] = {}
            for message in messages:
                if message.error() is not None:
                    self._failed(message)
                else:
                    self._take(message, written)
                if self._is_over():
                    break
            if written:
                sys.stdout.buffer.flush()
                self._store(written)

    def _is_over(self) -> bool:
        if self._count == self._until.count:
            return True
        has_end = self._until.exit_at_end or self._until.stop_ms is not None
        return has_end and bool(self._held) and all(self._held.values())

    def _take(self, message: Any, written: dict[Partition, int]) -> None:
        key = (message.topic(), message.partition())
        if self._until.stop_ms is not None and message.timestamp()[1] >= self._until.stop_ms:
            if key in self._held:
                self._held[key] = True
            self._consumer.pause([TopicPartition(*key)])
            return
        if self._until.stop_ms is None and key in self._held:
            self._held[key] = False
        sys.stdout.buffer.write(self._write(read(message, self.leaders.get(key, -1))))
        written[key] = message.offset() + 1
        self._count += 1

    def _store(self, written: dict[Partition, int]) -> None:
        for key, offset in written.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(*key, offset)])
            except KafkaException as error:
                # Taken away while it was written: whoever has it now writes it once more.
                if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - its public name
                    raise

    def _failed(self, message: Any) -> None:
        error = message.error()
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            raise KafkaException(error)
        key = (message.topic(), message.partition())
        if self._until.exit_at_end and key in self._held:
            self._held[key] = True
        suffix = ": exiting" if self._is_over() else ""
        self.say(f"Reached end of topic {key[0]} [{key[1]}] at offset {message.offset()}{suffix}")

    def say(self, words: str) -> None:
        """Tell a person, as kcat does: behind what is written so far."""
        if not self._until.quiet:
            sys.stdout.flush()
            print(f"% {words}", file=sys.stderr, flush=True)


def rebalance_words(
    group: str,
    member: str,
    what: str,
    partitions: Sequence[Partition],
    *,
    is_cooperative: bool,
    lost: bool = False,
) -> str:
    """Return kcat's line on a rebalance. `what`: assigned or revoked. Pure."""
    named = ", ".join(f"{topic} [{number}]" for topic, number in partitions)
    if not is_cooperative:
        return f"Group {group} rebalanced (memberid {member}): {what}: {named}"
    noun = "assignment" if what == "assigned" else "revoke"
    gone = ", assignment lost" if lost else ""
    return (
        f"Group {group} rebalanced: incremental {noun} of {len(partitions)} partition(s) "
        f"(memberid {member}{gone}, COOPERATIVE rebalance protocol): {named}"
    )
