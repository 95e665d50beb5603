"""A database's URL as a query carries it, and as a connection needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import URL, Engine, make_url

from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.intake.secret_references import is_reference, resolved
from holdfast.pipelines.sinks.target import TargetError

OPTION = "target: the password"
# SQLAlchemy's name of what we use, whatever it takes by itself.
_DRIVERS: Final = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
_SECRETS: Final = (
    "password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
)  # fmt: skip
"""What libpq takes behind the question mark and nobody may see."""


def checked(url: str) -> str:
    """Return a URL that may be pickled and shown. TargetError: it has a password, or is none."""
    try:
        parsed = make_url(url)
    except (sql.exc.ArgumentError, ValueError):  # the latter of a port that is no number
        raise TargetError(
            "target: no URL of a database; use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        ) from None
    if parsed.password and not is_reference(str(parsed.password)):
        raise TargetError(
            f"{OPTION} is not written into a query, which plans and logs show; give "
            "postgresql://USER:env:NAME@HOST/DATABASE or USER:file:PATH (as %2F where it has a "
            "slash), which is read where a connection is opened"
        )
    for name, value in _secrets(parsed):
        if not (isinstance(value, str) and is_reference(value)):
            raise TargetError(
                f"target: {name} is not written into a query, which plans and logs show; give "
                f"?{name}=env:NAME or ?{name}=file:PATH, once, which is read where a connection "
                "is opened"
            )
    return url


def refuse_no_file(url: str) -> None:
    """TargetError unless a checked URL of SQLite names a file, which outlives this process."""
    parsed = make_url(url)
    if parsed.host or parsed.username:
        raise TargetError(
            "target: sqlite:// and a name would be a server's; a file is sqlite:///FILE, or "
            "sqlite:////FOLDER/FILE"
        )
    if parsed.database in {None, "", ":memory:"} or parsed.query.get("mode") == "memory":
        raise TargetError(
            "target: a table in memory is gone with its process, and Spark's checkpoint is not; "
            "use sqlite:///FILE"
        )


def with_password(url: str) -> URL:
    """Return a checked URL with its secrets in their places, for the client that we use.

    OptionError: one can't be had here.
    """
    parsed = with_secrets(url)
    name = parsed.get_backend_name()
    return parsed.set(drivername=_DRIVERS.get(name, parsed.drivername))


def with_secrets(url: str) -> URL:
    """Return the URL with what its references mean. What is written out stays, as the client."""
    parsed = make_url(url)
    if parsed.password and is_reference(str(parsed.password)):
        parsed = parsed.set(password=resolved(OPTION, str(parsed.password)))
    return parsed.update_query_dict(
        {
            name: resolved(f"target: {name}", value)
            for name, value in _secrets(parsed)
            if isinstance(value, str) and is_reference(value)
        }
    )


def shown(url: str) -> str:
    """Return what may be told of a URL that may have passwords in it."""
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (sql.exc.ArgumentError, ValueError):
        return "no URL of a database"


def open_database(url: str) -> Engine:
    """Open the database of a checked URL; each connection is made with the secrets of now.

    A query runs for months, and a password (a token, say) may be changed every hour.
    """
    engine = open_engine(with_password(url), pooled=False)
    if engine.dialect.name == "postgresql":

        def renew(_dialect: Any, _record: Any, _told: Any, arguments: dict[str, Any]) -> None:
            arguments.update(connection_arguments(url))

        sql.event.listen(engine, "do_connect", renew)
        # In a stricter one, which a role may have, catalogs are as they were when it began.
        engine = engine.execution_options(isolation_level="READ COMMITTED")
    return engine


def connection_arguments(url: str) -> dict[str, Any]:
    """Return what psycopg takes, secrets resolved: one by one, for as a text libpq would parse it.

    It refuses some texts, and quotes them when it does. What is sent is UTF-8, and said to be: a
    database's, a role's or a variable's own setting would make other texts of it.
    """
    parsed = with_password(url)
    told = dict(parsed.get_dialect()().create_connect_args(parsed)[1])
    return {**told, "client_encoding": "UTF8"}


def _secrets(url: URL) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    return ((name, value) for name, value in url.query.items() if name.lower() in _SECRETS)
