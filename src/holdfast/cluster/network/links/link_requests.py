"""What may be asked of the links, and what each request makes of the table. Pure.

A request is a JSON object: `do` names what, the other words are the command's. What is not
understood is a UsageError that says what would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.cluster.layout import UsageError
from holdfast.cluster.network import amounts, link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.link_table import Answers, Link, Pair, Slow, Table
from holdfast.cluster.network.links.link_rules import Dropped, InForce
from holdfast.cluster.network.relays import answers
from holdfast.wire.messages import api_name

Request = Mapping[str, Any]
_Decide = Callable[[Plan, Table, Request], Table]


def _cut(plan: Plan, table: Table, asked: Request) -> Table:
    one_way, reset = _flag(asked, "one_way"), _flag(asked, "reset")
    a, b = _word(asked, "a"), _word(asked, "b")
    return link_table.cut(plan, table, a, b, one_way=one_way, reset=reset)


def _isolate(plan: Plan, table: Table, asked: Request) -> Table:
    return link_table.isolate(plan, table, _word(asked, "a"), reset=_flag(asked, "reset"))


def _heal(plan: Plan, table: Table, asked: Request) -> Table:
    a, b = _maybe(asked, "a"), _maybe(asked, "b")
    if a is None and b is not None:
        raise UsageError("heal takes no name, one or two: 'b' is there without 'a'.")
    return link_table.heal(plan, table, a, b)


def _lose(plan: Plan, table: Table, asked: Request) -> Table:
    share = amounts.share(_word(asked, "share"))
    a, b, one_way = _word(asked, "a"), _word(asked, "b"), _flag(asked, "one_way")
    return link_table.lose(plan, table, a, b, share, one_way=one_way)


def _slow(plan: Plan, table: Table, asked: Request) -> Table:
    how = Slow(
        latency_us=amounts.time_us(_maybe(asked, "latency") or "0ms"),
        jitter_us=amounts.time_us(_maybe(asked, "jitter") or "0ms"),
        rate=0 if (rate := _maybe(asked, "rate")) is None else amounts.rate(rate),
        reorder=amounts.share(_maybe(asked, "reorder") or "0%"),
    )
    a, b, one_way = _word(asked, "a"), _word(asked, "b"), _flag(asked, "one_way")
    return link_table.slow(plan, table, a, b, how, one_way=one_way)


def _drop_answers(plan: Plan, table: Table, asked: Request) -> Table:
    count = asked.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COUNT_MAX:
        raise UsageError(f"'count' is a number from 1 to {COUNT_MAX}, not {count!r}.")
    key = answers.api_key(_word(asked, "api"))
    what = Answers(api=key, count=count, close=_flag(asked, "close"))
    return link_table.drop_answers(plan, table, _word(asked, "a"), _word(asked, "b"), what)


def _hold(plan: Plan, table: Table, asked: Request) -> Table:
    """Return the table in which these faults are all there are; answers are swallowed as before."""
    faults = asked.get("faults")
    if not isinstance(faults, list) or not all(
        isinstance(each, dict) and each.get("do") in _HELD for each in faults
    ):
        raise UsageError(f"'faults' is a list of requests, each of {', '.join(sorted(_HELD))}.")
    links = dict(held(plan, faults))
    for pair, link in table.items():
        if link.answers is not None:
            links[pair] = replace(links.get(pair, link_table.WHOLE), answers=link.answers)
    return links


def watches(asked: Request) -> bool:
    """Say whether a request asks to wait for the first byte on links that it heals."""
    return _flag(asked, "watch")


def held(plan: Plan, faults: Sequence[Request]) -> Table:
    """Return the table that these requests make of whole links, one after the other."""
    table: Table = {}
    for each in faults:
        table = decide(plan, table, each)
    return table


COUNT_MAX: Final = 1_000_000
_HELD: Final = frozenset({"cut", "isolate", "lose", "slow"})  # what `hold` may name
_PAIR: Final = frozenset({"a", "b"})
# Each request, what decides it, and the words that go with it.
_REQUESTS: Final[Mapping[str, tuple[_Decide, frozenset[str]]]] = {
    "cut": (_cut, _PAIR | {"one_way", "reset"}),
    "isolate": (_isolate, frozenset({"a", "reset"})),
    "heal": (_heal, _PAIR | {"watch"}),
    "hold": (_hold, frozenset({"faults", "watch"})),
    "lose": (_lose, _PAIR | {"share", "one_way"}),
    "drop-responses": (_drop_answers, _PAIR | {"api", "count", "close"}),
    "slow": (_slow, _PAIR | {"latency", "jitter", "rate", "reorder", "one_way"}),
}
NAMES: Final = tuple(_REQUESTS)
_OF_ALL: Final = frozenset({"do", "id"})


def decide(plan: Plan, table: Table, asked: Request) -> Table:
    """Return the table that a request makes of this one. UsageError: it can't be understood."""
    name = asked.get("do")
    if not isinstance(name, str) or name not in _REQUESTS:
        raise UsageError(f"'do' is {name!r}; it can be {', '.join(NAMES)}, first-bytes or status.")
    decider, words = _REQUESTS[name]
    strangers = sorted(str(word) for word in asked.keys() - words - _OF_ALL)
    if strangers:
        known = ", ".join(sorted(words))
        raise UsageError(f"{name} does not know {strangers[0]!r}; it takes {known}.")
    return decider(plan, table, asked)


def _word(asked: Request, key: str) -> str:
    value = _maybe(asked, key)
    if value is None:
        raise UsageError(f"{asked['do']} needs {key!r}.")
    return value


def _maybe(asked: Request, key: str) -> str | None:
    value = asked.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key!r} is a text, not {value!r}.")
    return value


def _flag(asked: Request, key: str) -> bool:
    value = asked.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{key!r} is true or false, not {value!r}.")
    return value


def status(table: Table, seen: InForce) -> dict[str, Any]:
    """Return what is wrong with which link, and what was dropped on it, as plain values.

    Of links that are whole again the counts remain. `found_no_room`: packets of slowed links that
    the switch dropped. `agrees`: what is in force is what we believe.
    """
    links = []
    for pair in dict.fromkeys([*table, *seen.dropped]):
        link, dropped = table.get(pair, link_table.WHOLE), seen.dropped.get(pair, Dropped())
        if not link.is_whole or dropped != Dropped():
            links.append(_link_status(pair, link, dropped, seen.swallowed.get(pair, 0)))
    return {
        "links": links,
        "found_no_room": seen.found_no_room,
        "agrees": dict(seen.table) == dict(table),
    }


def is_whole(link: Mapping[str, Any]) -> bool:
    """Say whether nothing is wrong with a link of a status any more."""
    return not (link["cut"] or link["lose"] or link["slow"] or link["answers"])


def _link_status(pair: Pair, link: Link, dropped: Dropped, swallowed: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "from": pair[0],
        "to": pair[1],
        "cut": None if link.cut is None else link.cut.value,
        "lose": link.lose / amounts.SHARE_WHOLE,
        "slow": None,
        "answers": None,
        "dropped": {"cut": dropped.cut, "lost": dropped.lost},
    }
    if link.answers is not None:
        values["answers"] = {
            "api": api_name(link.answers.api),
            "count": link.answers.count,
            "close": link.answers.close,
            "swallowed": swallowed,
        }
    if link.slow is not None:
        values["slow"] = {
            "latency_s": link.slow.latency_us / 1e6,
            "jitter_s": link.slow.jitter_us / 1e6,
            "bytes_per_s": link.slow.rate or None,
            "reorder": link.slow.reorder / amounts.SHARE_WHOLE,
        }
    return values
