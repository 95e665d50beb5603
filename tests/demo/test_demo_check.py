"""Goal: each thing that can be wrong with a table makes the check fail, and a clean one passes.

Method: a run's directory made by hand, histories and journal as the demo's run leaves them, tables
as the pipeline's recipes make them; then one thing is broken. Of the checks, and of what each of
them looks at, nothing can be taken out without a test that fails.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from tests.judge.histories import Story

from holdfast import cli
from holdfast.clients.workload.payload import digest_of, id_of
from holdfast.clients.workload.verifiable_producer import Record
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    IsrChange,
    LeaderChange,
    ReadEnd,
    Refused,
    Send,
    Unknown,
    encode_event,
)
from holdfast.lab.demo.demo_check import READER, check_demo
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.demo_report import report_data
from holdfast.lab.demo.events import line_record, payment, payment_record
from holdfast.lab.demo.user_file import LinesDigest
from holdfast.lab.journal import HISTORY, JOURNAL, MANIFEST, Exit, FolderError, Journal
from holdfast.lab.report import Check, Table
from holdfast.pipelines import fence, ledger, lines
from holdfast.pipelines.fence import open_engine

COUNT = 30


def write_history(directory: Path, records: list[Record], topic: str) -> dict[str, tuple[int, int]]:
    """Write producer's and reader's files; return where each record stands."""
    clock = itertools.count(1)
    ends = dict.fromkeys(range(3), 0)
    where: dict[str, tuple[int, int]] = {}
    sent: list[Event] = []
    read: list[Event] = []

    def stamp(process: str) -> dict[str, Any]:
        return {"at_ms": float(next(clock)), "wall_ms": 0, "process": process, "topic": topic}

    for record in records:
        offset = ends[record.partition]
        ends[record.partition] += 1
        where[record.id] = (record.partition, offset)
        place: dict[str, Any] = {"partition": record.partition, "id": record.id}
        content: dict[str, Any] = {"digest": digest_of(record.value), "key": record.key}
        sent.append(Send(**stamp("producer"), **place, **content, size=len(record.value)))
        sent.append(Acknowledged(**stamp("producer"), **place, offset=offset))
        place["id"] = id_of(record.value)
        read.append(Delivered(**stamp(READER), **place, **content, offset=offset))
    for partition, end in ends.items():
        read.append(ReadEnd(**stamp(READER), partition=partition, begin=0, end=end))
    # All is read at the end, after it was sent.
    for order, event in enumerate(read):
        read[order] = type(event)(**{**fields_of(event), "at_ms": float(next(clock))})
    folder = directory / HISTORY
    folder.mkdir()
    (folder / "producer.jsonl").write_text("".join(map(encode_event, sent)))
    (folder / f"{READER}.jsonl").write_text("".join(map(encode_event, read)))
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


def fields_of(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


MOVES = Table(title="Moves", header=["a"], rows=[["1"]])


def seal(
    directory: Path,
    *checks: Check,
    broke_off: str | None = None,
    tables: Sequence[Table] = (),
) -> None:
    """Write the journal, as the run does at its end; a test that changes the history does it."""
    (directory / JOURNAL).unlink(missing_ok=True)
    journal = Journal(directory)
    for check in checks:
        journal.check(check)
    journal.end(directory / MANIFEST, broke_off, tables)


@pytest.fixture
def payments_run(tmp_path: Path, payments_made: Path) -> Path:
    return Path(shutil.copytree(payments_made, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def lines_run(tmp_path: Path, lines_made: Path) -> Path:
    return Path(shutil.copytree(lines_made, tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def payments_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("payments")
    plan = DemoPlan(
        kind="payments",
        events=COUNT,
        rate=1,
        topic="payments",
        query="q",
        accounts=4,
        opening=1000,
    )
    plan.write(tmp_path, "holdfast demo")
    made = [payment_record(n, seed=0, accounts=4, partitions=3) for n in range(COUNT)]
    where = write_history(tmp_path, made, "payments")
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
    seal(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def lines_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("lines")
    digest = LinesDigest()
    made, rows = [], []
    for number in range(2, COUNT + 2):
        text = f'{{"n": {number}, "name": "Zoë {number}"}}'
        digest.add(number, f"k{number}", text)
        made.append(line_record(number, text, f"k{number}", partitions=3))
    where = write_history(tmp_path, made, "lines")
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
    plan.write(tmp_path, "holdfast demo")
    engine = open_engine(f"sqlite:///{tmp_path}/table.db")
    with engine.begin() as connection:
        lines.Lines().prepare(connection)
        lines.Lines().write(connection, rows)
    engine.dispose()
    seal(tmp_path)
    return tmp_path


def damage(directory: Path, *statements: str) -> None:
    engine = sql.create_engine(f"sqlite:///{directory}/table.db")
    with engine.begin() as connection:
        for statement in statements:
            assert connection.execute(sql.text(statement)).rowcount >= 1
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
    seal(payments_run, tables=[MOVES])
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.KEPT
    assert len(verdict.checks) == 6
    assert verdict.checks[0] == Check(
        name=IN_LOG,
        expected="30 events, none lost, doubled or changed",
        seen="30 acknowledged, 30 in the log",
        kept=True,
    )
    assert len(verdict.tables[0].rows) == 4
    assert verdict.tables[-1] == MOVES
    assert verdict.directory == payments_run


def test_a_clean_run_of_lines_passes(
    lines_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert check_demo(lines_run).exit.kept
    moved = tmp_path_factory.mktemp("elsewhere") / "moved"
    lines_run.rename(moved)
    assert check_demo(moved).exit.kept
    moved.rename(lines_run)


UNOPENED = "account-999"
TWICE = """INSERT INTO ledger
    SELECT 'another', partition, "offset", id, source, target, amount FROM ledger WHERE rowid = 7"""
DEBIT, CREDIT = (
    f"""UPDATE balances SET balance = balance {sign}
        (SELECT amount FROM ledger WHERE rowid = 7)
        WHERE account = (SELECT {side} FROM ledger WHERE rowid = 7)"""
    for sign, side in (("-", "source"), ("+", "target"))
)
LINE_TWICE = """INSERT INTO lines
    SELECT 'another', partition, "offset", key, line_number, text FROM lines WHERE rowid = 7"""
INSERT_OFFSET = "INSERT INTO holdfast_offset (query, topic, partition, next_offset) VALUES"


@pytest.mark.parametrize(
    ("statements", "names", "said"),
    [
        (["DELETE FROM ledger WHERE rowid = 7"], {ONCE, BALANCES}, "1 missing"),
        (
            ["INSERT INTO ledger SELECT * FROM ledger WHERE rowid = 7"],
            {ONCE, BALANCES},
            "1 doubled",
        ),
        (
            ["UPDATE ledger SET amount = amount + 1 WHERE rowid = 7"],
            {CONTENT, BALANCES},
            "1 changed",
        ),
        (["UPDATE ledger SET amount = x'00' WHERE rowid = 7"], {CONTENT, BALANCES}, "1 changed"),
        (["UPDATE ledger SET id = 'producer:99' WHERE rowid = 7"], {CONTENT}, "1 changed"),
        (['UPDATE ledger SET "offset" = 999 WHERE rowid = 7'], {ONCE}, "1 from nowhere"),
        # A payment that is taken in twice, the second time under another topic, money and all.
        ([TWICE, DEBIT, CREDIT], {ONCE}, "1 from nowhere"),
        (
            ["UPDATE balances SET balance = balance + 1 WHERE rowid = 1"],
            {BALANCES, MONEY},
            "40.01 in 4 accounts",
        ),
        (["UPDATE balances SET balance = 'much' WHERE rowid = 1"], {BALANCES, MONEY}, "account-0"),
        # Money out of nothing, twice, so that neither balances nor ledger show it.
        (
            ["UPDATE balances SET balance = balance + 1, opening = opening + 1 WHERE rowid = 1"],
            {BALANCES, MONEY},
            "40.01 in 4 accounts",
        ),
        # One account's opening moved to another's, so that balances, ledger and sum agree.
        (
            [
                "UPDATE balances SET balance = balance + 1, opening = opening + 1 WHERE rowid = 1",
                "UPDATE balances SET balance = balance - 1, opening = opening - 1 WHERE rowid = 2",
            ],
            {BALANCES},
            "2 of 4 accounts; not account-0",
        ),
        # An account without money that nobody has opened, and one that does not exist any more.
        (
            ["INSERT INTO balances VALUES ('account-xyz', 0, 0)"],
            {BALANCES, MONEY},
            "in 5 accounts",
        ),
        (
            [f"UPDATE balances SET account = '{UNOPENED}' WHERE account = 'account-001'"],
            {BALANCES},
            "account-001",
        ),
        (["UPDATE holdfast_offset SET next_offset = 1 WHERE partition = 1"], {ENDS}, "1: 1"),
        (["DELETE FROM holdfast_offset WHERE partition = 1"], {ENDS}, "0: "),
        ([f"{INSERT_OFFSET} ('q', 'payments', 7, 1)"], {ENDS}, "7: 1"),
        (["INSERT INTO rejected VALUES ('payments', 0, 3, NULL)"], {CONTENT}, "1 set aside"),
    ],
)
def test_damage_to_the_ledger_is_seen(
    payments_run: Path, statements: list[str], names: set[str], said: str
) -> None:
    damage(payments_run, *statements)
    found = broken(payments_run)
    assert found.keys() == names
    assert any(said in seen for seen in found.values()), found
    assert check_demo(payments_run).exit is Exit.BROKEN


def test_an_account_that_only_the_ledger_knows_is_seen(payments_run: Path) -> None:
    """Goal: all balances agree with the ledger, and yet it moved money to a stranger.

    Method: of one account's payments there and back nothing is left in its balance, and it goes.
    """
    damage(
        payments_run,
        "UPDATE balances SET balance = opening",
        "DELETE FROM ledger",
        f"INSERT INTO ledger VALUES ('payments', 0, 0, 'x', '{UNOPENED}', '{UNOPENED}', 5)",
    )
    found = broken(payments_run)
    assert f"4 accounts; not {UNOPENED}" in found[BALANCES]
    assert MONEY not in found


def test_what_is_anothers_in_the_same_tables_is_not_looked_at(payments_run: Path) -> None:
    damage(
        payments_run,
        f"{INSERT_OFFSET} ('another query', 'payments', 0, 999)",
        f"{INSERT_OFFSET} ('q', 'another topic', 0, 999)",
        "INSERT INTO rejected VALUES ('another topic', 0, 0, NULL)",
    )
    assert not broken(payments_run)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("DELETE FROM lines WHERE rowid = 7", {ONCE, TEXT}),
        ("INSERT INTO lines SELECT * FROM lines WHERE rowid = 7", {ONCE, TEXT}),
        ("UPDATE lines SET text = text || ' ' WHERE rowid = 7", {CONTENT, TEXT}),
        ("UPDATE lines SET line_number = 99 WHERE rowid = 7", {CONTENT, TEXT}),
        (LINE_TWICE, {ONCE}),
        ("UPDATE lines SET key = 'other' WHERE rowid = 7", {TEXT}),
        ("UPDATE lines SET key = NULL WHERE rowid = 7", {TEXT}),
        ("UPDATE lines SET text = x'ff00' WHERE rowid = 7", {CONTENT, TEXT}),
    ],
)
def test_damage_to_the_lines_is_seen(lines_run: Path, statement: str, names: set[str]) -> None:
    damage(lines_run, statement)
    assert broken(lines_run).keys() == names


def edit(directory: Path, name: str, change: Callable[[list[str]], list[str]]) -> None:
    file = directory / HISTORY / f"{name}.jsonl"
    rows = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(rows)))
    seal(directory)


def lose_the_last_record(directory: Path) -> None:
    """The reader finds one record less than was acknowledged."""
    edit(directory, READER, lambda rows: [row for row in rows if '"producer:29"' not in row])


def find_one_twice(directory: Path) -> None:
    """The reader finds a record at a second offset, behind the others."""

    def twice(rows: list[str]) -> list[str]:
        (place,) = (number for number, row in enumerate(rows) if '"producer:29"' in row)
        last = json.loads(rows[place])
        again = {**last, "offset": last["offset"] + 1, "at_ms": last["at_ms"] + 0.5}
        for number, row in enumerate(rows):
            end = json.loads(row)
            if end["event"] == "read_end" and end["partition"] == last["partition"]:
                rows[number] = json.dumps({**end, "end": again["offset"] + 1}) + "\n"
        return [*rows[: place + 1], json.dumps(again) + "\n", *rows[place + 1 :]]

    edit(directory, READER, twice)


def lose_one_and_find_one_twice(directory: Path) -> None:
    find_one_twice(directory)
    edit(directory, READER, lambda rows: [row for row in rows if '"producer:28"' not in row])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lose_the_last_record, "30 acknowledged, 29 in the log, 1 lost (producer:29 was"),
        (find_one_twice, "30 acknowledged, 31 in the log, 1 duplicated (producer:29 stands"),
        (lose_one_and_find_one_twice, "30 acknowledged, 30 in the log, 1 lost, 1 duplicated ("),
    ],
)
def test_damage_to_the_log_is_seen(
    payments_run: Path, harm: Callable[[Path], None], said: str
) -> None:
    harm(payments_run)
    assert broken(payments_run)[IN_LOG].startswith(said)
    assert check_demo(payments_run).exit is Exit.BROKEN


def test_the_table_owes_what_the_last_read_found_and_nothing_else(payments_run: Path) -> None:
    """A consumer was given a record that is gone: that is the log's break, not the table's."""
    file = payments_run / HISTORY / f"{READER}.jsonl"
    last = json.loads(file.read_text().splitlines()[-4])
    assert last["event"] == "delivered"
    gone = {**last, "process": "live", "offset": 99, "at_ms": 1.5}
    (payments_run / HISTORY / "live.jsonl").write_text(json.dumps(gone) + "\n")
    seal(payments_run)
    assert "1 vanished" in broken(payments_run)[IN_LOG]
    assert ONCE not in broken(payments_run)


@pytest.mark.parametrize("outcome", [Unknown, Refused, None])
def test_fewer_acknowledged_than_planned_is_no_pass(
    payments_run: Path, outcome: type[Unknown | Refused] | None
) -> None:
    """Goal: log and table agree, nothing is lost; but one event was never acknowledged.

    Method: the last event has no certain outcome, or is refused, or has no answer.
    """

    def doubt(rows: list[str]) -> list[str]:
        row = json.loads(rows[-1])
        stamp = {name: row[name] for name in ("at_ms", "wall_ms", "process", "topic", "partition")}
        if outcome is None:
            return rows[:-1]
        return [*rows[:-1], encode_event(outcome(**stamp, id=row["id"], error="TIMED_OUT"))]

    edit(payments_run, "producer", doubt)
    if outcome is Refused:  # then it may not be in the log
        lose_the_last_record(payments_run)
        found = {IN_LOG: broken(payments_run)[IN_LOG]}
    else:
        found = broken(payments_run)
    assert found.keys() == {IN_LOG}
    assert found[IN_LOG].startswith(f"29 acknowledged, {29 if outcome is Refused else 30} in the")
    assert found[IN_LOG].endswith(", 1 not acknowledged")


def forget_an_end(directory: Path) -> None:
    edit(directory, READER, lambda rows: rows[:-1])


def forget_a_partition(directory: Path) -> None:
    """Nothing at all of partition 2: neither sent nor read. The plan has three."""
    for name in ("producer", READER):
        edit(directory, name, lambda rows: [r for r in rows if json.loads(r)["partition"] != 2])


@pytest.mark.parametrize("harm", [forget_an_end, forget_a_partition])
def test_a_log_that_was_not_read_to_its_end_decides_nothing(
    payments_run: Path, harm: Callable[[Path], None]
) -> None:
    damage(payments_run, "DELETE FROM ledger", "UPDATE balances SET balance = opening")
    harm(payments_run)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.NOT_MADE
    assert verdict.sentence.startswith("UNDECIDED: the log was not read to its end. ")
    assert verdict.checks[0].seen.endswith("; the log was not read to its end")


def test_what_the_judge_can_not_decide_is_said_in_its_words(payments_run: Path) -> None:
    """Method: a replica holds one record more than the last reader was given."""

    def hold_more(rows: list[str]) -> list[str]:
        ends = [row for row in map(json.loads, rows) if row["event"] == "read_end"]
        end = next(row["end"] for row in ends if row["partition"] == 0)
        story = Story().pause(1e9).replica(0, 0, end + 1).batch(0, 0, end)
        held = (encode_event(event).replace('"foo"', '"payments"') for event in story.events)
        return [*rows, *held]

    edit(payments_run, READER, hold_more)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.NOT_MADE
    assert verdict.sentence.startswith("UNDECIDED: payments-0: replica 0 ends at ")
    assert "nobody has read what stands between" in verdict.checks[0].seen


FAILED = Check(name="The table catches up with the log", expected="a", seen="b", kept=False)


def test_what_the_run_itself_has_seen_counts(payments_run: Path) -> None:
    seal(payments_run, FAILED)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.BROKEN
    assert FAILED.name in verdict.sentence


def test_a_run_that_broke_off_says_so(payments_run: Path) -> None:
    broke_off(payments_run)
    verdict = check_demo(payments_run)
    assert verdict.broke_off == verdict.undecided == "Spark can't start"


def test_the_log_is_what_the_last_reader_found() -> None:
    """By the name that the run gives it."""
    assert READER == "final"


def killed(directory: Path) -> None:
    (directory / JOURNAL).unlink()
    Journal(directory).close()


def killed_before_its_journal(directory: Path) -> None:
    (directory / JOURNAL).unlink()


def broke_off(directory: Path) -> None:
    seal(directory, broke_off="Spark can't start")


@pytest.mark.parametrize("end", [killed, killed_before_its_journal, broke_off])
@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (["UPDATE balances SET balance = opening", "DELETE FROM ledger"], set()),
        (["UPDATE holdfast_offset SET next_offset = 1 WHERE partition = 1"], set()),
        (["INSERT INTO ledger SELECT * FROM ledger WHERE rowid = 7"], {ONCE, BALANCES}),
        (["UPDATE ledger SET amount = amount + 1 WHERE rowid = 7"], {CONTENT, BALANCES}),
        (["UPDATE balances SET balance = balance + 1 WHERE rowid = 1"], {BALANCES, MONEY}),
    ],
    ids=["rows to come", "offsets to come", "twice", "changed", "money"],
)
def test_a_run_without_an_end_owes_only_what_is_always_true(
    payments_run: Path,
    end: Callable[[Path], None],
    statements: list[str],
    names: set[str],
    *,
    read: bool,
) -> None:
    damage(payments_run, *statements)
    if not read:
        (payments_run / HISTORY / f"{READER}.jsonl").unlink()
    end(payments_run)
    assert broken(payments_run).keys() == names
    assert check_demo(payments_run).exit is (Exit.BROKEN if names else Exit.NOT_MADE)


def test_a_row_that_nobody_sent_is_wrong_at_any_time(payments_run: Path) -> None:
    damage(payments_run, "UPDATE ledger SET id = 'stranger' WHERE rowid = 7")
    (payments_run / HISTORY / f"{READER}.jsonl").unlink()
    killed(payments_run)
    assert "1 from nowhere" in broken(payments_run)[ONCE]


def test_a_table_of_lines_without_an_end_need_not_be_the_whole_file(lines_run: Path) -> None:
    damage(lines_run, "DELETE FROM lines WHERE rowid = 7")
    assert TEXT in broken(lines_run)
    killed(lines_run)
    assert check_demo(lines_run).exit is Exit.NOT_MADE
    damage(lines_run, "UPDATE lines SET text = text || ' ' WHERE rowid = 8")
    assert broken(lines_run).keys() == {CONTENT}


def drop(directory: Path) -> None:
    engine = sql.create_engine(f"sqlite:///{directory}/table.db")
    with engine.begin() as connection:
        connection.execute(sql.text("DROP TABLE ledger"))
    engine.dispose()


def remove(directory: Path) -> None:
    (directory / "table.db").unlink()


def garble(directory: Path) -> None:
    (directory / "table.db").write_text("no database")


@pytest.mark.parametrize("harm", [drop, remove, garble])
def test_a_table_that_can_not_be_read_is_no_pass(
    payments_run: Path, harm: Callable[[Path], None]
) -> None:
    harm(payments_run)
    verdict = check_demo(payments_run)
    assert verdict.exit is Exit.NOT_MADE
    assert "the table can't be read" in verdict.sentence
    assert (payments_run / "table.db").exists() == (harm is not remove), "a check changes nothing"
    seal(payments_run, FAILED)
    assert check_demo(payments_run).exit is Exit.BROKEN, "what was seen broken is broken"
    killed(payments_run)
    assert check_demo(payments_run).exit is Exit.NOT_MADE


def unread(directory: Path) -> None:
    (directory / HISTORY / "producer.jsonl").unlink()
    (directory / HISTORY / "producer.jsonl").mkdir()


def unparsed(directory: Path) -> None:
    with (directory / HISTORY / "producer.jsonl").open("a") as file:
        file.write("what is this?\n")


def unwritten(directory: Path) -> None:
    shutil.rmtree(directory / HISTORY)
    (directory / HISTORY).mkdir()


def anothers(directory: Path) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    (directory / MANIFEST).write_text(json.dumps({**manifest, "kind": "proof"}))


def misplanned(directory: Path) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    plan = {**manifest["plan"], "events": 0}
    (directory / MANIFEST).write_text(json.dumps({**manifest, "plan": plan}))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (unread, "The run's history can't be read: .*Is a directory"),
        (unparsed, "The run's history can't be read: producer.jsonl:61: no event"),
        (unwritten, "There is no history in .*history"),
        (anothers, "it holds no demo, but a proof"),
        (misplanned, "/run.json is damaged: these are no events of a demo"),
    ],
)
def test_a_folder_that_can_not_be_judged_says_why(
    payments_run: Path, harm: Callable[[Path], None], said: str
) -> None:
    harm(payments_run)
    if harm not in {anothers, misplanned}:
        killed(payments_run)
    with pytest.raises(FolderError, match=said):
        check_demo(payments_run)


def test_the_command_says_pass_fail_or_why_not(
    payments_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for check in (["check"], ["demo", "--check"]):
        assert cli.run([*check, str(payments_run)]) == 0
        assert "PASS: 30 events acknowledged" in capsys.readouterr().out
        assert cli.run([*check, str(payments_run / "nowhere")]) == 2
        assert "no such folder" in capsys.readouterr().err
    damage(payments_run, "DELETE FROM ledger WHERE rowid = 7")
    assert cli.run(["check", str(payments_run), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "FAIL"
    lose_the_last_record(payments_run)
    (payments_run / HISTORY / f"{READER}.jsonl").write_text("{")
    assert cli.run(["check", str(payments_run)]) == 2
    assert "was changed after the run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--key", "a"], ["--input", "/nothing/there"], ["--output", "/proc/nothing"]]
)
def test_a_demo_that_can_not_be_run_says_so(arguments: list[str], tmp_path: Path) -> None:
    output = [] if "--output" in arguments else ["--output", str(tmp_path / "run")]
    assert cli.run(["demo", *arguments, *output]) == 2


def stand_still(directory: Path, until: Fault) -> None:
    """Let an event of partition 0 wait for an ISR that names a node that is gone."""
    place: dict[str, Any] = {"topic": "payments", "partition": 0}
    stamp: dict[str, Any] = {"wall_ms": 0, "process": "lab"}
    events = [
        LeaderChange(at_ms=900.0, **stamp, **place, leader=0, epoch=0),
        IsrChange(at_ms=901.0, **stamp, **place, isr=(0, 1), replicas=(0, 1)),
        Fault(at_ms=902.0, **stamp, action="KILL", node=1),
        Send(at_ms=1000.0, **stamp, **place, id="producer:999", digest="d", size=1),
        until,
    ]
    (directory / HISTORY / "lab.jsonl").write_text("".join(map(encode_event, events)))
    seal(directory)


def start(node: int, at_ms: float) -> Fault:
    return Fault(at_ms=at_ms, wall_ms=0, process="lab", action="start", node=node)


def test_why_a_partition_stood_still_is_in_the_report(payments_run: Path) -> None:
    stand_still(payments_run, start(1, 1500.0))
    verdict = check_demo(payments_run)
    (still,) = verdict.still
    assert (still.begin_ms, still.end_ms, still.absent) == (1000.0, 1500.0, ((1, "KILL"),))
    (part,) = report_data(Places(payments_run), verdict, "holdfast demo").parts
    assert part.still == verdict.still


def test_a_partition_that_stands_still_does_so_to_the_end(payments_run: Path) -> None:
    """Method: the last that is seen is the start of another node."""
    stand_still(payments_run, start(2, 9000.0))
    (still,) = check_demo(payments_run).still
    assert (still.begin_ms, still.end_ms) == (1000.0, 9000.0)


def test_the_databases_password_is_the_one_that_is_told(payments_run: Path) -> None:
    """Method: a server that asks for a password as PostgreSQL does, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        manifest = json.loads((payments_run / MANIFEST).read_text())
        host, port = server.getsockname()
        database = f"postgresql+psycopg://user@{host}:{port}/db?sslmode=disable&gssencmode=disable"
        plan = {**manifest["plan"], "database": database}
        (payments_run / MANIFEST).write_text(json.dumps({**manifest, "plan": plan}))
        seal(payments_run)
        told: list[bytes] = []

        def ask() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)  # who wants which database
                connection.sendall(b"R" + struct.pack("!ii", 8, 3))  # its password in clear text
                told.append(connection.recv(4096))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        assert check_demo(payments_run, "seven seas").undecided is not None
        asking.join(10)
    assert told == [b"p" + struct.pack("!i", 15) + b"seven seas\0"]
