"""Goal: what the documents type works as it stands there. Method: it is typed.

All of it is checked up to the point where a cluster would be asked; README's tour and the pages on
topics, on compacted ones and on `cat` are run on a cluster, in the order in which they stand.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import cli
from holdfast.cli import command_table as table
from holdfast.cluster.processes import wait_until
from holdfast.lab.parameters import Parameters
from holdfast.lab.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs" / "how-to").glob("*.md"),
        *(ROOT / "docs" / "tutorial").glob("*.md"),
    ]
)
BLOCK = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
BOUND_S = 60
# What asks a cluster that `--bootstrap-server`, `--data-dir` or the default names.
ASKING = {
    *("topics", "configs", "leader-election", "metadata-quorum", "reassign-partitions"),
    *("delete-records", "cluster", "features", "cat", "groups", "get-offsets", "inspect"),
}
# Holds what each of the files that the pages name is for.
FILE = (
    '{"topics":[{"topic":"t"}],'
    '"partitions":[{"topic":"t","partition":0,"offset":3,"replicas":[1]}]}'
)
FOREVER = "-o end"  # until Ctrl-C


def typed(page: Path) -> list[str]:
    """The lines of a page's code blocks that run `holdfast`, without prompt and comment."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    found = [line for line in lines if re.match(r"(?:[^#]*\| )?holdfast [a-z]", line)]
    return [re.sub(r"\s+#.*", "", line) for line in found]


def words(line: str) -> list[str]:
    """The arguments of the last `holdfast` of a line."""
    return shlex.split(line.rpartition("| ")[2].partition(" > ")[0])[1:]


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Exit status, output and errors of a command in this process."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = cli.run(arguments)
    texts = [each.buffer.getvalue().decode() for each in (output, errors)]
    return status, texts[0], texts[1]


def lines_of(commands: set[str]) -> list[tuple[str, str]]:
    """Page and line of all that type one of these commands."""
    return [
        (page.name, line) for page in PAGES for line in typed(page) if words(line)[0] in commands
    ]


def test_there_is_something_to_run() -> None:
    """Goal: the search finds what it is for. Method: how much there is."""
    assert len(lines_of(ASKING)) > 40


@pytest.mark.parametrize(("page", "line"), lines_of(ASKING))
def test_only_the_cluster_is_missing(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: options that exist, go together and have values. Method: nobody is there to be asked.

    Seen to fail for options that a page puts together and the command refuses.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for file in ("offsets.json", "move.json", "topics.json"):
        (tmp_path / file).write_text(FILE)
    for file in ("plan.csv", "before.csv"):
        (tmp_path / file).write_text("t,0,3\n")
    named = [re.sub(r"^10\.0\.0\.\d+:9092$", "127.0.0.1:1", word) for word in words(line)]
    status, _, errors = run(["cat", "-C", *named[1:]] if line.endswith("cat") else named)
    if "add-controller" in named:
        assert "--command-config server.properties: No such file" in errors, (page, errors)
    elif "--controller-directory-id" in named:
        assert "--controller-directory-id ID: it is not an id" in errors, (page, errors)
    else:
        missing = ("the local cluster to default to can't be had", "nobody answers there")
        assert any(text in errors for text in missing), (page, errors)
        assert status in {1, 2}


@pytest.mark.parametrize(("page", "line"), lines_of({"prove"}))
def test_proofs_take_what_they_are_given(page: str, line: str) -> None:
    """Goal: flags that the scenario has a use for. Method: its parameters; no run."""
    with table.command_named("prove").make_context("prove", words(line)[1:]) as context:
        given = {name: value for name, value in context.params.items() if value is not None}
    if given["show_list"]:
        return
    if given["every"]:
        assert not given["scenario"], page
        return
    scenario = load_scenario(given["scenario"])
    config = dict(pair.split("=") for pair in given.pop("config", []))
    names = {field.name for field in dataclasses.fields(Parameters)}
    values = {"duration_s": given.pop("duration")} if "duration" in given else {}
    values |= {name: value for name, value in given.items() if name in names}
    parameters = scenario.with_flags({**values, "config": config})
    assert all(getattr(parameters, name) == value for name, value in values.items()), page


@pytest.mark.slow
@pytest.mark.serial
def test_the_tour_and_the_pages_on_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever types README gets what it shows. Method: all of it, line by line.

    The pages on topics, compacted ones, and on `cat` are typed while README's cluster is up. Ports
    are free ones, and what goes on until Ctrl-C is left out. 20 s.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", programs)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for file in ("report.pdf", "events.txt"):
        (tmp_path / file).write_text("one\ntwo\n")
    tour = [line for line in typed(ROOT / "README.md") if words(line)[0] in TOUR]
    assert tour.pop(0) == "holdfast up --detach"
    try:
        assert "Ready after" in by_shell("holdfast up --detach --port 0")
        crash = tour.index("holdfast kill 0")
        shown = [type_in(line) for line in tour[:crash]]
        assert shown[0] == "Created topic payments.\n"
        assert shown[-2] == "alice sent 10: partition 2, offset 0\n"
        assert shown[-1] == "10\n", "what a member of a group is given"
        assert shown[-2] in (ROOT / "README.md").read_text()
        for page in ("use-topics.md", "use-cat.md", "compacted-topics.md"):
            for line in typed(ROOT / "docs" / "how-to" / page):
                if FOREVER not in line:
                    type_in(line)
        for line in tour[crash:]:
            type_in(line)
        assert "is not running" in type_in("holdfast down")
    finally:
        run(["down"])


TOUR = {"up", "topics", "cat", "kill", "start", "status", "down"}


def type_in(line: str) -> str:
    """Output of a line that succeeds; of `status` when what was started is whole again."""
    if "|" in line.replace("'t|u'", ""):
        return by_shell(line)
    if line != "holdfast status":
        status, output, errors = run(words(line))
        assert status == 0, f"{line}\n{output}{errors}"
        return output
    return wait_until(healthy, timeout_s=BOUND_S, what="a cluster that is whole", poll_s=0.1)


def healthy() -> str | None:
    """What `status` shows; None while it says that something lacks."""
    status, output, _ = run(["status"])
    return output if status == 0 else None


def by_shell(line: str) -> str:
    """Output of a line that a shell runs, and that succeeds."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout
