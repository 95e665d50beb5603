"""`make groups-bench`: what groups and commits cost, and how long a large group takes to settle.

Members are light clients of our own in this process, each with a connection. On brokers of its own,
Apache Kafka's or ours, or on any cluster that runs. Figures are written when all parts ran in full.

    python bench/groups.py [--quick] [--engine apache|holdfast] [--only joining|heartbeats|commits]
    python bench/groups.py --bootstrap-server HOST:PORT [--pids PID,PID]
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engines import ROOT, STEADY, Apache, ApacheThree, Cluster, Holdfast, HoldfastThree
from group_loads import (
    PROTOCOLS,
    Target,
    measure_commits,
    measure_heartbeats,
    measure_joining,
)
from holdfast.clients.blocking_driver import Driver
from holdfast.wire.administration import create_topic, delete_topic
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.session import UnsupportedVersionError

PARTS: Final = ("joining", "heartbeats", "commits")
FULL: Final = {"members": 500, "groups": 1_000, "group_size": 5, "commits": 2_000, "seconds": 15.0}
QUICK: Final = {"members": 20, "groups": 10, "group_size": 3, "commits": 50, "seconds": 2.0}
OFFSETS_A_COMMIT: Final = 10
COMMITTING_GROUPS: Final = 20
# What is asked of us: seconds from the last join to stable, and cores. KIP-848's members hear of a
# change with their next heartbeat, of 5 s by default: two of them and 2 s.
GOALS: Final = {"classic": 5.0, "consumer": 12.0, "heartbeats": 0.2}
_CONFIG: Final = STEADY | {"group.initial.rebalance.delay.ms": "0"}
_FILES_SPARE: Final = 500
_ENGINES: Final[dict[str, tuple[type[Cluster], type[Cluster]]]] = {
    "apache": (Apache, ApacheThree),
    "holdfast": (Holdfast, HoldfastThree),
}


@contextmanager
def brokers(options: argparse.Namespace, count: int) -> Iterator[Target]:
    """Brokers that serve, with `count` replicas of what groups commit."""
    if options.bootstrap_server:
        yield Target(options.bootstrap_server, options.pids)
        return
    engine_class = _ENGINES[options.engine][count > 1]
    config = _CONFIG | {"offsets.topic.replication.factor": str(count)}
    with tempfile.TemporaryDirectory(prefix="holdfast-groups-") as name:
        engine: Any = engine_class(Path(name), config)
        engine.start()
        try:
            yield Target(engine.bootstrap, tuple(engine.pids()))
        finally:
            engine.stop()


@contextmanager
def topic_of(target: Target, partitions: int) -> Iterator[str]:
    """A topic with one replica of each partition; nothing is written to it."""
    name = f"bench-groups-{time.monotonic_ns()}"
    with Driver(target.bootstrap) as driver:
        driver.perform(
            create_topic(name, partitions=partitions, replication_factor=1, timeout_ms=30_000)
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


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the parts that are asked for."""
    report: dict[str, Any] = {}
    if options.only != "commits":
        with brokers(options, 1) as target:
            _check(target)
            report |= _measure_members(target, options)
    if options.only in {"", "commits"}:
        with brokers(options, 3) as target, topic_of(target, OFFSETS_A_COMMIT) as topic:
            _check(target)
            _say(f"{options.commits} commits a second")
            report["commits"] = asyncio.run(
                measure_commits(
                    target,
                    topic,
                    COMMITTING_GROUPS,
                    options.commits,
                    OFFSETS_A_COMMIT,
                    options.seconds,
                )
            )
    return report


def _measure_members(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for protocol in PROTOCOLS:
        if options.only in {"", "joining"}:
            _say(f"{options.members} {protocol} members join one group")
            with topic_of(target, options.members) as topic:
                joining = measure_joining(target, topic, protocol, options.members)
                report[f"joining, {protocol}"] = asyncio.run(joining)
        if options.only in {"", "heartbeats"}:
            groups, size = options.groups, options.group_size
            _say(f"{groups} {protocol} groups of {size} members")
            with topic_of(target, size) as topic:
                beating = measure_heartbeats(target, topic, protocol, groups, size, options.seconds)
                report[f"heartbeats, {protocol}"] = asyncio.run(beating)
    return report


def _check(target: Target) -> None:
    if not serves_groups(target):
        raise SystemExit(f"groups: no member can join at {target.bootstrap}: it serves no groups")


def render(report: dict[str, Any]) -> str:
    """Return the figures as lines, each beside what is asked of us."""
    lines: list[str] = []
    for protocol in PROTOCOLS:
        if (joining := report.get(f"joining, {protocol}")) is not None:
            lines.append(
                f"{joining['members']:,} {protocol} members: stable"
                f" {joining['stable_after_last_join_s']:.1f} s after the last join"
                f" (goal {GOALS[protocol]:g}), {joining['stable_after_leave_s']:.1f} s after one"
                " leaves"
            )
        if (beating := report.get(f"heartbeats, {protocol}")) is not None:
            cost = "CPU is not known"
            if "cores" in beating:
                cost = (
                    f"{beating['cores']:.3f} cores (goal {GOALS['heartbeats']:g}),"
                    f" {beating['idle_cores']:.3f} without them"
                )
            lines.append(f"{beating['groups']:,} {protocol} groups: {cost}")
    if (commits := report.get("commits")) is not None:
        cost = "CPU is not known"
        if "cpu_us_a_commit" in commits:
            cost = f"{commits['cpu_us_a_commit']:.0f} us of CPU each, of all brokers"
        lines.append(
            f"{commits['offsets_per_s']:,.0f} offsets/s in commits of"
            f" {commits['offsets_a_commit']} (asked"
            f" {commits['asked_commits_per_s'] * commits['offsets_a_commit']:,}):"
            f" {cost}; p50 {commits['p50_ms']:.1f} ms, p99 {commits['p99_ms']:.1f} ms,"
            f" {commits['refused']} refused, {commits['not_sent']} not sent"
        )
    return "".join(f"{line}\n" for line in lines)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; sizes that aren't given are those of the goals, or of a quick run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=sorted(_ENGINES), default="apache")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a cluster that runs")
    parser.add_argument("--pids", type=_pids, default=(), help="its brokers, for their CPU")
    parser.add_argument("--only", choices=PARTS, default="")
    parser.add_argument("--quick", action="store_true", help="small sizes, for seconds")
    parser.add_argument("--members", type=int, help="of the one large group")
    parser.add_argument("--groups", type=int, help="that only live")
    parser.add_argument("--group-size", type=int, help="members of each of those")
    parser.add_argument("--commits", type=int, help=f"a second, of {OFFSETS_A_COMMIT} offsets")
    parser.add_argument("--seconds", type=float, help="length of one measurement")
    options = parser.parse_args(arguments)
    for name, size in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, size)
    return options


def _pids(text: str) -> tuple[int, ...]:
    return tuple(int(pid) for pid in text.split(","))


def _is_full(options: argparse.Namespace) -> bool:
    return not options.only and all(getattr(options, name) == size for name, size in FULL.items())


def _allow_files(wanted: int) -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files >= wanted:
        return
    if most < wanted:
        raise SystemExit(f"{most} open files are allowed, {wanted} are needed: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _say(text: str) -> None:
    sys.stderr.write(f"groups: {text}\n")


def main() -> None:
    """Measure, print, write bench/results/groups-TIME.json if all was measured."""
    options = parse()
    _allow_files(max(options.members, options.groups * options.group_size) + _FILES_SPARE)
    report: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "engine": options.bootstrap_server or options.engine,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
    }
    report |= measure(options)
    sys.stdout.write(json.dumps(report, indent=1) + "\n" + render(report))
    if _is_full(options):
        name = f"groups-{time.strftime('%Y-%m-%dT%H%M')}.json"
        (ROOT / "bench" / "results" / name).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
