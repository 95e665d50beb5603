"""A change of links as one transaction for `nft -f`, and what nft lists read back. Pure.

One map leads from source and destination to a chain per fault, so that a link costs the same
however many are broken, and a whole one next to nothing. A link's element says in a comment what
is wrong with it, so that the kernel's own table can be read back. What is dropped is counted by
link, in counters that other maps lead to, and these counts outlive the link's changes.

Of a change's time most is nft's, by how much it has to read: all elements of a map are one command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.cluster.network import link_table
from holdfast.cluster.network.addresses import ROUTER_ADDRESS, Plan
from holdfast.cluster.network.amounts import SHARE_WHOLE
from holdfast.cluster.network.link_table import Cut, Link, Pair, Table

TABLE: Final = "holdfast"
SWITCH_DEVICE: Final = "slow"  # the router's end of the switch
SWITCH_MARK: Final = 81
NEW_MARK: Final = 82  # of connections that were begun while somebody is led
# As what is counted what does not arrive: so a map is called, and so its counters and the chains
# that count in them begin.
_CUT, _LOST = "cut", "lost"
_COUNTED_CUT: Final = f"counter name ip saddr . ip daddr map @{_CUT}"

# Judged where packets leave the router, so that a cut holds for those that the switch still has. A
# rule whose map has nothing for a packet leaves it to the next: what is cut is dropped without a
# counter, too.
BASE: Final = f"""\
add table ip {TABLE}
add map ip {TABLE} links {{ type ipv4_addr . ipv4_addr : verdict; }}
add map ip {TABLE} {_CUT} {{ type ipv4_addr . ipv4_addr : counter; }}
add map ip {TABLE} {_LOST} {{ type ipv4_addr . ipv4_addr : counter; }}
add set ip {TABLE} slowed {{ type ipv4_addr . ipv4_addr; }}
add chain ip {TABLE} {_CUT}/{Cut.DROP}
add rule ip {TABLE} {_CUT}/{Cut.DROP} {_COUNTED_CUT} drop
add rule ip {TABLE} {_CUT}/{Cut.DROP} drop
add chain ip {TABLE} {_CUT}/{Cut.RESET}
add rule ip {TABLE} {_CUT}/{Cut.RESET} {_COUNTED_CUT}
add rule ip {TABLE} {_CUT}/{Cut.RESET} meta l4proto tcp reject with tcp reset
add rule ip {TABLE} {_CUT}/{Cut.RESET} drop
add chain ip {TABLE} pass {{ type filter hook forward priority 0; policy accept; }}
add chain ip {TABLE} detour {{ type filter hook prerouting priority -150; policy accept; }}
add rule ip {TABLE} pass oifname "{SWITCH_DEVICE}" accept
add rule ip {TABLE} pass ip saddr . ip daddr vmap @links
add rule ip {TABLE} detour iifname != "{SWITCH_DEVICE}" ip saddr . ip daddr @slowed \
meta mark set {SWITCH_MARK}
"""
LIST: Final = ("-j", "list", "table", "ip", TABLE)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Packets of one link that did not arrive, by why.

    What is cut counts with what relays keep back of connections whose answers are swallowed.
    """

    cut: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class InForce:
    """What is in force, and what did not arrive."""

    table: Table
    dropped: Mapping[Pair, Dropped]  # of every link that was ever broken
    swallowed: Mapping[Pair, int] = field(default_factory=dict)  # answers
    found_no_room: int = 0  # packets of slowed links


def transaction(
    plan: Plan, before: Table, after: Table, known: Collection[str] = (), relay_port: int = 0
) -> str:
    """Return what makes `after` of `before`; nothing where they are the same.

    `known`: names of counters and chains that are there (`names`). To add one again would be right,
    and take 15 ms. `relay_port`: of the router, to which clients are led whose answers are
    swallowed.
    """
    changed = link_table.changed_pairs(before, after)
    broken = {pair: after[pair] for pair in changed if not _link(after, pair).is_whole}
    lines = _prepare(plan, broken, known)
    # What a link led to before goes in the same transaction: no packet meets neither.
    was = [pair for pair in changed if not _link(before, pair).is_whole]
    lines += elements("delete", "links", [addresses_of(plan, pair) for pair in was])
    leading = (
        f'{addresses_of(plan, pair)} comment "{link_table.text_of(link)}" : {_verdict(link)}'
        for pair, link in broken.items()
    )
    lines += elements("add", "links", leading)
    was_slow = {pair for pair in changed if _link(before, pair).slow is not None}
    becomes_slow = {pair for pair in changed if _link(after, pair).slow is not None}
    for verb, pairs in (("delete", was_slow - becomes_slow), ("add", becomes_slow - was_slow)):
        keys = [addresses_of(plan, pair) for pair in changed if pair in pairs]
        lines += elements(verb, "slowed", keys)
    text = "".join(f"{line}\n" for line in lines)
    return text if _led(after) == _led(before) else text + lead(plan, after, relay_port)


def _link(table: Table, pair: Pair) -> Link:
    return table.get(pair, link_table.WHOLE)


def _prepare(plan: Plan, broken: Table, known: Collection[str]) -> list[str]:
    """Return what adds the counters and chains to which links are about to lead."""
    lines = []
    for kind in (_CUT, _LOST):
        named = {pair: _name(kind, pair) for pair, link in broken.items() if _kind(link) == kind}
        new = {pair: name for pair, name in named.items() if name not in known}
        lines += [f"add counter ip {TABLE} {name}" for name in new.values()]
        counting = (f'{addresses_of(plan, pair)} : "{name}"' for pair, name in new.items())
        lines += elements("add", kind, counting)
    for share in sorted({link.lose for link in broken.values() if _kind(link) == _LOST}):
        if _chain(share) not in known:
            # Of all packets none is drawn: that each draw is below its bound nft refuses to ask.
            drawn = f"numgen random mod {SHARE_WHOLE} < {share} " if share < SHARE_WHOLE else ""
            counted = f"counter name ip saddr . ip daddr map @{_LOST}"
            lines.append(f"add chain ip {TABLE} {_chain(share)}")
            lines.append(f"add rule ip {TABLE} {_chain(share)} {drawn}{counted} drop")
    return lines


def elements(verb: str, of: str, each: Iterable[str]) -> list[str]:
    """Return the one command for all these elements of a map or a set; none for no elements."""
    listed = ", ".join(each)
    return [f"{verb} element ip {TABLE} {of} {{ {listed} }}"] if listed else []


def _kind(link: Link) -> str | None:
    """Return as what packets of a link are counted that do not arrive."""
    if link.cut is not None:
        return _CUT
    return _LOST if link.lose else None


def _verdict(link: Link) -> str:
    if link.cut is not None:
        return f"jump {_CUT}/{link.cut}"
    return f"jump {_chain(link.lose)}" if link.lose else "continue"


def _chain(share: int) -> str:
    return f"{_LOST}/{share}"


def names(table: Table) -> set[str]:
    """Return the names of counters and chains that a table takes, but for those of all tables."""
    counters = {_name(kind, pair) for pair, link in table.items() if (kind := _kind(link))}
    return counters | {_chain(link.lose) for link in table.values() if _kind(link) == _LOST}


def _led(table: Table) -> list[Pair]:
    return [pair for pair, link in table.items() if link.answers is not None]


def lead(plan: Plan, table: Table, relay_port: int) -> str:
    """Return what leads clients into the relay whose answers are swallowed, and no others.

    What they had before is reset, should any of it still come by (`link_kernel` has it ended). What
    a node begins with its client, and is not led, passes: it is known by its first packet.

    The chains are made for the first who is led, since NAT makes the kernel track connections. The
    one that leads stays: with the last of its kind, or the last rule that asks what is tracked, the
    kernel ends all translating, and what is in the relay would be reset.
    """
    led = _led(table)
    lines = [
        f"add chain ip {TABLE} lead {{ type nat hook prerouting priority -100; policy accept; }}",
        f"add chain ip {TABLE} led {{ type filter hook forward priority 1; policy accept; }}",
        *(f"flush chain ip {TABLE} {chain}" for chain in ("lead", "led")),
        f"add rule ip {TABLE} led tcp flags & (syn | ack) == syn ct mark set {NEW_MARK} accept",
        f"add rule ip {TABLE} led ct mark {NEW_MARK} accept",
    ]
    for pair in led:
        source, target = (plan.place(name).address for name in pair)
        to_relay = f"meta l4proto tcp dnat to {ROUTER_ADDRESS}:{relay_port}"
        lines.append(f"add rule ip {TABLE} lead ip saddr {target} ip daddr {source} {to_relay}")
        for one, other in ((source, target), (target, source)):
            lines.append(
                f"add rule ip {TABLE} led ip saddr {one} ip daddr {other} "
                "tcp flags & rst == 0 reject with tcp reset"
            )
    lines.append(f"add rule ip {TABLE} lead ct state new accept")
    if not led:
        lines.append(f"delete chain ip {TABLE} led")
    return "".join(f"{line}\n" for line in lines)


def _name(kind: str, pair: Pair) -> str:
    return f"{kind}/{pair[0]}/{pair[1]}"


def _pair(name: str) -> tuple[str, Pair]:
    kind, source, target = name.split("/")
    return kind, (source, target)


def addresses_of(plan: Plan, pair: Pair) -> str:
    """Return a link as an element of a map or a set."""
    return " . ".join(plan.place(name).address for name in pair)


def has_set(listed: Mapping[str, Any], name: str) -> bool:
    """Say whether `nft -j list table` names such a set."""
    return any("set" in each and each["set"]["name"] == name for each in listed["nftables"])


def is_of_this_code(listed: Mapping[str, Any]) -> bool:
    """Say whether `nft -j list table` names all chains that links are led to by this code."""
    return names_in(listed) >= {f"{_CUT}/{how}" for how in Cut}


def names_in(listed: Mapping[str, Any]) -> set[str]:
    """Return the names of counters and chains that `nft -j list table` lists."""
    found = (each.get("counter") or each.get("chain") for each in listed["nftables"])
    return {named["name"] for named in found if named}


def read_back(plan: Plan, listed: Mapping[str, Any]) -> InForce:
    """Read what `nft -j list table` says. ValueError, KeyError, TypeError: it isn't our table."""
    places = {place.address: place.name for place in plan.places}
    texts: dict[Pair, str] = {}
    counts: dict[Pair, dict[str, int]] = {}
    objects: Sequence[Mapping[str, Any]] = listed["nftables"]
    for each in objects:
        if "map" in each and each["map"]["name"] == "links":
            for key, _ in each["map"].get("elem", ()):
                source, target = key["elem"]["val"]["concat"]
                pair = places[source], places[target]
                texts[pair] = key["elem"]["comment"]
        elif "counter" in each:
            kind, pair = _pair(each["counter"]["name"])
            counts.setdefault(pair, {})[kind] = each["counter"]["packets"]
    order = {name: number for number, name in enumerate(places.values())}  # nft has none
    pairs = sorted(texts, key=lambda pair: (order[pair[0]], order[pair[1]]))
    table = {pair: link_table.from_text(texts[pair]) for pair in pairs}
    return InForce(table, {pair: Dropped(**values) for pair, values in counts.items()})
