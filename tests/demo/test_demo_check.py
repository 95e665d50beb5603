"""Goal: each thing that can be wrong with a table makes the check fail, and a clean one passes.

Method: a run's directory made by hand, histories as the demo's processes write them, tables as the
pipeline's recipes make them; then one thing is broken.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from holdfast import cli
from holdfast.clients.payload import digest_of
from holdfast.judge.history import Acknowledged, Delivered, Event, ReadEnd, Send, encode_event
from holdfast.lab.demo_check import READER, check_demo
from holdfast.lab.demo_events import (
    DemoEvent,
    id_in_line,
    id_in_payment,
    line_event,
    payment,
    payment_event,
)
from holdfast.lab.demo_input import LinesDigest
from holdfast.lab.demo_plan import DemoPlan
from holdfast.pipelines import fence, ledger, lines
from holdfast.pipelines.fence import open_engine

COUNT = 30


def history(directory: Path, events: list[DemoEvent], topic: str) -> dict[str, tuple[int, int]]:
    """Write producer's and reader's files; return where each event stands."""
    clock = itertools.count()
    ends = dict.fromkeys(range(3), 0)
    where: dict[str, tuple[int, int]] = {}
    sent: list[Event] = []
    read: list[Event] = []
    identify = id_in_payment if topic == "payments" else id_in_line
    for event in events:
        place: dict[str, Any] = {"topic": topic, "partition": event.partition}
        stamp: dict[str, Any] = {"at_ms": float(next(clock)), "wall_ms": 0}
        offset = ends[event.partition]
        ends[event.partition] += 1
        where[event.id] = (event.partition, offset)
        size = len(event.value)
        sent.append(
            Send(**stamp, process="producer", **place, id=event.id, digest=event.digest, size=size)
        )
        sent.append(Acknowledged(**stamp, process="producer", **place, id=event.id, offset=offset))
        identity, digest = identify(event.value), digest_of(event.value)
        read.append(
            Delivered(**stamp, process=READER, **place, offset=offset, id=identity, digest=digest)
        )
    for partition, end in ends.items():
        stamp = {"at_ms": float(next(clock)), "wall_ms": 0}
        read.append(
            ReadEnd(**stamp, process=READER, topic=topic, partition=partition, begin=0, end=end)
        )
    folder = directory / "history"
    folder.mkdir()
    (folder / "producer.jsonl").write_text("".join(map(encode_event, sent)))
    (folder / "reader.jsonl").write_text("".join(map(encode_event, read)))
    engine = open_engine(f"sqlite:///{directory}/table.db")
    with engine.begin() as connection:
        fence.metadata.create_all(connection)
        connection.execute(
            fence.offsets.insert(),
            [
                {"query": "q", "topic": topic, "partition": p, "next_offset": end}
                for p, end in ends.items()
            ],
        )
    engine.dispose()
    return where


@pytest.fixture
def payments_run(tmp_path: Path) -> Path:
    plan = DemoPlan(
        kind="payments",
        events=COUNT,
        rate=1,
        topic="payments",
        query="q",
        accounts=4,
        opening=1000,
    )
    plan.write(tmp_path)
    made = [payment_event(n, seed=0, accounts=4, partitions=3) for n in range(COUNT)]
    where = history(tmp_path, made, "payments")
    rows = []
    for number, event in enumerate(made):
        paid = payment(number, seed=0, accounts=4)
        partition, offset = where[event.id]
        rows.append(
            {
                "topic": "payments", "partition": partition, "offset": offset, "id": paid.id,
                "source": paid.source, "target": paid.target, "amount": paid.amount,
                "value": event.value,
            }
        )  # fmt: skip
    engine = open_engine(f"sqlite:///{tmp_path}/table.db")
    recipe = ledger.Ledger(4, 1000)
    with engine.begin() as connection:
        recipe.prepare(connection)
        recipe.write(connection, rows)
    engine.dispose()
    return tmp_path


@pytest.fixture
def lines_run(tmp_path: Path) -> Path:
    digest = LinesDigest()
    made, rows = [], []
    for number in range(2, COUNT + 2):
        text = f'{{"n": {number}, "name": "Zoë {number}"}}'
        digest.add(number, f"k{number}", text)
        made.append(line_event(number, text, f"k{number}", partitions=3))
    where = history(tmp_path, made, "lines")
    for number, event in enumerate(made, 2):
        partition, offset = where[event.id]
        rows.append(
            {
                "topic": "lines", "partition": partition, "offset": offset, "key": event.key,
                "line_number": number, "text": f'{{"n": {number}, "name": "Zoë {number}"}}',
            }
        )  # fmt: skip
    plan = DemoPlan(
        kind="lines",
        events=COUNT,
        rate=1,
        topic="lines",
        query="q",
        input="input.jsonl",
        key="n",
        sha256=digest.hex(),
    )
    plan.write(tmp_path)
    engine = open_engine(f"sqlite:///{tmp_path}/table.db")
    with engine.begin() as connection:
        lines.Lines().prepare(connection)
        lines.Lines().write(connection, rows)
    engine.dispose()
    return tmp_path


def damage(directory: Path, statement: str) -> None:
    engine = sql.create_engine(f"sqlite:///{directory}/table.db")
    with engine.begin() as connection:
        assert connection.execute(sql.text(statement)).rowcount == 1
    engine.dispose()


def broken(directory: Path) -> dict[str, str]:
    return {check.name: check.seen for check in check_demo(directory).checks if not check.kept}


ONCE = "Every event of the log is in the table once"
CONTENT = "Every row says what its event says"
ENDS = "The table is where the log ends"
BALANCES = "Each balance is its opening plus what the ledger moved"
MONEY = "Money neither appeared nor disappeared"
TEXT = "The table's keys and text are the file's, line by line"
IN_LOG = "Every event was acknowledged, and is in the log once"


def test_clean_runs_pass(payments_run: Path) -> None:
    verdict = check_demo(payments_run)
    assert verdict.kept
    assert len(verdict.checks) == 6
    assert len(verdict.tables[0].rows) == 4


def test_a_clean_run_of_lines_passes(
    lines_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert check_demo(lines_run).kept
    moved = tmp_path_factory.mktemp("elsewhere") / "moved"
    lines_run.rename(moved)
    assert check_demo(moved).kept
    moved.rename(lines_run)


@pytest.mark.parametrize(
    ("statement", "names", "said"),
    [
        ("DELETE FROM ledger WHERE rowid = 7", {ONCE, BALANCES}, "1 missing"),
        ("INSERT INTO ledger SELECT * FROM ledger WHERE rowid = 7", {ONCE, BALANCES}, "1 doubled"),
        ("UPDATE ledger SET amount = amount + 1 WHERE rowid = 7", {CONTENT, BALANCES}, "1 changed"),
        ('UPDATE ledger SET "offset" = 999 WHERE rowid = 7', {ONCE}, "1 from nowhere"),
        ("UPDATE balances SET balance = balance + 1 WHERE rowid = 1", {BALANCES, MONEY}, "40.01"),
        ("UPDATE holdfast_offset SET next_offset = 1 WHERE partition = 1", {ENDS}, "1: 1"),
        ("INSERT INTO rejected VALUES ('payments', 0, 3, NULL)", {CONTENT}, "1 set aside"),
    ],
)
def test_damage_to_the_ledger_is_seen(
    payments_run: Path, statement: str, names: set[str], said: str
) -> None:
    damage(payments_run, statement)
    found = broken(payments_run)
    assert found.keys() == names
    assert any(said in seen for seen in found.values()), found


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("DELETE FROM lines WHERE rowid = 7", {ONCE, TEXT}),
        ("INSERT INTO lines SELECT * FROM lines WHERE rowid = 7", {ONCE, TEXT}),
        ("UPDATE lines SET text = text || ' ' WHERE rowid = 7", {CONTENT, TEXT}),
        ("UPDATE lines SET line_number = 99 WHERE rowid = 7", {CONTENT, TEXT}),
        ("UPDATE lines SET key = 'other' WHERE rowid = 7", {TEXT}),
        ("UPDATE lines SET key = NULL WHERE rowid = 7", {TEXT}),
        ("UPDATE lines SET text = x'ff00' WHERE rowid = 7", {CONTENT, TEXT}),
    ],
)
def test_damage_to_the_lines_is_seen(lines_run: Path, statement: str, names: set[str]) -> None:
    damage(lines_run, statement)
    assert broken(lines_run).keys() == names


def lose_the_last_record(directory: Path) -> None:
    """The reader finds one record less than was acknowledged."""
    file = directory / "history" / "reader.jsonl"
    rows = file.read_text().splitlines(keepends=True)
    gone = next(n for n, row in enumerate(rows) if '"producer:29"' in row)
    file.write_text("".join(rows[:gone] + rows[gone + 1 :]))


def forget_the_end(directory: Path) -> None:
    file = directory / "history" / "reader.jsonl"
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join(rows[:-1]))


@pytest.mark.parametrize("harm", [lose_the_last_record, forget_the_end])
def test_damage_to_the_log_is_seen(payments_run: Path, harm: Callable[[Path], None]) -> None:
    harm(payments_run)
    assert IN_LOG in broken(payments_run)


def test_the_command_says_pass_fail_or_why_not(
    payments_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["demo", "--check", str(payments_run)]
    assert cli.run(check) == 0
    assert "PASS: 30 events acknowledged" in capsys.readouterr().out
    damage(payments_run, "DELETE FROM ledger WHERE rowid = 7")
    assert cli.run([*check, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "FAIL"
    assert cli.run(["demo", "--check", str(payments_run / "nowhere")]) == 2
    assert "no demo ran in" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--key", "a"], ["--input", "/nothing/there"], ["--output", "/proc/nothing"]]
)
def test_a_demo_that_can_not_be_run_says_so(arguments: list[str], tmp_path: Path) -> None:
    output = [] if "--output" in arguments else ["--output", str(tmp_path / "run")]
    assert cli.run(["demo", *arguments, *output]) == 2
