"""What the cluster says about topics and offsets. Owns the planner's two clients.

Answers are facts of the moment; it decides nothing. A partition whose leader is away is left out of
an answer unless the caller must have it, and then waits within a bound.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from holdfast.pipelines.intake.connection import Client, open_admin, open_consumer
from holdfast.pipelines.intake.topic_pattern import matcher
from holdfast.pipelines.offsets import (
    Epochs,
    Known,
    Offsets,
    Partition,
    TopicIds,
    known_of,
    parted,
)
from holdfast.pipelines.reading import leaders
from holdfast.pipelines.reading.told_offsets import NO_ANSWER, Told, ask_offsets
from holdfast.pipelines.reading.way import way_of
from holdfast.pipelines.topic_ids import PAUSE_S, REQUEST_S, TopicsOver, ask, numbers_of
from holdfast.wire.well_known import LATEST

log = logging.getLogger(__name__)

OFFSETS_S = 2.0  # a partition whose leader does not answer in this time is left out
WAIT_S = 60.0
# Nobody has answered yet: then an address is wrong more often than a cluster is just away.
FIRST_WAIT_S = 10.0
# A leader of an older epoch than was read has been replaced, and its successor is found at once, or
# when a cut is over. One that stays has none: then a query would stand still for good.
OLD_LEADER_S = 300.0
# A query may look once in ten minutes: two cuts that it met are no such leader.
OLD_LEADER_LOOKS = 3
NO_EPOCHS: Epochs = {}


class ListingError(RuntimeError):
    """The cluster can't be reached, or does not know a topic."""


class UnknownTopicError(ListingError):
    """No broker knows a topic, also some seconds later."""


def unknown(topic: str) -> UnknownTopicError:
    return UnknownTopicError(f"topic {topic!r} does not exist; create it, or check its name")


class Listing:
    """Partitions of topics, and where their logs begin and end."""

    def __init__(
        self, client: Client, *, retries: int | None = None, pause_ms: int | None = None
    ) -> None:
        """Nobody is asked yet. OptionError: the client refuses one of its properties.

        `retries` bounds how often offsets are asked for again; without it WAIT_S does.
        """
        self._client = client
        self._retries = retries
        self._pause_s = PAUSE_S if pause_ms is None else pause_ms / 1000
        self._committed = dict(client).get("isolation.level") == "read_committed"
        self._answered = False
        self._missed: set[Partition] = set()  # waited for, in vain
        self._over = TopicsOver(client)
        self._doubted: set[str] = set()  # topics that brokers did not agree on when last asked
        # Since when a leader is an old one, and how often it was; the first time it was said.
        self._behind: dict[Partition, tuple[float, int]] = {}
        # Offsets and epochs that a leader's log goes on from, by the leader's epoch: asked once.
        self._whole: dict[Partition, tuple[int, leaders.Question]] = {}
        self._addresses: tuple[str, ...] = ()  # of brokers, besides those that were given
        self._refusals: dict[str, str] = {}  # what went wrong last, by the address that it names
        # Metadata come from a consumer: an admin client's request would create the topic.
        self._consumer = open_consumer(client, error_cb=self._note)
        self._admin = open_admin(client)

    def _find_leaders_anew(self) -> None:
        """Have the admin client look for leaders anew: it keeps asking those that it remembers.

        A broker that was cut off names itself, so another one may be the first that is asked.
        """
        client = dict(self._client)
        given = client["bootstrap.servers"]
        client["bootstrap.servers"] = ",".join(dict.fromkeys([*given.split(","), *self._addresses]))
        self._admin = open_admin(tuple(sorted(client.items())))

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - it names no address
            self._refusals[error.str().partition(": ")[0]] = error.str()

    def partitions(self, topics: Collection[str]) -> list[Partition]:
        """Return all partitions of these topics. ListingError: unknown, or nobody answers."""
        found = self.known(topics)
        there = {partition.topic for partition in found}
        for topic in topics:
            if topic not in there:
                raise unknown(topic)
        return found

    def known(self, topics: Collection[str]) -> list[Partition]:
        """Return all partitions of those topics that exist.

        One may have been made a moment ago, and not every broker may know it yet: what is missing
        is waited for REQUEST_S, all of it together.
        """
        deadline = time.monotonic() + REQUEST_S
        found: list[Partition] = []
        missing = list(dict.fromkeys(topics))
        while True:
            told = self.existing_of(missing)
            found += told
            there = {partition.topic for partition in told}
            missing = [topic for topic in missing if topic not in there]
            if not missing or time.monotonic() > deadline:
                return sorted(found)
            time.sleep(PAUSE_S)

    def existing(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those of `partitions` that exist now; an unknown topic has none."""
        wanted = set(partitions)
        found = self.existing_of(sorted({partition.topic for partition in wanted}))
        return [partition for partition in found if partition in wanted]

    def existing_of(self, topics: Collection[str]) -> list[Partition]:
        """Return the partitions that these topics have now; an unknown topic has none.

        It is asked at each trigger, so in one request, however many topics there are. Of whom that
        one tells nothing is asked alone, which says in words what is wrong.
        """
        told: dict[str, list[int]] = {}
        if len(topics) > 1:
            if not self._answered:
                self._metadata(next(iter(topics)))
            told = numbers_of(self._admin, topics)
        found: list[Partition] = []
        for topic in topics:
            numbers = told.get(topic)
            if numbers is None:
                numbers = self._numbers(self._metadata(topic), topic)
            found += [Partition(topic, number) for number in numbers]
        return found

    def matching(self, pattern: str) -> list[Partition]:
        """Return the partitions of all topics whose names have the pattern, but internal ones."""
        metadata = self._metadata()
        wanted = matcher(pattern)
        return sorted(
            Partition(topic, number)
            for topic in metadata.topics
            if wanted(topic)
            for number in self._numbers(metadata, topic)
        )

    def awaited(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return which of these appear within REQUEST_S. In vain is waited only once.

        Who was asked may not have heard yet of what another broker told.
        """
        deadline = time.monotonic() + REQUEST_S
        hoped_for = set(partitions) - self._missed
        found: set[Partition] = set()
        while hoped_for:
            found.update(self.existing(hoped_for))
            hoped_for -= found
            if not hoped_for:
                break
            if time.monotonic() > deadline:
                self._missed |= hoped_for
                break
            time.sleep(PAUSE_S)
        return sorted(found)

    def _metadata(self, topic: str | None = None) -> Any:
        """Describe one topic, or all of them; asking makes none."""
        begin = time.monotonic()
        while True:
            try:
                found = self._consumer.list_topics(topic, timeout=REQUEST_S)
            except KafkaException as error:
                bound = WAIT_S if self._answered else FIRST_WAIT_S
                if time.monotonic() - begin > bound:
                    self._consumer.poll(0)  # which hands over what the client has noted
                    said = sorted(self._refusals.values()) or [error.args[0].str()]
                    raise ListingError(
                        f"no broker answers within {bound:.0f} s ({'; '.join(said)}); "
                        "check kafka.bootstrap.servers"
                    ) from error
            else:
                self._answered = True
                return found

    @staticmethod
    def _numbers(metadata: Any, topic: str) -> list[int]:
        described = metadata.topics.get(topic)
        if described is None or described.error is not None:
            code = None if described is None else described.error.code()
            if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}:
                raise ListingError(f"topic {topic!r}: {described.error.str()}")
            return []
        return sorted(described.partitions)

    def topic_ids(self, topics: Collection[str], *, all_of_them: bool = False) -> TopicIds:
        """Return the ids of those topics whose id the cluster tells just now.

        With `all_of_them` it asks until each has an answer, WAIT_S at most: a topic may have been
        made a moment ago, and the broker that is asked may not know it yet. A query that began
        without the id could not tell its topic from another one of that name.
        """
        deadline = time.monotonic() + WAIT_S
        ids: TopicIds = {}
        wanted: Collection[str] = topics
        while wanted:
            missing = ask(self._admin, wanted, ids)
            wanted = missing
            if not missing or not all_of_them:
                break
            if time.monotonic() > deadline:
                said = ", ".join(f"{topic} ({missing[topic].str()})" for topic in sorted(missing))
                raise ListingError(f"no id of topic {said} within {WAIT_S:.0f} s")
            time.sleep(PAUSE_S)
        return ids

    def gone(self, ids: TopicIds) -> set[str]:
        """Return which of these topics are no more, as each broker of the cluster says."""
        found = self._over.gone(ids)
        self._missed = {p for p in self._missed if p.topic not in found}
        return found

    def settled(self, before: TopicIds, told: TopicIds, *, all_of_them: bool = False) -> TopicIds:
        """Return the ids that are told, without those that a broker tells which lags behind others.

        With `all_of_them` it asks until brokers say the same of each topic, WAIT_S at most.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            found = self._over.settled(before, told)
            doubtful = told.keys() - found.keys()
            if doubtful:
                self._find_leaders_anew()  # who was asked would be asked again
            if news := doubtful - self._doubted:
                log.warning(
                    "brokers do not agree which topic %s is: nothing of it moves until they do",
                    ", ".join(sorted(news)),
                )
            self._doubted = (self._doubted - told.keys()) | doubtful
            if not (doubtful and all_of_them):
                return found
            if time.monotonic() > deadline:
                raise ListingError(
                    f"brokers tell different ids of topic {', '.join(sorted(doubtful))} for "
                    f"{WAIT_S:.0f} s: one of them was cut off from its cluster"
                )
            time.sleep(PAUSE_S)
            told = found | self.topic_ids(doubtful)

    def earliest(
        self,
        partitions: Collection[Partition],
        *,
        all_of_them: bool = False,
        within_s: float | None = None,
    ) -> Offsets:
        """Return where logs begin. `within_s` bounds who waits for all of them, no option does."""
        specs = dict.fromkeys(partitions, OffsetSpec.earliest())
        return self._ask(specs, all_of_them=all_of_them, within_s=within_s).offsets

    def ends(
        self,
        partitions: Collection[Partition],
        known: Mapping[Partition, int] = NO_EPOCHS,
        *,
        all_of_them: bool = False,
    ) -> Known:
        """Return the end of what a reader may see: with read_committed, the last stable offset.

        And the leader epoch that each was told in. A leader of an older epoch than the one that is
        `known` of was cut off from its cluster, and its answer counts for none.
        """
        specs = dict.fromkeys(partitions, OffsetSpec.latest())
        return self._ask(specs, known, all_of_them=all_of_them)

    def newest(self, partitions: Collection[Partition]) -> Epochs:
        """Return the newest epochs that brokers know of: a leader of an older one was cut off.

        For who has read nothing yet. Over librdkafka each broker can't be asked, and none is known.
        """
        if not (partitions and way_of(self._client).is_ours):
            return {}
        found = leaders.newest(self._client, partitions)
        self._addresses = found.addresses
        return found.epochs

    def held(
        self, read: Known, latest: Known, *, all_of_them: bool = False
    ) -> tuple[Known, Offsets]:
        """Hold logs that have come past what was read against it, where another one leads by now.

        Return the ends of `latest`, and from where on logs are others than those that were read. An
        end whose leader does not say now is left out, as if it was away; with `all_of_them` it is
        asked for WAIT_S. Over librdkafka nobody can be asked, and tasks will notice.
        """
        if not way_of(self._client).is_ours:
            return latest, {}
        deadline = time.monotonic() + WAIT_S
        cuts: Offsets = {}
        while True:
            ends, unknown = self._epoch_ends(read, latest)
            cuts |= parted(read, ends)
            if not unknown or not all_of_them:
                break
            if time.monotonic() > deadline:
                said = ", ".join(map(str, sorted(unknown)))
                raise ListingError(
                    f"no leader of {said} says within {WAIT_S:.0f} s whether its log is still the "
                    "one that was read"
                )
            time.sleep(PAUSE_S)
            told = self.ends(unknown, read.epochs, all_of_them=True)
            latest = Known(latest.offsets | told.offsets, latest.epochs | told.epochs)
        return known_of(latest, latest.offsets.keys() - unknown), cuts

    def _epoch_ends(self, read: Known, latest: Known) -> tuple[Offsets, set[Partition]]:
        """Return where epochs in which was read end, of newer leaders; and which do not say."""
        asked = {
            p: leaders.Question(read.epochs[p], epoch)
            for p, epoch in latest.epochs.items()
            if 0 <= read.epochs.get(p, -1) < epoch and read.offsets[p] <= latest.offsets[p]
        }
        fresh = {
            p: question
            for p, question in asked.items()
            if self._whole.get(p) != (read.offsets[p], question)
        }
        told = leaders.epoch_ends(self._client, fresh) if fresh else {}
        ends = {p: end for p, end in told.items() if end is not None}
        cuts = parted(read, ends)
        self._whole |= {p: (read.offsets[p], fresh[p]) for p in told if p not in cuts}
        return ends, fresh.keys() - told.keys()

    def reaching(self, wanted: Mapping[Partition, int]) -> Known:
        """Return the ends of logs that somebody says to be at least so long.

        A leader that is a new one, or that was cut off, may not know yet: until each log is so
        long they are asked for REQUEST_S.
        """
        deadline, newest = time.monotonic() + REQUEST_S, self.newest(wanted)
        while True:
            told = self.ends(wanted, newest, all_of_them=True)
            if all(told.offsets[p] >= end for p, end in wanted.items()):
                return told
            if time.monotonic() > deadline:
                return told
            self._find_leaders_anew()
            time.sleep(PAUSE_S)

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the first offset at or after a time in ms since 1970, of each; LATEST: none is."""
        specs = {p: OffsetSpec.for_timestamp(time_ms) for p, time_ms in times.items()}
        newest = self.newest(times)
        return self._ask(specs, newest, all_of_them=True, may_be_none=True).offsets

    def _ask(
        self,
        specs: Mapping[Partition, Any],
        known: Mapping[Partition, int] = NO_EPOCHS,
        *,
        all_of_them: bool,
        may_be_none: bool = False,
        within_s: float | None = None,
    ) -> Known:
        """Ask the leaders; with `all_of_them` again until everyone has answered, within a bound."""
        begin, retries = time.monotonic(), self._retries if within_s is None else None
        bound_s = WAIT_S if within_s is None else within_s
        found = Known({}, {})
        for asked in count():
            missing = {
                partition: spec for partition, spec in specs.items() if partition not in found[0]
            }
            said = self._ask_once(missing, known, found, may_be_none=may_be_none)
            if len(found.offsets) == len(specs) or not all_of_them:
                return found
            if asked == retries:
                raise ListingError(
                    f"no offsets from {', '.join(said)} after {asked} retries "
                    "(fetchOffset.numRetries)"
                )
            if retries is None and time.monotonic() > begin + bound_s:
                raise ListingError(f"no offsets from {', '.join(said)} within {bound_s:.0f} s")
            time.sleep(self._pause_s)
        raise AssertionError("unreachable")

    def _ask_once(
        self,
        specs: Mapping[Partition, Any],
        known: Mapping[Partition, int],
        found: Known,
        *,
        may_be_none: bool,
    ) -> list[str]:
        """Put the answers into `found`; return whom none came from, and why."""
        if not specs:
            return []
        # A record is told with the epoch that wrote it, and the end of a log with its leader's.
        leading = self._told(dict.fromkeys(specs, OffsetSpec.latest())) if may_be_none else {}
        said: list[str] = []
        for partition, answer in self._told(specs).items():
            is_none = may_be_none and answer.offset == LATEST and answer.why == NO_ANSWER
            leader = leading.get(partition, answer)
            if why := leader.why or ("" if is_none else answer.why):
                said.append(f"{partition} ({why})")
            elif 0 <= leader.epoch < known.get(partition, -1):
                cut_off = f"was followed by one of epoch {known[partition]}"
                said.append(f"{partition} (its leader of epoch {leader.epoch} {cut_off})")
                self._wait_for_successor(partition, leader.epoch, known[partition])
            else:
                self._behind.pop(partition, None)
                found.offsets[partition] = answer.offset
                if leader.epoch >= 0:
                    found.epochs[partition] = leader.epoch
        if said:
            self._find_leaders_anew()
        return said

    def _told(self, specs: Mapping[Partition, Any]) -> dict[Partition, Told]:
        return ask_offsets(self._admin, specs, is_committed=self._committed, wait_s=OFFSETS_S)

    def _wait_for_successor(self, partition: Partition, epoch: int, known: int) -> None:
        """Say once that a leader is an old one. ListingError: it has been for too long."""
        now = time.monotonic()
        since, looks = self._behind.get(partition, (now, 0))
        self._behind[partition] = since, looks + 1
        what = f"{partition}: its leader has epoch {epoch}, and one of epoch {known} is known of"
        remedy = (
            "If the cluster was restored from a copy, or the topic made anew where topics have no "
            "ids, what was read is not in this log: start with a fresh checkpoint"
        )
        if not looks:
            log.warning("%s: its successor is waited for. %s", what, remedy)
        elif now - since > OLD_LEADER_S and looks + 1 >= OLD_LEADER_LOOKS:
            raise ListingError(f"{what}; no other one was found in {OLD_LEADER_S:.0f} s. {remedy}")

    def close(self) -> None:
        self._consumer.close()
