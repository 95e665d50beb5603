"""An answer as plain values that two clusters can be held against each other by, pure.

What differs by nature is replaced: an address, an id that is drawn, a time, the words of an error
(that there are words is kept). Lists whose order means nothing are keyed by what names an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdfast.wire.batch import BatchHeader, batches, read_records
from holdfast.wire.errors import error_name
from holdfast.wire.schema import Struct
from holdfast.wire.uuids import NULL_UUID

NOTHING: Final = "(nothing)"
SOMETHING: Final = "(something)"  # a list, a struct or an entry of a list, whatever is in it
EMPTY: Final = "(an empty list)"
NO_ANSWER: Final = "answer"  # in the place of an answer's fields: why there was none
_COUNT: Final = ".count"
_ERROR: Final = "error_code"

# By the name of a field: what its value is replaced by, unless it is nothing.
_REPLACED: Final = {
    "host": "a host",
    "port": "a port",
    "cluster_id": "a cluster id",
    "producer_id": "a producer id",
    "session_id": "a session id",
    "log_dir": "a directory",
    "throttle_time_ms": "a time",
    "log_append_time_ms": "a time",
    "last_fetch_timestamp": "a time",
    "last_caught_up_timestamp": "a time",
    "finalized_features_epoch": "an offset of the metadata log",
    "total_bytes": "bytes of a disk",
    "usable_bytes": "bytes of a disk",
    "replica_directory_id": "a directory id",
    "documentation": "words",
    "log_end_offset": "an offset",
}
# Ids of members that are drawn: a client's name or an instance's, and a UUID as Java writes it or
# as Kafka does.
_MEMBERS: Final = ("member_id", "leader")
_DRAWN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[-_A-Za-z0-9]{22}$")
_HORIZON_SET: Final = 0x40  # the base timestamp is when tombstones may go
_SETS: Final = ("subscribed_topic_names",)  # of words, told in any order
_WORDS: Final = ("error_message", "batch_index_error_message")
# What names an entry of a list of structs; the first of these that it has.
_KEYS: Final = (
    "topic_name",
    "name",
    "topic",
    "key",
    "feature",
    "resource_name",
    "group_id",
    "member_id",
    "group_instance_id",
    "api_key",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "node_id",
    "broker_id",
    "replica_id",
    "log_dir",
)


class Difference(NamedTuple):
    """One value that the two answer differently to one step."""

    step: str
    path: str
    ours: str
    theirs: str


Names = Mapping[bytes | str, str]


def plain(answer: Any, version: int, names: Names) -> dict[str, str]:
    """Return each value of an answer by its path. `names`: of topics and members, by their ids."""
    return dict(_values(answer, version, "", names))


def differences(step: str, ours: dict[str, str], theirs: dict[str, str]) -> list[Difference]:
    """Return the values that differ, in the order of their paths.

    One thing is told once, without what follows from it: an entry that one has not got is one
    difference and not each of its fields, and so is a list or a struct that one leaves out. What
    one refuses and the other grants differs in that alone.
    """
    if (NO_ANSWER in ours) != (NO_ANSWER in theirs):
        told = (side.get(NO_ANSWER, SOMETHING) for side in (ours, theirs))
        return [Difference(step, NO_ANSWER, *told)]
    branches, others = _branches(ours), _branches(theirs)
    refused = _refused(ours, theirs)
    found: dict[str, Difference] = {}
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) == theirs.get(path):
            continue
        for where in (*_above(path), path):
            one, other = _told(where, ours, branches), _told(where, theirs, others)
            if one != other:
                break
        follows = any(where.startswith(it) and where != f"{it}{_ERROR}" for it in refused)
        # How many entries there are follows from which ones.
        is_count = where.endswith(_COUNT) and NOTHING not in (one, other)
        if not follows and not is_count:
            found.setdefault(where, Difference(step, where, one, other))
    return list(found.values())


def _branches(values: dict[str, str]) -> set[str]:
    """Return the paths of all that has something below it."""
    return {above for path in values for above in _above(path)}


def _above(path: str) -> list[str]:
    """Return the paths of what a value is a part of, the outermost first; keys may have dots."""
    depth, found = 0, []
    for at, character in enumerate(path):
        if not depth and at and character in ".[":
            found.append(path[:at])
        depth += (character == "[") - (character == "]")
    return found


def _told(path: str, values: dict[str, str], branches: set[str]) -> str:
    """Return a value, or only that there is a list, a struct or an entry at this path."""
    if path in branches:
        return EMPTY if values.get(path + _COUNT) == "0" else SOMETHING
    return values.get(path, NOTHING)


def _refused(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return where the paths begin of what one of the two refuses, and the other grants."""
    granted = error_name(0)
    return [
        path.removesuffix(_ERROR)
        for path in ours.keys() & theirs.keys()
        if path.rpartition(".")[2] == _ERROR
        and (ours[path] == granted) != (theirs[path] == granted)
    ]


def _values(value: Any, version: int, path: str, names: Names) -> Iterator[tuple[str, str]]:
    if isinstance(value, Struct):
        for field in value.FIELDS:
            if field.present(version):
                yield from _field(field.name, getattr(value, field.name), version, path, names)
    elif isinstance(value, list):
        yield path + _COUNT, str(len(value))
        taken: dict[str, int] = {}
        for index, entry in enumerate(value):
            key = _key_of(entry, names) or str(index)
            taken[key] = taken.get(key, 0) + 1
            again = "" if taken[key] == 1 else f"#{taken[key]}"
            yield from _values(entry, version, f"{path}[{key}{again}]", names)
    elif isinstance(value, bytes | bytearray | memoryview):
        yield path, str(bytes(value))
    else:
        yield path, str(value)


def _field(
    name: str, value: Any, version: int, path: str, names: Names
) -> Iterator[tuple[str, str]]:
    where = f"{path}.{name}".lstrip(".")
    if name in _WORDS:
        yield where, "words" if value else "no words"
    elif name in _REPLACED:
        yield where, _REPLACED[name] if value not in (None, -1, "", NULL_UUID) else str(value)
    elif name.endswith("topic_id"):
        yield where, _topic(value, names)
    elif name in _SETS:
        yield from _values(sorted(value), version, where, names)
    elif name in _MEMBERS:
        yield where, _member(value, names)
    elif name == "error_code":
        yield where, error_name(value)
    elif name == "records":
        yield from _batches(value, where)
    else:
        yield from _values(value, version, where, names)


def _topic(topic_id: bytes, names: Names) -> str:
    if topic_id == NULL_UUID:
        return "no id"
    return f"the id of {names[topic_id]}" if topic_id in names else "an id"


def _member(member_id: str | None, names: Names) -> str:
    if member_id is not None and member_id in names:
        return f"the id of {names[member_id]}"
    return _DRAWN.sub("(drawn)", member_id) if member_id else str(member_id)


def _key_of(entry: Any, names: Names) -> str | None:
    if not isinstance(entry, Struct):
        return None
    fields = {field.name for field in entry.FIELDS}
    for name in _KEYS:
        value = getattr(entry, name) if name in fields else None
        if value == "" and name == "group_id":
            return "(no name)"
        if value not in (None, ""):
            if name in _MEMBERS:
                return _member(value, names)
            return "a directory" if name == "log_dir" else str(value)
    return _topic(entry.topic_id, names) if "topic_id" in fields else None  # type: ignore[attr-defined]


def _batches(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Batches by their headers and the keys and values of their records."""
    if not value:
        yield path, NOTHING
        return
    for number, (position, header) in enumerate(batches(value)):
        data = memoryview(value)[position : position + header.size]
        records = [(one.timestamp, one.key, one.value, one.headers) for one in read_records(data)]
        shown = _shown(header)
        if records:  # each is shown with its own: what a batch counts them from means nothing
            shown = shown._replace(base_timestamp=0)
        yield f"{path}[{number}]", f"{tuple(shown)} {records}"


def _shown(header: BatchHeader) -> BatchHeader:
    header = header._replace(crc=0, batch_length=0, producer_id=min(header.producer_id, 0))
    if header.attributes & _HORIZON_SET:
        header = header._replace(base_timestamp=0)
    return header
