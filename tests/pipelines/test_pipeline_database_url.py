"""Goal: no secret of a database's URL is in a query, and each arrives as it is.

Method: URLs, and what psycopg is given for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.sinks.database_url import (
    checked,
    connection_arguments,
    open_database,
    with_password,
)
from holdfast.pipelines.sinks.target import TargetError


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:swordfish@host/database",
        "postgresql://user@host/database?password=swordfish",
        "postgresql://user@host/database?sslmode=require&sslpassword=swordfish",
        "postgresql://user@host/database?password=env:A&password=swordfish",
        "postgresql://user@host/database?Password=swordfish",
        "postgresql://user@host/database?scram_client_key=swordfish",
        "postgresql+psycopg://user@host/database?oauth_client_secret=swordfish",
    ],
)
def test_a_secret_that_is_written_out_is_refused(url: str) -> None:
    """Seen to fail: behind the question mark it was taken."""
    with pytest.raises(TargetError, match="which plans and logs show") as refused:
        checked(url)
    assert "swordfish" not in str(refused.value)


def test_a_port_that_is_none_is_told_as_a_wrong_url() -> None:
    with pytest.raises(TargetError, match="no URL of a database") as refused:
        checked("postgresql://user:swordfish@host:port/database")
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize("password", ["sword fish", " + %20", "it's \\ 'all'", "a=b@c:d/e?f", "é€"])
@pytest.mark.parametrize("place", ["user:env:SECRET@host/d", "user@host/d?password=env:SECRET"])
def test_a_password_is_what_it_is(
    monkeypatch: pytest.MonkeyPatch, password: str, place: str
) -> None:
    """Seen to fail: spaces at its end were cut, others had libpq tell it in an error."""
    monkeypatch.setenv("SECRET", password)
    url = checked(f"postgresql://{place}")
    told = {"user": "user", "host": "host", "dbname": "d", "password": password}
    told["client_encoding"] = "UTF8"
    assert connection_arguments(url) == told
    found = with_password(url)
    assert password in {found.password, found.query.get("password")}


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2", "postgresql+asyncpg"])
def test_the_client_is_the_one_that_the_extra_brings(scheme: str) -> None:
    """Seen to fail: SQLAlchemy before 2.1 takes psycopg2 where none is named."""
    assert with_password(checked(f"{scheme}://h/d")).drivername == "postgresql+psycopg"


@pytest.mark.parametrize("place", ["user:file:{}@host/d", "user@host/d?password=file:{}"])
def test_each_connection_is_made_with_the_secret_of_now(tmp_path: Path, place: str) -> None:
    """Seen to fail: tasks had the new one, and the driver the one with which the query began."""
    secret = tmp_path / "secret"
    secret.write_text("first")
    engine = open_database("postgresql://" + place.format(str(secret).replace("/", "%2F")))
    seen: list[str] = []

    def stop(_dialect: Any, _record: Any, _told: Any, arguments: dict[str, Any]) -> None:
        seen.append(arguments["password"])
        raise ConnectionAbortedError

    sql.event.listen(engine, "do_connect", stop)
    for word in ("first", "second"):
        secret.write_text(word)
        with pytest.raises(ConnectionAbortedError):
            engine.connect()
    assert seen == ["first", "second"]


def test_a_secret_behind_the_question_mark_is_read_where_it_is_needed() -> None:
    with pytest.raises(OptionError, match=r"sslpassword: this process has no .*'NO_SUCH_NAME'"):
        with_password(checked("postgresql://user@host/d?sslpassword=env:NO_SUCH_NAME"))
    other = checked("postgresql://user@host/d?sslmode=require&application_name=a%20b")
    assert connection_arguments(other)["application_name"] == "a b"
