"""What a request costs the brokers, before and after: two trees of this repository in one run.

Of each tree three brokers run at once, started by that tree's own code; the load is this tree's, on
one of them at a time. So what else the machine does falls on both. Prints the median of all rounds,
the rounds between which half of them lie, and the ratio.

    python bench/trees.py REVISION [--rounds 7] [--seconds 2] [--only WORD]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOAD: Final = ROOT / "bench" / "load.py"
# In the tree's own words: its engines start its nodes and make its topics. Files of a topic that is
# deleted go a second later, and what that costs must not fall into the tree's next measurement: in
# every other round it comes at once.
SERVE: Final = """
import json, sys, time
from pathlib import Path
from engines import HoldfastThree
engine = HoldfastThree(Path(sys.argv[1]))
engine.start()
try:
    print("ready", flush=True)
    for line in sys.stdin:
        topic, partitions = json.loads(line)
        if partitions:
            targets = engine.create(topic, partitions)
            print(json.dumps({"targets": targets, "pids": engine.pids()}), flush=True)
        else:
            engine.delete(topic)
            time.sleep(2)
finally:
    engine.stop()
"""
CASES: Final[dict[str, dict[str, Any]]] = {
    "acks=all, one message a request": {
        "mode": "produce", "acks": -1, "message_bytes": 128, "connections": 8,
    },
    "acks=1, one message a request": {
        "mode": "produce", "acks": 1, "message_bytes": 128, "connections": 8,
    },
    "acks=all, batches of 100 KB": {
        "mode": "produce", "acks": -1, "message_bytes": 1024, "batch_records": 97,
        "connections": 3, "in_flight": 5, "bytes_max": 500_000_000,
    },
    "fetch": {"mode": "fetch", "message_bytes": 1024, "connections": 3},
}  # fmt: skip


class Tree:
    """Three brokers of one tree."""

    def __init__(self, name: str, root: Path, data: Path) -> None:
        self.name = name
        path = os.pathsep.join([str(root / "src"), str(root / "bench")])
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        if self._answer() != "ready":
            raise SystemExit(f"{name}: its brokers did not start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _ask(self, topic: str, partitions: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([topic, partitions]) + "\n")
        self._process.stdin.flush()

    @contextmanager
    def topic(self, topic: str) -> Iterator[dict[str, Any]]:
        """Have a topic of three partitions; say where its leaders are and who serves it."""
        self._ask(topic, 3)
        place = json.loads(self._answer())
        try:
            yield {"topic": topic, **place}
        finally:
            self._ask(topic, 0)

    def close(self) -> None:
        """Stop its brokers and remove their files."""
        self._process.communicate()


def load(job: dict[str, Any]) -> float:
    """Run one load; return the brokers' microseconds of CPU for each request."""
    done = subprocess.run(
        [sys.executable, str(LOAD), json.dumps(job)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{job['topic']}: {done.stderr.strip()[-500:]}")
    cost: float = json.loads(done.stdout)["cpu_us_per_request"]
    return cost


def measure(tree: Tree, mark: int, seconds: float, only: str) -> Iterator[tuple[str, float]]:
    """Run each case once on a tree, on a topic of its own: what is read was written before."""
    with tree.topic(f"bench-{mark}") as place:
        for name, case in CASES.items():
            if only in name or name == "acks=all, batches of 100 KB":
                yield name, load({**place, "seconds": seconds, **case})


def line(name: str, before: list[float], after: list[float]) -> str:
    """Say a case's two medians, in microseconds, between what they lie, and the ratio."""

    def spread(values: list[float]) -> str:
        low, _, high = quantiles(values, n=4)
        return f"{median(values):8.0f} ({low:.0f}-{high:.0f})"

    ratio = median(after) / median(before)
    return f"{name:36} {spread(before):>24} {spread(after):>24} {ratio:8.3f}"


def main() -> None:
    """Measure the revision and this tree in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", help="what to hold this tree against")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: a spread needs two at least")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: defaultdict[str, dict[str, list[float]]] = defaultdict(lambda: {"old": [], "new": []})
    with tempfile.TemporaryDirectory(prefix="holdfast-trees-") as name, ExitStack() as stack:
        old = Path(name) / "tree"
        command = ["git", "-C", str(ROOT), "archive", options.revision, "src", "bench"]
        archive = subprocess.run(command, check=True, capture_output=True).stdout
        old.mkdir()
        subprocess.run(["tar", "-x", "-C", str(old)], input=archive, check=True)
        trees = [Tree("old", old, Path(name) / "old"), Tree("new", ROOT, Path(name) / "new")]
        for tree in trees:
            stack.callback(tree.close)
        for number in range(options.rounds + 1):
            for tree in trees if number % 2 else trees[::-1]:
                for case, cost in measure(tree, number, options.seconds, options.only):
                    if number:  # the first one warms up
                        found[case][tree.name].append(cost)
            sys.stderr.write(f"bench: round {number} of {options.rounds}\n")
    print(f"{'CPU a request, microseconds':36} {options.revision:>24} {'this tree':>24}    ratio")
    for case, costs in found.items():
        print(line(case, costs["old"], costs["new"]))


if __name__ == "__main__":
    main()
