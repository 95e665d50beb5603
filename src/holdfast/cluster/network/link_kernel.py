"""Puts the table of links in force by nft, in the router's namespace that this process is in."""

from __future__ import annotations

import json
import subprocess
from typing import Final

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network import link_rules, link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.link_rules import InForce
from holdfast.cluster.network.link_table import Pair, Table

_TIMEOUT_S: Final = 10.0


class KernelLinks:
    """The links as the kernel has them. ClusterError has nft's words when it refuses."""

    def __init__(self, plan: Plan, nft: str) -> None:
        self._plan, self._nft = plan, nft
        self._known: set[Pair] = set()  # links that have a chain, broken or not

    def begin(self) -> Table:
        """Make what all links need unless it is there, and return the table that is in force."""
        listed = self._run(*link_rules.LIST, check=False)
        if listed is None:
            self._run("-f", "-", text=link_rules.BASE)
            return {}
        found = link_rules.read_back(json.loads(listed))
        self._known |= found.dropped.keys()
        return found.table

    def change(self, before: Table, after: Table) -> None:
        """Make `after` of `before`, all of it or nothing."""
        text = link_rules.transaction(self._plan, before, after, self._known)
        if text:
            self._run("-f", "-", text=text)
            self._known |= {*link_table.changed_pairs(before, after)}

    def look(self) -> InForce:
        listed = self._run(*link_rules.LIST)
        assert listed is not None
        return link_rules.read_back(json.loads(listed))

    def _run(self, *words: str, text: str = "", check: bool = True) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - nft, and what we wrote for it
                [self._nft, *words],
                input=text,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"The links can't be changed: nft: {error}.") from None
        if done.returncode == 0:
            return done.stdout
        if check:
            raise ClusterError(f"The links can't be changed: nft says {done.stderr.strip()}")
        return None
