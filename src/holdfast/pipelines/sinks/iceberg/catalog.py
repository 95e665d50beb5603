"""A catalog of Iceberg tables in SQL, in which a commit is made behind what was read or not at all.

pyiceberg's transaction tries a commit four times more when others were faster, on a table that it
has read anew, and asks nobody: a former owner's rows would follow on its successor's. And a
catalog compares nothing but snapshots, so a commit of properties alone (who owns a query) is in
nobody's way. Here the table must be what the committing handle has read, to the last property; and
a conflict is an error of ours, which pyiceberg does not try again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import sqlalchemy as sql
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import PY_IO_IMPL
from sqlalchemy.engine import make_url

from holdfast.pipelines.sinks.database_url import checked, open_database
from holdfast.pipelines.sinks.iceberg import synced_files
from holdfast.pipelines.sinks.target import TargetError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

SCHEME: Final = "iceberg+"
_USE: Final = (
    "use iceberg+sqlite:///FILE?warehouse=/FOLDER or "
    "iceberg+postgresql://USER@HOST/DATABASE?warehouse=/FOLDER"
)
_KNOWN: Final = {
    "sqlite": frozenset({"timeout"}),
    # What libpq takes.
    "postgresql": frozenset({
        "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
        "fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr",
        "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
        "load_balance_hosts", "max_protocol_version", "min_protocol_version", "oauth_client_id",
        "oauth_client_secret", "oauth_issuer", "oauth_scope", "options", "passfile", "password",
        "port", "require_auth", "requirepeer", "scram_client_key", "scram_server_key", "service",
        "servicefile", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert",
        "sslcertmode", "sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslkeylogfile",
        "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni",
        "target_session_attrs", "tcp_user_timeout", "user",
    }),
}  # fmt: skip
"""What may stand behind the question mark, beside what is ours. Others might be secrets."""
_NOT_IN_A_LOCATION: Final = frozenset("%?#\\")


class ConflictError(RuntimeError):
    """The table is no longer what was read. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a catalog is, under which name its tables stand in it, and where those are made.

    It is pickled and shown: a password in `url` is a reference.
    """

    url: str
    catalog: str
    warehouse: str

    @classmethod
    def parse(cls, target: str) -> Place:
        """TargetError: it is no such place."""
        if not target.startswith(SCHEME):
            raise TargetError(f"target: {target.partition(':')[0]}:... is no catalog; {_USE}")
        url = make_url(checked(target.removeprefix(SCHEME)))
        if url.get_backend_name() not in {"sqlite", "postgresql"}:
            raise TargetError(f"target: a catalog in {url.get_backend_name()} is not built; {_USE}")
        if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
            raise TargetError(f"target: a catalog in memory is gone with its process; {_USE}")
        warehouse, name = url.query.get("warehouse"), url.query.get("catalog", "default")
        if not isinstance(warehouse, str) or not isinstance(name, str):
            raise TargetError(f"target: it has to name one warehouse; {_USE}")
        parts = urlsplit(warehouse)
        if parts.scheme not in {"", "file"} or parts.netloc or not parts.path.startswith("/"):
            # What stands before an @ may be a key to somebody's store.
            shown = f"{parts.scheme}://..." if parts.netloc else warehouse
            raise TargetError(
                f"target: warehouse={shown}: only folders are built, which every executor has "
                "under the same name; use warehouse=/FOLDER"
            )
        plain = url.difference_update_query(["warehouse", "catalog"])
        unknown = sorted(plain.query.keys() - _KNOWN[url.get_backend_name()])
        if unknown:  # a password could be among them: only names are told
            raise TargetError(
                f"target: it has {', '.join(unknown)} behind the question mark, which nobody here "
                f"knows; {_USE}, and &catalog=NAME"
            )
        folder = warehouse.removeprefix("file://")
        location(folder)
        return cls(plain.render_as_string(hide_password=False), name, folder.rstrip("/"))


def location(folder: str) -> str:
    """Return a folder as Iceberg's metadata name it. TargetError: readers would look elsewhere."""
    found = sorted(_NOT_IN_A_LOCATION & set(folder))
    if found:
        raise TargetError(
            f"target: {folder!r}: readers of Iceberg take the {found[0]} of a name for an escape "
            "or a separator, each in its way; give the folder another name"
        )
    return f"file://{PurePosixPath(folder)}"


class OwnersCatalog(SqlCatalog):
    """The tables of one catalog, for who must know what a commit of theirs follows on."""

    def __init__(self, place: Place) -> None:
        # Not SqlCatalog's: it opens an engine of its own, and keeps the password in a property.
        properties = {"warehouse": location(place.warehouse), PY_IO_IMPL: synced_files.NAME}
        super(SqlCatalog, self).__init__(place.catalog, **properties)
        self.engine = open_database(place.url)
        try:
            self._init_catalog()
        except (sql.exc.IntegrityError, sql.exc.ProgrammingError, sql.exc.OperationalError):
            self._init_catalog()  # somebody made the same tables at this moment

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit if the table is what its handle has read. ConflictError: it is not."""
        as_read = cast("TableRequirement", Unchanged(table.metadata))
        try:
            return super().commit_table(table, (as_read, *requirements), updates)
        except CommitFailedException as error:
            raise ConflictError(f"{'.'.join(table.name())}: {error}") from error


class Unchanged:
    """What pyiceberg asks of a table before a commit: here that nothing of it has changed.

    What it is asked about is what the catalog then compares and sets (the name of the metadata's
    file), so nobody comes between.
    """

    type = "assert-unchanged"

    def __init__(self, read: TableMetadata) -> None:
        self._read = read

    def validate(self, base_metadata: TableMetadata | None) -> None:
        if base_metadata != self._read:
            raise CommitFailedException("the table has been changed since it was read")


def opened(place: Place) -> OwnersCatalog:
    return OwnersCatalog(place)


def journaled(catalog: Catalog, journal: Any) -> None:
    """Have the names of what is written from the next read on written down, in a file."""
    catalog.properties[synced_files.JOURNAL] = str(journal)
