"""Which columns files in one folder may have: for whoever reads it, a name has one type.

A folder has no schema of its own, and several queries may write there. Each puts down what it
writes before it looks at what the others have: of two that begin at once one sees the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from holdfast.pipelines.sinks.target import TargetError
from holdfast.pipelines.sinks.written_files import make_folder, write_whole

Columns = Mapping[str, Any]  # types as Spark's JSON has them

MANIFEST: Final = "_manifest.json"
_DECLARED: Final = "_columns"  # beside areas of queries, whose names don't begin with _
_EMPTY: Final = "struct<>"
# What Arrow writes for each comes back from Spark, or DuckDB, as something else or not at all.
_UNTRUSTED: Final[Mapping[str, str]] = {
    "interval": "to a number of seconds or months",
    "void": "to the type that its values would have",
    "variant": "to a string",
    _EMPTY: "to a string (to_json), or leave it out",
}


def columns_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return each column's type.

    TargetError: one is there twice, for some who read the files, or readers differ about its type.
    """
    found: dict[str, Any] = {}
    lower: set[str] = set()
    for field in schema["fields"]:
        name = field["name"]
        if name.lower() in lower:
            raise TargetError(
                f"column {name!r} is there twice: to Spark, which reads the files, A and a are one "
                "name; give one of them another"
            )
        lower.add(name.lower())
        for kind in _simple_types(field["type"]):
            if (instead := _UNTRUSTED.get(kind.partition(" ")[0])) is not None:
                raise TargetError(
                    f"column {name!r} has the type {kind}, which who reads Parquet finds as "
                    f"something else, or not at all; cast it in the query, {instead}"
                )
        found[name] = field["type"]
    return found


def _simple_types(kind: Any) -> Iterator[str]:
    """Yield the types that one is made of, in Spark's JSON."""
    if isinstance(kind, str):
        yield kind
        return
    for key in ("elementType", "keyType", "valueType"):
        if key in kind:
            yield from _simple_types(kind[key])
    if kind.get("fields") == []:
        yield _EMPTY
    for field in kind.get("fields", ()):
        yield from _simple_types(field["type"])


def columns_of_files(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the columns of all files up to a manifest; of before it tells its own alone."""
    if manifest is None:
        return {}
    told: dict[str, Any] = manifest.get("columns") or columns_of_last(manifest)
    return told


def columns_of_last(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a manifest's own files."""
    schema = json.loads(manifest["schema"])
    return {field["name"]: field["type"] for field in schema["fields"]}


def refuse_other_types(before: Columns, wanted: Columns, whose: str, way_out: str) -> None:
    """TargetError: of a name that is in both, the type differs, or how it is spelt."""
    spelt = {name.lower(): name for name in before}
    for name, kind in wanted.items():
        there = spelt.get(name.lower(), name)
        if there != name or before.get(name, kind) != kind:
            raise TargetError(
                f"{whose} a column {there!r} of the type {_spelt(before[there])}, and the query "
                f"has {name!r}, {_spelt(kind)}: who reads the folder finds one type for both, or "
                f"an error. Cast it in the query, give it another name, or {way_out}"
            )


def _spelt(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def agree_with_others(root: Path, area: str, name: str, columns: Columns) -> None:
    """Put down what a query writes in this folder. TargetError: another query's types differ.

    `name`: the query's, as its folder's. One that is refused has put down what it had before.
    """
    declared = root / area / _DECLARED
    make_folder(declared)
    own = declared / f"{name}.json"
    former = own.read_bytes() if own.exists() else None
    write_whole(own, json.dumps(columns).encode())
    try:
        for other, file, theirs in _others(root, area, name):
            refuse_other_types(
                theirs,
                columns,
                f"{root}: query {unquote(other)!r} writes here, too, with",
                "write to another folder"
                + ("" if file is None else f". If that query is gone with all it wrote: rm {file}"),
            )
    except TargetError:
        if former is None:
            own.unlink(missing_ok=True)
        else:
            write_whole(own, former)
        raise


def _others(root: Path, area: str, name: str) -> Iterator[tuple[str, Path | None, Columns]]:
    """Yield the other queries that write in this folder: name, where it says so, columns."""
    declared = root / area / _DECLARED
    files = {file.stem: file for file in sorted(declared.glob("[!.]*.json"))}
    for other, file in files.items():
        if other != name:
            yield other, file, json.loads(file.read_bytes())
    for folder in sorted(root.iterdir()):  # of who wrote before queries put it down
        if folder.is_dir() and folder.name not in {area, name, *files}:
            with suppress(FileNotFoundError):  # a folder of somebody else's
                yield folder.name, None, columns_of_files(last_manifest(folder))


def last_manifest(folder: Path) -> dict[str, Any] | None:
    """Return what a query committed last, over all its checkpoints, to this folder of its own."""
    commits = [
        (int(number), batch / MANIFEST)
        for checkpoint in folder.iterdir()
        if checkpoint.is_dir()
        for batch in checkpoint.iterdir()
        if (number := batch.name.partition("-")[2]).isdigit()
    ]
    if not commits:
        return None
    manifest: dict[str, Any] = json.loads(max(commits)[1].read_text())
    return manifest
