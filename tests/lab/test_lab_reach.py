"""Goal: what came too late while the lab did not reach a cluster proves nothing of that cluster.

Method: looks by hand, at made-up moments; the cluster's own look, at brokers that answer as told;
verdicts over parts by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.judge.group_stories import GroupStory
from tests.judge.histories import Story

from holdfast.cluster.elsewhere.elsewhere_cluster import ElsewhereCluster, Found
from holdfast.cluster.elsewhere.nodes_file import KILL
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.processes import wait_until
from holdfast.judge.checker import judge
from holdfast.judge.groups.history import encode_any
from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.judge.history import Acknowledged, Event, Send
from holdfast.lab.elsewhere.reach import SHOWN_MAX, Reach, Silences
from holdfast.lab.journal import HISTORY, MANIFEST, Exit, Journal, write_manifest
from holdfast.lab.outcome import PartResult
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.prove import _verdict, judge_part
from holdfast.lab.report import Check
from holdfast.lab.scenario import Part

UNREACHED = "the lab did not reach the cluster from 10 s to 70 s"
LATE = Check(name="all are back", expected="so", seen="not so", kept=False, late=True)
WRONG = Check(name="min ISR 2", expected="refused", seen="acknowledged", kept=False)
MAIN = Part(name="main", title="Main", steps=lambda _run: None)


def looks(*answers: bool | None) -> Silences:
    """One look a second, which takes half of it."""
    silences = Silences()
    for second, answered in enumerate(answers):
        silences.take(float(second), second + 0.5, answered=answered)
    return silences


def test_silence_goes_from_look_to_look_until_somebody_answers() -> None:
    assert looks(True, *[False] * 5).text is None  # half a second is missing
    assert (
        looks(True, *[False] * 6, True).text == "the lab did not reach the cluster from 1 s to 6 s"
    )
    text = looks(*[False] * 4, True, *[False] * 4).text
    assert text is not None
    assert text.endswith("from 0 s to 4 s, from 5 s to 8 s")


def test_where_nobody_is_left_to_be_asked_nobody_is_silent() -> None:
    assert looks(*[None] * 60).text is None
    assert looks(*[False] * 4, *[None] * 60, False).text is None


def test_only_so_many_silences_are_told() -> None:
    text = looks(*[False, False, True] * (SHOWN_MAX + 2)).text
    assert text is not None
    assert text.count("from") == SHOWN_MAX
    assert text.endswith(" and 2 times more")


def test_what_was_overcome_excuses_nothing_more_and_is_told() -> None:
    silences = looks(*[False] * 10)
    silences.overcome(6.0)
    assert silences.excuse is None
    silences.take(11.0, 11.5, answered=False)
    assert silences.excuse == "the lab did not reach the cluster from 6 s to 12 s"
    assert silences.text == "the lab did not reach the cluster from 0 s to 12 s"


def test_looks_end_with_the_run() -> None:
    reach = Reach(lambda: False, 0.0)
    reach.stop()  # of a run that never began
    reach = Reach(lambda: False, 0.0)
    reach.start()
    reach.stop()
    reach.overcome()
    assert reach.excuse is None


class Some(ElsewhereCluster):
    """Three brokers, of which some answer; `meanwhile` is hurt while it is asked."""

    def __init__(
        self, answers: Mapping[int, bool], hurt: set[int], meanwhile: int | None = None
    ) -> None:
        brokers = {node: ("kafka", 9092 + node) for node in range(3)}
        record = Found(servers="kafka:9092", cluster_id="x", brokers=brokers).record(brokers)
        super().__init__(record, None, Path(), {})
        self._told, self._meanwhile = answers, meanwhile
        self._hurt |= dict.fromkeys(hurt, KILL)

    def _shown_by(self, node_id: int) -> set[int]:
        assert node_id not in self._hurt, "nobody has to answer who was hurt"
        if node_id == self._meanwhile:
            self._hurt[node_id] = KILL
        if node_id not in self._told:
            raise ClusterError("of another cluster")
        return {0, 1, 2} if self._told[node_id] else set()


@pytest.mark.parametrize(
    ("answers", "hurt", "meanwhile", "wanted"),
    [
        ({0: False, 1: False, 2: True}, set(), None, True),
        ({0: False, 1: False, 2: False}, set(), None, False),
        ({0: False, 2: False}, set(), None, False),
        ({1: True}, set(), None, True),
        ({0: False, 1: False, 2: True}, {0, 1}, None, True),
        ({0: False, 1: False, 2: False}, {0, 1}, None, False),
        ({0: False, 1: False, 2: False}, {0, 1}, 2, None),
        ({0: False, 1: False, 2: False}, {0, 1, 2}, None, None),
    ],
)
def test_one_broker_that_answers_is_enough_and_who_was_hurt_is_not_asked(
    answers: dict[int, bool], hurt: set[int], meanwhile: int | None, *, wanted: bool | None
) -> None:
    assert Some(answers, hurt, meanwhile).answers() is wanted


def test_a_look_that_has_ended_says_so() -> None:
    """Goal: where nobody looks any more, silence would excuse nothing, and nobody would know."""

    def broken() -> bool:
        raise OSError(24, "Too many open files")

    reach = Reach(broken, 0.0)
    reach.start()
    wait_until(lambda: not reach._thread.is_alive(), timeout_s=30.0, what="its end")
    with pytest.raises(LabError, match=r"look whether the cluster answers ended early.*Too many"):
        reach.refuse_ended()
    with pytest.raises(LabError, match="ended early"):
        reach.stop()


def part_result(checks: list[Check], **values: Any) -> PartResult:
    return PartResult(
        part=MAIN,
        parameters=Parameters(),
        evidence=judge(Story().send(0).ack(0, 0).final(0).events),
        checks=tuple(checks),
        tables=(),
        history=Path("history"),
        **{"broken": (), **values},
    )


@pytest.mark.parametrize(
    ("checks", "stuck", "unreached", "wanted"),
    [
        ([], (), UNREACHED, Exit.KEPT),
        ([LATE], (), UNREACHED, Exit.NOT_MADE),
        ([], (GroupAnomaly.STUCK,), UNREACHED, Exit.NOT_MADE),
        ([WRONG], (), UNREACHED, Exit.BROKEN),
        ([LATE, WRONG], (), UNREACHED, Exit.BROKEN),
    ],
)
def test_only_what_is_late_is_excused(
    checks: list[Check], stuck: tuple[GroupAnomaly, ...], unreached: str | None, wanted: Exit
) -> None:
    code, words = _verdict([part_result(checks, stuck=stuck, unreached=unreached)], None)
    assert code is wanted
    assert ("nobody can say whether the cluster" in words) == (wanted is Exit.NOT_MADE)
    assert (UNREACHED in words) == (unreached is not None)  # whatever became of the run


def test_what_the_judge_finds_stays_broken() -> None:
    lost = judge(Story().send(0).ack(0, 0).final().events).judgement
    broken = lost.broken(Parameters().promise.forbids)
    assert broken
    code, _ = _verdict([part_result([LATE], broken=broken, unreached=UNREACHED)], "it broke off")
    assert code is Exit.BROKEN


@pytest.mark.parametrize("unreached", [None, UNREACHED])
def test_records_that_wait_in_calm_may_wait_for_the_lab(
    tmp_path: Path, unreached: str | None
) -> None:
    """Method: a history of a group that is stuck, and skips a record, which nothing excuses."""
    directory = tmp_path / "main"
    (directory / HISTORY).mkdir(parents=True)
    write_manifest(tmp_path, "proof")
    story = GroupStory().join("a").own("a").do("a", 0, 1, 3).commit("a", 4).read(0, 6)
    events = story.calm().pause(60).uncalm().events
    lines = [encode_any(each) for event in events for each in (*sent(event), event)]
    (directory / HISTORY / "lab.jsonl").write_text("".join(f"{line}\n" for line in lines))
    journal = Journal(directory)
    journal.unreached = unreached
    journal.end(tmp_path / MANIFEST)
    result = judge_part(MAIN, Parameters(commits=Commits.AFTER), directory)
    stuck = {GroupAnomaly.STUCK}
    assert {*result.stuck} == (set() if unreached is None else stuck)
    assert {*result.broken_groups} == {GroupAnomaly.SKIPPED} | (stuck - {*result.stuck})
    assert not result.as_it_must


def sent(event: Event) -> Iterator[Event]:
    """Of an acknowledgement, that its record was sent."""
    if isinstance(event, Acknowledged):
        values = {name: getattr(event, name) for name in ("topic", "partition", "id", "process")}
        yield Send(at_ms=event.at_ms - 0.5, wall_ms=event.wall_ms, digest="d", size=1, **values)


@pytest.mark.parametrize("unreached", [None, UNREACHED])
def test_a_folder_that_is_judged_again_knows_of_it(tmp_path: Path, unreached: str | None) -> None:
    """Method: records of a group are expected to be repeated that are not, in a journal by hand."""
    directory = tmp_path / "main"
    (directory / HISTORY).mkdir(parents=True)
    write_manifest(tmp_path, "proof")
    journal = Journal(directory)
    journal.unreached = unreached
    journal.end(tmp_path / MANIFEST, groups_expected={"repeated": (1, 1), "skipped": (1, 1)})
    result = judge_part(MAIN, cast("Any", Parameters()), directory)
    assert result.unreached == unreached
    late = {check.name: check.late for check in result.checks}
    assert late == {
        "records of groups: repeated": unreached is not None,
        "records of groups: skipped": False,
    }
