"""Which topic a name stands for now: its id, as Kafka's tools spell it, and its partitions.

Owns the asking. No id comes a second time: what was read by name
before an id was asked for is of that topic or of an older one, never of a later one. A broker that
lags tells of the older one, so one answer alone makes no topic another one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.pipelines.intake.connection import Client, open_admin
from holdfast.pipelines.offsets import (
    TopicIds,
    TopicMadeAnewError,
    made_anew,
    made_anew_text,
    spelt,
)
from holdfast.pipelines.read_range import Access, ReadError
from holdfast.pipelines.reading import leaders
from holdfast.pipelines.reading.told_offsets import admin_of
from holdfast.pipelines.reading.way import way_of

REQUEST_S = 5.0
PAUSE_S = 0.2
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes: what a broker without ids is taken to say
LOOKS = 10
GONE_LOOK_S = 60.0
OVER_MAX = 10_000  # ids that are remembered
log = logging.getLogger(__name__)

_without_ids: set[str] = set()


def ask(admin: AdminClient, topics: Iterable[str], ids: TopicIds) -> dict[str, KafkaError]:
    """Put what is told into `ids`; return for whom no answer came, and why."""
    asked = TopicCollection(sorted(topics))
    unanswered: dict[str, KafkaError] = {}
    futures = admin.describe_topics(asked, request_timeout=REQUEST_S)
    for topic, future in futures.items():
        try:
            found = spelt(str(future.result().topic_id))
        except KafkaException as error:
            unanswered[topic] = error.args[0]
            continue
        if found != NO_ID:
            ids[topic] = found
        elif topic not in _without_ids:
            _without_ids.add(topic)
            log.warning(
                "topic %r: this cluster tells no topic ids (Kafka does since 2.8), so offsets are "
                "kept by its name: deleted and made anew, it looks like the same topic",
                topic,
            )
    return unanswered


def numbers_of(admin: AdminClient, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of the partitions that topics have now, in one request that makes none.

    An unknown topic has none. Whom nobody tells of, for whatever reason, is left out.
    """
    asked = TopicCollection(sorted(set(topics)))
    found: dict[str, list[int]] = {}
    for topic, future in admin.describe_topics(asked, request_timeout=REQUEST_S).items():
        try:
            found[topic] = sorted(each.id for each in future.result().partitions)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[topic] = []
    return found


def ids_told_by_lot(client: Client, topics: Iterable[str]) -> leaders.Spread:
    """Ask over librdkafka, which asks whom a broker calls the controller: with KRaft any of them.

    So nobody can be chosen, and some may not be asked.
    """
    ids: dict[str, set[str]] = {topic: set() for topic in topics}
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
        found: TopicIds = {}
        failed = ask(open_admin(client), ids, found)  # a new one: it goes on asking the same
        for topic in ids.keys() - failed.keys():
            ids[topic].add(found.get(topic, ""))
    return leaders.Spread(ids, is_whole=False)


class TopicsOver:
    """Which topics are no more. What one broker says of them is held against all others."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._over: dict[str, None] = {}  # their ids, the oldest first
        self._looked: dict[str, float] = {}  # when brokers were asked whether one is gone

    def settled(self, before: Mapping[str, str], told: Mapping[str, str]) -> TopicIds:
        """Return what is told, without what may be told by who lags.

        That is an id of a topic that is over, and one that is another than `before`, as long as a
        broker tells something else of the topic.
        """
        changed = {topic: now for topic, (_, now) in made_anew(before, told).items()}
        doubtful = {t for t, now in told.items() if now in self._over and before.get(t) != now}
        looked_at = changed.keys() - doubtful
        if looked_at:
            spread = self._spread(looked_at).ids
            doubtful |= {t for t in looked_at if spread[t] != {changed[t]}}
        self._end(before[topic] for topic in looked_at - doubtful)
        return {topic: now for topic, now in told.items() if topic not in doubtful}

    def gone(self, ids: Mapping[str, str]) -> set[str]:
        """Return which of these topics each broker of the cluster answers not to know.

        So none can bring them back, and their ids are over. Over librdkafka each broker can't be
        asked, and no topic is told. A cluster in which one does not answer is asked now and then.
        """
        self._looked = {each: at for each, at in self._looked.items() if each in ids.values()}
        now_s = time.monotonic()
        asked = {
            topic: topic_id
            for topic, topic_id in ids.items()
            if now_s - self._looked.get(topic_id, -GONE_LOOK_S) >= GONE_LOOK_S
        }
        if not asked or not way_of(self._client).is_ours:
            return set()
        self._looked |= dict.fromkeys(asked.values(), now_s)
        spread = leaders.ids_told(self._client, asked)
        found = {topic for topic in asked if spread.is_whole and not spread.ids[topic]}
        self._end(asked[topic] for topic in found)
        return found

    def _spread(self, topics: Iterable[str]) -> leaders.Spread:
        if way_of(self._client).is_ours:
            return leaders.ids_told(self._client, topics)
        return ids_told_by_lot(self._client, topics)

    def _end(self, ids: Iterable[str]) -> None:
        for topic_id in ids:
            self._over[topic_id] = None
        while len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]


def must_be(access: Access, topic: str, topic_id: str, *, is_certain: bool) -> None:
    """Raise TopicMadeAnewError if the topic is another one now. Called when it has been read.

    Where it `is_certain` that what was read is of that topic, and data may be lost, it stays right
    when the topic is gone, or another one, by now.
    """
    is_held = is_certain and not access.fail_on_data_loss
    begin = time.monotonic()
    ids: TopicIds = {}
    while unanswered := ask(admin_of(access.client), [topic], ids):
        waited_s, why = time.monotonic() - begin, unanswered[topic]
        is_gone = why.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if is_held and is_gone and waited_s > REQUEST_S:
            log.warning("going on: topic %r was deleted after it was read", topic)
            return
        if is_gone and not access.fail_on_data_loss and waited_s > REQUEST_S:
            raise ReadError(
                f"{topic}: the topic was deleted while it was read by its name, so what was read "
                "may be of another one: the range has to be read anew"
            )
        if waited_s > access.silence_ms_max / 1000:
            said = f"within {access.silence_ms_max} ms"
            raise ReadError(f"{topic}: no id told ({why.str()}) {said}")
        time.sleep(PAUSE_S)
    if changed := made_anew({topic: topic_id}, ids):
        said = "; ".join(made_anew_text(changed))
        if not is_held:
            raise TopicMadeAnewError(said)
        log.warning("going on with what was read of it: %s", said)
