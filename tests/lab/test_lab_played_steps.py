"""Goal: no check of a scenario's steps is left out, turned round, or true whatever happens.

Method: golden transcripts. Steps are played on a cluster that does what it is expected to do, and
each thing done and checked is written down; then on one that lies in one way, and what fails by
that is written down. `--rewrite` writes both into the files; review them as a diff: an honest
cluster fails nothing but what a control is to fail, and each lie is caught where it would matter.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.lab import played_stage
from tests.lab.played import Played
from tests.lab.played_clients import HONEST, Lie
from tests.lab.played_stage import play

from holdfast.judge.history import Refused, Unknown
from holdfast.lab.scenario import DRAWN, SCENARIOS, load_scenario
from holdfast.lab.steps.wants import preferred, want

FOLDER = Path(__file__).parent / "played_steps"
HURT = ("KILL", "TERM", "STOP", "isolate", "cut", "fill")
LIES = (
    Lie(name="everything is acknowledged", acknowledges=True),
    Lie(name="nothing is acknowledged once somebody is hurt", acknowledges=False, since=HURT),
    Lie(name="nothing is acknowledged at all", acknowledges=False),
    Lie(name="nothing is acknowledged once somebody is back", acknowledges=False, since=("start",)),
    Lie(name="producers are told of doubts once somebody is hurt", adds=Unknown, since=HURT),
    Lie(name="producers are refused once somebody is hurt", adds=Refused, since=HURT),
    Lie(name="consumers receive nothing once somebody is hurt", is_deaf=True, since=HURT),
    Lie(name="epochs do not rise", is_stale=True),
    Lie(name="who leaves hands nothing over", is_hasty=True),
    Lie(name="replicas are crowded", is_crowded=True),
    Lie(name="what is too much stays, and nothing is copied", is_hoarding=True),
    Lie(name="settings are not heard of", is_unheard=True),
    Lie(name="nothing is dropped, and what is hidden is read", is_leaky=True),
    Lie(name="who is cut off knows it", is_humble=True),
    Lie(name="a controller is active without a majority", is_unled=True),
    Lie(name="there are elections all the time", is_restless=True),
    Lie(name="not all is said, and moves do nothing", is_forgetful=True),
    Lie(name="no metadata change is made", is_frozen=True),
    Lie(name="no metadata change is made once somebody is hurt", is_frozen=True, since=HURT),
    Lie(
        name="no metadata change is made on a full disk",
        is_frozen=True,
        since=("fill the disk of 100",),
    ),
    Lie(name="no controller follows one that is lost", is_vacant=True),
    Lie(name="everything takes its time", is_slow=True),
)
PLAYED = sorted(path.stem for path in FOLDER.glob("*.txt"))
# Times and bytes are what these are about, and a part that is only a table of numbers.
NOT_PLAYED = {"min-isr-law", "payload-curve", "replication-price", "throughput"}


def parts_of(name: str) -> list[str]:
    return [part.name for part in load_scenario(name).parts]


@cache
def sections(name: str) -> dict[str, str]:
    """Return what the file of a scenario says of each of its parts."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found = (section.partition("\n") for section in text.split("# ")[1:])
    return {title: body.rstrip("\n") for title, _, body in found}


def told(monkeypatch: pytest.MonkeyPatch, directory: Path, name: str, part: str) -> str:
    """Play a part, honestly and with each lie, and return what came of it in words."""
    honest = play(monkeypatch, directory, name, part, HONEST)
    ended = [f"breaks off: {honest.broke_off}"] if honest.broke_off is not None else []
    lines = [*honest.did, *honest.results, *ended]
    for lie in LIES:
        lied = play(monkeypatch, directory, name, part, lie)
        new = Counter(lied.failed) - Counter(honest.failed)
        gone = Counter(honest.failed) - Counter(lied.failed)
        changes = [
            *(f"  fails: {each}" for each in new.elements()),
            *(f"  does not fail: {each}" for each in gone.elements()),
            *([] if lied.results == honest.results else [f"  {each}" for each in lied.results]),
            *([] if lied.broke_off == honest.broke_off else [f"  breaks off: {lied.broke_off}"]),
        ]
        lines += [f"- {lie.name}", *changes] if changes else []
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in PLAYED for part in parts_of(name)]
)
def test_steps_as_they_are_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, part: str, rewrite: bool
) -> None:
    """Goal: what is done, checked and caught by that is what it was when somebody read it."""
    happened = told(monkeypatch, tmp_path, name, part)
    if rewrite:
        path = FOLDER / f"{name}.txt"
        before = sections(name) if path.read_text(encoding="utf-8") else {}
        now = {**before, part: happened}
        path.write_text("".join(f"# {each}\n{text}\n" for each, text in now.items()))
        sections.cache_clear()
    assert happened == sections(name)[part]


def test_every_part_is_played() -> None:
    """Goal: what is added is played as well, or it stands above why not."""
    assert set(PLAYED) | NOT_PLAYED == {*SCENARIOS, *DRAWN}
    for name in PLAYED:
        assert list(sections(name)) == parts_of(name)


# Of these the stage does not make what their control takes away: progress of a query, of a group.
STAGED_WHOLE = {
    "consumer-replaced",
    "coordinator-lost",
    "pipeline-database-down",
    "pipeline-driver-killed",
    "pipeline-executor-killed",
    "pipeline-rebalanced",
    "pipeline-topic-recreated",
    "pipeline-zombie",
    "replication-network",
    "rolling-clients",
    "standby-group",
}


@pytest.mark.parametrize("name", PLAYED)
def test_who_does_all_that_it_must_fails_nothing_but_controls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Goal: no `--rewrite` takes steps that would call a correct cluster broken."""
    for part in load_scenario(name).parts:
        came = play(monkeypatch, tmp_path, name, part.name)
        if not part.is_control:
            assert (came.failed, came.broke_off) == ([], None)
        elif (breaks := part.breaks_check) and name not in STAGED_WHOLE:
            assert [each for each in came.failed if breaks in each]
            assert [each for each in came.failed if breaks not in each] == []


class Rebalanced(Played):
    """A run whose controllers give leadership back by themselves before a broker is hurt."""

    def fault(self, action: str, *nodes: int, wait: bool = True) -> float:
        for partition, wanted in preferred(self.replicas).items():
            if wanted.leader in self.candidates(partition):
                self.look_like(partition, want(wanted.leader))
        return super().fault(action, *nodes, wait=wait)


@pytest.mark.parametrize("name", PLAYED)
def test_leadership_may_be_given_back_before_any_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Goal: `auto.leader.rebalance.enable`, Kafka's default, makes no cluster a broken one."""
    monkeypatch.setattr(played_stage, "Played", Rebalanced)
    for part in load_scenario(name).parts:
        if not part.is_control:
            assert play(monkeypatch, tmp_path, name, part.name).failed == []
