"""A change of links as one transaction for `nft -f`, and what nft lists read back. Pure.

One map leads from source and destination to a chain per link, so that a link costs the same however
many are broken, and a whole one next to nothing. A chain's first rule says in a comment what is
wrong with its link, so that the kernel's own table can be read back; what a chain drops is counted
by name, and these counts outlive the chain's changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
_CUT, _LOST = "cut", "lost"

# Judged where packets leave the router, so that a cut holds for those that the switch still has.
BASE: Final = f"""\
add table ip {TABLE}
add map ip {TABLE} links {{ type ipv4_addr . ipv4_addr : verdict; }}
add set ip {TABLE} slowed {{ type ipv4_addr . ipv4_addr; }}
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
    plan: Plan, before: Table, after: Table, known: Collection[Pair] = (), relay_port: int = 0
) -> str:
    """Return what makes `after` of `before`; nothing where they are the same.

    `known`: links that have a chain. To add one again would be right, and take 15 ms.
    `relay_port`: of the router, to which clients are led whose answers are swallowed.
    """
    lines: list[str] = []
    for pair in link_table.changed_pairs(before, after):
        was, becomes = before.get(pair, link_table.WHOLE), after.get(pair, link_table.WHOLE)
        if pair not in known:
            lines += [f"add counter ip {TABLE} {_name(kind, pair)}" for kind in (_CUT, _LOST)]
            lines.append(f"add chain ip {TABLE} {_name('link', pair)}")
        lines += _change(pair, _addresses(plan, pair), was, becomes)
    text = "".join(f"{line}\n" for line in lines)
    return text if _led(after) == _led(before) else text + lead(plan, after, relay_port)


def _change(pair: Pair, key: str, was: Link, becomes: Link) -> list[str]:
    chain = _name("link", pair)
    lines = [] if was.is_whole else [f"flush chain ip {TABLE} {chain}"]
    lines += [f"add rule ip {TABLE} {chain} {rule}" for rule in _rules(pair, becomes)]
    if was.is_whole != becomes.is_whole:
        verb, leads = ("delete", "") if becomes.is_whole else ("add", f" : jump {chain}")
        lines.append(f"{verb} element ip {TABLE} links {{ {key}{leads} }}")
    if (was.slow is None) != (becomes.slow is None):
        verb = "delete" if becomes.slow is None else "add"
        lines.append(f"{verb} element ip {TABLE} slowed {{ {key} }}")
    return lines


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


def _rules(pair: Pair, link: Link) -> list[str]:
    if link.is_whole:
        return []
    rules = [f'continue comment "{link_table.text_of(link)}"']
    counted = f"counter name {_name(_CUT, pair)}"
    if link.cut is Cut.RESET:
        rules.append(f"meta l4proto tcp {counted} reject with tcp reset")
    if link.cut is not None:
        rules.append(f"{counted} drop")
    elif link.lose:
        # Of all packets none is drawn: that each draw is below its bound nft refuses to ask.
        drawn = f"numgen random mod {SHARE_WHOLE} < {link.lose} " if link.lose < SHARE_WHOLE else ""
        rules.append(f"{drawn}counter name {_name(_LOST, pair)} drop")
    return rules


def _name(kind: str, pair: Pair) -> str:
    return f"{kind}/{pair[0]}/{pair[1]}"


def _pair(name: str) -> tuple[str, Pair]:
    kind, source, target = name.split("/")
    return kind, (source, target)


def _addresses(plan: Plan, pair: Pair) -> str:
    return " . ".join(plan.place(name).address for name in pair)


def has_set(listed: Mapping[str, Any], name: str) -> bool:
    """Say whether `nft -j list table` names such a set."""
    return any("set" in each and each["set"]["name"] == name for each in listed["nftables"])


def read_back(listed: Mapping[str, Any]) -> InForce:
    """Read what `nft -j list table` says. ValueError, KeyError: it isn't our table."""
    table: dict[Pair, Link] = {}
    counts: dict[Pair, dict[str, int]] = {}
    objects: Sequence[Mapping[str, Any]] = listed["nftables"]
    for each in objects:
        if "rule" in each and "comment" in each["rule"]:
            _, pair = _pair(each["rule"]["chain"])
            table[pair] = link_table.from_text(each["rule"]["comment"])
        elif "counter" in each:
            kind, pair = _pair(each["counter"]["name"])
            counts.setdefault(pair, {})[kind] = each["counter"]["packets"]
    return InForce(table, {pair: Dropped(**values) for pair, values in counts.items()})
