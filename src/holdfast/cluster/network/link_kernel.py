"""Puts the table of links in force in the router's namespace that this process is in: by nft, and
for slowed links by a switch, which is started when the first one is slowed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network import ground, link_rules, link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.link_rules import InForce
from holdfast.cluster.network.link_table import Link, Pair, Table

_TIMEOUT_S: Final = 10.0


class KernelLinks:
    """The links as the kernel has them. ClusterError has its words when it refuses."""

    def __init__(self, plan: Plan, tools: Mapping[str, str], seed: str) -> None:
        self._plan, self._tools, self._seed = plan, tools, seed
        self._known: set[Pair] = set()  # links that have a chain, broken or not
        self._switch: subprocess.Popen[bytes] | None = None

    def begin(self) -> Table:
        """Make what all links need unless it is there, and return the table that is in force."""
        listed = self._nft(*link_rules.LIST, check=False)
        if listed is None:
            self._nft("-f", "-", text=link_rules.BASE)
            return {}
        found = link_rules.read_back(json.loads(listed))
        self._known |= found.dropped.keys()
        self._configure_switch(found.table)
        return found.table

    def change(self, before: Table, after: Table) -> None:
        """Make `after` of `before`, all of it or nothing."""
        text = link_rules.transaction(self._plan, before, after, self._known)
        if not text:
            return
        # The switch knows how slow a link is before the first packet comes to it, and longer than
        # any comes.
        self._configure_switch({**before, **_slowed(after)})
        self._nft("-f", "-", text=text)
        self._known |= {*link_table.changed_pairs(before, after)}
        self._configure_switch(after)

    def look(self) -> InForce:
        listed = self._nft(*link_rules.LIST)
        assert listed is not None
        return link_rules.read_back(json.loads(listed))

    def close(self) -> None:
        """End the switch, if there is one."""
        if self._switch is not None:
            self._switch.kill()
            self._switch.communicate()
            self._switch = None

    def _configure_switch(self, table: Table) -> None:
        slowed = _slowed(table)
        if self._switch is None or self._switch.poll() is not None:
            if not slowed:
                return
            self.close()
            self._switch = self._start_switch()
        texts = {
            " ".join(self._plan.place(name).address for name in pair): link_table.text_of(link)
            for pair, link in slowed.items()
        }
        assert self._switch.stdin
        assert self._switch.stdout
        with suppress(BrokenPipeError):  # what it said is read below
            self._switch.stdin.write(json.dumps({"links": texts}).encode() + b"\n")
            self._switch.stdin.flush()
        said = ground.read_line(self._switch.stdout.fileno(), _TIMEOUT_S)
        if not said.startswith(b"{"):
            raise ClusterError(f"Links can't be slowed: the switch says {said.decode()!r}.")

    def _start_switch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", f"{__package__}.switch"]
        switch = subprocess.Popen(  # noqa: S603 - ours
            [*command, self._tools["ip"], self._seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert switch.stdout
        said = ground.read_line(switch.stdout.fileno(), ground.MAKE_TIMEOUT_S)
        if said != b"ready\n":
            switch.kill()
            switch.communicate()
            raise ClusterError(f"Links can't be slowed here: {said.decode().strip()}.")
        return switch

    def _nft(self, *words: str, text: str = "", check: bool = True) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - nft, and what we wrote for it
                [self._tools["nft"], *words],
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


def _slowed(table: Table) -> dict[Pair, Link]:
    """Return those links of a table that are slowed, with nothing but that."""
    return {
        pair: Link(slow=link.slow) for pair, link in table.items() if link.slow is not None
    }
