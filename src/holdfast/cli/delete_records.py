"""`holdfast delete-records`: kafka-delete-records' file, or one partition, on any Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import EXIT_FAILED, EXIT_USAGE, CommandError
from holdfast.cli.options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    refuse_idle,
    target,
)
from holdfast.clients.admin import AdminError, TopicPartition
from holdfast.clients.admin import delete_records as delete
from holdfast.clients.driver import Driver, NoLeaderError
from holdfast.wire.errors import ErrorCode

ALL = -1
WHERE = ["--topic"]
SHAPE = '{"version":1,"partitions":[{"topic":"t","partition":0,"offset":3}]} is wanted'

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
    if by_name == (offset_json_file is not None):
        raise CommandError("Say which: --topic NAME or --offset-json-file FILE.", code=EXIT_USAGE)
    given = {"--partition": partition, "--before-offset": before_offset, "--all": all_records}
    refuse_idle("--topic" if by_name else "--offset-json-file", given, dict.fromkeys(given, WHERE))
    if by_name and all_records == (before_offset is not None):
        raise CommandError(
            "--topic takes --all, or --partition N with --before-offset N.", code=EXIT_USAGE
        )
    if before_offset is not None and partition is None:
        raise CommandError("--before-offset takes --partition N.", code=EXIT_USAGE)
    whom = target(bootstrap_server, data_dir_option)
    named = {} if offset_json_file is None else read_offsets(offset_json_file)
    with connected(whom) as driver:
        wanted = named
        if not wanted:
            assert topic is not None
            offset = ALL if before_offset is None else before_offset
            wanted = dict.fromkeys(_partitions(driver, topic, partition), offset)
        failed = _delete(driver, wanted, as_json=as_json)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Read kafka-delete-records' file. CommandError: it is not one."""
    option = f"--offset-json-file {path}"
    wanted: dict[TopicPartition, int] = {}
    try:
        for entry in json.loads(path.read_bytes())["partitions"]:
            key = (str(entry["topic"]), int(entry["partition"]))
            if key in wanted:
                raise CommandError(f"{option} names {key[0]}-{key[1]} twice.", code=EXIT_USAGE)
            wanted[key] = int(entry["offset"])
    except OSError as error:
        raise CommandError(f"{option}: {error.strerror}.", code=EXIT_USAGE) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{option}: {SHAPE}.", code=EXIT_USAGE) from None
    if not wanted:
        raise CommandError(f"{option} names no partition.", code=EXIT_USAGE)
    return wanted


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
            low_watermark = delete(driver, {key: offset})[key]
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
