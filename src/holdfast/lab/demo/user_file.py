"""A user's file of JSON lines or CSV, line by line: what is well formed, and what is not and why.

Owns the rules for both formats. A line's text is kept as it stands in the file, without its line
end; nothing is ever held but the line at hand. It must never stop at a bad line.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from holdfast.lab.demo.events import line_value

# Key and value of one event, as they are sent: clients and brokers take 1,000,000 bytes by default,
# and the text of a line may grow to six times its length when it is put into JSON.
EVENT_BYTES_MAX = 990_000
KEY_BYTES_MAX = 16_384  # a key is written into the history at every send, and has to fit there
LINE_BYTES_MAX = EVENT_BYTES_MAX  # of a line that is worth being looked at
Format = Literal["json", "csv"]


class InputError(ValueError):
    """The file can't be used at all. One clear sentence."""


@dataclass(frozen=True, slots=True)
class Line:
    """A well-formed line. `number` counts from 1, as editors do."""

    number: int
    text: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is kept aside. `raw` is its bytes, cut at LINE_BYTES_MAX."""

    number: int
    raw: bytes
    reason: str


@dataclass(slots=True)
class Summary:
    """What was in a file: counts, and a digest over the well-formed lines."""

    well_formed: int = 0
    malformed: int = 0
    sha256: str = ""


class LinesDigest:
    """One digest over many lines in the order of their numbers, however they are stored.

    It covers number, key and text; the key is in JSON, so that no key and an empty one differ.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, number: int, key: str | None, text: str) -> None:
        self._hash.update(f"{number}\t{json.dumps(key)}\t{text}\n".encode())

    def hex(self) -> str:
        return self._hash.hexdigest()


def format_of(path: Path) -> Format:
    """Tell the format by the name's ending, else by the first character that says something."""
    if not path.is_file():
        what = "it is no file" if path.exists() else "there is no such file"
        raise InputError(f"--input {path}: {what}.")
    ending = path.suffix.lower()
    if ending in {".csv", ".tsv"}:
        return "csv"
    if ending in {".json", ".jsonl", ".ndjson"}:
        return "json"
    with path.open("rb") as file:
        begin = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    return "json" if begin[:1] in {b"{", b"["} else "csv"


def read(path: Path, key: str | None) -> Iterator[Line | Malformed]:
    """Yield every line that is not blank. InputError: the key is no column of the CSV's header."""
    kind = format_of(path)
    try:
        with path.open("rb") as file:
            raw = _numbered(file)
            found = _read_csv(raw, path, key) if kind == "csv" else _read_json(raw, key)
            yield from map(_sized, found)
    except OSError as error:
        raise InputError(f"--input {path}: {error.strerror}.") from error


def _sized(line: Line | Malformed) -> Line | Malformed:
    """Set aside what would not fit into a record, or its key not into the history."""
    if isinstance(line, Malformed):
        return line
    key_bytes = len((line.key or "").encode())
    event_bytes = key_bytes + len(line_value(line.number, line.text))
    if key_bytes > KEY_BYTES_MAX:
        reason = f"its key has {key_bytes:,} bytes; at most {KEY_BYTES_MAX:,} are taken"
    elif event_bytes > EVENT_BYTES_MAX:
        reason = f"its event has {event_bytes:,} bytes; at most {EVENT_BYTES_MAX:,} fit in a record"
    else:
        return line
    return Malformed(line.number, line.text.encode(), reason)


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines without their ends; of one that is too long only so much as to show that."""
    number = 0
    while raw := file.readline(LINE_BYTES_MAX + 2):
        number += 1
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        yield number, raw.rstrip(b"\r\n")


def _decoded(number: int, raw: bytes) -> str | Malformed:
    if len(raw) > LINE_BYTES_MAX:
        return Malformed(number, raw[:LINE_BYTES_MAX], f"longer than {LINE_BYTES_MAX:,} bytes")
    if b"\0" in raw:
        return Malformed(number, raw, "has a NUL byte")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        return Malformed(number, raw, f"not UTF-8 at byte {error.start}")


def _read_json(raw: Iterable[tuple[int, bytes]], key: str | None) -> Iterator[Line | Malformed]:
    for number, line in raw:
        if not line.strip():
            continue
        text = _decoded(number, line)
        if isinstance(text, Malformed):
            yield text
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Malformed(number, line, f"not JSON: {error}")
            continue
        yield _keyed(number, text, value, key)


def _keyed(number: int, text: str, value: Any, key: str | None) -> Line | Malformed:
    if key is None:
        return Line(number, text, None)
    if not isinstance(value, dict):
        return Malformed(number, text.encode(), f"no object, so it has no field {key!r}")
    if key not in value:
        return Malformed(number, text.encode(), f"no field {key!r}")
    found = value[key]
    name = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    try:
        name.encode()
    except UnicodeEncodeError:
        return Malformed(number, text.encode(), f"field {key!r} is no text that UTF-8 can hold")
    if "\0" in name:
        return Malformed(number, text.encode(), f"field {key!r} has a NUL character")
    return Line(number, text, name)


def _read_csv(
    raw: Iterable[tuple[int, bytes]], path: Path, key: str | None
) -> Iterator[Line | Malformed]:
    """The first line names the columns; every other line must have as many fields."""
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    csv.field_size_limit(LINE_BYTES_MAX)
    header: list[str] | None = None
    place = -1
    for number, line in raw:
        if not line.strip():
            continue
        text = _decoded(number, line)
        fields = text if isinstance(text, Malformed) else _fields(number, text, separator)
        if isinstance(fields, Malformed):
            if header is None:
                raise InputError(
                    f"--input {path}: its first line names no columns: {fields.reason}."
                )
            yield fields
        elif header is None:
            header = fields
            if key is not None and key not in header:
                columns = ", ".join(header)
                raise InputError(f"--key {key}: {path} has no such column; it has {columns}.")
            place = header.index(key) if key is not None else -1
        elif len(fields) != len(header):
            yield Malformed(number, line, f"{len(fields)} fields, the header has {len(header)}")
        else:
            assert isinstance(text, str)
            yield Line(number, text, fields[place] if key is not None else None)


def _fields(number: int, text: str, separator: str) -> list[str] | Malformed:
    """Split one line; one line is one event, so a quoted field ends where its line ends."""
    try:
        rows = list(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error as error:
        return Malformed(number, text.encode(), f"not CSV: {error}")
    return rows[0]


def summarise(path: Path, key: str | None, aside: Path) -> Summary:
    """Go through the file once: count, digest, write malformed lines with reasons to `aside`."""
    summary = Summary()
    digest = LinesDigest()
    with aside.open("w", encoding="utf-8") as kept:
        for line in read(path, key):
            if isinstance(line, Malformed):
                summary.malformed += 1
                entry = {
                    "line": line.number,
                    "reason": line.reason,
                    "text": line.raw.decode(errors="backslashreplace"),
                }
                kept.write(json.dumps(entry, ensure_ascii=False) + "\n")
            else:
                summary.well_formed += 1
                digest.add(line.number, line.key, line.text)
    summary.sha256 = digest.hex()
    return summary
