"""`holdfast prove` around its runs: flags that a scenario has no use for, --list, old runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli.proving import prove_all
from holdfast.lab import matrix, scenarios
from holdfast.lab.journal import Exit
from holdfast.lab.keeping import KEPT_MAX, VERDICT
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.scenario import DRAWN, IDLE, SCENARIOS, Scenario

if TYPE_CHECKING:
    from tests.cli.conftest import Run

FOLDER = Path(scenarios.__file__).parent
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "fault-tolerance.md"
# How steps use a parameter. A rate is a producer's that has none of its own, and `start_clients`
# and its like start one, too; and `finish` leaves a group in peace for as long as a steady
# stretch lasts.
USES = {
    "kills": r"parameters\.kills",
    "count": r"parameters\.count",
    "rate": r"start_producer\((?![^()]*\brate=)|start_clients\(| begin\(| begin_load\(",
    "duration_s": r"\.steady\(| finish\(|parameters\.duration_s",
}


def source(module: str) -> str:
    """The steps of a scenario, and those of other scenarios that it takes over for its control."""
    text = steps_of(module)
    others = re.findall(r"from holdfast\.lab\.scenarios\.([\w.]+) import", text)
    return text + "".join(steps_of(other) for other in others)


def steps_of(module: str) -> str:
    return FOLDER.joinpath(*module.split(".")).with_suffix(".py").read_text()


@pytest.mark.parametrize("parameter", USES)
def test_what_steps_have_no_use_for_is_known(parameter: str) -> None:
    """Goal: the table is true, in both directions. Method: the steps' own text."""
    idle = {
        name for name, module in SCENARIOS.items() if not re.search(USES[parameter], source(module))
    }
    assert idle == IDLE[parameter]


@pytest.mark.parametrize(
    ("name", "flag"),
    [(name, flag) for flag, names in IDLE.items() for name in sorted(names)],
)
def test_a_flag_without_use_is_refused(run: Run, name: str, flag: str) -> None:
    """Goal: `--kills` where nothing is killed again is told, not ignored. Method: every pair."""
    option = f"--{flag.removesuffix('_s')}"
    outcome = run("prove", name, option, "7")
    assert (outcome.status, outcome.output) == (2, "")
    assert f"{option} has no effect in {name}" in outcome.errors


def test_the_list_goes_alone(run: Run) -> None:
    """Goal: a flag beside --list isn't ignored. Method: a scenario, a flag; then JSON."""
    for more in (
        ["one-broker-down"],
        ["--kills", "3"],
        ["--config", "a=b"],
        ["--no-control"],
        ["--all"],
    ):
        outcome = run("prove", "--list", *more)
        assert (outcome.status, outcome.output) == (2, "")
        assert "--list" in outcome.errors
    rows = json.loads(run("prove", "--list", "--json").output)
    assert [row["name"] for row in rows] == [*SCENARIOS, *DRAWN]
    assert all(row["summary"] for row in rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--duration", "17"], "--duration 17: storm takes 22 or more"),
        (["--duration", "21.9"], "--duration 21.9: storm takes 22 or more"),
        (["--seed", "-1"], "--seed -1: it is 0 or more"),
    ],
)
def test_a_storm_that_can_t_be_is_refused_before_its_run(
    run: Run, tmp_path: Path, words: list[str], told: str
) -> None:
    """Seen to fail: it had a cluster and a load first, and said then that nothing was done."""
    outcome = run("prove", "storm", *words, "--output", str(tmp_path / "run"))
    assert (outcome.status, outcome.output) == (2, "")
    assert told in outcome.errors
    assert not (tmp_path / "run").exists()


def test_the_tutorial_names_the_folder_to_remove_to_begin_all_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: it is the one that `--all` goes on from. Method: which one that is; nothing is run."""

    def refuse(directory: Path, *_: Any, **__: Any) -> None:
        raise LabError(f"It would be in {directory}.")

    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(prove_all, "prove_all", refuse)
    (named,) = re.findall(r"`~/(.*?)`", TUTORIAL.read_text().partition("## Clean up")[2])
    outcome = run("prove", "--all")
    assert (outcome.status, outcome.output) == (2, "")
    assert f"It would be in /home/somebody/{named}." in outcome.errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", ""], "--engine '': it is one of embedded, "),
        (["--engine", "embedded,"], "--engine '': it is one of embedded, "),
        (["--profile", "fast"], "--profile fast: it is lab or kafka."),
    ],
)
def test_all_on_nothing_that_there_is_is_refused(run: Run, words: list[str], told: str) -> None:
    """Seen to fail: an empty engine was taken for our own nodes."""
    outcome = run("prove", "--all", *words, "--output", "/proc/nowhere")
    assert (outcome.status, outcome.output) == (2, "")
    assert told in outcome.errors


@pytest.mark.parametrize(
    ("codes", "status", "stopped"),
    [
        ([0, 0], 0, None),
        ([0, 2], 2, None),
        ([2, 1, 0], 1, None),
        ([1], 1, None),
        ([0, 1], 1, "The code was changed."),
        ([0], 2, "The code was changed."),
        ([], 2, "The page can't be written."),
    ],
)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["words", "json"])
def test_all_ends_with_the_worst_of_its_rows(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    codes: list[int],
    status: int,
    stopped: str | None,
    more: list[str],
) -> None:
    """Seen to fail: with 2, and without a row, where something has stopped it behind a broken one.

    Method: where there is no row the page could not be written either.
    """
    rows = [
        replace(matrix.not_made(tmp_path, "embedded", f"s{number}", "so"), exit=code)
        for number, code in enumerate(codes)
    ]
    page = tmp_path / "page" if rows else None
    made = prove_all.Made(rows, page, stopped)
    monkeypatch.setattr(prove_all, "prove_all", lambda *_, **__: made)
    outcome = run("prove", "--all", "--output", str(tmp_path / "out"), *more)
    assert outcome.status == status
    assert outcome.errors == (f"holdfast prove: {stopped}\n" if stopped else "")
    if more:
        assert [row["exit"] for row in json.loads(outcome.output)] == codes
    else:
        assert outcome.output == (f"Matrix:  {page}\n" if page else "")


def test_all_under_kafka_s_profile_has_a_folder_of_its_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: `--all` refused `--profile`."""
    asked: list[tuple[Path, str]] = []

    def refuse(directory: Path, *_: Any, profile: str, **__: Any) -> None:
        asked.append((directory, profile))
        raise LabError("Enough.")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(prove_all, "prove_all", refuse)
    for words in ([], ["--profile", "lab"], ["--profile", "kafka"]):
        run("prove", "--all", *words)
    ours, own = tmp_path / "holdfast" / "matrix", tmp_path / "holdfast" / "matrix-kafka"
    assert asked == [(ours, "lab"), (ours, "lab"), (own, "kafka")]


def test_a_folder_that_no_proof_can_be_written_to_is_refused_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no promise, no verdict, and the way to another. Method: below a file; by default, too.

    Seen to fail: it stated the promise, and named a history that could not be there.
    """
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    for words, named in (
        (["--output", str(file / "run")], file / "run"),
        ([], file / "holdfast" / "proofs"),
    ):
        outcome = run("prove", "one-broker-down", *words)
        assert (outcome.status, outcome.output) == (2, "")
        assert str(named) in outcome.errors
        assert "can't be used: " in outcome.errors
        assert "--output" in outcome.errors


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (["one-broker-down", "--engine", "apache"], "KAFKA_HOME"),
        (["controller-down", "--engine", "apache-3.9"], "KAFKA_OLDER_HOME"),
        (["replay", "--seed", "1", "--engine", "apache"], "KAFKA_HOME"),
    ],
)
def test_nodes_that_are_not_there_are_said_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], variable: str
) -> None:
    """Goal: a wrong folder ends it before a promise is stated and a folder made. Seen to fail."""
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    outcome = run("prove", *words, "--output", str(tmp_path / "run"))
    assert (outcome.status, outcome.output) == (2, "")
    assert f"{variable}={tmp_path / 'nowhere'} has none" in outcome.errors
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("scenario", ["replay", "one-broker-down"])
def test_an_engine_that_a_scenario_has_no_use_for_is_refused(
    run: Run, tmp_path: Path, scenario: str
) -> None:
    outcome = run("prove", scenario, "--engine", "apache-3.9", "--output", str(tmp_path / "run"))
    assert (outcome.status, outcome.output) == (2, "")
    assert "--engine apache-3.9 is for controller-down" in outcome.errors


def test_older_proofs_that_were_kept_are_removed_and_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is removed is said. Method: a proof that can't begin, behind 21 that were kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("holdfast.lab.prove.prove", not_made)
    proofs = tmp_path / "holdfast" / "proofs"
    names = [f"add-broker-20260102-0304{second:02}-5" for second in range(KEPT_MAX + 1)]
    for name in names:
        (proofs / name).mkdir(parents=True)
        (proofs / name / VERDICT).write_text('{"exit": 0}')
    outcome = run("prove", "one-broker-down", "--output", str(tmp_path / "named"))
    assert outcome.status == 2
    assert "Removed" not in outcome.output
    outcome = run("prove", "one-broker-down", "--json")
    assert outcome.status == 2
    assert json.loads(outcome.output)["exit"] == 2
    assert f"Removed: {names[0]}. Of proofs that were kept the newest 20 stay." in outcome.errors
    assert sorted(path.name for path in proofs.iterdir()) == names[1:]


def test_what_a_run_came_to_is_said_before_older_ones_are_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: Ctrl-C while they are removed, which may take long."""

    def interrupted(_: Path) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("holdfast.lab.prove.prove", not_made)
    monkeypatch.setattr("holdfast.lab.keeping.remove_old", interrupted)
    outcome = run("prove", "one-broker-down", "--json")
    assert outcome.status != 0
    assert json.loads(outcome.output)["exit"] == 2


def not_made(scenario: Scenario, parameters: Parameters, directory: Path, **_more: Any) -> Outcome:
    return Outcome(
        scenario=scenario,
        parameters=parameters,
        exit=Exit.NOT_MADE,
        verdict="It was not made.",
        results=(),
        directory=directory,
        report=None,
    )


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("default.replicaton.factor=3", " Did you mean default.replication.factor"),
        ("group.coordinator.threads=1", ""),  # Kafka's, and nothing here heeds it
        ("a.b=c", ""),
    ],
)
def test_a_setting_without_effect_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, advice: str
) -> None:
    """Goal: nothing is proven of a setting that no node heeds. Method: misspelt, idle, unknown."""
    monkeypatch.setattr("holdfast.lab.prove.prove", not_made)
    outcome = run("prove", "one-broker-down", "--config", setting, "--output", str(tmp_path))
    assert (outcome.status, outcome.output) == (2, "")
    name = setting.partition("=")[0]
    nothing = f"--config {name}: it has no effect on a node, so nothing would be proven."
    assert outcome.errors.startswith(f"holdfast prove: {nothing}{advice}")
    assert ("Did you mean" in outcome.errors) == bool(advice)
    assert list(tmp_path.iterdir()) == []


def test_a_setting_with_effect_is_taken(run: Run, tmp_path: Path) -> None:
    """Method: the next thing is refused, which is a folder that isn't empty."""
    (tmp_path / "file").touch()
    setting = "replica.lag.time.max.ms=5000"
    outcome = run("prove", "one-broker-down", "--config", setting, "--output", str(tmp_path))
    assert outcome.status == 2
    assert "--config" not in outcome.errors
    assert "it must be a new or an empty directory" in outcome.errors
