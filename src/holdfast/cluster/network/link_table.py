"""What is wrong with which link, and how each command changes that. Pure.

A link is an ordered pair of places; a table holds those with which something is wrong. A command
returns a new table, and says nothing of how it comes into force (`link_rules`, `pair_proxies`).
The same command twice gives the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from holdfast.cluster.layout import UsageError
from holdfast.cluster.network.addresses import Kind, Plan
from holdfast.cluster.network.amounts import SHARE_WHOLE


class Cut(StrEnum):
    """How a link is cut."""

    DROP = "drop"  # packets vanish
    RESET = "reset"  # whoever sends TCP gets an RST in the other's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """How a link is slowed. Each packet waits `latency_us`, give or take up to `jitter_us`."""

    latency_us: int = 0
    jitter_us: int = 0
    rate: int = 0  # bytes a second; 0: as fast as it goes
    reorder: int = 0  # share of packets, in ten thousandths, that don't wait for those before

    def __post_init__(self) -> None:
        if self.jitter_us > self.latency_us:
            raise UsageError("--jitter is more than --latency: a packet can't come before it went.")
        if self.reorder and not self.latency_us:
            raise UsageError("--reorder needs a --latency, which some packets don't wait for.")
        if not (self.latency_us or self.rate):
            raise UsageError("To slow a link takes --latency, --rate or both.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers of a node (the link's source) that its client does not get.

    `number` tells one command from a later one that says the same: each counts from the beginning.
    """

    api: int
    count: int
    close: bool = False  # the connection is closed then; otherwise it stays open, and silent
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What is wrong with one direction between two places."""

    cut: Cut | None = None
    lose: int = 0  # share of packets, in ten thousandths
    slow: Slow | None = None
    answers: Answers | None = None

    @property
    def is_whole(self) -> bool:
        return self == WHOLE

    @property
    def picks_packets(self) -> bool:
        """Whether single packets are lost or overtake, which nobody can do who sees TCP alone."""
        return bool(self.lose or (self.slow is not None and self.slow.reorder))


WHOLE: Final = Link()
ANSWERING: Final = frozenset({Kind.BROKER, Kind.CONTROLLER, Kind.BOTH, Kind.REPLICATION})
Pair = tuple[str, str]  # names of places, from and to
Table = Mapping[Pair, Link]


def cut(
    plan: Plan, table: Table, a: str, b: str, *, one_way: bool = False, reset: bool = False
) -> Table:
    """Return the table with every link from A to B cut, and back unless `one_way`."""
    how = Cut.RESET if reset else Cut.DROP
    return _changed(table, {pair: {"cut": how} for pair in pairs(plan, a, b, one_way)})


def isolate(plan: Plan, table: Table, name: str, *, reset: bool = False) -> Table:
    """Return the table with a place, zone or group cut from all others but the observer."""
    inside = [place.name for place in plan.members(name)]
    outside = [
        place.name
        for place in plan.places
        if place.name not in inside and place.kind is not Kind.OBSERVER
    ]
    if not outside:
        raise UsageError(f"{name} is everything there is: there is nothing to isolate it from.")
    how = Cut.RESET if reset else Cut.DROP
    changes = {
        pair: {"cut": how} for one in inside for other in outside for pair in _both(one, other)
    }
    return _changed(table, changes)


def heal(plan: Plan, table: Table, a: str | None = None, b: str | None = None) -> Table:
    """Return the table without anything wrong between A and B; of A alone, or of all."""
    if a is None:
        return {}
    if b is None:
        healed = {place.name for place in plan.members(a)}
        return {pair: link for pair, link in table.items() if not healed & {*pair}}
    gone = set(pairs(plan, a, b, one_way=False))
    return {pair: link for pair, link in table.items() if pair not in gone}


def lose(plan: Plan, table: Table, a: str, b: str, share: int, *, one_way: bool = False) -> Table:
    """Return the table with this share of packets lost from A to B, and back unless `one_way`."""
    assert 0 <= share <= SHARE_WHOLE
    return _changed(table, {pair: {"lose": share} for pair in pairs(plan, a, b, one_way)})


def slow(plan: Plan, table: Table, a: str, b: str, how: Slow, *, one_way: bool = False) -> Table:
    """Return the table with each direction from A to B slowed so, and back unless `one_way`."""
    return _changed(table, {pair: {"slow": how} for pair in pairs(plan, a, b, one_way)})


def drop_answers(plan: Plan, table: Table, client: str, node: str, what: Answers) -> Table:
    """Return the table in which these answers of a node to a client are swallowed.

    Of several places those that answer: nodes. Any place may ask, since clients may stand there.
    """
    links = pairs(plan, node, client, one_way=True)
    answering = [pair for pair in links if plan.place(pair[0]).kind in ANSWERING]
    if not answering:
        raise UsageError(f"{node} answers nothing; CLIENT comes first, then NODE.")
    latest = max((link.answers.number for link in table.values() if link.answers), default=0)
    numbered = replace(what, number=latest + 1)
    changes = {pair: {"answers": numbered} for pair in answering}
    return _changed(table, changes)


def pairs(plan: Plan, a: str, b: str, one_way: bool) -> list[Pair]:
    """Return the links between the places that two names stand for, in the places' order."""
    found: dict[Pair, None] = {}
    for one in plan.members(a):
        for other in plan.members(b):
            if one.name != other.name:
                directions = _both(one.name, other.name)
                found |= dict.fromkeys([next(directions)] if one_way else directions)
    if not found:
        raise UsageError(f"There is no link between {a} and {b}: they are one place.")
    return [*found]


def changed_pairs(before: Table, after: Table) -> list[Pair]:
    """Return the links that differ, in the order in which they are named."""
    return [
        pair
        for pair in dict.fromkeys([*before, *after])
        if before.get(pair, WHOLE) != after.get(pair, WHOLE)
    ]


def newly_swallowed(before: Table, after: Table) -> list[Pair]:
    """Return the links (node, client) whose answers begin to be swallowed, or others than before.

    What else a command changes on such a link ends no connection.
    """
    return [
        pair
        for pair in changed_pairs(before, after)
        if (what := after.get(pair, WHOLE).answers) is not None
        and what != before.get(pair, WHOLE).answers
    ]


def between(table: Table) -> list[Pair]:
    """Return the pairs, in both orders, between which single packets are lost or overtake."""
    return [each for pair, link in table.items() if link.picks_packets for each in _both(*pair)]


def swallowed_and_picked(table: Table) -> list[Pair]:
    """Return the pairs (node, client) of a table that nobody can put in force.

    To swallow a node's answers takes a relay, which sees no packets.
    """
    picked = {*between(table)}
    return [pair for pair, link in table.items() if link.answers is not None and pair in picked]


def _both(one: str, other: str) -> Iterator[Pair]:
    yield one, other
    yield other, one


def _changed(table: Table, changes: Mapping[Pair, Mapping[str, object]]) -> Table:
    links = dict(table)
    for pair, values in changes.items():
        links[pair] = replace(links.get(pair, WHOLE), **values)  # type: ignore[arg-type]
    return {pair: link for pair, link in links.items() if not link.is_whole}


def text_of(link: Link) -> str:
    """Return a link's state in words that `from_text` reads."""
    words = []
    if link.cut is not None:
        words.append(f"cut={link.cut}")
    if link.lose:
        words.append(f"lose={link.lose}")
    if link.slow is not None:
        how = link.slow
        words.append(f"slow={how.latency_us},{how.jitter_us},{how.rate},{how.reorder}")
    if link.answers is not None:
        what = link.answers
        words.append(f"answers={what.api},{what.count},{int(what.close)},{what.number}")
    return " ".join(words)


def from_text(text: str) -> Link:
    """Read a link's state back. ValueError: it isn't one."""
    values = dict(word.split("=", 1) for word in text.split())
    how = None
    if "slow" in values:
        latency_us, jitter_us, rate, reorder = map(int, values.pop("slow").split(","))
        how = Slow(latency_us=latency_us, jitter_us=jitter_us, rate=rate, reorder=reorder)
    answers = None
    if "answers" in values:
        api, count, close, number = map(int, values.pop("answers").split(","))
        answers = Answers(api=api, count=count, close=bool(close), number=number)
    cut_how = Cut(values.pop("cut")) if "cut" in values else None
    share = int(values.pop("lose", 0))
    if values:
        raise ValueError(f"what is {text!r}?")
    return Link(cut=cut_how, lose=share, slow=how, answers=answers)
