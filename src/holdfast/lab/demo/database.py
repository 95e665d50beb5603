"""The password of a user's own database: told to whoever connects, and written down nowhere.

A run's folder is passed on, and every user of a machine sees the arguments of its processes. So a
URL is kept without its password, which goes to the Spark driver in PostgreSQL's own variable.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from holdfast.lab.parameters import LabError

PASSWORD = "PGPASSWORD"  # noqa: S105 - the name of libpq's variable
CLIENTS = frozenset({"psycopg", "psycopg2"})  # those that know it


@contextmanager
def connected(database: str) -> Iterator[Connection]:
    """Connect once, and keep nothing of it."""
    engine = sql.create_engine(database)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def parted(database: str) -> tuple[str, str | None]:
    """Return a URL without its password, and that. LabError: it is none, or can't do without.

    Of what can't be read as a URL nothing is repeated: any part of it may be the password.
    """
    try:
        url = sql.make_url(database)
        driver = url.get_driver_name()
    except (SQLAlchemyError, ValueError):
        raise LabError(
            "--database: it is no URL of a database, as postgresql+psycopg://user@host/name is."
        ) from None
    said = url.query.get("password")
    if isinstance(said, tuple) or "sslpassword" in url.query:
        raise LabError(
            "--database: it has two passwords, or that of a key, which would stand in the run's "
            "files."
        )
    password = url.password or said
    if password is None:
        return database, None
    bare = sql.URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query={name: value for name, value in url.query.items() if name != "password"},
    )
    text = bare.render_as_string(hide_password=False)
    if driver not in CLIENTS:
        raise LabError(
            f"--database {text}: its password would stand in the run's files. Only "
            "postgresql+psycopg:// can be told it otherwise."
        )
    return text, password


def joined(database: str, password: str | None) -> str:
    """Return a URL that connects, for this process alone."""
    if password is None:
        return database
    return sql.make_url(database).set(password=password).render_as_string(hide_password=False)


def without_password(command: str, database: str, bare: str) -> str:
    """Return a command with the URL as it may be shown."""
    return shlex.join(word.replace(database, bare) for word in shlex.split(command))


def advice(database: str) -> str:
    """Say what may be missing where a database can't be read; nothing: that can't be it."""
    url = sql.make_url(database)
    if url.get_driver_name() not in CLIENTS or url.password or PASSWORD in os.environ:
        return ""
    return f" (a run's folder keeps no password; if the database asks for one, set {PASSWORD})"
