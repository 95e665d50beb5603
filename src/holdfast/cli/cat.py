"""`holdfast cat`: produce, consume and list with kcat's flags, on any Kafka.

Owns the options and the choice of mode; producing, consuming and listing are `cat_modes.py`'s.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import EXIT_USAGE, CommandError
from holdfast.cli.cat_format import parse_header, parse_offsets, unescape
from holdfast.cli.options import bootstrap_servers, key_values

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_PORT = 9092


def cat(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="-P: each file is one message (see -l)."),
    ] = None,
    *,
    produce: Annotated[bool, typer.Option("-P", help="Produce: messages from input.")] = False,
    consume: Annotated[bool, typer.Option("-C", help="Consume: messages to output.")] = False,
    metadata: Annotated[bool, typer.Option("-L", help="List brokers, topics, partitions.")] = False,
    brokers: Annotated[
        str | None,
        typer.Option(
            "-b",
            metavar="HOST[:PORT],...",
            help="Brokers to ask first.",
            show_default="the local cluster of the default data directory",
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option("-t", metavar="TOPIC", help="The topic.")] = None,
    partition: Annotated[
        int | None,
        typer.Option("-p", metavar="N", help="The partition; -1 or none: any (-P), all (-C)."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("-k", metavar="KEY", help="-P: the same key for all messages.")
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", metavar="DELIMITER", help="Between key and value.")
    ] = None,
    delimiter: Annotated[
        str,
        typer.Option("-D", metavar="DELIMITER", help="Between messages; \\n, \\t, \\xNN..."),
    ] = "\\n",
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            metavar="OFFSET",
            help="-C: beginning, end, stored, N, -N (before the end), "
            "s@MS (from a time), e@MS (up to a time).",
            show_default="beginning",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-c", metavar="N", help="Exit after so many messages.", min=1)
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("-e", help="-C: exit at the end of all partitions.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", help="No word beside the messages.")] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "-f",
            metavar="FORMAT",
            help="-C: %s value, %k key, %S %K their lengths, %R length as 4 bytes, %t topic, "
            "%p partition, %o offset, %T timestamp, %h headers.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("-J", help="-C, -L: JSON.")] = False,
    nulls: Annotated[
        bool, typer.Option("-Z", help="-P: empty is null. -C: null is written NULL.")
    ] = False,
    unbuffered: Annotated[bool, typer.Option("-u", help="-C: no buffering of output.")] = False,
    headers: Annotated[
        list[str] | None,
        typer.Option("-H", metavar="NAME=VALUE", help="-P: a header; may be repeated."),
    ] = None,
    codec: Annotated[
        str, typer.Option("-z", metavar="CODEC", help=f"-P: {', '.join(CODECS)}.")
    ] = "none",
    lines: Annotated[
        bool, typer.Option("-l", help="-P: FILE has many messages, with -D between them.")
    ] = False,
    tee: Annotated[bool, typer.Option("-T", help="-P: write what is sent to output.")] = False,
    timeout_s: Annotated[
        float, typer.Option("-m", metavar="SECONDS", help="Bound for the first answer.")
    ] = 5.0,
    properties: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A property of librdkafka."),
    ] = None,
) -> None:
    """Produce (-P), consume (-C) or list (-L) with kcat's flags, on any Kafka.

    Without a mode: produce what is piped in, else consume. Consuming needs no group, and commits
    nothing unless -o stored and -X group.id=... ask for it.
    """
    mode = _mode(produce=produce, consume=consume, metadata=metadata)
    settings = _settings(brokers, properties or [])
    if mode != "L" and topic is None:
        raise CommandError(f"-{mode} needs -t TOPIC.", code=EXIT_USAGE)
    if codec not in CODECS:
        raise CommandError(f"-z {codec}: one of {', '.join(CODECS)} is wanted.", code=EXIT_USAGE)
    if mode != "P" and files:
        raise CommandError(f"Files go with -P, not with -{mode}.", code=EXIT_USAGE)
    if lines and len(files or []) != 1:
        raise CommandError("-l needs exactly one FILE.", code=EXIT_USAGE)
    from holdfast.cli import cat_modes  # noqa: PLC0415 - librdkafka loads only for real work

    if mode == "L":
        cat_modes.list_metadata(settings, topic, as_json=as_json, timeout_s=timeout_s)
        return
    assert topic is not None, "checked above"
    key_bytes = None if key_delimiter is None else unescape(key_delimiter)
    if mode == "P":
        cat_modes.produce(
            settings | ({} if codec == "none" else {"compression.codec": codec}),
            cat_modes.Production(
                topic=topic,
                partition=-1 if partition is None else partition,
                key=None if key is None else key.encode("utf-8", "surrogateescape"),
                key_delimiter=key_bytes,
                delimiter=unescape(delimiter),
                empty_is_null=nulls,
                headers=[parse_header(text) for text in headers or []],
                count=count,
                tee=tee,
            ),
            files=files or [],
            lines=lines,
        )
        return
    start, stop_ms = parse_offsets(offsets or [])
    cat_modes.consume(
        settings,
        cat_modes.Consumption(
            topic=topic,
            partition=None if partition in {None, -1} else partition,
            start=start,
            stop_ms=stop_ms,
            count=count,
            exit_at_end=exit_at_end,
            quiet=quiet,
            unbuffered=unbuffered,
            timeout_s=timeout_s,
        ),
        cat_modes.writer(
            format_=format_,
            as_json=as_json,
            delimiter=unescape(delimiter),
            key_delimiter=key_bytes,
            nulls=nulls,
        ),
    )


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
