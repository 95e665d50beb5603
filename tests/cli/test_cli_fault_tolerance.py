"""Goal: the classic experiments go as docs/tutorial/fault-tolerance.md shows. Method: it is typed.

Each line of the page in its order, by a shell, on a cluster with free ports. What stands below a
line must be said; questions are asked again until it is. Scenarios have tests of their own; those
that have none elsewhere are run here, and their verdicts read as the page's, but for the numbers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_cli_fault_tolerance_page import PAGE, verdict_of, without_numbers

from holdfast.cluster.layout import WaitError
from holdfast.cluster.processes import wait_until

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(600)]
BOUND_S = 90.0
BLOCK = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
QUESTIONS = (" --describe ", " cat -C ", " inspect ")  # asked again until the answer is there
REFUSED = "holdfast: "
OF_ONE_CLUSTER = "TopicId:"  # another one each time


def steps() -> Iterator[tuple[str, list[str]]]:
    """Each line that the page types, and the lines that it shows below."""
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        lines = block.splitlines()
        prompted = any(line.startswith("$ ") for line in lines)
        typed = [at for at, line in enumerate(lines) if line.startswith("$ ") or not prompted]
        for at, end in zip(typed, [*typed[1:], len(lines)], strict=True):
            yield lines[at].removeprefix("$ "), lines[at + 1 : end]


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def says(said: str, shown: list[str]) -> bool:
    """Return whether all lines that are shown were said, in their order."""
    lines = iter([plain(line) for line in said.splitlines()])
    wanted = [plain(line) for line in shown if line.strip()]
    return all(
        any(same(line, want) for line in lines) for want in wanted if OF_ONE_CLUSTER not in want
    )


def plain(line: str) -> str:
    """Return a line without what is another one each time: spaces, and the order of an ISR."""
    return " ".join(",".join(sorted(word.split(","))) for word in line.split())


def same(said: str, shown: str) -> bool:
    """Return whether a line is what is shown; of a replica's row all before its size in bytes."""
    if shown.endswith("/data"):
        return said.split()[:6] == shown.split()[:6]
    return said == shown


def follow(line: str, shown: list[str]) -> None:
    """Type a line until the cluster answers as shown; what changes something, once."""
    if not any(word in line for word in QUESTIONS):
        done = shell(line)
        refused = any(each.startswith(REFUSED) for each in shown)
        assert (done.returncode != 0) == refused, f"{line}\n{done.stdout}{done.stderr}"
        assert says(done.stdout + done.stderr, shown), f"{line}\n{done.stdout}{done.stderr}"
        return
    last = ""

    def answered() -> bool:
        nonlocal last
        done = shell(line)
        last = done.stdout + done.stderr
        return done.returncode == 0 and says(last, shown)

    try:
        wait_until(answered, timeout_s=BOUND_S, what=line, poll_s=0.3)
    except WaitError:
        pytest.fail(f"{line}\nshows\n{last}and should\n" + "\n".join(shown))


@pytest.mark.turns
@pytest.mark.usefixtures("default_network")
def test_the_experiments_go_as_the_page_shows() -> None:
    by_hand = [
        (line, shown)
        for line, shown in steps()
        if not line.startswith(("holdfast prove ", "make "))
    ]
    assert by_hand[0][0] == "holdfast up --network --zones a,b,c --detach"
    assert by_hand[-1][0] == "holdfast down"
    typed = [line for line, _ in steps()]  # Apache Kafka needs the machine for itself
    assert typed.index("holdfast down") < typed.index("holdfast prove split-brain --engine apache")
    follow(by_hand[0][0] + " --port 0", [])
    for line, shown in by_hand[1:]:
        follow(line, shown)


@pytest.mark.turns
@pytest.mark.parametrize("name", ["two-brokers-down", "min-insync-replicas", "read-anomaly"])
def test_what_is_proven_nowhere_else_is_proven(name: str, tmp_path: Path) -> None:
    assert (f"holdfast prove {name}", []) in list(steps())
    command = [sys.executable, "-m", "holdfast.cli", "prove", name, "--json"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = without_numbers(json.loads(done.stdout)["verdict"])
    # By sentences: between two of them the run may say more, as that the machine was busy.
    for sentence in re.split(r" \.\.\. |(?<=\.) ", without_numbers(verdict_of(name))):
        assert sentence in verdict
