"""What an Iceberg table has, as its readers see it: through a catalog and files of pyiceberg's own.

No line of what is tested is used here.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

NAME = "db.kept"


def catalog(root: Path) -> SqlCatalog:
    return SqlCatalog(
        "default",
        uri=f"sqlite:///{root}/catalog.db",
        warehouse=f"file://{root}/warehouse",
        init_catalog_tables="false",
    )


def table(root: Path) -> Table:
    with closing(catalog(root)) as opened:
        return opened.load_table(NAME)


def numbers(root: Path) -> list[int]:
    """Return the table's rows; what its files say of themselves has to agree."""
    found = table(root)
    rows = sorted(found.scan().to_arrow()["number"].to_pylist())
    assert sum(task.file.record_count for task in found.scan().plan_files()) == len(rows)
    for number in rows:
        assert number in found.scan(f"number = {number}").to_arrow()["number"].to_pylist()
    return rows


def folder(root: Path) -> Path:
    return root / "warehouse" / "db" / "kept"


def committed(root: Path) -> set[str]:
    """Return the data files of the table as it is now."""
    return {Path(task.file.file_path).name for task in table(root).scan().plan_files()}


def there(root: Path) -> set[str]:
    """Return the data files in the table's folder, whoever knows of them."""
    return {path.name for path in (folder(root) / "data").glob("*")}


def orphans(root: Path) -> set[str]:
    """Return the files in the table's folder that neither it nor its history names."""
    found = table(root)
    known = {
        found.metadata_location,
        *(entry.metadata_file for entry in found.metadata.metadata_log),
    }
    for snapshot in found.metadata.snapshots:
        known.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(found.io):
            known.add(manifest.manifest_path)
            known |= {
                entry.data_file.file_path for entry in manifest.fetch_manifest_entry(found.io)
            }
    names = {Path(each.removeprefix("file://")) for each in known}
    return {str(path) for path in folder(root).rglob("*") if path.is_file() and path not in names}
