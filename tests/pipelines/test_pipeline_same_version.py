"""Goal: what another version of this package has pickled is refused, and the error says where.

Method: a reader and a sink, pickled under one version and read under another.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast.pipelines.intake import same_version
from holdfast.pipelines.intake.same_version import VersionError
from holdfast.pipelines.options import parse
from holdfast.pipelines.sinks.sql_store import SqliteStore
from holdfast.pipelines.sinks.table_sink import TableSink
from holdfast.pipelines.sinks.target import Target
from holdfast.pipelines.source import StreamReader

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


def sent(folder: Path) -> tuple[StreamReader, TableSink]:
    """Return what goes to executors, and to a Connect server."""
    store = SqliteStore(f"sqlite:///{folder}/table.db", "q", Target(table="kept"))
    return StreamReader(parse(OPTIONS, "stream")), TableSink(store, checkpoint=str(folder))


def test_one_version_reads_what_it_has_pickled(tmp_path: Path) -> None:
    reader, sink = sent(tmp_path)
    assert pickle.loads(pickle.dumps(reader))._planner.options == reader._planner.options
    again = pickle.loads(pickle.dumps(sink))
    assert (again._location, again._store.query) == (str(tmp_path), "q")
    assert vars(again).keys() == vars(sink).keys()


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = [pickle.dumps(each) for each in sent(tmp_path)]
    monkeypatch.setattr(same_version, "__version__", "0.0.7")
    for each in pickled:
        with pytest.raises(VersionError, match=r"holdfast 0\.1\..* has 0\.0\.7: install one"):
            pickle.loads(each)


def test_what_says_no_version_is_refused() -> None:
    with pytest.raises(VersionError, match="of an unknown version"):
        same_version.unstamped({"options": 1})
