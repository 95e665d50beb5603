"""What scenarios that measure ask and count: bytes on disks and between brokers, times, spells.

Bytes are asked of brokers and of the kernel, never computed from what was sent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster.layout import EMBEDDED, NodeRecord
from holdfast.judge.history import Acknowledged, Event, Refused, Send, Unknown
from holdfast.lab.evidence import events_of
from holdfast.lab.report import Spot
from holdfast.lab.report.figures import AT_LEAST, NONE, TO, percentile
from holdfast.lab.run import Run
from holdfast.lab.workload_processes import Worker
from holdfast.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

# Bytes by connection: who dialled from which address, and who was dialled.
Carried = Counter[tuple[int, str, int]]
_CARRIED = re.compile(r"\bbytes_(?:received|sent):(\d+)")
_OWNER = re.compile(r"\bpid=(\d+)")

ALIKE = 0.1  # of the greater of two rates
# How long nodes are warmed at most. Ours are of Python, and as fast as they get at once.
WARM_S: Mapping[str, float] = {EMBEDDED: 5.0}
WARM_S_OTHERS = 20.0
READY_S = 120.0  # for a producer to have begun, and to be answered for the first time


def replica_sizes(run: Run) -> dict[tuple[int, int], int]:
    """Return how many bytes each broker's log of each partition of the topic has.

    By broker and partition; who does not answer is left out.
    """
    asked = DescribableLogDirTopic(topic=run.topic, partitions=list(run.partitions))
    found: dict[tuple[int, int], int] = {}
    for node in run.cluster.broker_ids:
        try:
            results = run.driver.peer(node).send(DescribeLogDirsRequest(topics=[asked])).results
        except DriverError:
            continue
        for topic in (topic for result in results for topic in result.topics):
            for one in topic.partitions:
                if not one.is_future_key:
                    found[node, one.partition_index] = one.partition_size
    return found


def bytes_between(run: Run) -> Carried | None:
    """Return how much connections of one broker to another's port have carried so far, both ways.

    By connection: followers dial leaders, ask, and get. Counted by the kernel where it was dialled,
    for connections that are open; None: this system has no `ss`.
    """
    command = shutil.which("ss")
    if command is None:
        return None
    told = subprocess.run(  # noqa: S603 - our own words
        [command, "-tinpHO", "state", "established"], capture_output=True, text=True, check=False
    )
    brokers = [node for node in run.cluster.nodes if node.is_broker]
    return between(told.stdout.splitlines(), brokers) if told.returncode == 0 else None


def grown(before: Carried | None, after: Carried | None) -> int | None:
    """Return how much more was carried; None: not counted, as a connection has ended since."""
    if before is None or after is None or any(after[each] < before[each] for each in before):
        return None
    return after.total() - before.total()


def between(lines: Iterable[str], brokers: Iterable[NodeRecord]) -> Carried:
    """Return what `ss` says, a connection a line, of those from one broker to another."""
    by_pid = {node.pid: node.id for node in brokers}
    by_address = {node.address: node.id for node in brokers}
    found: Carried = Counter()
    for dialler, own, peer, count in _connections(lines):
        if dialler in by_pid and peer in by_address:
            found[by_pid[dialler], own, by_address[peer]] += count
    return found


def _connections(lines: Iterable[str]) -> Iterator[tuple[int, str, str, int]]:
    """Yield each connection's process, the addresses of its ends, and its bytes both ways."""
    for line in lines:
        words, owner = line.split(), _OWNER.search(line)
        if len(words) >= 4 and owner is not None:
            # A JVM's sockets are of IPv6, whoever they talk to.
            peer = words[3].replace("[::ffff:", "").replace("]", "")
            yield int(owner[1]), words[2], peer, sum(map(int, _CARRIED.findall(line)))


def figures(took: Iterable[float], waited: Iterable[float] = ()) -> list[str]:
    """Return a count and percentiles (50, 99, 99.9, all) in ms, for people.

    `waited`: of those that had no answer yet, how long they had waited. What they would still have
    waited may move a percentile: that one is told as what it is at least.
    """
    ordered, latest = least_and_most(took, waited)
    if not ordered:
        return ["0", *[NONE] * 4]
    shown = [f"{len(ordered):,}"]
    for per_mille in (500, 990, 999, None):
        least, most = (
            known[-1] if per_mille is None else percentile(known, per_mille)
            for known in (ordered, latest)
        )
        sign = "" if least == most else f"{AT_LEAST} "
        shown.append(NONE if least is None else f"{sign}{least:.1f}")
    return shown


def least_and_most(
    took: Iterable[float], waited: Iterable[float]
) -> tuple[list[float], list[float]]:
    """Return in order what times were at least, and at most; no end without an answer."""
    done, at_least = sorted(took), list(waited)
    return sorted([*done, *at_least]), [*done, *[inf] * len(at_least)]


def known_percentile(
    took: Iterable[float], waited: Iterable[float], per_mille: int
) -> float | None:
    """Return a percentile; None: of so few, or whoever has no answer yet may move it."""
    least, most = (percentile(each, per_mille) for each in least_and_most(took, waited))
    return least if least == most else None


class Wait(NamedTuple):
    """One event: who sent it and when, and how long that took; None: nobody has answered it."""

    process: str
    begin_ms: float
    took_ms: float | None
    gave_up_ms: float | None = None  # when its client did, if that is why


def waits(events: Iterable[Event]) -> Iterator[Wait]:
    """Yield how long each event waited to be acknowledged; who was refused has had an answer."""
    sent: dict[str, Send] = {}
    for event in events:
        if isinstance(event, Send):
            sent[event.id] = event
        elif isinstance(event, Acknowledged | Refused | Unknown) and event.id in sent:
            first = sent.pop(event.id)
            if isinstance(event, Acknowledged):
                yield Wait(first.process, first.at_ms, event.at_ms - first.at_ms)
            elif isinstance(event, Unknown):
                yield Wait(first.process, first.at_ms, None, event.at_ms)
    for first in sent.values():
        yield Wait(first.process, first.at_ms, None)


def spot(x: float, measured: Sequence[float | None]) -> Spot | None:
    """Return what stretches have measured as one value of a curve: their mean, in their reach.

    None where one of them has none: what the others have is no mean of all.
    """
    known = [each for each in measured if each is not None]
    if not known or len(known) < len(measured):
        return None
    return Spot(x, sum(known) / len(known), min(known), max(known))


def reach(measured: Sequence[float | None], decimals: int) -> str:
    """Return what stretches have measured, for people: the least, to the most where they differ.

    A dash stands for what not all of them have.
    """
    known = [each for each in measured if each is not None]
    if not known:
        return NONE
    shown = [f"{each:,.{decimals}f}" for each in (min(known), max(known))]
    if len(known) < len(measured):
        shown.append(NONE)
    return TO.join(dict.fromkeys(shown))


class Went(NamedTuple):
    """One stretch of a producer, which has ended. What it sent since that moment counts."""

    worker: Worker
    since_ms: float


def send_gated(
    run: Run, name: str, *, events: int, duration_s: float, bound_s: float, **flags: Any
) -> Went:
    """Send so many events as fast as is taken, or for so long, from a producer that has begun.

    It has by then when it has had an answer of every partition: before that a stretch is the start
    of a process, and a first look for leaders. `bound_s`: for the answers that are still due then.
    """
    first = len(run.partitions)
    told = {**flags, "rate": 0, "gated": True, "max_messages": first + events}
    worker = run.start_producer(name, **told)
    worker.tell(str(first))
    run.wait(f"{name} to have begun", lambda: _answers(worker) >= first, READY_S)
    since_ms = time.monotonic() * 1000
    worker.may_end()
    worker.tell(str(first + events))
    until_s = time.monotonic() + duration_s
    sent = f"{name} to have sent"
    run.wait(sent, lambda: not worker.running or time.monotonic() >= until_s, duration_s + READY_S)
    worker.stop(bound_s)
    return Went(worker, since_ms)


def _answers(worker: Worker) -> int:
    tail = worker.tail.poll()
    return sum(tail.count(kind) for kind in (Acknowledged, Refused, Unknown))


def warm_up(send: Callable[[str], Went], bound_s: float) -> str:
    """Let producers send as fast as they can until nodes are warm; return in words what was done.

    `send` is told a producer's name, and returns it when it has ended. Nodes are warm once two in a
    row differ by less than a tenth: what has just begun gets faster for a while, a JVM for long.
    """
    until_s = time.monotonic() + bound_s
    rates: list[float] = []
    while len(rates) < 2 or (not alike(*rates[-2:]) and time.monotonic() < until_s):
        rates.append(rate_of(send(f"warm-up-{len(rates) + 1}")))
    before, last = rates[-2:]
    so = "until" if alike(before, last) else f"for {bound_s:g} s, and not until"
    return (
        f"{len(rates)} stretches that are not counted went before, {so} two in a row differed by "
        f"less than a tenth: the last two had {before:,.0f} and {last:,.0f} events a second."
    )


def alike(one: float, other: float) -> bool:
    return abs(one - other) < ALIKE * max(one, other)


def rate_of(went: Went) -> float:
    """Return how many events a second a producer got acknowledged, of what counts."""
    begin_ms, end_ms, count = spell_of(events_of([went.worker.history]), went.since_ms)
    return count / max(end_ms - begin_ms, 1.0) * 1000


def spell_of(events: Iterable[Event], since_ms: float) -> tuple[float, float, int]:
    """Return when the first event was sent and the last acknowledged, and how many were.

    Of those that were sent since that moment.
    """
    begin_ms, end_ms, count = 0.0, 0.0, 0
    sent: set[str] = set()
    for event in events:
        if isinstance(event, Send) and event.at_ms >= since_ms:
            begin_ms = begin_ms or event.at_ms
            sent.add(event.id)
        elif isinstance(event, Acknowledged) and event.id in sent:
            end_ms = event.at_ms
            count += 1
    return begin_ms, end_ms, count
