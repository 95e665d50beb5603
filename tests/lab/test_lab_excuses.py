"""An excuse needs what allows it, and is nobody else's.

Goal: what clients do by themselves is counted for those clients alone, for what they had in hand
when they gave up; what an allowance covers wholly breaks nothing, and one record beside it does.
Method: folders written by the lab's own journal, with histories made by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.judge.histories import Story
from tests.lab.test_lab_check import write_part

from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.verdict import Anomaly
from holdfast.lab import prove as proving
from holdfast.lab.journal import Exit, write_manifest
from holdfast.lab.outcome import PartResult
from holdfast.lab.prove import _verdict, judge_part
from holdfast.lab.scenario import DRAWN, SCENARIOS, Part, load_scenario

LINKS, CUT_OFF, SPLIT = "client-links-cut", "clients-cut-off", "split-brain"
GAVE_UP, LOAD = "producer-a", "producer"


def part_of(scenario: str, name: str) -> Part:
    return next(part for part in load_scenario(scenario).parts if part.name == name)


def judged(tmp_path: Path, scenario: str, name: str, story: Story) -> PartResult:
    """Judge the folder of a part whose history is this; groups are promised nothing."""
    base = load_scenario(scenario).defaults
    tmp_path.mkdir(exist_ok=True)
    write_manifest(tmp_path, "proof", scenario=scenario, parameters={}, parts=[name], command="x")
    write_part(tmp_path / name, story)
    return judge_part(part_of(scenario, name), base, tmp_path / name)


def found(by: str, *numbers: int, doubled: bool = True) -> Story:
    """A last read that finds these, of one client, once or all of them twice."""
    story = Story()
    offsets = [*numbers, *numbers] if doubled else [*numbers]
    for offset, number in enumerate(offsets):
        story.read(offset, number, of=by, by="final")
    return story.end(0, len(offsets))


IN_HAND = Story().send(0, 1, by=GAVE_UP).doubt(0, by=GAVE_UP).ack(1, 0, by=GAVE_UP)
BEFORE = Story().send(1, by=GAVE_UP).ack(1, 0, by=GAVE_UP).send(0, by=GAVE_UP).doubt(0, by=GAVE_UP)
AFTER = Story().send(0, by=GAVE_UP).doubt(0, by=GAVE_UP).send(1, by=GAVE_UP).ack(1, 0, by=GAVE_UP)
BETWEEN = (
    Story()
    .send(0, 2, by=GAVE_UP)
    .doubt(0, by=GAVE_UP)
    .send(1, by=GAVE_UP)
    .ack(1, 0, by=GAVE_UP)
    .doubt(2, by=GAVE_UP)
)
UNANSWERED = Story().send(0, 1, by=GAVE_UP).doubt(0, by=GAVE_UP)
NEVER = Story().send(1, by=GAVE_UP).ack(1, 0, by=GAVE_UP)
OTHERS = Story().send(0, by=GAVE_UP).send(1, by=LOAD).doubt(0, by=GAVE_UP).ack(1, 0, by=LOAD)


@pytest.mark.parametrize(
    ("story", "by", "excused"),
    [
        (IN_HAND, GAVE_UP, True),
        (BETWEEN, GAVE_UP, True),
        (UNANSWERED, GAVE_UP, True),
        (BEFORE, GAVE_UP, False),
        (AFTER, GAVE_UP, False),
        (NEVER, GAVE_UP, False),
        (OTHERS, LOAD, False),
    ],
    ids=["in hand", "between", "unanswered", "before", "after", "gave nothing up", "another's"],
)
def test_what_is_doubled_is_counted_of_who_gave_up_and_had_it_in_hand(
    tmp_path: Path, story: Story, by: str, excused: bool
) -> None:
    """Method: record 1 stands twice; record 0 is what is given up, where anything is."""
    result = judged(tmp_path, LINKS, "longer", Story().then(story).then(found(by, 1)))
    assert result.evidence.judgement.count(Anomaly.DUPLICATED) == 1
    assert (Anomaly.DUPLICATED in result.broken) is not excused
    assert (Anomaly.DUPLICATED in result.excused) is excused


def test_one_record_that_is_nobody_s_to_excuse_breaks_the_promise(tmp_path: Path) -> None:
    """Method: beside one that is excused, one of the load, which gives nothing up."""
    story = Story().send(0, 1, by=GAVE_UP).send(1, by=LOAD).doubt(0, by=GAVE_UP)
    story.ack(1, 0, by=GAVE_UP).ack(1, 1, by=LOAD)
    for offset, by in enumerate([GAVE_UP, LOAD, GAVE_UP, LOAD]):
        story.read(offset, 1, of=by, by="final")
    result = judged(tmp_path, LINKS, "longer", story.end(0, 4))
    assert result.broken == (Anomaly.DUPLICATED,)
    assert _verdict([result], None)[0] is Exit.BROKEN


@pytest.mark.parametrize("last", [GAVE_UP, LOAD])
def test_each_of_many_is_looked_at_also_those_without_evidence(tmp_path: Path, last: str) -> None:
    """Method: more are doubled than a judgement keeps evidence of; the last one is another's."""
    count = FINDINGS_MAX + 5
    story = Story().send(*range(count), by=GAVE_UP).send(count, by=last).doubt(0, by=GAVE_UP)
    names = [(GAVE_UP, number) for number in range(1, count)] + [(last, count)]
    for offset, (by, number) in enumerate(names):
        story.ack(number, offset, by=by)
    for offset, (by, number) in enumerate([*names, *names]):
        story.read(offset, number, of=by, by="final")
    result = judged(tmp_path, LINKS, "longer", story.end(0, 2 * len(names)))
    assert result.evidence.judgement.count(Anomaly.DUPLICATED) == len(names)
    kept = [each for each in result.evidence.judgement.findings if each.events]
    assert len(kept) == FINDINGS_MAX, "a report has as many as any other's"
    assert (Anomaly.DUPLICATED in result.excused) is (last == GAVE_UP)


def test_what_cannot_be_told_in_full_is_not_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: no more evidence is looked for than a judgement has anyway."""
    count = FINDINGS_MAX
    story = Story().send(*range(count + 1), by=GAVE_UP).doubt(0, by=GAVE_UP)
    for number in range(1, count + 1):
        story.ack(number, number - 1, by=GAVE_UP)
    story.then(found(GAVE_UP, *range(1, count + 1)))
    assert judged(tmp_path / "all", LINKS, "longer", story).excused
    monkeypatch.setattr(proving, "EXCUSES_MAX", FINDINGS_MAX)
    assert not judged(tmp_path / "some", LINKS, "longer", story).excused


@pytest.mark.parametrize(("by", "excused"), [("producer", True), ("raw", False)])
def test_a_client_that_never_sends_twice_is_excused_nowhere(
    tmp_path: Path, by: str, excused: bool
) -> None:
    """Method: a control with acks=1, which counts what librdkafka does there by itself."""
    story = Story().send(0, by=by).ack(0, 0, by=by).then(found(by, 0))
    result = judged(tmp_path, SPLIT, "control", story)
    assert (Anomaly.DUPLICATED in result.excused) is excused
    assert ("duplicated" in result.own_broken) is not excused


@pytest.mark.parametrize(("by", "excused"), [("producer", True), ("raw", False)])
def test_order_is_laid_at_the_door_of_whose_record_stands_too_late(
    tmp_path: Path, by: str, excused: bool
) -> None:
    story = Story().send(0, 1, by=by).ack(0, 1, by=by).ack(1, 0, by=by)
    result = judged(tmp_path, SPLIT, "control", story.then(found(by, 1, 0, doubled=False)))
    assert result.evidence.judgement.count(Anomaly.REORDERED) == 1
    assert (Anomaly.REORDERED in result.excused) is excused


def test_a_reader_that_goes_back_is_no_sender_s_doing(tmp_path: Path) -> None:
    story = Story().send(0, 1).ack(0, 0).ack(1, 1).read(1, 1).read(0, 0).final(0, 1)
    result = judged(tmp_path, SPLIT, "control", story)
    assert Anomaly.REORDERED not in result.excused
    assert "reordered" in result.own_broken


def test_what_did_not_happen_is_excused_so_that_a_page_says_nothing_is_forbidden(
    tmp_path: Path,
) -> None:
    story = Story().send(0, by=GAVE_UP).ack(0, 0, by=GAVE_UP)
    result = judged(tmp_path, LINKS, "longer", story.then(found(GAVE_UP, 0, doubled=False)))
    assert result.excused == part_of(LINKS, "longer").counted


@pytest.mark.parametrize("name", [*SCENARIOS, *DRAWN])
def test_who_is_excused_is_named_and_where_clients_give_up_so_is_by_what(name: str) -> None:
    """Goal: a load that gives nothing up is excused nowhere beside clients that do."""
    for part in load_scenario(name).parts:
        if part.counted:
            assert part.counted_of, part.name
        if part.counted and not part.is_control and name in {LINKS, CUT_OFF}:
            assert part.met is not None
            assert part.met[0] in part.counted_of
            assert part.met[1] == "_MSG_TIMED_OUT"
        if name == LINKS and part.counted:
            assert LOAD not in part.counted_of
