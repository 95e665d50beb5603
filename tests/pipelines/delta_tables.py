"""What a Delta table has, as its readers see it, and by the rules of its log.

No line of what is tested is used here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyarrow import parquet


def committed(root: Path) -> set[str]:
    """Return the files that Delta's log names: the protocol's rules, for a log without checkpoint.

    A file of no bytes is what a power cut may leave of a commit: it says nothing.
    """
    files: set[str] = set()
    for entry in sorted((root / "kept" / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
    return files


def numbers(root: Path) -> list[int]:
    """Return the table's rows. All readers see the same, or this fails."""
    found = [parquet.read_table(root / "kept" / name)["number"] for name in committed(root)]
    ours = sorted(number for each in found for number in each.to_pylist())
    assert delta_numbers(root) == ours
    return ours


def delta_numbers(root: Path) -> list[int]:
    table = DeltaTable(root / "kept")
    through_arrow = sorted(table.to_pyarrow_table()["number"].to_pylist())
    scanned = pa.table(table.scan().read_all())["number"].to_pylist()
    assert sorted(scanned) == through_arrow
    assert table.count() == len(through_arrow)
    return through_arrow


def there(root: Path) -> set[str]:
    """Return the data files in the table's folder, whoever knows of them."""
    return {path.name for path in (root / "kept").glob("*.parquet")}


def schema_of(fields: list[tuple[str, str, bool]]) -> Schema:
    made = [
        {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
        for name, kind, nullable in fields
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": made}))
