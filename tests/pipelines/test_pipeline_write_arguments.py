"""Goal: an argument of `write` that makes no sense is refused at once, by its name, and shows no
secret. Method: a frame that nobody computes.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.pipelines import write
from holdfast.pipelines.sinks.sql_store import SqliteStore
from holdfast.pipelines.sinks.table_sink import TableSink
from holdfast.pipelines.sinks.target import Target, TargetError

TYPES = [("id", "string"), ("at", "bigint"), ("gone", "boolean")]
FRAME: Any = SimpleNamespace(isStreaming=True, dtypes=TYPES)


def refused(frame: Any = FRAME, target: Any = "sqlite:///x.db", **given: Any) -> str:
    plain = {"table": "t", "query": "q", "checkpoint": "c"}
    with pytest.raises(TargetError) as found:
        write(frame, target, **{**plain, **given})
    return str(found.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"frame": None}, "frame: it is no stream"),
        ({"target": Path("/x.db")}, "target: a text is wanted"),
        ({"target": b"postgresql://u:swordfish@h/d"}, "target: a text is wanted"),
        ({"table": 5}, "table: a text is wanted"),
        ({"table": " "}, "table: is empty"),
        ({"query": None}, "query: a text is wanted"),
        ({"query": ""}, "query: is empty"),
        ({"checkpoint": None}, "checkpoint: a text is wanted"),
        ({"checkpoint": ""}, "checkpoint: is empty"),
        ({"keys": [1]}, "keys: 1 is no column of the query; it has id, at, gone"),
        ({"keys": ["ID"]}, "keys: 'ID' is no column of the query; the nearest is 'id'"),
        ({"keys": ["id", "id"]}, "keys: 'id' is there twice"),
        ({"mode": "upsert", "keys": "id", "version": "att"}, "version: 'att' .* nearest is 'at'"),
        ({"mode": "upsert", "keys": "id", "deleted": "at"}, "deleted: 'at' is bigint"),
        ({"mode": "upsert", "keys": "id", "deleted": "id"}, "deleted: 'id' is a key"),
        ({"output_mode": "Complete"}, "output_mode: 'Complete'; use append, update, complete"),
        ({"trigger": "1 second"}, "trigger: '1 second'; use {\"processingTime\""),
        ({"trigger": {"availablenow": True}}, 'trigger: .*use .*"availableNow": True'),
        ({"trigger": {}}, "trigger: {}; use"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(given: dict[str, Any], said: str) -> None:
    """Seen to fail: most were an AttributeError, or came with the first batch. "Complete", which
    Spark takes, was not seen to be what adds all rows again.
    """
    found = refused(**given)
    assert re.match(said, found), found
    assert "swordfish" not in found


@pytest.mark.parametrize(
    "target",
    ["host=db user=w password=swordfish", "swordfish", "password=swordfish host=db:1"],
)
def test_what_is_no_url_is_not_shown(target: str) -> None:
    """Seen to fail: libpq's other form of an address was quoted, password and all."""
    found = refused(target=target)
    assert found.startswith("target: it is none of sqlite://, postgresql://")
    assert "swordfish" not in found


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("sqlite://orders.db", "a file is sqlite:///FILE"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:t?mode=memory&cache=shared&uri=true", "in memory"),
        ("parquet:///a#b", "write %3F or %23"),
        ("delta:///a?b", "write %3F or %23"),
        ("parquet:a", "use parquet:///FOLDER"),
    ],
)
def test_a_target_that_would_be_another_place_is_refused(target: str, said: str) -> None:
    """Seen to fail: what stands behind ? and # was cut off, and rows went to another folder."""
    assert said in refused(target=target)


def test_one_id_that_is_over_may_be_given_as_a_text() -> None:
    """Seen to fail: each of its letters counted as an id, so the error came again."""
    store = SqliteStore("sqlite:///x.db", "q", Target(table="t"))
    sink = TableSink(store, checkpoint="c", begin_anew="a+b")
    assert sink._begin_anew == {"a-b"}
