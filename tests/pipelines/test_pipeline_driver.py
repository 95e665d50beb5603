"""Goal: what a driver is told on its command line reaches the sink. Method: its own parser."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from holdfast.pipelines import driver
from holdfast.pipelines.due import Last, Memory, Rows, Work, decide
from holdfast.pipelines.lines import Lines
from holdfast.pipelines.planned import Batch, PlanError
from holdfast.pipelines.sink import ExactlyOnceSink
from holdfast.pipelines.sinks.store import told_if_full

SQLITE_SAYS = "(sqlite3.OperationalError) database or disk is full"


def test_a_disk_that_is_full_at_the_start_is_told_as_any_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever started the driver reads its events, not its traceback."""
    parser = argparse.ArgumentParser()
    driver.add_options(parser)
    words = [
        *("--bootstrap-server", "nowhere:1", "--topic", "t", "--query", "q"),
        *("--database", f"sqlite:///{tmp_path}/table.db", "--checkpoint", str(tmp_path / "new")),
    ]

    def full(*_: object) -> None:
        with told_if_full(tmp_path):
            raise RuntimeError(SQLITE_SAYS)

    monkeypatch.setattr(driver, "local_session", lambda *_, **__: None)  # which takes a JVM
    monkeypatch.setattr(driver, "ExactlyOnceSink", lambda *_, **__: full())
    assert driver.run(parser.parse_args(words), Lines(), lambda frame: frame) == driver.FAILED
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["session", "failed"]
    assert str(tmp_path) in told[1]["error"]


@pytest.mark.parametrize(
    "database",
    [
        "postgresql+psycopg://u:swordfish@127.0.0.1:1/d",
        "postgresql+psycopg://u:env:HIDDEN@127.0.0.1:1/d",
        "postgresql+psycopg://u@127.0.0.1:1/d?password=swordfish",
    ],
)
def test_a_database_that_is_away_is_named_without_its_password(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen to fail: the event of it had the URL as it was given, and a reference was none."""
    pytest.importorskip("psycopg")
    monkeypatch.setenv("HIDDEN", "swordfish")
    parser = argparse.ArgumentParser()
    driver.add_options(parser)
    words = ["--bootstrap-server", "nowhere:1", "--topic", "t", "--query", "q", "--checkpoint", "c"]
    monkeypatch.setattr(driver, "local_session", lambda *_, **__: None)  # which takes a JVM
    options = parser.parse_args([*words, "--database", database])
    assert driver.run(options, Lines(), lambda frame: frame) == driver.FAILED
    told = capsys.readouterr().out
    assert "127.0.0.1" in told
    assert "refused" in told
    assert "swordfish" not in told


def test_a_password_that_can_t_be_had_is_told_as_any_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HIDDEN", raising=False)
    parser = argparse.ArgumentParser()
    driver.add_options(parser)
    words = ["--bootstrap-server", "nowhere:1", "--topic", "t", "--query", "q", "--checkpoint", "c"]
    monkeypatch.setattr(driver, "local_session", lambda *_, **__: None)  # which takes a JVM
    options = parser.parse_args([*words, "--database", "postgresql://u:env:HIDDEN@h/d"])
    assert driver.run(options, Lines(), lambda frame: frame) == driver.FAILED
    assert "no environment variable 'HIDDEN'" in capsys.readouterr().out


def test_ids_that_are_over_are_forgotten_as_often_as_they_are_named(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    driver.add_options(parser)
    words = [
        *("--bootstrap-server", "nowhere:1", "--topic", "t", "--query", "q"),
        *("--database", f"sqlite:///{tmp_path}/table.db", "--checkpoint", str(tmp_path / "new")),
    ]
    fresh = Batch(number=0, checkpoint="new", plan="", stateful=True, ranges=())
    memory = Memory({}, Last("o-_d", 7, "", stateful=True))

    def weigh(*begin_anew: str) -> Work:
        switches = [word for name in begin_anew for word in ("--begin-anew", name)]
        sink = driver._sink(parser.parse_args([*words, *switches]), Lines(), driver.say_committed)
        assert isinstance(sink, ExactlyOnceSink)
        sink.close()
        return decide(fresh, memory, sink._begin_anew, "q")

    for named in ((), ("other",)):
        with pytest.raises(PlanError, match="--begin-anew o-_d"):
            weigh(*named)
    assert weigh("other", "o-_d").rows is Rows.ALL
    assert weigh("o+/d").rows is Rows.ALL, "as an older version told it"
