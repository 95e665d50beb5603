"""The JSON files of kafka-reassign-partitions: read, written, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli import EXIT_USAGE, CommandError
from holdfast.clients.placement_plan import Assignment, TopicPartition

ASSIGNMENT_SHAPE = (
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]} is wanted'
)
TOPICS_SHAPE = '{"version":1,"topics":[{"topic":"t"}]} is wanted'


def as_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """One line, as Kafka's tool prints and reads it."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for (topic, partition), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def read_assignment(path: Path) -> Assignment:
    """Read what --execute, --verify and --cancel are given. CommandError: it is not that."""
    option = f"--reassignment-json-file {path}"
    wanted: Assignment = {}
    try:
        for entry in _load(path, option)["partitions"]:
            key = (str(entry["topic"]), int(entry["partition"]))
            if key in wanted:
                raise CommandError(f"{option} names {key[0]}-{key[1]} twice.", code=EXIT_USAGE)
            if any(where != "any" for where in entry.get("log_dirs", ())):
                raise CommandError(
                    f'{option}: {key[0]}-{key[1]} asks for a log directory; only "any" can be '
                    "had: a broker chooses the directory itself.",
                    code=EXIT_USAGE,
                )
            wanted[key] = [int(broker) for broker in entry["replicas"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CommandError(f"{option}: {ASSIGNMENT_SHAPE}.", code=EXIT_USAGE) from None
    if not wanted:
        raise CommandError(f"{option} names no partition.", code=EXIT_USAGE)
    return wanted


def read_topics(path: Path) -> list[str]:
    """Read what --generate is given. CommandError: it is not that."""
    option = f"--topics-to-move-json-file {path}"
    try:
        topics = [str(entry["topic"]) for entry in _load(path, option)["topics"]]
    except (KeyError, TypeError, ValueError):
        raise CommandError(f"{option}: {TOPICS_SHAPE}.", code=EXIT_USAGE) from None
    if not topics:
        raise CommandError(f"{option} names no topic.", code=EXIT_USAGE)
    return list(dict.fromkeys(topics))


def read_brokers(text: str) -> list[int]:
    """Read --broker-list. CommandError: it is not one."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise CommandError(
            f"--broker-list {text}: ids with commas between are wanted, such as 1,2,3.",
            code=EXIT_USAGE,
        ) from None
    if len(set(brokers)) != len(brokers):
        raise CommandError(f"--broker-list {text} names a broker twice.", code=EXIT_USAGE)
    return brokers


def _load(path: Path, option: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{option}: {error.strerror}.", code=EXIT_USAGE) from None
