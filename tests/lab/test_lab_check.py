"""Goal: a run's folder, judged again, says what it said, and never more than it holds.

Method: folders written by the lab's own journal with histories made by hand; then each kind of
damage, and runs that were killed. One real run is checked in test_lab_prove.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.judge.histories import Story
from tests.lab import made_up

from holdfast import cli
from holdfast.judge.history import encode_event
from holdfast.judge.series import PARTITIONS_MAX
from holdfast.lab import folders
from holdfast.lab.journal import HISTORY, JOURNAL, MANIFEST, Journal, write_manifest
from holdfast.lab.outcome import report_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import judge_again
from holdfast.lab.report import Check, Table
from holdfast.lab.scenario import load_scenario

SCENARIO = "write-anomaly"
GOOD = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0, 1)
LOSSY = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0)
UNREAD = Story().send(0).ack(0, 0)
FINE = Check(name="leaders", expected="0", seen="0", kept=True)
BAD = Check(name="leaders", expected="0", seen="1", kept=False)


def write_part(
    folder: Path,
    story: Story,
    checks: Sequence[Check] = (FINE,),
    *,
    ended: bool = True,
    broke_off: str | None = None,
    lost_expected: int | None = None,
    expired_expected: Mapping[str, int] | None = None,
    told: Sequence[str] = (),
) -> None:
    (folder / HISTORY).mkdir(parents=True)
    text = "".join(encode_event(event) for event in story.events)
    (folder / HISTORY / "all.jsonl").write_text(text)
    journal = Journal(folder)
    for check in checks:
        journal.check(check)
    if ended:
        table = Table(title="Moves", header=["a"], rows=[["1"]])
        journal.end(
            folder.parent / MANIFEST,
            broke_off,
            [table],
            lost_expected,
            expired_expected,
            told=told,
        )
    else:
        journal.close()


def write_run(
    directory: Path,
    parts: Mapping[str, Story],
    *,
    control: bool = True,
    main: Callable[[Path, Story], None] | None = None,
) -> Path:
    """Write a proof's folder; without `control` only what is to be proven was to be run.

    `main` writes that part in its own way.
    """
    directory.mkdir(exist_ok=True)
    scenario = load_scenario(SCENARIO)
    write_manifest(
        directory,
        "proof",
        scenario=SCENARIO,
        parameters=scenario.defaults.as_json(),
        parts=[part.name for part in scenario.parts if control or not part.is_control],
        command="holdfast prove",
    )
    for name, story in parts.items():
        write = main if main is not None and name == MAIN else write_part
        write(directory / name, story)
    return directory


def parts(main: Story, control: Story = LOSSY) -> dict[str, Story]:
    names = [part.name for part in load_scenario(SCENARIO).parts]
    return dict(zip(names, (main, control), strict=True))


def checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = cli.run(["check", str(directory)])
    said = capsys.readouterr()
    return code, said.out + said.err


MAIN = next(iter(parts(GOOD)))


@pytest.mark.parametrize(
    ("stories", "code", "words"),
    [
        (parts(GOOD), 0, "Kept."),
        (parts(LOSSY), 1, "lost"),
        (parts(UNREAD), 2, "Not decided"),
        (parts(GOOD, GOOD), 2, "control did not fail"),
        ({MAIN: GOOD}, 2, "ended before it came to its end"),
        ({MAIN: LOSSY}, 1, "lost"),
        ({}, 2, "ended before it came to its end"),
    ],
)
def test_a_folder_says_again_what_its_run_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stories: Mapping[str, Story],
    code: int,
    words: str,
) -> None:
    folder = write_run(tmp_path / "run", stories)
    found, said = checked(folder, capsys)
    assert (found, words in said) == (code, True), said


def test_what_the_steps_have_to_say_is_in_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def telling(folder: Path, story: Story) -> None:
        write_part(folder, story, told=["2 of 3 faults done"])

    folder = write_run(tmp_path / "run", parts(GOOD), main=telling)
    code, said = checked(folder, capsys)
    assert code == 0
    assert "; 2 of 3 faults done. Observed: " in " ".join(said.split())


def test_checks_are_judged_as_they_were_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(folder: Path, story: Story) -> None:
        write_part(folder, story, [FINE, BAD])

    folder = write_run(tmp_path / "run", parts(GOOD), main=failing)
    assert cli.run(["check", str(folder), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["exit"] == 1
    assert [check["kept"] for check in values["parts"][0]["checks"]] == [True, False]
    assert values["parts"][0]["figures"][0]["title"] == "Moves"


def test_an_exact_loss_is_held_against_the_history_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def exact(folder: Path, story: Story) -> None:
        write_part(folder, story, lost_expected=1)

    folder = write_run(tmp_path / "run", parts(GOOD), main=exact)
    code, said = checked(folder, capsys)
    assert code == 1
    assert "exactly 1" in said


@pytest.mark.parametrize(
    ("expected", "code"), [({}, 0), ({"retention.ms=1": 1}, 1)], ids=["none", "one"]
)
def test_what_must_have_expired_is_held_against_the_history_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: dict[str, int], code: int
) -> None:
    def exact(folder: Path, story: Story) -> None:
        write_part(folder, story, expired_expected=expected)

    folder = write_run(tmp_path / "run", parts(GOOD), main=exact)
    found, said = checked(folder, capsys)
    assert found == code
    assert ("1 by retention.ms=1" in said) == bool(code)


@pytest.mark.parametrize(
    ("story", "checks", "code"),
    [(GOOD, [FINE], 2), (GOOD, [BAD], 1), (LOSSY, [FINE], 1), (UNREAD, [FINE], 2)],
    ids=["nothing was seen", "a check failed", "a loss was seen", "not read"],
)
@pytest.mark.parametrize("ended", [False, True], ids=["killed", "broke off"])
def test_a_run_without_an_end_is_judged_by_what_was_seen(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    story: Story,
    checks: list[Check],
    code: int,
    *,
    ended: bool,
) -> None:
    def cut(folder: Path, told: Story) -> None:
        why = "a workload ended"
        unlike = {"retention.ms=1": 7}
        write_part(
            folder, told, checks, ended=ended, broke_off=why, lost_expected=7,
            expired_expected=unlike,
        )  # fmt: skip
        if not ended:  # what a kill leaves: half a line
            for path in (folder / JOURNAL, folder / HISTORY / "all.jsonl"):
                path.write_bytes(path.read_bytes() + b'{"chec')

    folder = write_run(tmp_path / "run", {MAIN: story}, control=False, main=cut)
    found, said = checked(folder, capsys)
    assert found == code, said


def test_without_a_control_the_promise_is_kept_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", {MAIN: GOOD}, control=False)
    assert checked(folder, capsys)[0] == 0
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**values, "parts": []}))
    code, said = checked(folder, capsys)
    assert (code, "no part to prove" in said) == (2, True), said


def history(folder: Path) -> Path:
    return folder / MAIN / HISTORY / "all.jsonl"


def tear(folder: Path) -> None:
    history(folder).write_bytes(history(folder).read_bytes()[:-5])


def drop_a_line(folder: Path) -> None:
    lines = history(folder).read_text().splitlines(keepends=True)
    history(folder).write_text("".join(lines[:2] + lines[3:]))


def remove_a_history(folder: Path) -> None:
    history(folder).unlink()


def add_a_history(folder: Path) -> None:
    history(folder).with_name("more.jsonl").write_text("")


def weaken_the_promise(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    values["parameters"]["acks"] = "1"
    (folder / MANIFEST).write_text(json.dumps(values))


def remove_a_check(folder: Path) -> None:
    path = folder / MAIN / JOURNAL
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


def garble_the_journal(folder: Path) -> None:
    path = folder / MAIN / JOURNAL
    path.write_text("{" + path.read_text())


def write_on(folder: Path) -> None:
    path = folder / MAIN / JOURNAL
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")


def write_half_a_line_on(folder: Path) -> None:
    path = folder / MAIN / JOURNAL
    path.write_text(path.read_text() + '{"chec')


def soften_a_check(folder: Path) -> None:
    path = folder / MAIN / JOURNAL
    path.write_text(path.read_text().replace('"kept": true', '"kept": "almost"'))


def put(folder: Path, old: str, new: str) -> None:
    """Put other text into the journal."""
    path = folder / MAIN / JOURNAL
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def number_what_was_expected(folder: Path) -> None:
    put(folder, '"expected": "0"', '"expected": 0')


def number_what_was_seen(folder: Path) -> None:
    put(folder, '"seen": "0"', '"seen": 0')


def tell_why_in_numbers(folder: Path) -> None:
    put(folder, '"broke_off": null', '"broke_off": 7')


def lose_half_an_event(folder: Path) -> None:
    put(folder, '"lost_expected": null', '"lost_expected": 0.5')


def expire_in_words(folder: Path) -> None:
    put(folder, '"expired_expected": null', '"expired_expected": {"retention.ms=1": "one"}')


def table_of_numbers(folder: Path) -> None:
    put(folder, '[["1"]]', "[[1]]")


def garble_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[]")


def other_version(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"format": 99, "kind": "proof"}')


def unknown_kind(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"format": 1, "kind": "miracle"}')


def unknown_scenario(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**values, "scenario": "no-such"}))


def bad_parameters(folder: Path) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    values["parameters"]["rate"] = "fast"
    (folder / MANIFEST).write_text(json.dumps(values))


def empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def gone(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (tear, "changed after the run"),
        (drop_a_line, "changed after the run"),
        (remove_a_history, "is missing"),
        (add_a_history, "added after the run"),
        (weaken_the_promise, "changed after the run"),
        (remove_a_check, "has 0 of its checks"),
        (garble_the_journal, "is damaged"),
        (write_on, "goes on behind its end"),
        (write_half_a_line_on, "is damaged"),
        (soften_a_check, "is damaged"),
        (number_what_was_expected, "is damaged"),
        (number_what_was_seen, "is damaged"),
        (tell_why_in_numbers, "is damaged"),
        (lose_half_an_event, "is damaged"),
        (expire_in_words, "is damaged"),
        (table_of_numbers, "is damaged"),
        (garble_the_manifest, "is damaged"),
        (other_version, "another version"),
        (unknown_kind, "no run of the kind"),
        (unknown_scenario, "no-such"),
        (bad_parameters, "is damaged"),
        (empty, "holds no run"),
        (gone, "no such folder"),
    ],
)
def test_what_is_not_what_the_run_left_decides_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], None],
    words: str,
) -> None:
    folder = write_run(tmp_path / "run", parts(GOOD))
    assert checked(folder, capsys)[0] == 0
    harm(folder)
    code, said = checked(folder, capsys)
    assert (code, words in said) == (2, True), said
    assert said.count("\n") <= 2, "one sentence, no trace"


NEVER_SENT = (
    b'{"event":"acknowledged","at_ms":1,"wall_ms":1,"process":"p","topic":"foo","partition":0,'
    b'"id":"never-sent","offset":3}\n'
)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"send","at_ms":1,"wall_ms":1,"process":"p","top\n',
        NEVER_SENT,
        b"\xff\xfe\n",
        b'{"event":"note","at_ms":1,"wall_ms":1,"process":"p","text":7}\n',
    ],
    ids=["torn", "contradictory", "no text", "another type"],
)
def test_a_history_that_can_not_be_true_decides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    def odd(folder: Path, story: Story) -> None:
        write_part(folder, story, ended=False)
        path = folder / HISTORY / "all.jsonl"
        path.write_bytes(line + path.read_bytes())

    folder = write_run(tmp_path / "run", {MAIN: LOSSY}, main=odd)
    code, said = checked(folder, capsys)
    assert (code, "can't be read" in said) == (2, True), said


def test_parameters_survive_their_file() -> None:
    made = Parameters(racks=("a", "b", "c"), config={"k": "v"}, rate=7.5, elr=True)
    assert Parameters.from_json(json.loads(json.dumps(made.as_json()))) == made


HOLDFAST = (sys.executable, "-P", "-m", "holdfast.cli")


@pytest.mark.process
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("story", [GOOD, LOSSY], ids=["kept", "broken"])
def test_a_verdict_that_can_not_be_written_decides_nothing(
    tmp_path: Path, story: Story, flags: tuple[str, ...]
) -> None:
    """Method: the real command; its output is a full disk, and a pipe that nobody reads."""
    folder = write_run(tmp_path / "run", {MAIN: story}, control=False)
    command = [*HOLDFAST, "check", str(folder), *flags]
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == 2
    assert found.stderr.decode() == "holdfast: [Errno 28] No space left on device\n"
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (found.returncode, found.stderr) == (2, b"")


def test_a_mistake_of_ours_decides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ends with 1 on an error that nobody expects: that would say "broken"."""
    folder = write_run(tmp_path / "run", {MAIN: GOOD}, control=False)

    def mistaken(_directory: Path) -> None:
        raise AssertionError("it can't be")

    monkeypatch.setattr(folders, "judge_folder", mistaken)
    with pytest.raises(SystemExit) as stop:
        cli.run(["check", str(folder)])
    assert stop.value.code == 2
    assert "AssertionError: it can't be" in capsys.readouterr().err


def test_more_partitions_than_the_judge_holds_decide_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    for partition in range(PARTITIONS_MAX + 1):
        story.expect(partition=partition)
    folder = write_run(tmp_path / "run", {MAIN: story}, control=False)
    code, said = checked(folder, capsys)
    assert (code, "holds 4096 partitions" in said) == (2, True), said


def test_why_a_partition_stood_still_is_in_the_report_of_a_folder(tmp_path: Path) -> None:
    """Goal: what the history shows comes to the report. Method: a history in which one stands."""
    story = made_up.story()
    told = Story()
    told.events = sorted(story.events, key=lambda event: event.at_ms)
    outcome = judge_again(write_run(tmp_path / "run", {MAIN: told}))
    (result,) = outcome.results
    assert result.still == story.still() != ()
    assert report_of(outcome, "holdfast prove").parts[0].still == result.still
