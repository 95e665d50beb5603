"""How `holdfast cat` reads delimiters and writes messages, in kcat's escapes and tokens. Pure."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if

NULL = b"NULL"
Headers = Sequence[tuple[str, bytes | None]]
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_TOKEN = re.compile(rb"%(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One consumed message. Timestamp -1: it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str  # create, logappend or unknown
    broker: int
    key: bytes | None
    value: bytes | None
    headers: Headers


Write = Callable[[Message], bytes]


def unescape(text: str) -> bytes:
    r"""Read a delimiter or a format: \n, \t, \r, \0, \xNN; other escaped letters are themselves."""

    def one(match: re.Match[bytes]) -> bytes:
        found = match[1]
        if found[:1] == b"x" and len(found) > 1:
            return bytes([int(found[1:], 16)])
        return _LETTERS.get(found, found)

    return _ESCAPE.sub(one, text.encode("utf-8", "surrogateescape"))


def formatter(text: str, *, nulls: bool) -> Write:
    """Compile a format of -f. With `nulls`, an absent key or value is written NULL."""
    null = NULL if nulls else b""
    tokens: dict[bytes, Write] = {
        b"s": lambda message: null if message.value is None else message.value,
        b"S": lambda message: b"%d" % _size(message.value),
        b"R": lambda message: struct.pack(">i", _size(message.value)),
        b"k": lambda message: null if message.key is None else message.key,
        b"K": lambda message: b"%d" % _size(message.key),
        b"t": lambda message: message.topic.encode(),
        b"p": lambda message: b"%d" % message.partition,
        b"o": lambda message: b"%d" % message.offset,
        b"T": lambda message: b"%d" % message.timestamp_ms,
        b"h": lambda message: _headers(message.headers),
        b"%": lambda _: b"%",
    }
    parts: list[Write] = []
    at = 0
    # Escapes are read piece by piece, so that \x25 stays a percent sign.
    encoded = text.encode("utf-8", "surrogateescape")
    for match in _TOKEN.finditer(encoded):
        parts.append(_literal(encoded[at : match.start()]))
        if match[1] not in tokens:
            raise CommandError(
                f"-f: %{match[1].decode(errors='replace')} is no token; there are "
                "%s %S %R %k %K %t %p %o %T %h %%.",
                code=EXIT_USAGE,
            )
        parts.append(tokens[match[1]])
        at = match.end()
    parts.append(_literal(encoded[at:]))
    return lambda message: b"".join(part(message) for part in parts)


def _literal(text: bytes) -> Write:
    value = unescape(text.decode("utf-8", "surrogateescape"))
    return lambda _: value


def plain(*, delimiter: bytes, key_delimiter: bytes | None, nulls: bool) -> Write:
    """Return how messages are written without -f or -J: [key, key delimiter,] value, delimiter."""
    null = NULL if nulls else b""

    def write(message: Message) -> bytes:
        value = null if message.value is None else message.value
        if key_delimiter is None:
            return value + delimiter
        key = null if message.key is None else message.key
        return key + key_delimiter + value + delimiter

    return write


def writer(
    format_: str | None,
    delimiter: bytes,
    key_delimiter: bytes | None,
    *,
    as_json: bool,
    nulls: bool,
) -> Write:
    """Return how messages are written: -J before -f before delimiters."""
    if as_json:
        return envelope
    if format_ is not None:
        return formatter(format_, nulls=nulls)
    return plain(delimiter=delimiter, key_delimiter=key_delimiter, nulls=nulls)


def envelope(message: Message) -> bytes:
    """Return kcat's JSON envelope on one line. Bytes that aren't UTF-8 are replaced."""
    values: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "tstype": message.timestamp_type,
        "ts": message.timestamp_ms,
        "broker": message.broker,
    }
    if message.headers:
        values["headers"] = [
            part for name, value in message.headers for part in (name, _decoded(value))
        ]
    values["key"] = _decoded(message.key)
    values["payload"] = _decoded(message.value)
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _headers(headers: Headers) -> bytes:
    return b",".join(
        name.encode() + b"=" + (NULL if value is None else value) for name, value in headers
    )


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Read name=value of -H; without "=" the value is null."""
    name, equals, value = text.partition("=")
    refuse_if(not name, f"-H {text!r} has no name.")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def split_key(line: bytes, delimiter: bytes | None) -> tuple[bytes | None, bytes]:
    """Split one input at the first key delimiter; without one there is no key."""
    if delimiter is None:
        return None, line
    key, found, value = line.partition(delimiter)
    return (key, value) if found else (None, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin in every partition: exactly one of these."""

    offset: int | None = None  # absolute, or negative: so many before the end
    timestamp_ms: int | None = None
    stored: bool = False


def parse_offsets(texts: Sequence[str]) -> tuple[Start, int | None]:
    """Read every -o: where to begin (default: the beginning), and the timestamp to stop at."""
    start: Start | None = None
    stop_ms: int | None = None
    for text in texts:
        is_stop = text.startswith("e@")
        if (is_stop and stop_ms is not None) or (not is_stop and start is not None):
            what = "ends" if is_stop else "begins"
            raise CommandError(
                f"-o {text}: another -o says already where it {what}.", code=EXIT_USAGE
            )
        if text in _STARTS:
            start = _STARTS[text]
            continue
        # Numbers of more digits Python reads no more.
        found = re.fullmatch(r"([se]@)?(-?\d{1,4000})", text, re.ASCII)
        number = int(found[2]) if found else 0
        refuse_if(abs(number) > OFFSET_MAX, f"-o {text}: no offset or time is that large.")
        if found is None or (found[1] and found[2].startswith("-")):
            raise CommandError(
                f"-o {text!r}: beginning, end, stored, an offset, -N (N before the end), "
                "s@MILLISECONDS or e@MILLISECONDS is wanted.",
                code=EXIT_USAGE,
            )
        if is_stop:
            stop_ms = number
        else:
            start = Start(timestamp_ms=number) if found[1] else Start(offset=number)
    return start or Start(offset=0), stop_ms


END = -1 << 63
OFFSET_MAX = (1 << 63) - 1
_STARTS = {
    **dict.fromkeys(("beginning", "earliest", "start"), Start(offset=0)),
    **dict.fromkeys(("end", "latest"), Start(offset=END)),
    "stored": Start(stored=True),
}
