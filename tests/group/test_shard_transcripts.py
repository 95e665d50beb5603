"""Goal: groups come together, rebalance, fall apart and are forgotten as Apache Kafka's do.

The first line of each file says which story it is.

Method: golden transcripts. `--rewrite` writes what happened into the files; review it as a diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.group.shard_story import run

TRANSCRIPTS = sorted((Path(__file__).parent / "shard_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, rewrite: bool) -> None:
    text = path.read_text()
    happened = run(text)
    if rewrite:
        path.write_text(happened)
    assert happened == path.read_text()


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS


def test_a_transcript_that_expects_something_else_is_noticed() -> None:
    text = TRANSCRIPTS[0].read_text()
    assert run(text.replace("leader a", "leader z")) != text.replace("leader a", "leader z")
