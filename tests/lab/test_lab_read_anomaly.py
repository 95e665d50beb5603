"""Goal: a consumer that reads what only a leader has is seen, by whatever it reads.

Method: what the scenario checks, on histories written by hand and answers made up.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.checked import COUNT, Scene

from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import Delivered, Send
from holdfast.lab.scenarios import read_anomaly
from holdfast.lab.scenarios.read_anomaly import SENDER, ask_beyond, expect_unread


def written(directory: Path, reader: str = "raw-reader", read: int = 0, sent: int = COUNT) -> Scene:
    """Write a client's history and its readers'; so many of what was sent have been read."""
    with Recorder(directory / f"{SENDER}.jsonl", SENDER) as sender:
        for number in range(sent):
            sender.record(Send, topic="foo", partition=0, id=f"p:{number}", digest="", size=1)
    for name in read_anomaly.READERS:
        with Recorder(directory / f"{name}.jsonl", name) as recorder:
            for number in range(read if name == reader else 0):
                recorder.record(
                    Delivered, topic="foo", partition=0, offset=number, id=f"p:{number}", digest=""
                )
    return Scene(directory)


@pytest.mark.parametrize("reader", read_anomaly.READERS)
@pytest.mark.parametrize(("read", "kept"), [(0, True), (1, False)])
def test_any_reader_s_reading_of_what_vanished_is_seen(
    tmp_path: Path, reader: str, read: int, kept: bool
) -> None:
    scene = written(tmp_path, reader, read)
    expect_unread(cast("Any", scene), 0.0, float("inf"))
    assert scene.kept == [kept]


@pytest.mark.parametrize("sent", [0, COUNT - 1])
def test_where_nothing_was_sent_nobody_has_shown_anything(tmp_path: Path, sent: int) -> None:
    scene = written(tmp_path, sent=sent)
    expect_unread(cast("Any", scene), 0.0, float("inf"))
    assert scene.kept == [False]


def test_what_was_sent_before_may_have_been_read(tmp_path: Path) -> None:
    scene = written(tmp_path, read=1)
    expect_unread(cast("Any", scene), float("inf"), float("inf"))
    assert scene.kept == [False], "none of them was sent then"


def a_batch() -> bytes:
    return (0).to_bytes(8, "big") + (49).to_bytes(4, "big") + b"\0\0\0\0\x02" + bytes(44)


@pytest.mark.parametrize(
    ("records", "high_watermark", "kept"),
    [(b"", 10, True), (a_batch(), 10, False), (b"", 11, False), (b"", 10 + COUNT, False)],
    ids=["nothing", "a batch", "one more is committed", "all is committed"],
)
def test_a_leader_must_give_nothing_beyond_the_watermark(
    monkeypatch: pytest.MonkeyPatch, records: bytes, high_watermark: int, kept: bool
) -> None:
    scene = Scene()
    asked: list[int] = []

    def fetch(_run: Any, _peer: Any, offset: int) -> Any:
        asked.append(offset)
        return SimpleNamespace(records=records, high_watermark=high_watermark)

    monkeypatch.setattr(read_anomaly, "fetch", fetch)
    monkeypatch.setattr(read_anomaly, "end_of", lambda *_: 10 + COUNT)
    ask_beyond(cast("Any", scene), 1, cast("Any", None))
    assert (asked, scene.kept) == ([10], [kept])
