"""Tables of pipelines: what is missing, twice or strange is told, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sql

from holdfast.cluster.processes import wait_until
from holdfast.lab import postgresql
from holdfast.lab.guard import MARK, marked
from holdfast.lab.journal import Exit
from holdfast.lab.parameters import LabError
from holdfast.lab.pipelines import driver_process, driver_words, postgresql_server, tables
from holdfast.lab.pipelines import pipeline as pipeline_module
from holdfast.lab.pipelines.driver_process import DriverProcess
from holdfast.lab.pipelines.pipeline import GOES_ON, NOTHING_ELSE, ONCE, WHOLE, Pipeline
from holdfast.lab.pipelines.plain_log import Row
from holdfast.lab.pipelines.process_trees import is_alive
from holdfast.lab.pipelines.tables import FilesTable, SqlTable, compare
from holdfast.lab.prove import prove
from holdfast.lab.scenario import SCENARIOS, load_scenario
from holdfast.pipelines.fence import create_tables, gaps
from holdfast.pipelines.proving.careless_sinks import PlainAppend, SwallowsErrors

LOG = [Row(0, 0, "a", "x"), Row(0, 1, None, "y"), Row(1, 0, "b", None)]


def as_dict(row: Row) -> dict[str, object]:
    return {"topic": "foo", **row._asdict()}


def test_a_table_like_the_log_differs_in_nothing() -> None:
    assert compare(reversed(LOG), LOG) == ""


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (LOG[1:], "1 missing (P0 offset 0)"),
        ([*LOG, LOG[2]], "1 more than once (P1 offset 0)"),
        ([*LOG, Row(2, 7, None, None)], "1 not in the log (P2 offset 7)"),
        (
            [LOG[0], LOG[1], Row(1, 0, "b", "z")],
            "1 missing (P1 offset 0); 1 not in the log (P1 offset 0)",
        ),
        ([], "3 missing (P0 offset 0, P0 offset 1, P1 offset 0)"),
    ],
)
def test_each_difference_is_told(table: list[Row], said: str) -> None:
    assert compare(table, LOG) == said


def test_a_row_that_is_strange_and_twice_is_strange() -> None:
    strange = Row(2, 7, None, None)
    assert compare([*LOG, strange, strange], LOG) == "1 not in the log (P2 offset 7)"


def test_many_differences_are_counted_and_some_shown() -> None:
    log = [Row(0, offset, None, None) for offset in range(1_200)]
    assert compare([], log) == "1,200 missing (P0 offset 0, P0 offset 1, P0 offset 2, ...)"


def test_a_moment_is_drawn_within_what_a_function_takes_when_nothing_is_waited_for() -> None:
    def said(place: str, lasted_ms: float) -> dict[str, object]:
        return {"place": place, "when": "amid", "lasted_ms": lasted_ms}

    first = said("stage", driver_words.UNKNOWN_MS)
    assert driver_words.lasts_s([first]) == driver_words.UNKNOWN_MS / 1_000
    told = [first, said("commit", 3.0), said("stage", 700.0), said("stage", 19_000.0)]
    assert driver_words.lasts_s(told) == 0.7


def test_tasks_that_died_are_counted_by_what_spark_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "26/11/28 04:28:05 ERROR TaskSchedulerImpl: Lost executor 0 on 127.0.0.1: Command exited\n"
        "26/11/28 04:28:05 WARN TaskSetManager: Lost task 0.0 in stage 7.0 (TID 9)\n"
        "04:28:06 WARN TaskSetManager: [queryId = 4403f] [batchId = 10] Lost task 0.0 in stage 2\n"
    )
    assert driver_words.lost_tasks(log) == 2


class Seen:
    """Stands for a run, and for a table that has these rows."""

    target = "nowhere"
    topic = "foo"
    partitions = (0, 1)

    def __init__(self, folder: Path, rows: list[Row]) -> None:
        self.history = folder / "history"
        self._rows = rows
        self.broken: list[str] = []
        self.late: list[str] = []  # which may only have come too late
        self.not_given: list[str] = []  # which rest on what has not come

    def rows(self) -> list[Row]:
        return self._rows

    def positions(self) -> dict[int, int]:
        return {row.partition: row.offset + 1 for row in self._rows}

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()

    def wait(self, _what: str, condition: Callable[[], bool], bound_s: float) -> bool:
        return self.soon(condition, bound_s)

    def check(
        self, name: str, _e: str, _seen: str, *, kept: bool, late: bool = False, given: bool = True
    ) -> bool:
        self.broken += [] if kept else [name]
        self.late += [name] if late and not kept else []
        self.not_given += [] if given else [name]
        return kept


@pytest.mark.parametrize(
    ("table", "broken"),
    [
        (LOG, []),
        (LOG[1:], [WHOLE]),
        ([*LOG, LOG[2]], [ONCE]),
        ([*LOG, Row(2, 7, None, None)], [NOTHING_ELSE]),
        ([LOG[0], LOG[0]], [WHOLE, ONCE]),
    ],
)
def test_what_is_wrong_breaks_a_check_of_its_own(
    table: list[Row], broken: list[str], tmp_path: Path
) -> None:
    """A control that is to show rows twice must not pass because some are missing."""
    seen: Any = Seen(tmp_path, table)
    Pipeline(seen, table=seen).expect_exact(LOG)
    assert seen.broken == broken


@pytest.mark.parametrize(
    ("behind", "goes_on"), [({}, True), ({0: 4, 1: 4}, True), ({0: 5, 1: 4}, False)]
)
def test_rows_that_were_read_before_show_no_progress(
    behind: dict[int, int], goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the batch that was under way when a broker died."""
    monkeypatch.setattr(pipeline_module, "LOOK_S", 0)
    before = [Row(0, 2, None, None), Row(1, 2, None, None)]
    after = [Row(0, 4, None, None), Row(1, 4, None, None)]
    seen: Any = Seen(tmp_path, before)
    pipeline = Pipeline(seen, table=seen)
    seen.soon = lambda _condition, _bound_s: setattr(seen, "_rows", after)
    assert pipeline.expect_progress("then", behind=behind) is goes_on


def test_what_comes_too_late_on_a_starved_machine_may_only_be_late(tmp_path: Path) -> None:
    """Seen to fail: on a machine that excused every other bound, a table without news was broken.

    What is there twice, or that nobody wrote, no machine excuses.
    """
    seen: Any = Seen(tmp_path, [*LOG, Row(2, 7, None, None)])
    pipeline = Pipeline(seen, table=seen)
    assert not pipeline.expect_progress("then")
    pipeline.catch_up({0: 99})
    pipeline.expect_exact([*LOG, Row(0, 98, None, None)])
    late = [f"then: {GOES_ON}", "the table comes to the log's end"]
    assert seen.broken == [*late, WHOLE, NOTHING_ELSE]
    assert seen.late == late
    assert seen.not_given == [WHOLE]


@pytest.mark.parametrize(("offset", "excused"), [(1, False), (3, True)])
def test_what_is_missing_below_a_table_s_end_did_not_come_too_late(
    offset: int, excused: bool, tmp_path: Path
) -> None:
    """Seen to fail: rows that a sink had lost were excused by a machine that starved it later."""
    there = [Row(0, 0, "a", "x"), Row(0, 2, None, "z")]
    seen: Any = Seen(tmp_path, there)
    pipeline = Pipeline(seen, table=seen)
    pipeline.catch_up({0: 4})
    pipeline.expect_exact([*there, Row(0, offset, None, "y")])
    assert (seen.broken[-1], bool(seen.not_given)) == (WHOLE, excused)


def test_a_driver_that_goes_on_may_be_late_and_one_that_has_ended_is_not(tmp_path: Path) -> None:
    seen: Any = Seen(tmp_path, LOG)
    seen.note = lambda _text: None
    pipeline = Pipeline(seen, table=seen)
    driver = SimpleNamespace(
        name="d", running=True, may_end=bool, kill=bool, last_words=lambda: "it says no more"
    )
    pipeline.drivers.append(driver)  # type: ignore[arg-type]
    pipeline.expect_end("it ends", ["FencedError"])
    pipeline.revive_until({0: 99}, "it is back")
    assert seen.late == ["it ends", f"it is back: {GOES_ON}"]
    driver.running = False
    pipeline.expect_end("it has ended", ["FencedError"])
    assert seen.broken[-1] == "it has ended"
    assert seen.late[-1] != "it has ended"


LEAVES = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(json.dumps({"event": "child", "pid": child.pid}), flush=True)
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_driver_stands_still_and_dies_with_what_has_left_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon of Spark's Python workers does."""
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES)
    monkeypatch.setattr(driver_process, "MODULE", "cProfile")  # which runs a script
    driver = DriverProcess("driver", [str(script)], tmp_path, {})
    try:
        wait_until(lambda: driver.told("child"), timeout_s=60, what="a child")
        child = driver.told("child")[0]["pid"]
        driver.pause()
        wait_until(lambda: state(child) == "T", timeout_s=60, what="it to stand still")
        driver.go_on()
        wait_until(lambda: state(child) == "S", timeout_s=60, what="it to go on")
    finally:
        driver.kill()
    wait_until(lambda: not is_alive(child), timeout_s=60, what="it to die")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_sql_table_is_read_as_a_sink_has_written_it(tmp_path: Path) -> None:
    table = SqlTable(f"sqlite:///{tmp_path / 'table.db'}")
    assert table.positions() == {}
    assert table.gaps() == {}
    PlainAppend(table.target, "records").insert([as_dict(row) for row in LOG])
    assert sorted(table.rows(), key=repr) == sorted(LOG, key=repr)
    assert table.positions() == {0: 2, 1: 1}


def test_gaps_are_read_offset_by_offset(tmp_path: Path) -> None:
    table = SqlTable(f"sqlite:///{tmp_path / 'table.db'}")
    engine = sql.create_engine(table.target)
    gap = {"query": "copy", "checkpoint": "c", "topic": "foo", "source": 0}
    with engine.begin() as connection:
        create_tables(connection)
        for batch, number, first, behind in ((1, 0, 2, 4), (2, 0, 9, 10), (2, 1, 0, 1)):
            place = {"batch": batch, "partition": number}
            ends = {"first_offset": first, "next_offset": behind}
            connection.execute(gaps.insert().values(**gap, **place, **ends))
    assert table.gaps() == {0: {2, 3, 9}, 1: {0}}


def test_a_sink_that_swallows_errors_loses_rows_and_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'table.db'}"
    sink = SwallowsErrors(url, "records")
    with sql.create_engine(url).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE records RENAME TO away")
    sink.insert([as_dict(LOG[0])])
    with sql.create_engine(url).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO records")
    sink.insert([as_dict(LOG[1])])
    assert SqlTable(url).rows() == [LOG[1]]


def test_a_line_that_a_task_is_at_is_no_row_yet(tmp_path: Path) -> None:
    lines = [json.dumps(as_dict(row)) + "\n" for row in LOG]
    (tmp_path / "a.jsonl").write_text("".join(lines[:2]))
    (tmp_path / "b.jsonl").write_text(lines[2][:-5])
    table = FilesTable(tmp_path)
    assert table.rows() == LOG[:2]
    assert table.positions() == {0: 2}


LIST = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "sqlalchemy"):
    sys.modules[name] = None
from holdfast.lab.scenario import SCENARIOS, load_scenario
print(len([load_scenario(name) for name in SCENARIOS]))
"""


@pytest.mark.process
@pytest.mark.slow
def test_scenarios_are_listed_without_what_spark_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{len(SCENARIOS)}\n", "")


def test_a_query_without_what_spark_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "find_spec", lambda name: None if name == "pyarrow" else name)
    with pytest.raises(LabError, match=r"needs pyarrow: pip install 'holdfast\[spark\]'"):
        SqlTable("sqlite://")


@pytest.mark.slow
@pytest.mark.process
def test_a_scenario_is_proven_and_says_what_its_table_had(tmp_path: Path) -> None:
    """One of them, without its control: both of all are campaigns of `make soak`."""
    scenario = load_scenario("pipeline-rebalanced")
    outcome = prove(scenario, scenario.defaults, tmp_path / "run", command="a test", control=False)
    assert outcome.exit is Exit.KEPT, outcome.verdict
    (result,) = outcome.results
    checks = {check.name: check.seen for check in result.checks}
    # Two partitions have four writes, three have three, and the last one has two, of 50 each.
    assert checks[WHOLE] == checks[ONCE] == "none of 950"


@pytest.mark.slow
@pytest.mark.process
def test_the_guard_of_a_run_ends_its_database_too() -> None:
    """It ends what bears the run's mark when the run is killed. Seen to leave a server behind."""
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL's server is not on this machine")
    environment = {MARK: uuid.uuid4().hex}
    with postgresql_server.running(environment) as server:
        assert server._pid() in marked(environment[MARK])
        assert os.environ.get(MARK) != environment[MARK], "of what it starts alone"
        server.kill()
        server.start()
        assert server._pid() in marked(environment[MARK])
