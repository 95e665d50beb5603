"""Goal: the demo runs from one end to the other, and its verdict is about the table that is there.

Method: one short run for real, with lines of a file, a crash and Spark; then a row is deleted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sql

from holdfast import cli

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.serial]

LINES = 900


def test_a_users_file_goes_through_a_crash_into_the_table_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "people.jsonl", tmp_path / "run"
    rows = [
        json.dumps({"id": n % 50, "name": f"Zoë {n}"}, ensure_ascii=False) for n in range(LINES)
    ]
    rows.insert(10, "this is no JSON")
    file.write_text("\n".join(rows) + "\n")
    demo = ["demo", "--input", str(file), "--key", "id", "--output", str(run), "--rate", "300"]
    assert cli.run([*demo, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["verdict"], result["acknowledged"]) == ("PASS", LINES)
    aside = [json.loads(row) for row in (run / "malformed.jsonl").read_text().splitlines()]
    assert [(row["line"], row["text"]) for row in aside] == [(11, "this is no JSON")]
    assert (run / "report.html").stat().st_size > 10_000
    history = (run / "history" / "lab.jsonl").read_text()
    assert '"KILL"' in history
    assert '"start"' in history

    engine = sql.create_engine(f"sqlite:///{run}/table.db")
    with engine.begin() as connection:
        places = connection.execute(sql.text("SELECT line_number, key, text FROM lines"))
        assert {(row[0], row[1]) for row in places} >= {(1, "0"), (12, "10"), (LINES + 1, "49")}
        connection.execute(sql.text("DELETE FROM lines WHERE line_number = 500"))
    engine.dispose()
    assert cli.run(["demo", "--check", str(run)]) == 1
    assert "1 missing" in capsys.readouterr().out
