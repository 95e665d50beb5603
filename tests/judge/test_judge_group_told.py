"""Goal: what the judge tells of a group is true: what happened, and which events show it.

Method: a golden transcript of every hand-made history of a group, as `test_judge_told.py` has of
the log's. `--rewrite` writes what was told into the file; review it as a diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.judge.group_stories import ROWS, GroupStory
from tests.judge.test_judge_told import counted, place

FILE = Path(__file__).with_name("group_told.txt")
MADE = {name: story for name, story, _ in ROWS}


def told(story: GroupStory) -> Iterator[str]:
    """Yield what the judge says of a group, a line each."""
    events = sorted(story.events, key=lambda event: event.at_ms)
    judgement = story.judged()
    yield f"{len(events)} events"
    for reason in judgement.unknown_groups:
        yield f"undecided: {reason}"
    for each in judgement.partitions:
        name = f"{each.group}: {each.topic}-{each.partition}"
        anomalies = {anomaly.value: count for anomaly, count in each.anomalies.items()}
        yield f"{name}: {counted(anomalies)}; {counted(asdict(each.counts))}"
        for finding in each.findings:
            assert (finding.group, finding.topic, finding.partition) == (
                each.group, each.topic, each.partition,
            )  # fmt: skip
            yield f"  {finding.anomaly.value}: {finding.text}"
            yield f"    {', '.join(place(event, events) for event in finding.events)}"
        for reason in each.undecided:
            yield f"  undecided: {reason}"


def sections() -> dict[str, str]:
    """Return what the file says of each history."""
    parts = FILE.read_text(encoding="utf-8").split("\n# ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_the_file_has_every_history_and_no_other(rewrite: bool) -> None:
    if rewrite:
        head = FILE.read_text(encoding="utf-8").split("\n# ")[0] + "\n"
        parts = [f"# {name}\n" + "\n".join([*told(story()), ""]) for name, story in MADE.items()]
        FILE.write_text(head + "".join(parts), encoding="utf-8")
    assert list(sections()) == list(MADE)
    assert len(MADE) == len(ROWS), "a name is there twice"


@pytest.mark.parametrize("name", MADE)
def test_what_is_told(name: str) -> None:
    assert "\n".join(told(MADE[name]())) == sections()[name].rstrip("\n")
