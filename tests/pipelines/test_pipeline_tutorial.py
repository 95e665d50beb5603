"""The program in the tutorial, as it stands there."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.cluster.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Topics

# Starting Spark counts, too, where this test is the first.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "demo.md"
BOUND_S = 180.0
POLL_S = 0.1


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
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for written, ours in {
        "127.0.0.1:9092": bootstrap,
        '"subscribe", "payments"': f'"subscribe", "{topic}"',
        '"mine-checkpoint"': f'"{tmp_path / "mine-checkpoint"}"',  # Java has a directory of its own
    }.items():
        assert written in text
        text = text.replace(written, ours)
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
