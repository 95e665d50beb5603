"""`make groups-bench`: what groups and commits cost, and how long a large group takes to settle.

On three brokers with three replicas of everything, ours beside a warm Apache Kafka's where there is
one, round after round in turn; or on any cluster that runs. Members are light clients of our own in
this process, each with a connection. Each figure stands beside what is asked of us.

    python bench/groups.py [--quick] [--rounds N] [--no-apache | --no-holdfast] [--only WORD]
    python bench/groups.py --bootstrap-server HOST:PORT [--pids PID,PID] ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import goals
from engines import ROOT, STEADY, ApacheThree, HoldfastThree, apache_available, machine
from goals import Goal
from group_loading import ONE_SHARD, commit_all, measure_loading
from group_loads import (
    PROTOCOLS,
    Target,
    measure_commits,
    measure_heartbeats,
    measure_joining,
)
from holdfast.clients.blocking_driver import Driver
from holdfast.wire.administration import create_topic, delete_topic
from holdfast.wire.messages.create_topics import DEFAULT
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.session import UnsupportedVersionError
from rounds import Results

Add = Callable[[str, str, dict[str, float]], None]

JOINING: Final = {protocol: f"groups: joining, {protocol}" for protocol in PROTOCOLS}
HEARTBEATS: Final = {protocol: f"groups: heartbeats, {protocol}" for protocol in PROTOCOLS}
COMMITS: Final = "groups: commits"
LOADING: Final = "groups: loading"
CASES: Final = (*JOINING.values(), *HEARTBEATS.values(), COMMITS, LOADING)
RUNNING: Final = "running"  # the engine's name where it was not started here
OFFSETS_A_COMMIT: Final = 10
COMMITTING_GROUPS: Final = 20
_CORES: Final = "cores of all three brokers together, idle work in it"
# KIP-848's members hear of a change with their next heartbeat, of 5 s by default: two of them and
# 2 s. As many offsets are committed as are asked for, but for what the clock takes.
GOALS: Final = (
    Goal(case=JOINING["classic"], metric="stable_after_last_join_s",
         says="s from the last of 500 joins to stable", bound=5.0),
    Goal(case=JOINING["consumer"], metric="stable_after_last_join_s",
         says="s from the last of 500 joins to stable", bound=12.0),
    Goal(case=HEARTBEATS["classic"], metric="cores", says=f"1,000 groups of 5: {_CORES}",
         bound=0.2),
    Goal(case=HEARTBEATS["consumer"], metric="cores", says=f"1,000 groups of 5: {_CORES}",
         bound=0.2),
    Goal(case=COMMITS, metric="offsets_per_s", says="offsets/s taken of 20,000, by tens",
         bound=19_800.0, at_least=True),
    Goal(case=LOADING, metric="loaded_s", says="s to load 1 million offsets", bound=10.0),
    Goal(case=LOADING, metric="held_ms_max", says="ms that a neighbour waited at most",
         bound=50.0, by_worst=True),
)  # fmt: skip
_CONFIG: Final = STEADY | {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "3",
}
_FILES_SPARE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of each; those of the goals unless said otherwise."""

    members: int = 500
    groups: int = 1_000
    group_size: int = 5
    commits: int = 2_000
    offsets: int = 1_000_000
    seconds: float = 15.0

    def files(self, engines: int) -> int:
        """Return how many connections are open at once, at most."""
        return max(self.members, engines * self.groups * self.group_size) + _FILES_SPARE


FULL: Final = Sizes()
QUICK: Final = Sizes(members=20, groups=10, group_size=3, commits=50, offsets=2_000, seconds=2.0)


@contextmanager
def brokers(
    directory: Path, engines: Sequence[str], extra: Mapping[str, str]
) -> Iterator[list[Target]]:
    """Three brokers of each engine, which serve."""
    classes = {"holdfast": HoldfastThree, "apache": ApacheThree}
    targets = []
    with ExitStack() as stack:
        for name in engines:
            _say(f"starting three brokers, {name}")
            engine: Any = classes[name](directory, {**_CONFIG, **extra})
            engine.start()
            stack.callback(engine.stop)
            targets.append(Target(name, engine.bootstrap, tuple(engine.pids())))
        yield targets


@contextmanager
def topic_of(target: Target, partitions: int) -> Iterator[str]:
    """A topic to which nothing is written."""
    name = f"bench-groups-{time.monotonic_ns()}"
    replicas = DEFAULT if target.name == RUNNING else 3
    with Driver(target.bootstrap) as driver:
        driver.perform(
            create_topic(
                name, partitions=partitions, replication_factor=replicas, timeout_ms=30_000
            )
        )
    try:
        yield name
    finally:
        with Driver(target.bootstrap) as driver:
            driver.send(delete_topic(name, 30_000).message)


def serves_groups(target: Target) -> bool:
    """Whether members can join there at all."""
    with Driver(target.bootstrap) as driver:
        try:
            driver.peer().version_of(JoinGroupRequest)
        except UnsupportedVersionError:
            return False
    return True


def measure(
    directory: Path, engines: Sequence[str], sizes: Sizes, rounds: int, add: Add, only: str = ""
) -> None:
    """Measure the cases whose name has `only` on brokers of these engines."""
    _allow_files(sizes.files(len(engines)))
    asked = [case for case in CASES if only in case]
    if [case for case in asked if case != LOADING]:
        with brokers(directory / "groups", engines, {}) as targets:
            _measure_members(targets, asked, sizes, rounds, add)
    if LOADING in asked:
        with brokers(directory / "loading", engines, ONE_SHARD) as targets:
            _measure_loading(targets, sizes, rounds, add)


def _measure_members(
    targets: Sequence[Target], asked: Sequence[str], sizes: Sizes, rounds: int, add: Add
) -> None:
    for target in targets:
        if not serves_groups(target):
            raise SystemExit(f"groups: no member can join at {target.bootstrap}")
    for protocol in PROTOCOLS:
        if (case := JOINING[protocol]) in asked:
            joining = partial(_join, protocol=protocol, members=sizes.members)
            _in_turn(case, targets, rounds, add, joining)
        if (case := HEARTBEATS[protocol]) in asked:
            _say(f"{case}: {sizes.groups} of {sizes.group_size}, {rounds} rounds at once")
            _live(targets, protocol, sizes, rounds, partial(_add_to, add, case))
    if COMMITS in asked:
        _in_turn(COMMITS, targets, rounds, add, partial(_commit, sizes=sizes))


def _add_to(add: Add, case: str, target: Target, measured: dict[str, float]) -> None:
    add(case, target.name, measured)


def _in_turn(
    case: str,
    targets: Sequence[Target],
    rounds: int,
    add: Add,
    once: Callable[[Target], dict[str, float]],
) -> None:
    """Measure target after target, round after round; the first round warms up."""
    for number in range(rounds + 1):
        for target in targets:
            _say(f"{case}: round {number} of {rounds}, {target.name}")
            measured = once(target)
            if number:
                add(case, target.name, measured)


def _join(target: Target, protocol: str, members: int) -> dict[str, float]:
    with topic_of(target, members) as topic:
        return asyncio.run(measure_joining(target, topic, protocol, members))


def _live(
    targets: Sequence[Target],
    protocol: str,
    sizes: Sizes,
    rounds: int,
    add: Callable[[Target, dict[str, float]], None],
) -> None:
    with ExitStack() as stack:
        asked = [
            (target, stack.enter_context(topic_of(target, sizes.group_size))) for target in targets
        ]
        asyncio.run(
            measure_heartbeats(
                asked, protocol, sizes.groups, sizes.group_size, sizes.seconds, rounds, add
            )
        )


def _commit(target: Target, sizes: Sizes) -> dict[str, float]:
    with topic_of(target, OFFSETS_A_COMMIT) as topic:
        return asyncio.run(
            measure_commits(
                target, topic, COMMITTING_GROUPS, sizes.commits, OFFSETS_A_COMMIT, sizes.seconds
            )
        )


def _measure_loading(targets: Sequence[Target], sizes: Sizes, rounds: int, add: Add) -> None:
    with ExitStack() as stack:
        for target in targets:
            topic = stack.enter_context(topic_of(target, 100))
            _say(f"{LOADING}: {sizes.offsets} offsets are committed, {target.name}")
            commit_all(target, topic, sizes.offsets)
        _in_turn(
            LOADING, targets, rounds, add,
            lambda target: asyncio.run(measure_loading(target, sizes.offsets)),
        )  # fmt: skip


def render(cases: Mapping[str, Any]) -> str:
    """Return the figures as lines: of each case and engine the median of its rounds."""
    lines: list[str] = []
    for case, engines in cases.items():
        for engine, metrics in engines.items():
            figures = ", ".join(
                f"{name} {_number(found['median'])}" for name, found in metrics.items()
            )
            lines.append(f"{case}, {engine}: {figures}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; sizes that aren't given are those of the goals, or of a quick run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--no-apache", action="store_true")
    parser.add_argument("--no-holdfast", action="store_true")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a cluster that runs")
    parser.add_argument("--pids", type=_pids, default=(), help="its brokers, for their CPU")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, for seconds")
    parser.add_argument("--members", type=int, help="of the one large group")
    parser.add_argument("--groups", type=int, help="that only live")
    parser.add_argument("--group-size", type=int, help="members of each of those")
    parser.add_argument("--commits", type=int, help=f"a second, of {OFFSETS_A_COMMIT} offsets")
    parser.add_argument("--offsets", type=int, help="that are loaded")
    parser.add_argument("--seconds", type=float, help="length of one measurement")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in Sizes.__slots__}
    sizes = QUICK if options.quick else FULL
    options.sizes = replace(sizes, **{name: one for name, one in given.items() if one is not None})
    if options.quick:
        options.rounds = 1
    return options


def _pids(text: str) -> tuple[int, ...]:
    return tuple(int(pid) for pid in text.split(","))


def _is_full(options: argparse.Namespace) -> bool:
    """Whether the figures are those that the goals are about."""
    mine = not options.bootstrap_server and not options.no_holdfast
    return mine and not options.only and options.rounds >= 3 and options.sizes == FULL


def _allow_files(wanted: int) -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files >= wanted:
        return
    if most < wanted:
        raise SystemExit(f"{most} open files are allowed, {wanted} are needed: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _say(text: str) -> None:
    sys.stderr.write(f"bench: {text}\n")


def _measure_as_asked(options: argparse.Namespace, add: Add) -> None:
    if options.bootstrap_server:
        _allow_files(options.sizes.files(1))
        target = Target(RUNNING, options.bootstrap_server, options.pids)
        asked = [case for case in CASES if options.only in case and case != LOADING]
        _measure_members([target], asked, options.sizes, options.rounds, add)
        return
    engines = [] if options.no_holdfast else ["holdfast"]
    if not options.no_apache and apache_available():
        engines.append("apache")
    else:
        _say("without Apache Kafka" + ("" if options.no_apache else " (`make apache` brings it)"))
    with tempfile.TemporaryDirectory(prefix="holdfast-groups-") as name:
        measure(Path(name), engines, options.sizes, options.rounds, add, options.only)


def main() -> None:
    """Measure, print, write bench/results/groups-TIME.json if all was measured."""
    options = parse()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    report: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": machine(),
        "rounds": options.rounds,
    }
    results = Results()
    _measure_as_asked(options, results.add)
    cases = results.summary()
    rows = goals.judged(GOALS, cases) if options.sizes == FULL else []
    report |= {"goals": rows, "cases": cases}
    sys.stdout.write(json.dumps(report, indent=1) + "\n" + render(cases))
    sys.stdout.write(goals.render(row for row in rows if row["case"] in cases))
    if _is_full(options):
        name = f"groups-{time.strftime('%Y-%m-%dT%H%M')}.json"
        (ROOT / "bench" / "results" / name).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
