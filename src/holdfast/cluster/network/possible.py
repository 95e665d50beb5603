"""Whether a network of its own can be had here, decided by having one: two places, a rule, packets.

There are many ways in which it is denied (no user namespaces, or ones without capabilities, no nft
in the kernel, mounts forbidden), and no setting tells of all of them. So none is read.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.cluster import plan
from holdfast.cluster.layout import (
    BROKER,
    NETWORK_VARIABLE,
    ClusterError,
    NodeRecord,
    UsageError,
)
from holdfast.cluster.network import addresses, entering, ground
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links.link_calls import Links

NAMESPACES, PROXIES = plan.NAMESPACES, plan.PROXIES
VARIABLE: Final = NETWORK_VARIABLE
WITH_PROXIES: Final = (
    "Links are broken by proxies between the nodes instead. They see TCP, not packets: a "
    "connection over a link that is cut is accepted and then silent, single packets can't be lost, "
    "and who dials is known by its source address, so that all clients are one, and so are nodes "
    "of Apache Kafka."
)
_TIMEOUT_S: Final = 20.0
# Nobody listens at the other place: its refusal is a packet that came there, and one that came
# back.
_TRY: Final = """
import errno, os, socket, sys
for _ in range(2):
    with socket.socket() as dialling:
        dialling.settimeout(10)
        print(errno.errorcode[dialling.connect_ex((sys.argv[1], 9))], flush=True)
    sys.stdin.readline()
"""


@dataclass(frozen=True, slots=True)
class Possibility:
    """How links can be broken here, and why not otherwise (empty: nothing is missing)."""

    how: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.reason} {WITH_PROXIES}" if self.reason else self.how


def look(environment: Mapping[str, str] = os.environ) -> Possibility:
    """Return how links can be broken here. UsageError: HOLDFAST_NETWORK has a value unknown.

    ClusterError: it asks for namespaces by name, and none can be had. Proxies stand in for them
    only where nothing is asked for.
    """
    wanted = environment.get(VARIABLE)
    if wanted == PROXIES:
        return Possibility(PROXIES, f"{VARIABLE}={PROXIES}.")
    if wanted not in {None, NAMESPACES}:
        raise UsageError(f"{VARIABLE}={wanted}: it can be {NAMESPACES} or {PROXIES}.")
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-network-") as folder:
            reason = _try(Path(folder))
    except ClusterError as error:
        reason = str(error)
    if not reason:
        return Possibility(NAMESPACES)
    if wanted == NAMESPACES:
        raise ClusterError(
            f"{VARIABLE}={NAMESPACES}: {reason} Without {VARIABLE} proxies would stand in for them."
        )
    return Possibility(PROXIES, reason)


def _try(folder: Path) -> str:
    """Make a network of two nodes, and cut them. Returns what did not work; nothing if all did."""
    nodes = [
        NodeRecord(id=number, roles=(BROKER,), host="", port=9, log_file="", config_file="")
        for number in (0, 1)
    ]
    planned = addresses.plan_network(nodes)
    with ground.make(folder, planned) as network:
        links = Links(folder)
        command = [*network.prefix("0"), *entering.python("-c", _TRY, planned.place("1").address)]
        return _try_packets(network, links, command)


def _try_packets(network: Network, links: Links, command: list[str]) -> str:
    with subprocess.Popen(  # noqa: S603 - a script of ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as trying:
        assert trying.stdin
        assert trying.stdout
        try:
            said = ground.read_line(trying.stdout.fileno(), _TIMEOUT_S).decode().strip()
            if said != "ECONNREFUSED":
                return f"No packet comes from one place to another here: {said}."
            links.cut("0", "1", reset=True)
            trying.stdin.write(b"\n")
            trying.stdin.flush()
            said = ground.read_line(trying.stdout.fileno(), _TIMEOUT_S).decode().strip()
            dropped = [each["dropped"]["cut"] for each in links.status()["links"]]
        finally:
            trying.kill()
    assert network.stands()
    if said != "ECONNREFUSED" or not sum(dropped):
        return f"A rule that cuts a link has no effect here: {said}."
    return ""
