"""`holdfast cat`: produce, consume and list with kcat's flags, on any Kafka.

Owns the options and the choice of mode; what is done is `cat_modes.py`'s, `cat_group.py`'s and
`cat_list.py`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.cat.cat_format import parse_header, parse_offsets, unescape, writer
from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.shared_options import did_you_mean, key_values, refuse_idle, target

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_PORT = 9092
DEFAULT_DELIMITER = "\\n"
FIRST_ANSWER_S = 5.0
PARTITION_MAX = (1 << 31) - 1
SERVERS = ("bootstrap.servers", "metadata.broker.list")
COMPRESSION = ("compression.codec", "compression.type")
GOES_WITH: Mapping[str, Sequence[str]] = {
    "FILE": ["-P", "-G"],
    "-p": ["-P", "-C"],
    "-k": ["-P"],
    "-K": ["-P", "-C", "-G"],
    "-D": ["-P", "-C", "-G"],
    "-o": ["-C", "-G"],
    "-c": ["-P", "-C", "-G"],
    "-e": ["-C", "-G"],
    "-f": ["-C", "-G"],
    "-J": ["-C", "-G", "-L"],
    "-Z": ["-P", "-C", "-G"],
    "-u": ["-C", "-G"],
    "-H": ["-P"],
    "-z": ["-P"],
    "-l": ["-P"],
    "-T": ["-P"],
}
GUESSED = {
    "-P": "Without -P, -C, -G or -L, input from a pipe or a file means -P.",
    "-C": "Without -P, -C, -G or -L, input from a terminal means -C.",
}
# What -J and -f say of a consumed message replaces these.
IDLE_TOGETHER = (("-J", ("-f", "-K", "-D", "-Z")), ("-f", ("-K", "-D")))


Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="-P: each file is one message (see -l). -G: topics, or ^PATTERN.",
    ),
]
Produce = Annotated[bool, typer.Option("-P", help="Produce: messages from input.")]
Consume = Annotated[bool, typer.Option("-C", help="Consume: messages to output.")]
InGroup = Annotated[
    str | None,
    typer.Option(
        "-G", metavar="GROUP", help="Consume as a member of a group; topics stand at the end."
    ),
]
ListMetadata = Annotated[bool, typer.Option("-L", help="List brokers, topics, partitions.")]
Brokers = Annotated[
    str | None,
    typer.Option(
        "-b",
        metavar="HOST[:PORT],...",
        help="Brokers to ask first.",
        show_default="the local cluster",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="The local cluster there, instead of -b."),
]
Topic = Annotated[str | None, typer.Option("-t", metavar="TOPIC", help="The topic.")]
Partition = Annotated[
    int | None,
    typer.Option(
        "-p",
        metavar="N",
        help="The partition; -1 or none: any (-P), all (-C).",
        min=-1,
        max=PARTITION_MAX,
    ),
]
Key = Annotated[
    str | None, typer.Option("-k", metavar="KEY", help="-P: the same key for all messages.")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("-K", metavar="DELIMITER", help="Between key and value.")
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "-D",
        metavar="DELIMITER",
        help="Between messages; \\n, \\t, \\xNN...",
        show_default=DEFAULT_DELIMITER,
    ),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        metavar="OFFSET",
        help="-C, -G: beginning, end, stored, N, -N (before the end), "
        "s@MS (from a time), e@MS (up to a time).",
        show_default="beginning; stored with -G",
    ),
]
Count = Annotated[
    int | None, typer.Option("-c", metavar="N", help="Exit after so many messages.", min=1)
]
ExitAtEnd = Annotated[bool, typer.Option("-e", help="-C, -G: exit at the end of all partitions.")]
Quiet = Annotated[bool, typer.Option("-q", help="No word beside the messages.")]
Format = Annotated[
    str | None,
    typer.Option(
        "-f",
        metavar="FORMAT",
        help="-C, -G: %s value, %k key, %S %K their lengths, %R length as 4 bytes, %t topic, "
        "%p partition, %o offset, %T timestamp, %h headers.",
    ),
]
AsJson = Annotated[bool, typer.Option("-J", help="-C, -G, -L: JSON.")]
Nulls = Annotated[bool, typer.Option("-Z", help="-P: empty is null. -C, -G: null is written NULL.")]
Unbuffered = Annotated[bool, typer.Option("-u", help="-C, -G: no buffering of output.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("-H", metavar="NAME=VALUE", help="-P: a header; may be repeated."),
]
Codec = Annotated[
    str | None,
    typer.Option("-z", metavar="CODEC", help=f"-P: {', '.join(CODECS)}.", show_default="none"),
]
Lines = Annotated[
    bool, typer.Option("-l", help="-P: FILE has many messages, with -D between them.")
]
Tee = Annotated[bool, typer.Option("-T", help="-P: write what is sent to output.")]
TimeoutS = Annotated[
    float,
    typer.Option(
        "-m", metavar="SECONDS", help="Bound for the first answer.", min=0.001, max=86_400
    ),
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
    group: InGroup = None,
    metadata: ListMetadata = False,
    brokers: Brokers = None,
    data_dir_option: DataDir = None,
    topic: Topic = None,
    partition: Partition = None,
    key: Key = None,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = None,
    offsets: Offsets = None,
    count: Count = None,
    exit_at_end: ExitAtEnd = False,
    quiet: Quiet = False,
    format_: Format = None,
    as_json: AsJson = False,
    nulls: Nulls = False,
    unbuffered: Unbuffered = False,
    headers: Headers = None,
    codec: Codec = None,
    lines: Lines = False,
    tee: Tee = False,
    timeout_s: TimeoutS = FIRST_ANSWER_S,
    properties: Properties = None,
) -> None:
    """Produce (-P), consume (-C, -G) or list (-L) with kcat's flags, on any Kafka.

    Without a mode: produce what is piped in, else consume. Consuming with -C needs no group, and
    commits nothing unless -o stored and -X group.id=... ask for it; with -G what was written is
    committed.
    """
    mode = _mode(produce=produce, consume=consume, group=group, metadata=metadata)
    given = {
        "FILE": files,
        "-p": partition,
        "-k": key,
        "-K": key_delimiter,
        "-D": delimiter,
        "-o": offsets,
        "-c": count,
        "-e": exit_at_end,
        "-f": format_,
        "-J": as_json,
        "-Z": nulls,
        "-u": unbuffered,
        "-H": headers,
        "-z": codec,
        "-l": lines,
        "-T": tee,
    }
    is_guessed = not (produce or consume or metadata or group is not None)
    _check(mode, given, topic=topic, guessed=is_guessed)
    between, between_keys = _delimiters(mode, delimiter, key_delimiter)
    start, stop_ms = parse_offsets(offsets or [])
    settings = _settings(brokers, data_dir_option, properties or [], codec, group)
    # librdkafka is loaded for real work only
    from holdfast.cli.cat import cat_group, cat_list, cat_modes  # noqa: PLC0415

    if mode == "-L":
        cat_list.list_metadata(settings, topic, as_json=as_json, timeout_s=timeout_s)
        return
    if mode == "-P":
        assert topic is not None, "checked above"
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
            timeout_s=timeout_s,
        )
        paths = [Path(each) for each in files or []]
        cat_modes.produce(settings, production, files=paths, lines=lines)
        return
    write = writer(format_, between, between_keys, as_json=as_json, nulls=nulls)
    until = cat_modes.Until(
        stop_ms=stop_ms,
        count=count,
        exit_at_end=exit_at_end,
        quiet=quiet,
        unbuffered=unbuffered,
        timeout_s=timeout_s,
    )
    if group is not None:
        begins = any(not text.startswith("e@") for text in offsets or []) and not start.stored
        member = cat_group.GroupConsumption(
            group=group, topics=files or [], start=start if begins else None, until=until
        )
        cat_group.consume_in_group(settings, member, write)
        return
    assert topic is not None, "checked above"
    wanted = None if partition in {None, -1} else partition
    consumption = cat_modes.Consumption(topic=topic, partition=wanted, start=start, until=until)
    cat_modes.consume(settings, consumption, write)


def _delimiters(mode: str, delimiter: str | None, of_key: str | None) -> tuple[bytes, bytes | None]:
    """Return what stands between two messages, and between a key and its value."""
    between = unescape(DEFAULT_DELIMITER if delimiter is None else delimiter)
    between_keys = None if of_key is None else unescape(of_key)
    refuse_if(mode == "-P" and not between, "-D is empty: what stands between two messages?")
    refuse_if(
        mode == "-P" and between_keys == b"", "-K is empty: what stands between key and value?"
    )
    return between, between_keys


def _check(mode: str, given: Mapping[str, object], *, topic: str | None, guessed: bool) -> None:
    files, codec = given["FILE"], given["-z"]
    problem = None
    if mode == "-G":
        problem = _wrong_for_group(topic, files)
    elif mode != "-L" and not topic:
        problem = f"{mode} needs -t TOPIC."
    elif topic == "":
        problem = "-t is empty."
    elif codec is not None and codec not in CODECS:
        problem = f"-z {codec}: one of {', '.join(CODECS)} is wanted."
        problem += did_you_mean(str(codec), CODECS)
    elif given["-l"] and not (isinstance(files, list) and len(files) == 1):
        problem = "-l needs exactly one FILE."
    elif files and given["-D"] is not None and not (given["-l"] or given["-T"]):
        problem = "-D has no effect on FILE, which is one message; -l makes many of it."
    for with_, idle in IDLE_TOGETHER if mode in {"-C", "-G"} else ():
        for option in idle:
            if given[with_] and given[option]:
                problem = problem or f"{option} has no effect with {with_}."
    if problem:
        raise CommandError(problem, code=EXIT_USAGE)
    try:
        refuse_idle(mode, given, GOES_WITH)
    except CommandError as error:
        if not guessed:
            raise
        raise CommandError(f"{error} {GUESSED[mode]}", code=error.code) from None


def _wrong_for_group(topic: str | None, topics: object) -> str | None:
    if topic is not None:
        return "-t has no effect with -G: topics stand at the end, as in -G GROUP TOPIC."
    if not topics:
        return "-G needs topics at the end: -G GROUP TOPIC..."
    return None


def _mode(*, produce: bool, consume: bool, group: str | None, metadata: bool) -> str:
    modes = {"-P": produce, "-C": consume, "-G": group is not None, "-L": metadata}
    chosen = [mode for mode, is_on in modes.items() if is_on]
    refuse_if(len(chosen) > 1, "-P, -C, -G and -L exclude each other.")
    refuse_if(group == "", "-G is empty: which group?")
    if chosen:
        return chosen[0]
    return "-C" if sys.stdin.isatty() else "-P"


def _settings(
    brokers: str | None,
    directory: Path | None,
    properties: list[str],
    codec: str | None,
    group: str | None,
) -> dict[str, str]:
    """Return librdkafka's settings: those of -X, and what other options say."""
    given = key_values(properties, "-X")
    settings = {name.removeprefix("topic."): value for name, value in given.items()}
    twice = [
        ("-b", brokers, SERVERS),
        ("--data-dir", directory, SERVERS),
        ("-z", codec, COMPRESSION),
        ("-G", group, ("group.id",)),
    ]
    for option, value, names in twice:
        for name in names:
            refuse_if(
                value is not None and name in settings, f"{option} and -X {name} say the same."
            )
    if codec is not None:
        settings["compression.codec"] = codec
    if not any(name in settings for name in SERVERS):
        if brokers is not None:
            brokers = ",".join(_with_port(address.strip()) for address in brokers.split(","))
        settings["bootstrap.servers"] = target(brokers, directory, option="-b").servers
    return settings


def _with_port(address: str) -> str:
    """Return an address with the usual port where it has none, as kcat has it."""
    return address if ":" in address or not address else f"{address}:{DEFAULT_PORT}"
