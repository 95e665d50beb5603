"""What of a plan of the simulator can be done to real processes, and when. Pure.

A plan is taken as its decoded JSON, in the shape that `make simulate ARGS='--plan FILE'` reads and
writes, for the lab imports nothing of the simulator. What is left of it is such a plan again: the
simulator runs the same schedule (docs/design/networks.md#the-simulator-and-the-lab).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from typing import Any, Final

from holdfast.lab.parameters import LabError, Parameters

PlanRow = Mapping[str, Any]
EventRow = dict[str, Any]

FIRST_S: Final = 3.0  # the workload flows by then
CALM_S: Final = 2.0  # beyond a session: calm that lasts longer is shortened to that
AFTER_S: Final = 1.0  # from the end of the last fault to the healing of all
SESSION_MS: Final = 3_000  # the least that processes keep on a busy machine
SESSION: Final = "broker.session.timeout.ms"
PAUSES_MS: Final = (80, 400)  # between two batches of a producer, on average
BATCH: Final = 2.5  # records in the simulator's batches, on average
_LINKS_MAX: Final = 6  # of a swizzle
# What a file by hand may ask one machine for; the simulator draws a tenth of it.
_SIZES_MAX: Final[Mapping[str, int]] = {"brokers": 50, "controllers": 50, "partitions": 100}
LENGTH_MAX_S: Final = 3600.0
_TARGET: Final = re.compile(
    r"active|(broker|controller):[0-9]{1,9}|(leader|follower):[^/]+/[0-9]{1,9}"
)
_WRONG: Final = (  # what is raised where a plan has something else than a plan has
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    ArithmeticError,
    StopIteration,
)
_MINIMUM: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_TOPIC_KEYS: Final = (_MINIMUM, _UNCLEAN)
# Of a node's configuration: what decides who is in sync, and who leads. Those that are times.
_TIMES: Final = (
    "broker.heartbeat.interval.ms",
    SESSION,
    "replica.fetch.backoff.ms",
    "replica.fetch.wait.max.ms",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
)
_OTHERS: Final = ("leader.imbalance.check.interval.seconds", _MINIMUM)


class Kind(StrEnum):
    """A fault that processes can have as well, by the simulator's name."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    CUT = "cut"
    ISOLATE = "isolate"


WORDS: Final[Mapping[Kind, str]] = {
    Kind.KILL: "is killed",
    Kind.STOP: "is asked to end",
    Kind.PAUSE: "stands still",
    Kind.CUT: "is cut from",
    Kind.ISOLATE: "is cut from all others",
}
ONE_WAY: Final = "one way"
# What becomes of another kind of event, and of what it can't keep.
_AIMED: Final = "kill_after_write"
_SWIZZLE: Final = "swizzle"
AS_ANOTHER: Final[Mapping[str, str]] = {
    _AIMED: "a kill, at its time and not between a write and its answer",
    _SWIZZLE: "cuts one way, one after the other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing done to the cluster. `target`, `other`: a node, or a role that somebody has."""

    at_s: float
    seconds: float  # until the node is let go, or started again
    kind: Kind
    target: str
    other: str = ""
    one_way: bool = False

    def __str__(self) -> str:
        return f"{self.at_s:7.2f} s  {self.what}, for {self.seconds:.2f} s"

    @property
    def what(self) -> str:
        """What is done to whom, as a sentence says it."""
        way = f", {ONE_WAY}" if self.one_way else ""
        return f"{self.target} {WORDS[self.kind]} {self.other}".rstrip() + way


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A replayable plan, as the lab reads it."""

    seed: int
    topic: str
    parameters: Parameters
    faults: tuple[Fault, ...]

    def describe(self) -> list[str]:
        """Lines for a person: the settings, then every fault."""
        own = self.parameters
        where = "combined" if own.combined else "dedicated"
        return [
            (
                f"seed {self.seed}: {own.brokers} brokers, {own.controllers} {where} controllers,"
                f" eligible leader replicas {'on' if own.elr else 'off'};"
                f" {own.partitions} partitions, RF {own.replication_factor}, min ISR {own.min_isr},"
                f" acks={own.acks}, {'idempotent' if own.idempotent else 'plain'}"
                f"{', unclean elections' if own.unclean else ''}"
            ),
            "config " + " ".join(f"{key}={value}" for key, value in own.config.items()),
            *map(str, self.faults),
        ]


@dataclass(frozen=True, slots=True)
class Replayable:
    """What is left of a plan, and lines about what is not."""

    plan: PlanRow
    left_out: tuple[str, ...]


def replayable(plan: PlanRow) -> Replayable:
    """Return the plan that both worlds can run, and what was left out of this one.

    LabError: it is no plan of the simulator. A plan that came out of here stays as it is.
    """
    try:
        return _replayable(plan)
    except _WRONG as problem:
        raise LabError(f"this is no plan of the simulator: {problem!r}") from problem


def _replayable(plan: PlanRow) -> Replayable:
    topic, *others = plan["topics"]
    pace = max(1.0, SESSION_MS / int(plan["config"][SESSION]))
    kept, changed = _faults_of(plan, topic)
    first = next(each for each in plan["producers"] if each["topic"] == topic["name"])
    events = _calmer([_stretched(each, pace) for each in kept], _session_s(plan) * pace)
    words = [
        *([f"every time is {pace:g} times as long: a session of {SESSION_MS} ms"] * (pace > 1)),
        *([f"topics {', '.join(each['name'] for each in others)}"] * bool(others)),
        *_settings_left_out(plan, topic, first),
        *(f"{count} of {kind}{what}" for (kind, what), count in sorted(changed.items())),
    ]
    row = {
        **plan,
        "racks": [],
        "log_directories": 1,
        "config": _config_of(plan, pace),
        "dynamic": False,
        "delay_us": [50, 500],
        "provoked": False,
        "call_us": 0.0,
        "wide": 0,
        "seconds": round(max((_end_of(each) for each in events), default=FIRST_S) + AFTER_S, 3),
        "topics": [{**topic, "configs": _kept(topic["configs"], _TOPIC_KEYS)}],
        "producers": [_producer_of(each, first) for each in _of_topic(plan["producers"], topic)],
        "readers": [
            {**each, "rack": "", "in_sessions": False} for each in _of_topic(plan["readers"], topic)
        ],
        "groups": [],
        "group_topics": [],
        "broken": [],
        "events": events,
    }
    return Replayable(row, tuple(words))


def _of_topic(rows: Iterable[Mapping[str, Any]], topic: PlanRow) -> list[Mapping[str, Any]]:
    return [each for each in rows if each["topic"] == topic["name"]]


def _kept(values: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: values[key] for key in keys if key in values}


def _session_s(plan: PlanRow) -> float:
    return int(plan["config"][SESSION]) / 1000


def _config_of(plan: PlanRow, pace: float) -> dict[str, str]:
    times = {
        key: str(round(int(value) * pace)) for key, value in _kept(plan["config"], _TIMES).items()
    }
    return times | _kept(plan["config"], _OTHERS)


def _producer_of(one: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """All producers promise the same, so that one promise can be held against the run."""
    idempotent = bool(first["idempotent"])
    low, high = PAUSES_MS
    return {
        "topic": one["topic"],
        "partition": one["partition"],
        "acks": -1 if first["acks"] == -1 else 1,
        "idempotent": idempotent,
        "retries": idempotent,
        "pause_ms": min(max(int(one["pause_ms"]), low), high),
    }


def _settings_left_out(plan: PlanRow, topic: PlanRow, first: PlanRow) -> Iterator[str]:
    strange = [key for key in topic["configs"] if key not in _TOPIC_KEYS]
    if strange:
        yield f"of {topic['name']}: {', '.join(sorted(strange))}"
    if first["acks"] == 0:
        yield "acks=0: 1 in its place"
    for key, words in (
        ("groups", "groups of consumers"),
        ("dynamic", "voters that come and go"),
        ("racks", "racks"),
        ("provoked", "branches that are taken on purpose"),
        ("wide", "hundreds of partitions more"),
        ("broken", "a minority that stays dead"),
    ):
        if plan[key]:
            yield words


def _faults_of(plan: PlanRow, topic: PlanRow) -> tuple[list[EventRow], Counter[tuple[str, str]]]:
    """Return the events that there can be, and what became of the others: by kind and words."""
    kinds = {kind.value for kind in Kind}
    kept: list[EventRow] = []
    changed: Counter[tuple[str, str]] = Counter()
    for event in plan["events"]:
        kind = event["kind"]
        if kind in AS_ANOTHER:
            changed[kind, f": {AS_ANOTHER[kind]}"] += 1
        elif kind not in kinds:
            changed[kind, ""] += 1
        if kind == _SWIZZLE:
            kept += _cuts_of(event, plan)
        elif kind == _AIMED or kind in kinds:
            kept.append(_plain(event, topic))
    return kept, changed


def _plain(event: EventRow, topic: PlanRow) -> EventRow:
    """Return an event with what processes know of it, aimed at the topic that is left."""
    kind = Kind.KILL.value if event["kind"] == _AIMED else event["kind"]
    is_cut = kind == Kind.CUT.value
    return {
        "at": event["at"],
        "kind": kind,
        "target": _aimed(event["target"], topic),
        "other": _aimed(event["other"], topic) if is_cut else "",
        "seconds": event["seconds"],
        "amount": 0.0,
        "detail": event["detail"] if is_cut else "",
    }


def _aimed(target: str, topic: PlanRow) -> str:
    """Return a target of the topic that is left, whichever one it was of."""
    role, _, name = target.partition(":")
    _, slash, number = name.partition("/")
    if not slash:
        return target
    return f"{role}:{topic['name']}/{int(number) % topic['partitions']}"


def _cuts_of(event: EventRow, plan: PlanRow) -> Iterator[EventRow]:
    """Yield the cuts of a swizzle: the links and the orders that the simulator draws as well."""
    draw = random.Random(event["amount"])  # noqa: S311 - a schedule, not a secret
    nodes = [f"broker:{number}" for number in range(plan["brokers"])]
    if not plan["combined"]:
        nodes += [f"controller:{number}" for number in range(plan["controllers"])]
    links = list(permutations(nodes, 2))
    links = draw.sample(links, min(len(links), _LINKS_MAX))
    step = event["seconds"] / (2 * len(links))
    mended = list(links)
    draw.shuffle(mended)
    for place, link in enumerate(links):
        begin = place * step
        end = (len(links) + mended.index(link) + 1) * step
        yield {
            "at": round(event["at"] + begin, 3),
            "kind": Kind.CUT.value,
            "target": link[0],
            "other": link[1],
            "seconds": round(end - begin, 3),
            "amount": 0.0,
            "detail": ONE_WAY,
        }


def _stretched(event: EventRow, pace: float) -> EventRow:
    at, seconds = (round(event[key] * pace, 3) for key in ("at", "seconds"))
    return {**event, "at": at, "seconds": seconds}


def _end_of(event: EventRow) -> float:
    end: float = event["at"] + event["seconds"]
    return end


def _calmer(events: Sequence[EventRow], session_s: float) -> list[EventRow]:
    """Return the events in order, with no more calm between them than shows anything."""
    calm_s = session_s + CALM_S
    found: list[EventRow] = []
    saved_s = busy_s = 0.0
    for event in sorted(events, key=lambda each: float(each["at"])):
        # Before the first fault nothing is waited for but the workload.
        room_s = calm_s if found else FIRST_S
        saved_s += max(0.0, event["at"] - saved_s - busy_s - room_s)
        sooner = {**event, "at": round(event["at"] - saved_s, 3)}
        busy_s = max(busy_s, _end_of(sooner))
        found.append(sooner)
    return found


def schedule_of(plan: PlanRow) -> Schedule:
    """Read a replayable plan. LabError: it is none."""
    try:
        return _schedule_of(plan)
    except _WRONG as problem:
        raise LabError(f"this is no schedule for a replay: {problem!r}") from problem


def _schedule_of(plan: PlanRow) -> Schedule:
    (topic,) = plan["topics"]
    _refuse_senseless({**topic, **plan})
    producers = plan["producers"]
    first = producers[0]
    pause_ms = sum(each["pause_ms"] for each in producers) / len(producers)
    parameters = Parameters(
        acks="all" if first["acks"] == -1 else "1",
        retries=None if first["idempotent"] else 0,
        brokers=plan["brokers"],
        controllers=plan["controllers"],
        combined=plan["combined"],
        replication_factor=topic["replication_factor"],
        min_isr=min(int(topic["configs"][_MINIMUM]), topic["replication_factor"]),
        unclean=topic["configs"][_UNCLEAN] == "true",
        partitions=topic["partitions"],
        elr=plan["elr"],
        rate=round(topic["partitions"] * BATCH * 1000 / pause_ms, 1),
        profile="kafka",  # what the simulator's nodes have where a plan says nothing
        config=plan["config"],
        network=True,
        racks=("a",) * plan["brokers"],
        seed=plan["seed"],
    )
    faults = tuple(
        Fault(
            at_s=float(each["at"]),
            seconds=float(each["seconds"]),
            kind=Kind(each["kind"]),
            target=each["target"],
            other=each["other"],
            one_way=each["detail"] == ONE_WAY,
        )
        for each in plan["events"]
    )
    return Schedule(seed=plan["seed"], topic=topic["name"], parameters=parameters, faults=faults)


def _refuse_senseless(values: PlanRow) -> None:
    """ValueError: a size, a switch, a time or a target that a run would end at, or never end."""
    for name, most in _SIZES_MAX.items():
        _expect(name, values[name], type(values[name]) is int and 1 <= values[name] <= most)
    for name in ("combined", "elr"):
        _expect(name, values[name], isinstance(values[name], bool))
    for event in values["events"]:
        for name in ("at", "seconds"):
            _expect(f"an event's {name}", event[name], 0 <= event[name] <= LENGTH_MAX_S)
        for target in [event["target"], *([event["other"]] if event["kind"] == Kind.CUT else [])]:
            _expect("an event's target", target, _TARGET.fullmatch(target))


def _expect(what: str, value: object, so: object) -> None:
    if not so:
        raise ValueError(f"{what} can't be {value!r}")
