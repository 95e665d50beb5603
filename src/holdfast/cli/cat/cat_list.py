"""`holdfast cat -L`: brokers, topics and partitions, in the form of kcat -L."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.cli.cat.cat_modes import Settings, client_settings, made, unreachable


def list_metadata(
    settings: Settings, topic: str | None, *, as_json: bool, timeout_s: float
) -> None:
    """Print brokers and topics, as `kcat -L` does."""
    client = made(AdminClient, client_settings(settings))
    try:
        found = client.list_topics(topic, timeout=timeout_s)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    if as_json:
        print(json.dumps(_metadata_json(found, topic), separators=(",", ":")))
    else:
        print("\n".join(_metadata_lines(found, topic)))


def _metadata_lines(found: Any, topic: str | None) -> Iterator[str]:
    yield (
        f"Metadata for {topic or 'all topics'} "
        f"(from broker {found.orig_broker_id}: {found.orig_broker_name}):"
    )
    yield f" {len(found.brokers)} brokers:"
    for broker in sorted(found.brokers.values(), key=lambda broker: broker.id):
        controller = " (controller)" if broker.id == found.controller_id else ""
        yield f"  broker {broker.id} at {broker.host}:{broker.port}{controller}"
    yield f" {len(found.topics)} topics:"
    for name, described in sorted(found.topics.items()):
        error = "" if described.error is None else f" {described.error.str()}"
        yield f'  topic "{name}" with {len(described.partitions)} partitions:{error}'
        for partition in sorted(described.partitions.values(), key=lambda found: found.id):
            replicas, isrs = _ids(partition.replicas), _ids(partition.isrs)
            trouble = "" if partition.error is None else f", {partition.error.str()}"
            yield (
                f"    partition {partition.id}, leader {partition.leader}, "
                f"replicas: {replicas}, isrs: {isrs}{trouble}"
            )


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def _metadata_json(found: Any, topic: str | None) -> dict[str, Any]:
    brokers = sorted(found.brokers.values(), key=lambda broker: broker.id)
    return {
        "originating_broker": {"id": found.orig_broker_id, "name": found.orig_broker_name},
        "query": {"topic": topic or "*"},
        "controllerid": found.controller_id,
        "brokers": [{"id": node.id, "name": f"{node.host}:{node.port}"} for node in brokers],
        "topics": [_topic_json(found.topics[name]) for name in sorted(found.topics)],
    }


def _topic_json(topic: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"topic": topic.topic}
    if topic.error is not None:
        values["error"] = topic.error.str()
    values["partitions"] = [
        ({} if partition.error is None else {"error": partition.error.str()})
        | {
            "partition": partition.id,
            "leader": partition.leader,
            "replicas": [{"id": node} for node in partition.replicas],
            "isrs": [{"id": node} for node in partition.isrs],
        }
        for partition in sorted(topic.partitions.values(), key=lambda found: found.id)
    ]
    return values
