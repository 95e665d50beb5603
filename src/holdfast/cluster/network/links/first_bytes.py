"""How long links that were healed carried no byte: the rules that notice it, and what they tell.

A connection over a link that heals is silent until its sender tries again, so the heal is one
moment and the first byte another. The kernel stamps both: a link that is watched is an element of
one set since its heal, and its first TCP segment with data makes it one of another set; each says
when it expires. Links that are whole cost nothing more for that once each watched one has spoken:
the rules are there only as long as one is waited for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.network import link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.link_table import Pair, Table
from holdfast.cluster.network.links import link_rules
from holdfast.cluster.network.links.link_rules import SWITCH_DEVICE, TABLE

WATCHED: Final = "watched"  # links by address, since they were healed
FIRST: Final = "first"  # links by address, since their first data
_WATCH, _DATA = "watch", "data"
WATCH_S: Final = 300.0  # longer than TCP waits between two tries, which is 120 s
KEPT_MAX: Final = 5_000
_KEY: Final = "type ipv4_addr . ipv4_addr"
# A TCP segment has data if its packet is longer than both headers; TCP's is told in words of four.
_HEADER_WORDS: Final = range(5, 16)
# Behind the chain in which links are cut, so that only what passes is seen; a packet of a slowed
# link when it comes back from the switch.
_BEGIN: Final = "\n".join(
    (
        f"add set ip {TABLE} {WATCHED} {{ {_KEY}; flags timeout; }}",
        f"add set ip {TABLE} {FIRST} {{ {_KEY}; flags dynamic,timeout; timeout 1d; }}",
        f"add chain ip {TABLE} {_DATA}",
        f"add chain ip {TABLE} {_WATCH} {{ type filter hook forward priority 2; policy accept; }}",
        f"flush chain ip {TABLE} {_DATA}",
        f"flush chain ip {TABLE} {_WATCH}",
        f'add rule ip {TABLE} {_WATCH} oifname "{SWITCH_DEVICE}" accept',
        f"add rule ip {TABLE} {_WATCH} ip saddr . ip daddr @{WATCHED} jump {_DATA}",
        *(
            f"add rule ip {TABLE} {_DATA} tcp doff {words} ip length > {20 + 4 * words} "
            f"add @{FIRST} {{ ip saddr . ip daddr }}"
            for words in _HEADER_WORDS
        ),
        "",
    )
)
END: Final = "\n".join(
    (
        f"flush chain ip {TABLE} {_WATCH}",
        f"flush chain ip {TABLE} {_DATA}",
        f"delete chain ip {TABLE} {_WATCH}",
        f"delete chain ip {TABLE} {_DATA}",
        f"delete set ip {TABLE} {WATCHED}",
        f"delete set ip {TABLE} {FIRST}",
        "",
    )
)
_ELEMENT: Final = re.compile(r"([\d.]+) \. ([\d.]+)(?: timeout \w+)? expires (\w+)")
_TIME: Final = re.compile(r"(\d+)(ms|d|h|m|s)")
_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@dataclass(slots=True)
class Healed:
    """One heal of one link, and what became of it."""

    pair: Pair
    since_s: float
    after_ms: int | None = None  # of the heal, the first byte passed
    cut_again: bool = False  # before that

    def as_json(self) -> dict[str, Any]:
        after_s = None if self.after_ms is None else self.after_ms / 1000
        source, target = self.pair
        return {"from": source, "to": target, "after_s": after_s, "cut_again": self.cut_again}


class FirstBytes:
    """Links that are waited for, and what was seen of all that ever were."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._places = {place.address: place.name for place in plan.places}
        self._waiting: dict[Pair, Healed] = {}
        self._told: list[Healed] = []
        self.is_there = False  # whether the rules are in the kernel for certain

    def change(self, before: Table, after: Table, *, watch: bool) -> str:
        """Return what the transaction of a change of links has to say further.

        `watch`: from now on links that it heals are waited for, those of nodes. `changed` is to be
        called once it is in force.
        """
        healed = self._healed(before, after) if watch else []
        text = self._elements(self._cut_again(after), healed)
        return text if self.is_there or not text else _BEGIN + text

    def changed(self, before: Table, after: Table, *, watch: bool) -> None:
        """Take in that a change is in force."""
        healed = self._healed(before, after) if watch else []
        gone = self._cut_again(after)
        for pair in gone:
            ended = self._waiting.pop(pair)
            ended.cut_again = ended.after_ms is None
        for pair in healed:
            self._waiting[pair] = Healed(pair, time.monotonic())
            self._told.append(self._waiting[pair])
        self.is_there |= bool(healed or gone)

    def _healed(self, before: Table, after: Table) -> list[Pair]:
        cut = {pair for pair, link in after.items() if link.cut is not None}
        found = [
            pair
            for pair, link in before.items()
            if link.cut is not None and pair not in cut and self._has_node(pair)
        ]
        return found[: max(0, KEPT_MAX - len(self._told))]

    def _has_node(self, pair: Pair) -> bool:
        """Say whether one of the two is a node: clients say nothing to each other."""
        return any(self._plan.place(name).kind in link_table.ANSWERING for name in pair)

    def _cut_again(self, after: Table) -> list[Pair]:
        return [p for p in self._waiting if after.get(p, link_table.WHOLE).cut is not None]

    def take(self, watched: str, first: str) -> str:
        """Take in what nft lists of both sets; return what removes those that have spoken.

        Also those that nobody waits for any longer. `ended` is to be called once that is in force.
        """
        begun, spoken = self._read(watched), self._read(first)
        for pair, healed in self._waiting.items():
            if pair in begun and pair in spoken:
                healed.after_ms = max(0, spoken[pair] - begun[pair])
        gone = self._over()
        if len(gone) == len(self._waiting):
            return END
        return self._elements(gone, ())

    def ended(self) -> None:
        """Take in that what `take` said is in force."""
        for pair in self._over():
            del self._waiting[pair]
        self.is_there = bool(self._waiting)

    def _over(self) -> list[Pair]:
        """Return the links that have spoken, or that nobody waits for any longer."""
        oldest_s = time.monotonic() - WATCH_S
        return [
            pair
            for pair, healed in self._waiting.items()
            if healed.after_ms is not None or healed.since_s < oldest_s
        ]

    def told(self) -> list[dict[str, Any]]:
        """Return each heal that was watched, in order of time, as plain values."""
        return [healed.as_json() for healed in self._told]

    def _elements(self, gone: Iterable[Pair], healed: Iterable[Pair]) -> str:
        """Return what takes links out of the sets, and puts others in, with the time of now.

        To delete what may not be there, it is added first.
        """
        begun = [link_rules.addresses_of(self._plan, pair) for pair in healed]
        keys = [*(link_rules.addresses_of(self._plan, pair) for pair in gone), *begun]
        lines = [
            *(
                line
                for of in (WATCHED, FIRST)
                for verb in ("add", "delete")
                for line in link_rules.elements(verb, of, keys)
            ),
            *link_rules.elements("add", WATCHED, [f"{key} timeout 1d" for key in begun]),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _read(self, listed: str) -> dict[Pair, int]:
        """Return when each link came into a set, in ms. Both sets' elements last as long."""
        return {
            (self._places[source], self._places[target]): sum(
                int(number) * _UNITS_MS[unit] for number, unit in _TIME.findall(expires)
            )
            for source, target, expires in _ELEMENT.findall(listed)
            if source in self._places and target in self._places
        }
