"""`holdfast cat`: produce, consume and list with kcat's flags, on any Kafka.

Owns the options and the choice of mode; producing, consuming and listing are `cat_modes.py`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import EXIT_USAGE, CommandError
from holdfast.cli.cat_format import parse_header, parse_offsets, unescape, writer
from holdfast.cli.options import bootstrap_servers, key_values

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_PORT = 9092


Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="-P: each file is one message (see -l)."),
]
Produce = Annotated[bool, typer.Option("-P", help="Produce: messages from input.")]
Consume = Annotated[bool, typer.Option("-C", help="Consume: messages to output.")]
ListMetadata = Annotated[bool, typer.Option("-L", help="List brokers, topics, partitions.")]
Brokers = Annotated[
    str | None,
    typer.Option(
        "-b",
        metavar="HOST[:PORT],...",
        help="Brokers to ask first.",
        show_default="the local cluster of the default data directory",
    ),
]
Topic = Annotated[str | None, typer.Option("-t", metavar="TOPIC", help="The topic.")]
Partition = Annotated[
    int | None,
    typer.Option("-p", metavar="N", help="The partition; -1 or none: any (-P), all (-C)."),
]
Key = Annotated[
    str | None, typer.Option("-k", metavar="KEY", help="-P: the same key for all messages.")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("-K", metavar="DELIMITER", help="Between key and value.")
]
Delimiter = Annotated[
    str,
    typer.Option("-D", metavar="DELIMITER", help="Between messages; \\n, \\t, \\xNN..."),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        metavar="OFFSET",
        help="-C: beginning, end, stored, N, -N (before the end), "
        "s@MS (from a time), e@MS (up to a time).",
        show_default="beginning",
    ),
]
Count = Annotated[
    int | None, typer.Option("-c", metavar="N", help="Exit after so many messages.", min=1)
]
ExitAtEnd = Annotated[bool, typer.Option("-e", help="-C: exit at the end of all partitions.")]
Quiet = Annotated[bool, typer.Option("-q", help="No word beside the messages.")]
Format = Annotated[
    str | None,
    typer.Option(
        "-f",
        metavar="FORMAT",
        help="-C: %s value, %k key, %S %K their lengths, %R length as 4 bytes, %t topic, "
        "%p partition, %o offset, %T timestamp, %h headers.",
    ),
]
AsJson = Annotated[bool, typer.Option("-J", help="-C, -L: JSON.")]
Nulls = Annotated[bool, typer.Option("-Z", help="-P: empty is null. -C: null is written NULL.")]
Unbuffered = Annotated[bool, typer.Option("-u", help="-C: no buffering of output.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("-H", metavar="NAME=VALUE", help="-P: a header; may be repeated."),
]
Codec = Annotated[str, typer.Option("-z", metavar="CODEC", help=f"-P: {', '.join(CODECS)}.")]
Lines = Annotated[
    bool, typer.Option("-l", help="-P: FILE has many messages, with -D between them.")
]
Tee = Annotated[bool, typer.Option("-T", help="-P: write what is sent to output.")]
TimeoutS = Annotated[
    float, typer.Option("-m", metavar="SECONDS", help="Bound for the first answer.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A property of librdkafka."),
]


def cat(
    files: Files = None,
    *,
    produce: Produce = False,
    consume: Consume = False,
    metadata: ListMetadata = False,
    brokers: Brokers = None,
    topic: Topic = None,
    partition: Partition = None,
    key: Key = None,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = "\\n",
    offsets: Offsets = None,
    count: Count = None,
    exit_at_end: ExitAtEnd = False,
    quiet: Quiet = False,
    format_: Format = None,
    as_json: AsJson = False,
    nulls: Nulls = False,
    unbuffered: Unbuffered = False,
    headers: Headers = None,
    codec: Codec = "none",
    lines: Lines = False,
    tee: Tee = False,
    timeout_s: TimeoutS = 5.0,
    properties: Properties = None,
) -> None:
    """Produce (-P), consume (-C) or list (-L) with kcat's flags, on any Kafka.

    Without a mode: produce what is piped in, else consume. Consuming needs no group, and commits
    nothing unless -o stored and -X group.id=... ask for it.
    """
    mode = _mode(produce=produce, consume=consume, metadata=metadata)
    settings = _settings(brokers, properties or [])
    _check(mode, topic=topic, codec=codec, files=files or [], lines=lines)
    from holdfast.cli import cat_list, cat_modes  # noqa: PLC0415 - librdkafka loads for real work

    if mode == "L":
        cat_list.list_metadata(settings, topic, as_json=as_json, timeout_s=timeout_s)
        return
    assert topic is not None, "checked above"
    between_keys = None if key_delimiter is None else unescape(key_delimiter)
    between = unescape(delimiter)
    if mode == "P":
        production = cat_modes.Production(
            topic=topic,
            partition=-1 if partition is None else partition,
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            key_delimiter=between_keys,
            delimiter=between,
            empty_is_null=nulls,
            headers=[parse_header(text) for text in headers or []],
            count=count,
            tee=tee,
        )
        settings |= {"compression.codec": codec} if codec != "none" else {}
        cat_modes.produce(settings, production, files=files or [], lines=lines)
        return
    start, stop_ms = parse_offsets(offsets or [])
    consumption = cat_modes.Consumption(
        topic=topic,
        partition=None if partition in {None, -1} else partition,
        start=start,
        stop_ms=stop_ms,
        count=count,
        exit_at_end=exit_at_end,
        quiet=quiet,
        unbuffered=unbuffered,
        timeout_s=timeout_s,
    )
    write = writer(format_, between, between_keys, as_json=as_json, nulls=nulls)
    cat_modes.consume(settings, consumption, write)


def _check(mode: str, *, topic: str | None, codec: str, files: Sequence[Path], lines: bool) -> None:
    problem = None
    if mode != "L" and topic is None:
        problem = f"-{mode} needs -t TOPIC."
    elif codec not in CODECS:
        problem = f"-z {codec}: one of {', '.join(CODECS)} is wanted."
    elif mode != "P" and files:
        problem = f"Files go with -P, not with -{mode}."
    elif lines and len(files) != 1:
        problem = "-l needs exactly one FILE."
    if problem:
        raise CommandError(problem, code=EXIT_USAGE)


def _mode(*, produce: bool, consume: bool, metadata: bool) -> str:
    chosen = [
        letter for letter, is_on in (("P", produce), ("C", consume), ("L", metadata)) if is_on
    ]
    if len(chosen) > 1:
        raise CommandError("-P, -C and -L exclude each other.", code=EXIT_USAGE)
    if chosen:
        return chosen[0]
    return "C" if sys.stdin.isatty() else "P"


def _settings(brokers: str | None, properties: list[str]) -> dict[str, str]:
    """Return librdkafka's settings: those of -X, and the brokers."""
    given = key_values(properties, "-X")
    settings = {name.removeprefix("topic."): value for name, value in given.items()}
    if brokers is not None or "bootstrap.servers" not in settings:
        servers = ",".join(
            address if _has_port(address) else f"{address}:{DEFAULT_PORT}"
            for address in (brokers or bootstrap_servers(None)).split(",")
        )
        settings["bootstrap.servers"] = servers
    return settings


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdecimal() and ":" in address
