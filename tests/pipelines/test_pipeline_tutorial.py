"""The programs on the pages about pipelines, as they stand there: typed, but for names and ports.

Two pages run in the session of these tests. The tutorial, whose driver is killed, has processes of
its own: what it types is typed, in its order, and what it shows is shown.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.cluster.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Topics

# Starting Spark counts, too, where this test is the first.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]
DOCS = Path(__file__).resolve().parents[2] / "docs"
BOUND_S = 180.0
POLL_S = 0.1


def blocks(page: str, language: str) -> list[str]:
    """The code of a language on a page; "" for what a shell runs."""
    found: list[str] = re.findall(
        rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return found


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A program that says ours for what is written. Each of it has to be there."""
    for written, ours in names.items():
        assert written in text
        text = text.replace(written, ours)
    return text


def rows() -> list[tuple[int, int, str]]:
    """What the table holds; nothing while there is none."""
    try:
        with sqlite3.connect("mine.db") as database:
            return database.execute('SELECT "partition", "offset", value FROM payments').fetchall()
    except sqlite3.OperationalError:
        return []


def test_the_program_fills_its_table_and_goes_on(
    spark: SparkSession,
    topics: Topics,
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: who copies it has a pipeline that runs. Method: its text, but for names.

    Seen to end at once, before the first row, while nothing waited for the query.
    """
    monkeypatch.chdir(tmp_path)
    topic = topics.create(1)
    topics.write(topic, 0, [b"alice 10"])
    (text,) = blocks("tutorial/demo.md", "python")
    text = renamed(
        text,
        {
            "127.0.0.1:9092": bootstrap,
            '"subscribe", "payments"': f'"subscribe", "{topic}"',
            # Java has a directory of its own.
            '"mine-checkpoint"': f'"{tmp_path / "mine-checkpoint"}"',
        },
    )
    program = threading.Thread(target=exec, args=(text, {"__name__": "tutorial"}), daemon=True)
    program.start()
    try:
        wait_until(
            lambda: rows() or not program.is_alive(), timeout_s=BOUND_S, what="a row", poll_s=POLL_S
        )
        assert rows() == [(0, 0, "alice 10")]
        topics.write(topic, 0, [b"bob 5"])
        wait_until(lambda: len(rows()) == 2, timeout_s=BOUND_S, what="the next row", poll_s=POLL_S)
        assert program.is_alive()
    finally:
        for query in spark.streams.active:
            query.stop()
        program.join(BOUND_S)


@pytest.mark.usefixtures("spark")  # the programs find it and leave it as it is
def test_a_table_is_compared_and_computed_again(
    topics: Topics,
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: who mends a query by the page gets what it says. Method: a table with a row too few and
    one too many; the page's programs and statements, but for names.
    """
    monkeypatch.chdir(tmp_path)
    topic = topics.create(1)
    topics.write(topic, 0, [b"a", b"b", b"c", b"d"])
    compare, again = blocks("how-to/mend-a-query.md", "python")
    where, view = blocks("how-to/mend-a-query.md", "sql")
    place = f"sqlite:///{tmp_path / 'tables.db'}"
    again = renamed(
        again,
        {
            "127.0.0.1:9092": bootstrap,
            '"subscribe", "payments"': f'"subscribe", "{topic}"',
            '{"payments":{"0":2}}': f'{{"{topic}":{{"0":2}}}}',
            "sqlite:///tables.db": place,
            '"checkpoint-again"': f'"{tmp_path / "again"}"',
        },
    )
    first = renamed(
        again,
        {
            f'{{"{topic}":{{"0":2}}}}': "earliest",
            "payments_again": "payments",
            '"payments again"': '"payments"',
            f"{tmp_path / 'again'}": f"{tmp_path / 'first'}",
            "upper(CAST(value AS STRING))": "CAST(value AS STRING)",
        },
    )
    exec(first, {"__name__": "the query"})
    compare = renamed(
        compare, {"127.0.0.1:9092": bootstrap, '"subscribe", "payments"': f'"subscribe", "{topic}"'}
    )
    exec(compare, {"__name__": "compare"})
    assert capsys.readouterr().out == "4 rows; lacking []; twice or not in the log []\n"
    with sqlite3.connect("tables.db") as database:
        offsets = [database.execute(each).fetchall() for each in where.split(";") if each.strip()]
        assert offsets[1] == [(topic, 0, 4)]
        database.execute('DELETE FROM payments WHERE "offset" = 1')
        database.execute("INSERT INTO payments VALUES (?, 0, 3, 'd')", (topic,))
    exec(compare, {"__name__": "compare"})
    told = f"4 rows; lacking [('{topic}', 0, 1)]; twice or not in the log [('{topic}', 0, 3)]\n"
    assert capsys.readouterr().out == told

    exec(again, {"__name__": "again"})
    with sqlite3.connect("tables.db") as database:
        database.executescript(view)
        shown = database.execute('SELECT "offset", value FROM current_payments ORDER BY 1')
        assert shown.fetchall() == [(0, "a"), (2, "C"), (3, "D")]


@pytest.mark.serial
def test_the_tutorial_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: from nothing to a table as the page says, with a driver that dies by SIGKILL. Method:
    its blocks in their order, on ports that are free; what they show is waited for. Two starts of
    Spark.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", programs)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "tutorial" / "topic-to-table.md").read_text()
    parts = re.split(r"^```(\w*)\n(.*?)^```\n", page, flags=re.DOTALL | re.MULTILINE)
    typist = Typist()
    try:
        for words, language, block in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
            if language == "python":
                name = re.findall(r"Save this as `(.*?)`", words)[-1]
                Path(name).write_text(block.replace("127.0.0.1:9092", typist.bootstrap))
            elif block.startswith("$ "):
                typist.wait_to_see(block)
            else:
                typist.type_in(block)
        assert typist.killed == 1
    finally:
        typist.end()


class Typist:
    """Who types at a shell, and has the driver in a second one."""

    def __init__(self) -> None:
        self.bootstrap = ""
        self.killed = 0
        self._driver: subprocess.Popen[bytes] | None = None

    def type_in(self, block: str) -> None:
        for line in block.splitlines():
            if line == "python orders.py":
                with Path("driver.log").open("ab") as log:
                    self._driver = subprocess.Popen(
                        line.split(), stdout=log, stderr=log, start_new_session=True
                    )
            elif line == "pkill -KILL -f '^python orders.py'":  # somebody else's may have that name
                self._kill(signal.SIGKILL)
                self.killed += 1
            elif line == "holdfast down":
                self.end()
            elif line == "holdfast up --detach":
                said = by_shell(f"{line} --port 0")
                (self.bootstrap,) = re.findall(r"Ready after .*: (\S+)", said)
            else:
                by_shell(line)

    def wait_to_see(self, block: str) -> None:
        """Type the first line of a block again and again, until it shows the others."""
        line, _, shown = block.removeprefix("$ ").partition("\n")

        def seen() -> bool:
            assert self._driver is not None
            assert self._driver.poll() is None, Path("driver.log").read_text()
            return by_shell(line, may_fail=True).split() == shown.split()

        wait_until(seen, timeout_s=BOUND_S, what=f"{line} to show {shown}", poll_s=POLL_S)

    def _kill(self, signal_number: int) -> None:
        assert self._driver is not None
        os.killpg(self._driver.pid, signal_number)
        self._driver.wait(BOUND_S)
        self._driver = None

    def end(self) -> None:
        if self._driver is not None:
            self._kill(signal.SIGKILL)
        by_shell("holdfast down", may_fail=True)


def by_shell(line: str, *, may_fail: bool = False) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert may_fail or done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout
