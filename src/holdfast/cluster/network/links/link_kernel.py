"""Puts the table of links in force in the router's namespace that this process is in: by nft, and
for slowed links by a switch, which is started when the first one is slowed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network import addresses, ground, link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.entering import Holder
from holdfast.cluster.network.link_table import Link, Pair, Table
from holdfast.cluster.network.links import first_bytes, link_rules
from holdfast.cluster.network.links.first_bytes import FirstBytes
from holdfast.cluster.network.links.link_rules import Dropped, InForce
from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.pair_relays import Relays

_TIMEOUT_S: Final = 10.0
_ORIGINAL_TARGET: Final = 80  # SO_ORIGINAL_DST: where a connection wanted to go before it was led


class KernelLinks:
    """The links as the kernel has them. ClusterError has its words when it refuses."""

    def __init__(self, plan: Plan, tools: Mapping[str, str], holder: Holder, seed: str) -> None:
        self._plan, self._tools, self._seed = plan, tools, seed
        self._holder = holder
        self._known: set[str] = set()  # names of counters and chains that are there
        self._relays, self._relay_port = Relays(seed, 2 * relay.take_room()), 0
        self._table: Table = {}
        self._first_bytes = FirstBytes(plan)
        # Whether the table that we know is the kernel's: nft that failed, or was too slow to say,
        # may have changed it all the same.
        self._is_known = True
        self._switch: subprocess.Popen[bytes] | None = None
        self._found_no_room = 0

    async def serve(self) -> None:
        """Take in connections of clients that are led here."""
        server = await asyncio.start_server(
            self._take_in, addresses.ROUTER_ADDRESS, 0, limit=relay.CHUNK_BYTES
        )
        self._relay_port = server.sockets[0].getsockname()[1]
        if any(link.answers is not None for link in self._table.values()):
            # An agent before us led them, to a port that was its own.
            self._nft("-f", "-", text=link_rules.lead(self._plan, self._table, self._relay_port))

    async def _take_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near = relay.End(reader, writer)
        try:
            held = writer.get_extra_info("socket")
            packed = held.getsockopt(socket.SOL_IP, _ORIGINAL_TARGET, 16)
            peer = held.getpeername()[0]
        except OSError:  # it was led by nobody, or has gone
            near.reset()
            return
        port, packed_address = struct.unpack_from(">2xH4s", packed)
        address = socket.inet_ntoa(packed_address)
        names = {place.address: place.name for place in self._plan.places}
        client, node = names.get(peer), names.get(address)
        if client is None or node is None:  # one of the router's own
            near.reset()
            return
        if (client, node) in link_table.between(self._table):  # it was led before that began
            near.reset()
            return
        await self._relays.carry((client, node), near, address, port)

    def begin(self) -> Table:
        """Make what all links need unless it is there, and return the table that is in force."""
        listed = self._nft(*link_rules.LIST, check=False)
        if listed is None:
            self._nft("-f", "-", text=link_rules.BASE)
            return {}
        with _read_as_ours():
            is_of_this_code = link_rules.is_of_this_code(json.loads(listed))
        # Asked first: what other code has written of its links need not be what can be read here.
        if not is_of_this_code:
            raise ClusterError(
                "The kernel's links were made by another version of holdfast, whose rules this one "
                "can't go on with: `holdfast down`, `holdfast up` start all anew."
            )
        found = self._read_back(listed)
        if link_rules.has_set(json.loads(listed), first_bytes.WATCHED):
            self._nft("-f", "-", text=first_bytes.END)  # an agent before us waited
        self._table = found.table
        self._configure_switch(found.table)
        self._relays.change(found.table)
        return found.table

    def change(self, before: Table, after: Table, *, watch: bool = False) -> list[Pair]:
        """Make `after` of `before`, all of it or nothing. `watch`: wait for links that it heals.

        Return whose connections were reset: they are in the relay since before a heal, and it can't
        do to their packets what is to be done now.
        """
        _refuse_unseen(after)
        was_known, there = self._is_known, before if self._is_known else self._found().table
        text = link_rules.transaction(self._plan, there, after, self._known, self._relay_port)
        if not text and was_known:
            return []
        text += self._first_bytes.change(there, after, watch=watch)
        # The switch knows how slow a link is before the first packet comes to it, and longer than
        # any comes.
        self._configure_switch({**there, **_slowed(after)})
        self._is_known = False
        if text:
            self._nft("-f", "-", text=text)
        self._is_known = True
        self._first_bytes.changed(there, after, watch=watch)
        # Who was led to the relay just now waits there until this returns.
        self._relays.change(after)
        self._table = after
        self._known |= link_rules.names(after)
        # From here on it is so. A switch that has ended is started again by the next call.
        with suppress(ClusterError):
            self._configure_switch(after)
        swallowing: dict[str, list[str]] = {}
        for node, client in link_table.newly_swallowed(before, after):
            self._relays.end((client, node))
            swallowing.setdefault(node, []).append(client)
        self._end_connections(swallowing)
        return [pair for pair in dict.fromkeys(link_table.between(after)) if self._relays.end(pair)]

    def _end_connections(self, swallowing: Mapping[str, list[str]]) -> None:
        """End what these clients have with each node, which sends resets.

        Where the kernel can't do that, the rules reset it with the next packet. Of all nodes at
        once, and by nsenter, which starts sooner than a Python: the relay stands still meanwhile.
        That the holder is not another process by now needs no look, since we end with it.
        """
        ending = []
        for node, clients in swallowing.items():
            which = " or ".join(f"dst {self._plan.place(client).address}" for client in clients)
            place = self._plan.place(node).beside or node  # whose namespace has its address
            namespace = f"/proc/{self._holder.pid}/fd/{self._holder.descriptors[place]}"
            command = [self._tools["nsenter"], f"--net={namespace}", self._tools["ss"]]
            with suppress(OSError):
                ending.append(
                    subprocess.Popen(  # noqa: S603 - ss, in the node's place
                        [*command, "--kill", "--tcp", *which.split()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
        until_s = time.monotonic() + _TIMEOUT_S
        for each in ending:
            with suppress(subprocess.TimeoutExpired):
                each.wait(max(0.0, until_s - time.monotonic()))
            each.kill()
            each.wait()

    def first_bytes(self) -> list[dict[str, Any]]:
        """Return what was seen of each heal that was watched; end what no link needs any more."""
        if self._first_bytes.is_there:
            sets = (first_bytes.WATCHED, first_bytes.FIRST)
            watched, first = (self._nft("list", "set", "ip", link_rules.TABLE, s) for s in sets)
            if text := self._first_bytes.take(watched or "", first or ""):
                self._first_bytes.is_there = False  # nft that fails may have done it all the same
                self._nft("-f", "-", text=text)
            self._first_bytes.ended()
        return self._first_bytes.told()

    def look(self) -> InForce:
        """Return what the kernel has; a switch that died is started again."""
        if self._switch is not None:
            self._configure_switch(self._table)
        found = self._found()
        dropped = {**found.dropped}
        for pair, count in self._relays.kept_back().items():
            known = dropped.get(pair, Dropped())
            dropped[pair] = replace(known, cut=known.cut + count)
        return replace(
            found,
            dropped=dropped,
            swallowed=self._relays.swallowed(),
            found_no_room=self._found_no_room,
        )

    def _found(self) -> InForce:
        listed = self._nft(*link_rules.LIST)
        assert listed is not None
        return self._read_back(listed)

    def _read_back(self, listed: str) -> InForce:
        with _read_as_ours():
            found = link_rules.read_back(self._plan, json.loads(listed))
            self._known = link_rules.names_in(json.loads(listed))
        return found

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
            self.close()  # one that answers late would be one answer behind for good
            raise ClusterError(f"Links can't be slowed: the switch says {said.decode()!r}.")
        self._found_no_room = int(json.loads(said)["dropped"])

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


@contextmanager
def _read_as_ours() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"The kernel's links are not ours any more: {error!r}.") from None


def _refuse_unseen(table: Table) -> None:
    """ClusterError: it has what would be reported, and could not be in force."""
    unseen = link_table.swallowed_and_picked(table)
    if unseen:
        node, client = unseen[0]
        between = f" {client} {node}" if len(unseen) == 1 else ""
        raise ClusterError(
            f"To swallow answers of {node} to {client} takes a relay, which sees no packets: none "
            "of theirs can be lost or reordered at the same time. Make that link whole by "
            f"`holdfast heal{between}` first."
        )


def _slowed(table: Table) -> dict[Pair, Link]:
    """Return those links of a table that are slowed, with nothing but that."""
    return {pair: Link(slow=link.slow) for pair, link in table.items() if link.slow is not None}
