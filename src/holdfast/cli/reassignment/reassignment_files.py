"""The JSON files of kafka-reassign-partitions: read, written, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.json_files import read_json, read_partitions, whole
from holdfast.clients.placement_plan import Assignment, TopicPartition

ASSIGNMENT_SHAPE = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
TOPICS_SHAPE = '{"version":1,"topics":[{"topic":"t"}]}'


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

    def replicas(entry: Any) -> list[int]:
        if any(where != "any" for where in entry.get("log_dirs", ())):
            raise CommandError(
                f"{option}: {entry['topic']}-{entry['partition']} asks for a log directory; only "
                '"any" can be had: a broker chooses the directory itself.',
                code=EXIT_USAGE,
            )
        return [whole(broker) for broker in entry["replicas"]]

    return read_partitions(option, path, ASSIGNMENT_SHAPE, replicas)


def read_topics(path: Path) -> list[str]:
    """Read what --generate is given. CommandError: it is not that."""
    return read_json(
        f"--topics-to-move-json-file {path}",
        path,
        TOPICS_SHAPE,
        "topic",
        lambda content: list(dict.fromkeys(str(entry["topic"]) for entry in content["topics"])),
    )


def read_brokers(text: str) -> list[int]:
    """Read --broker-list. CommandError: it is not one."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise CommandError(
            f"--broker-list {text}: ids with commas between are wanted, such as 1,2,3.",
            code=EXIT_USAGE,
        ) from None
    refuse_if(len(set(brokers)) != len(brokers), f"--broker-list {text} names a broker twice.")
    return brokers
