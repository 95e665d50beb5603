"""Which topic a name stands for now: its id, as Kafka's tools spell it.

Owns the asking, and this process's clients for it. No id comes a second time: what was read by name
before an id was asked for is of that topic or of an older one, never of a later one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.pipelines.intake.connection import Client, open_admin
from holdfast.pipelines.offsets import (
    TopicIds,
    TopicMadeAnewError,
    made_anew,
    made_anew_text,
    spelt,
)
from holdfast.pipelines.read_range import ReadError

REQUEST_S = 5.0
PAUSE_S = 0.2
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes: what a broker without ids is taken to say
log = logging.getLogger(__name__)

# Workers outlive tasks, and connections are dear; a worker reads for few clusters.
_admins: dict[Client, AdminClient] = {}
_without_ids: set[str] = set()


def ask(admin: AdminClient, topics: Iterable[str], ids: TopicIds) -> dict[str, str]:
    """Put what is told into `ids`; return for whom no answer came, and why."""
    asked = TopicCollection(sorted(topics))
    unanswered: dict[str, str] = {}
    futures = admin.describe_topics(asked, request_timeout=REQUEST_S)
    for topic, future in futures.items():
        try:
            found = spelt(str(future.result().topic_id))
        except KafkaException as error:
            unanswered[topic] = error.args[0].str()
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


def must_be(client: Client, topic: str, topic_id: str, wait_ms_max: int) -> None:
    """Raise TopicMadeAnewError if the topic is another one now. Called when it has been read."""
    if client not in _admins:
        _admins[client] = open_admin(client)
    deadline = time.monotonic() + wait_ms_max / 1000
    ids: TopicIds = {}
    while unanswered := ask(_admins[client], [topic], ids):
        if time.monotonic() > deadline:
            raise ReadError(f"{topic}: no id told ({unanswered[topic]}) within {wait_ms_max} ms")
        time.sleep(PAUSE_S)
    if changed := made_anew({topic: topic_id}, ids):
        raise TopicMadeAnewError("; ".join(made_anew_text(changed)))
