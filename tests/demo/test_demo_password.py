"""Goal: the password of a user's database is told to Spark's driver, and stands nowhere.

Method: a URL with a password; then whatever a run writes or starts is looked at. Spark's driver is
played by a process that says what it was given.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sql

from holdfast.lab.demo import result_table as table
from holdfast.lab.demo import spark, steps
from holdfast.lab.demo.database import PASSWORD, parted
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.steps import Demo, DemoOptions, Standing
from holdfast.lab.parameters import LabError

SECRET = "s3'cr et/"  # as hard to quote as may be
QUOTED = "s3%27cr%20et%2F"
BARE = "postgresql+psycopg://ann@db.example:5433/ledger?sslmode=require"
URLS = [
    f"postgresql+psycopg://ann:{QUOTED}@db.example:5433/ledger?sslmode=require",
    f"postgresql+psycopg://ann@db.example:5433/ledger?password={QUOTED}&sslmode=require",
]


class Quiet:
    def step(self, text: str) -> None:
        assert "s3" not in text

    def standing(self, now: Standing) -> None:
        raise AssertionError(now)


class Prepared(Demo):
    """A demo that ends where its run would begin."""

    def _perform(self, plan: DemoPlan) -> None:
        raise LabError(f"as far as {plan.database}")


@pytest.mark.parametrize("url", URLS)
def test_what_a_run_writes_down_has_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(steps, "refuse_used", lambda *said: asked.extend(said))
    command = f"holdfast demo --database '{url}' --events 5"
    options = DemoOptions(directory=tmp_path, events=5, database=url, command=command)
    with pytest.raises(LabError, match="as far as") as stopped:
        Prepared(options, Quiet()).run()
    assert str(stopped.value) == f"as far as {BARE}"
    written = (tmp_path / "run.json").read_text()
    assert "s3" not in written
    kept = json.loads(written)
    assert kept["plan"]["database"] == BARE
    assert kept["command"] == f"holdfast demo --database '{BARE}' --events 5"
    assert sql.make_url(asked[0]).password == SECRET
    assert asked[1] == BARE


@pytest.mark.process
@pytest.mark.slow
def test_the_driver_is_told_the_password_where_nobody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "MODULES", {"payments": "tests.demo.told_driver"})
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    bare, password = parted(URLS[0])
    plan = DemoPlan(kind="payments", events=4, rate=1, topic="foo", query="q", database=bare)
    places = Places(tmp_path, password)
    driver = spark.SparkDriver(plan, places, "db.example:9092", 1, environment={"RUN": "of a test"})
    driver.wait()
    told = driver.words.poll().last["told"]
    assert told["password"] == SECRET
    assert BARE in told["arguments"]
    assert "s3" not in " ".join(told["arguments"])
    assert "s3" not in repr(places)
    assert sql.make_url(places.database(plan)).password == SECRET


def test_a_database_that_can_only_be_told_by_its_url_is_refused() -> None:
    with pytest.raises(LabError, match="password would stand in the run's files") as refused:
        parted("mysql+pymysql://ann:s3cret@db.example/ledger")
    assert "s3cret" not in str(refused.value)
    assert parted("mysql+pymysql://ann@db.example/ledger")[1] is None
    assert parted("sqlite:///a.db") == ("sqlite:///a.db", None)
    with pytest.raises(LabError, match="--database: it is no URL"):
        parted("nonsense")


def test_a_check_says_that_it_may_need_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = DemoPlan(kind="payments", events=4, rate=1, topic="foo", query="q")
    database = f"postgresql+psycopg://ann@/ledger?host={tmp_path}"  # nobody listens there
    monkeypatch.delenv(PASSWORD, raising=False)
    why = table.check_tables(database, plan, table.Model(whole=True)).unreadable
    assert why is not None
    assert "set PGPASSWORD" in why
    monkeypatch.setenv(PASSWORD, "s3cret")
    why = table.check_tables(database, plan, table.Model(whole=True)).unreadable
    assert why is not None
    assert "PGPASSWORD" not in why


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg//ann:s3cret@db/ledger",
        "postgresql+psycopg://ann:s3cret@db:54x/ledger",
        "nobody://ann:s3cret@db/ledger",
        "postgresql+psycopg://ann@db/ledger?password=s3cret&password=s3cret",
        "postgresql+psycopg://ann@db/ledger?sslpassword=s3cret",
    ],
)
def test_a_password_that_can_not_be_parted_is_not_repeated(url: str) -> None:
    with pytest.raises(LabError, match="--database") as refused:
        parted(url)
    assert "s3cret" not in str(refused.value)
