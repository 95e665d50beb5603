"""`holdfast delete-records`: kafka-delete-records' file, or one partition, on any Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exit_status import EXIT_FAILED, CommandError, refuse_if
from holdfast.cli.json_files import read_partitions, whole
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    refuse_idle,
    target,
)
from holdfast.clients.blocking_driver import Driver, NoLeaderError
from holdfast.wire import administration
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.errors import ErrorCode

ALL = -1
WHERE = ["--topic"]
SHAPE = '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":3}]}'

OffsetJson = Annotated[
    Path | None,
    typer.Option(
        "--offset-json-file", metavar="FILE", help="Partitions and offsets; -1: all there is."
    ),
]
TopicName = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="One topic.")]
Partition = Annotated[
    int | None,
    typer.Option("--partition", metavar="N", help="With --topic: one of its partitions.", min=0),
]
BeforeOffset = Annotated[
    int | None,
    typer.Option(
        "--before-offset", metavar="N", help="With --partition: the first offset that stays.", min=0
    ),
]
AllRecords = Annotated[
    bool, typer.Option("--all", help="With --topic: everything that is committed.")
]


def delete_records(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    offset_json_file: OffsetJson = None,
    topic: TopicName = None,
    partition: Partition = None,
    before_offset: BeforeOffset = None,
    all_records: AllRecords = False,
    as_json: AsJson = False,
) -> None:
    """Forget all records before an offset, on every replica, for ever; of any Kafka.

    What is before the offset can't be read any more when this returns. Files shrink a little later.
    """
    by_name = topic is not None
    refuse_if(
        by_name == (offset_json_file is not None),
        "Say which: --topic NAME or --offset-json-file FILE.",
    )
    given = {"--partition": partition, "--before-offset": before_offset, "--all": all_records}
    refuse_idle("--topic" if by_name else "--offset-json-file", given, dict.fromkeys(given, WHERE))
    refuse_if(
        by_name and all_records == (before_offset is not None),
        "--topic takes --all, or --partition N with --before-offset N.",
    )
    refuse_if(
        before_offset is not None and partition is None, "--before-offset takes --partition N."
    )
    whom = target(bootstrap_server, data_dir_option)
    named = {} if offset_json_file is None else read_offsets(offset_json_file)
    with connected(whom) as driver:
        wanted = named
        if topic is not None:
            offset = ALL if before_offset is None else before_offset
            wanted = dict.fromkeys(_partitions(driver, topic, partition), offset)
        failed = _delete(driver, wanted, as_json=as_json)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Read kafka-delete-records' file. CommandError: it is not one."""
    return read_partitions(
        f"--offset-json-file {path}", path, SHAPE, lambda entry: whole(entry["offset"])
    )


def _partitions(driver: Driver, topic: str, partition: int | None) -> list[TopicPartition]:
    if partition is not None:
        return [(topic, partition)]
    (found,) = driver.metadata([topic]).topics
    if found.error_code:
        known = [each.name or "" for each in driver.metadata().topics]
        raise CommandError(f"--topic: there is no topic {topic}.{did_you_mean(topic, known)}")
    return sorted((topic, each.partition_index) for each in found.partitions)


def _delete(driver: Driver, wanted: dict[TopicPartition, int], *, as_json: bool) -> bool:
    """Delete partition by partition and print what came of each. True if one failed."""
    results: list[dict[str, str | int | None]] = []
    for key, offset in sorted(wanted.items()):
        low_watermark: int | None = None
        error: str | None = None
        try:
            asked = administration.delete_records(*key, offset)
            low_watermark = driver.perform(asked, node=driver.leader(*key))
        except (AdminError, NoLeaderError) as failure:
            error = str(failure)
            if failure.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                error += f": less is committed than {offset}; --all takes what there is"
        results.append(
            {"topic": key[0], "partition": key[1], "low_watermark": low_watermark, "error": error}
        )
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        print("Records delete operation completed:")
        for one in results:
            said = one["error"] or f"low_watermark: {one['low_watermark']}"
            print(f"partition: {one['topic']}-{one['partition']}\t{said}")
    return any(one["error"] for one in results)
