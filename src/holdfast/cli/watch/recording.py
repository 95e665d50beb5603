"""What `holdfast watch --record` keeps: a line of JSON a look.

Of partitions and groups there may be thousands, and most stay as they are from one look to the
next. The first line of a recording is whole; each later one has, under `partitions` and `lags`,
only what is new, and `null` for what nobody tells of any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from holdfast.cli.exit_status import CommandError
from holdfast.cli.watch.samples import Sample

BY_CHANGE = ("partitions", "lags")


class Recording:
    """A file to which looks are appended. A context manager. CommandError: it can't be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: dict[str, Any] | None = None
        try:
            self._file = path.open("ab", buffering=0)  # what was not written is not tried again
        except OSError as error:
            raise self._failed(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, sample: Sample) -> None:
        """Append a look, or nothing of it: half a line would spoil the one behind it."""
        now = as_json(sample)
        line = {"whole": self._before is None, **now}
        if self._before is not None:
            line |= {key: changes(self._before[key], now[key]) for key in BY_CHANGE}
        self._append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._before = now

    def _append(self, data: bytes) -> None:
        end = None
        with suppress(OSError):  # a pipe has none
            end = self._file.tell()
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(end)
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> CommandError:
        return CommandError(f"--record {self._path}: {error.strerror}.")


def as_json(sample: Sample) -> dict[str, Any]:
    """Return a sample as plain values; partitions by name."""
    values = asdict(sample)
    values["partitions"] = {
        f"{topic}-{number}": found for (topic, number), found in values["partitions"].items()
    }
    values["put_aside"] = [f"{topic}-{number}" for topic, number in sorted(sample.put_aside)]
    return values


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return of each name what is new or another value; None: nobody tells of it now."""
    found: dict[str, Any] = {name: None for name in before if name not in now}
    for name, values in now.items():
        old = before.get(name, {})
        new = {key: value for key, value in values.items() if key not in old or old[key] != value}
        if new:
            found[name] = new
    return found
