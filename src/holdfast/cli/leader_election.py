"""`holdfast leader-election`: kafka-leader-election's flags, on any Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import EXIT_FAILED, EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.json_files import read_json, whole
from holdfast.cli.refusals import outcome, refusals_told
from holdfast.cli.shared_options import (
    REQUEST_TIMEOUT_MS,
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    target,
)
from holdfast.clients.administration import perform_patiently
from holdfast.wire.administration import Election, elect_leaders
from holdfast.wire.errors import ErrorCode

SHAPE = '{"partitions": [{"topic": "t", "partition": 0}]}'
TYPES = {election.name.lower(): election for election in Election}
Outcomes = Mapping[tuple[str, int], tuple[ErrorCode, str]]


ElectionType = Annotated[
    str,
    typer.Option("--election-type", metavar="preferred|unclean", help="Whom to elect."),
]
TopicName = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="With --partition: one partition.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="N", help="With --topic.", min=0)
]
AllTopicPartitions = Annotated[
    bool, typer.Option("--all-topic-partitions", help="Every partition that needs it.")
]
PathToJsonFile = Annotated[
    Path | None,
    typer.Option(
        "--path-to-json-file",
        metavar="FILE",
        help=f"Partitions, as {SHAPE}.",
    ),
]


def leader_election(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    election_type: ElectionType,
    topic: TopicName = None,
    partition: Partition = None,
    all_topic_partitions: AllTopicPartitions = False,
    path_to_json_file: PathToJsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Elect leaders now, of any Kafka, with kafka-leader-election's flags.

    preferred: the first replica of the list leads again, if it is in sync. unclean: any live
    replica leads where none in sync is left, and LOSES what only the others had.
    """
    election = TYPES.get(election_type.lower())
    if election is None:
        raise CommandError(
            f"--election-type {election_type}: preferred or unclean is wanted.", code=EXIT_USAGE
        )
    chosen = [topic is not None, all_topic_partitions, path_to_json_file is not None]
    refuse_if(
        sum(chosen) != 1,
        "Say for which partitions with one of --topic, --all-topic-partitions, "
        "--path-to-json-file.",
    )
    refuse_if((topic is None) != (partition is None), "--topic and --partition go together.")
    wanted: dict[str, list[int]] | None = None
    if topic is not None and partition is not None:
        wanted = {topic: [partition]}
    elif path_to_json_file is not None:
        wanted = read_partitions(path_to_json_file)
    with refusals_told(), connected(target(bootstrap_server, data_dir_option)) as driver:
        found = perform_patiently(driver, elect_leaders(election, wanted, REQUEST_TIMEOUT_MS))
    outcomes = {key: outcome(*each) for key, each in found.items()}
    if as_json:
        print(json.dumps(_to_json(outcomes), indent=2))
    else:
        print_outcomes(election_type.upper(), outcomes)
    if any(
        code not in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED} for code, _ in outcomes.values()
    ):
        raise typer.Exit(EXIT_FAILED)


def read_partitions(path: Path) -> dict[str, list[int]]:
    """Read the partitions of a file. CommandError names what is wrong with it."""

    def read(content: Any) -> dict[str, list[int]]:
        wanted: dict[str, list[int]] = {}
        for entry in content["partitions"]:
            wanted.setdefault(str(entry["topic"]), []).append(whole(entry["partition"]))
        return wanted

    return read_json(f"--path-to-json-file {path}", path, SHAPE, "partition", read)


def print_outcomes(election: str, outcomes: Outcomes) -> None:
    """Print what became of each partition, in kafka-leader-election's words."""
    done = [key for key, (code, _) in sorted(outcomes.items()) if code == ErrorCode.NONE]
    same = [
        key for key, (code, _) in sorted(outcomes.items()) if code == ErrorCode.ELECTION_NOT_NEEDED
    ]
    if done:
        print(f"Successfully completed leader election ({election}) for partitions {_names(done)}")
    if same:
        print(f"Valid replica already elected for partitions {_names(same)}")
    for key, (code, message) in sorted(outcomes.items()):
        if key not in done and key not in same:
            print(
                f"Error completing leader election ({election}) for partition: {_names([key])}: "
                f"{code.name}: {message}"
            )
    if not outcomes:
        print("Every partition has the leader that it should have.")


def _names(keys: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in keys)


def _to_json(outcomes: Outcomes) -> list[dict[str, str | int | None]]:
    return [
        {
            "topic": topic,
            "partition": partition,
            "error": None if code == ErrorCode.NONE else code.name,
            "message": message or None,
        }
        for (topic, partition), (code, message) in sorted(outcomes.items())
    ]
