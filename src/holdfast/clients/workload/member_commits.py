"""How a member commits, and what it may say of the outcome.

librdkafka sends a commit again by itself, when its connection breaks or its coordinator moves. Then
a refusal is that of the second request, and the first one may have taken effect. It never sends
again sooner than after its back-off, less a fifth; so a refusal that comes within half of it is
certain, and any other is not. What it commits by itself it sends again behind a later one, too, and
tells in the order of the answers: until the next commit of its own was due, what was stored before
an acknowledged one was replaced in the client, and from then on it may have been sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from holdfast.clients.outcomes import COMMITS_NOTHING
from holdfast.clients.workload.group_diary import AskedCommit, GroupDiary, Membership

AUTO_COMMIT_MS: Final = 1000  # auto.commit.interval.ms of those that commit by themselves
BACKOFF_MS: Final = 500  # retry.backoff.ms of every member
CERTAIN_S: Final = BACKOFF_MS / 2 / 1000
REPLACED: Final = "_REPLACED"
PENDING_MAX: Final = 1000  # of a partition, of automatic commits


class Commits:
    """The commits of one client of one member."""

    def __init__(self, diary: GroupDiary, topic: str) -> None:
        self._diary = diary
        self._topic = topic
        # Automatic ones, the oldest first, and when each was stored.
        self._pending: dict[int, list[tuple[AskedCommit, float]]] = {}

    def commit(self, consumer: Any, me: Membership, offsets: Mapping[int, int]) -> dict[int, str]:
        """Commit, and wait for the answer. Return what was refused, by partition: Kafka's names."""
        import confluent_kafka  # noqa: PLC0415 - the lab imports this module without it

        asked = self._diary.asks(me, offsets)
        places = [
            confluent_kafka.TopicPartition(self._topic, partition, offset)
            for partition, offset in offsets.items()
        ]
        begin_s = time.monotonic()
        try:
            answered = consumer.commit(offsets=places, asynchronous=False)
            errors = {each.partition: each.error for each in answered}
        except confluent_kafka.KafkaException as error:
            errors = dict.fromkeys(offsets, error.args[0])
        is_first = time.monotonic() - begin_s < CERTAIN_S
        for commit in asked:
            self._answered(commit, errors[commit.partition], is_first=is_first)
        return {partition: each.name() for partition, each in errors.items() if each is not None}

    def _answered(self, commit: AskedCommit, error: Any, *, is_first: bool) -> None:
        if error is None:
            self._diary.acknowledged(commit)
        elif is_first and error.code() in COMMITS_NOTHING:
            self._diary.refused(commit, error.name())
        else:
            self._diary.unknown(commit, error.name())

    # -- by the client itself, now and then ------------------------------------------------------

    def store(self, consumer: Any, me: Membership, offsets: Mapping[int, int]) -> None:
        """Let the client commit these, whenever it likes."""
        import confluent_kafka  # noqa: PLC0415 - as above

        for commit in self._diary.asks(me, offsets):
            pending = self._pending.setdefault(commit.partition, [])
            pending.append((commit, time.monotonic()))
            assert len(pending) <= PENDING_MAX, "the client commits no more"
        consumer.store_offsets(
            offsets=[
                confluent_kafka.TopicPartition(self._topic, partition, offset)
                for partition, offset in offsets.items()
            ]
        )

    def committed(self, error: Any, partitions: list[Any]) -> None:
        """Take in what the client says of a commit of its own."""
        for each in partitions:
            if each.offset < 0:
                continue  # nothing was stored
            pending = self._pending.get(each.partition, [])
            while pending and pending[0][0].offset <= each.offset:
                commit, stored_s = pending.pop(0)
                if commit.offset < each.offset:
                    if time.monotonic() - stored_s < AUTO_COMMIT_MS / 1000:
                        self._diary.refused(commit, REPLACED)
                    else:
                        self._diary.unknown(commit, REPLACED)
                elif error is None and each.error is None:
                    self._diary.acknowledged(commit)
                else:
                    self._diary.unknown(commit, (error or each.error).name())

    def forget(self, partitions: list[int]) -> None:
        """These were given up: what is pending may be committed, or not."""
        for partition in partitions:
            self._pending.pop(partition, None)
