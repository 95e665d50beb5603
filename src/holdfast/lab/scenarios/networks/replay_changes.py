"""What of a plan that the simulator drew is not in a replay, or is there otherwise. Pure.

It is found by holding the plan as it was drawn against what is left of it, field by field, so that
nothing goes unsaid: what nobody has thought of here is told by its own name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.lab.parameters import LabError
from holdfast.lab.report import Table
from holdfast.lab.steps.replay_plan import AS_ANOTHER, BATCH, SESSION, Kind, PlanRow

NAMES_MAX: Final = 4  # in a line for a terminal, unless they are put together
# What a producer's or reader's field is where a plan says nothing of it: what is left of a plan
# does not name what processes have no counterpart for.
UNSAID: Final[Mapping[str, object]] = {
    "codec": 0,
    "stamps": "now",
    "size_max": 64,
    "oversized": 0.0,
    "pipelined": False,
    "keyed": False,
    "wraps": False,
    "rack": "",
    "in_sessions": False,
}
_PROMISES: Final = ("acks", "idempotent", "retries")
# Fields of a plan that a replay has, or that are nothing to processes: the order in which the
# simulator takes what is due at one moment. They are told only where they differ.
TAKEN: Final = frozenset(
    {"version", "seed", "brokers", "controllers", "combined", "elr", "shuffled"}
    | {"config", "topics", "producers", "readers", "events", "seconds"}
)
WORDS: Final[Mapping[str, str]] = {
    "dynamic": "voters that come and go",
    "racks": "racks",
    "log_directories": "log directories of a node",
    "delay_us": "microseconds that links take",
    "provoked": "branches that are taken on purpose",
    "call_us": "microseconds that a call within a node takes",
    "wide": "partitions more, to which little happens",
    "groups": "groups of consumers",
    "group_topics": "topics that groups alone read",
    "broken": "nodes that stay dead in the end",
}

HERE: Final[Mapping[str, str]] = {"delay_us": "as long as this machine's take"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is not as it was drawn. `field`: of the plan; `here`: what there is instead.

    `drawn` are the names of what there was, or its values.
    """

    field: str
    what: str
    drawn: tuple[str, ...] = ()
    here: str = ""

    @property
    def row(self) -> list[str]:
        return [self.what, ", ".join(self.drawn) or "yes", self.here or "none"]

    def __str__(self) -> str:
        """One line: many names are put together by their first words."""
        many = len(self.drawn) > NAMES_MAX
        count = f" ({len(self.drawn)})" if many else ""
        names = f": {', '.join(_together(self.drawn) if many else self.drawn)}"
        here = f"; here: {self.here}" if self.here else ""
        return f"{self.what}{count}{names if self.drawn else ''}{here}"


def changes(drawn: PlanRow, kept: PlanRow) -> list[Change]:
    """Return all that differs between a plan and what is left of it, in the order of its fields.

    LabError: this is no plan of the simulator.
    """
    try:
        return [*_changes(drawn, kept)]
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as problem:
        raise LabError(f"this is no plan of the simulator: {problem!r}") from problem


def table(found: Sequence[Change]) -> list[Table]:
    """Return them for the report, and for machines; nothing where there are none."""
    if not found:
        return []
    return [
        Table(
            title="What is not as the simulator drew it",
            header=["what", "as it was drawn", "here"],
            rows=[each.row for each in found],
            note="Found by comparing the plan, field by field, with what is left of it.",
        )
    ]


def rate_of(plan: PlanRow) -> float:
    """Return how many records a second a plan's producers send, if answers take no time."""
    return round(sum(BATCH * 1000 / int(one["pause_ms"]) for one in plan["producers"]), 1)


def _changes(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    own = {
        "config": _of_config,
        "topics": _of_topics,
        "producers": _of_producers,
        "readers": _of_readers,
        "events": _of_events,
        "seconds": _of_seconds,
    }
    for compare in own.values():
        yield from compare(drawn, kept)
    for field in sorted(drawn.keys() - own.keys()):
        before, after = drawn[field], kept.get(field)
        is_strange = bool(before) and field not in TAKEN | WORDS.keys()
        if before != after or is_strange:
            here = HERE.get(field, ", ".join(_names(after)) if after and before != after else "")
            what = WORDS.get(field, field)
            yield Change(field=field, what=what, drawn=_names(before), here=here)


def _of_config(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    before, after = drawn["config"], kept["config"]
    pace = int(after[SESSION]) / int(before[SESSION])
    gone = tuple(f"{key}={before[key]}" for key in sorted(before.keys() - after.keys()))
    if gone:
        yield Change(field="config", what="settings of nodes", drawn=gone, here="their defaults")
    if pace != 1:
        session = (f"a session of {before[SESSION]} ms",)
        here = f"{pace:g} times as long, a session of {after[SESSION]} ms"
        yield Change(field="config", what="all times", drawn=session, here=here)
    for key in sorted(before.keys() & after.keys()):
        value = before[key]
        if after[key] not in {value, str(round(float(value) * pace))}:
            yield Change(field="config", what=key, drawn=(value,), here=after[key])


def _of_topics(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    topic = kept["topics"][0]
    first, *others = drawn["topics"]
    if others:
        names = tuple(each["name"] for each in others)
        yield Change(field="topics", what="topics, with their clients", drawn=names)
    before, after = first["configs"], topic["configs"]
    gone = tuple(f"{key}={before[key]}" for key in sorted(before.keys() - after.keys()))
    if gone:
        what = f"settings of topic {topic['name']}"
        yield Change(field="topics", what=what, drawn=gone, here="their defaults")
    yield from _others("topics", before, after, before.keys() - after.keys())
    yield from _others("topics", first, topic, {"configs"})


def _others(
    field: str, before: Mapping[str, Any], after: Mapping[str, Any], told: Iterable[str]
) -> Iterator[Change]:
    """Yield what differs in any other name."""
    for name in sorted(before.keys() - set(told)):
        if before[name] != after.get(name):
            yield Change(
                field=field, what=name, drawn=(str(before[name]),), here=str(after.get(name, ""))
            )


def _of_producers(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    topic = kept["topics"][0]["name"]
    before = [one for one in drawn["producers"] if one["topic"] == topic]
    after = kept["producers"]
    counts = _differing(before, after)
    promises = tuple(f"{name} of {counts[name]}" for name in _PROMISES if counts[name])
    if promises:
        first = after[0]
        here = f"acks={first['acks']}, {'idempotent' if first['idempotent'] else 'plain'}, all"
        what = "what producers promise"
        yield Change(field="producers", what=what, drawn=promises, here=here)
    if counts["pause_ms"]:
        what = "milliseconds between a producer's batches"
        yield Change(field="producers", what=what, drawn=(_span(before),), here=_span(after))
    rest = [name for name in sorted(counts) if name not in {*_PROMISES, "pause_ms"}]
    if rest:
        drawn_so = tuple(f"{name} of {counts[name]}" for name in rest)
        yield Change(field="producers", what="what producers send, and how", drawn=drawn_so)


def _of_readers(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    topic = kept["topics"][0]["name"]
    before = [one for one in drawn["readers"] if one["topic"] == topic]
    counts = _differing(before, kept["readers"])
    if counts:
        drawn_so = tuple(f"{name} of {count}" for name, count in sorted(counts.items()))
        yield Change(field="readers", what="how readers read", drawn=drawn_so)


def _differing(before: Sequence[PlanRow], after: Sequence[PlanRow]) -> Counter[str]:
    """Count by field in how many clients it is another one."""
    counts: Counter[str] = Counter()
    for one, other in zip(before, after, strict=True):
        for name in one.keys() | other.keys():
            unsaid = UNSAID.get(name)
            # An idempotent producer sends again whatever its plan says of plain ones.
            if name == "retries" and one["idempotent"] and other["idempotent"]:
                continue
            counts[name] += one.get(name, unsaid) != other.get(name, unsaid)
    return +counts


def _span(producers: Sequence[PlanRow]) -> str:
    pauses = [one["pause_ms"] for one in producers]
    return f"{min(pauses)} to {max(pauses)}"


def _of_events(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    kinds = {kind.value for kind in Kind}
    topic = kept["topics"][0]
    counts = Counter(event["kind"] for event in drawn["events"])
    gone = sorted(kind for kind in counts if kind not in kinds and kind not in AS_ANOTHER)
    if gone:
        names = tuple(f"{counts[kind]} of {kind}" for kind in gone)
        yield Change(field="events", what="events", drawn=names)
    for kind, here in AS_ANOTHER.items():
        if counts[kind]:
            names = (f"{counts[kind]} of {kind}",)
            yield Change(field="events", what="events", drawn=names, here=here)
    aims = [
        aim
        for event in drawn["events"]
        if event["kind"] not in gone
        for aim in (event["target"], event["other"])
    ]
    strange = sorted({aim for aim in aims if _is_strange(aim, topic)})
    if strange:
        here = f"a partition of {topic['name']}"
        yield Change(field="events", what="aims of events", drawn=tuple(strange), here=here)


def _is_strange(aim: str, topic: PlanRow) -> bool:
    """Whether a role is one of a partition that is not left."""
    name, slash, number = aim.partition(":")[2].partition("/")
    return bool(slash) and (name != topic["name"] or int(number) >= topic["partitions"])


def _of_seconds(drawn: PlanRow, kept: PlanRow) -> Iterator[Change]:
    if drawn["seconds"] != kept["seconds"]:
        yield Change(
            field="seconds",
            what="seconds of faults and calm",
            drawn=(f"{drawn['seconds']:g}",),
            here=f"{kept['seconds']:g}: long calm is shortened",
        )


def _names(value: object) -> tuple[str, ...]:
    """Return what a field has, as words: of what has names only these."""
    if isinstance(value, list | tuple):
        named = [each["name"] if isinstance(each, dict) else str(each) for each in value]
        return tuple(dict.fromkeys(named))
    return () if value is True else (str(value),)


def _together(names: Iterable[str]) -> list[str]:
    """Return names without their values, those with the same first word as one."""
    keys = [name.partition("=")[0] for name in names]
    words = [key.partition(".")[0] + ".*" if "." in key else key for key in keys]
    counts = Counter(words)
    found = dict(zip(words, keys, strict=True))
    return [f"{word} ({n})" if (n := counts[word]) > 1 else key for word, key in found.items()]
