"""What a cluster's network costs: how soon a cut is in force, and what links carry.

    python bench/network.py [--rounds 3] [--seconds 1.0]

Real sockets between places of a real network (docs/design/networks.md). Throughput is one TCP
stream between two places, in interleaved rounds: without any rules, with rules for many other
links, over a slowed link, over a relay that swallows answers, and over loopback beside all that.
The best round stands first, because on a busy machine the others say how busy it was.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.cluster.layout import BROKER, NodeRecord
from holdfast.cluster.network import addresses, ground
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links import link_rules
from holdfast.cluster.network.links.link_calls import Links

PORT = 9092
CUT_S = 0.2  # how long packets are looked for behind a call that cuts
FIRST_S = 10.0  # and how long a first one is waited for
# Frames of the protocol, so that a relay that looks at them has what it looks for.
SINK = """
import socket, sys, time
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    taken, _ = listener.accept()
    got, begun, buffer = 0, time.monotonic(), bytearray(1 << 20)
    while size := taken.recv_into(buffer): got += size
    print(got / (time.monotonic() - begun), flush=True)
"""
SOURCE = """
import socket, struct, sys, time
address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
body = bytes((1 << 20) - 12)
frame = struct.pack(">ihhi", 8 + len(body), 3, 1, 1) + body
with socket.create_connection((address, port)) as dialled:
    end = time.monotonic() + seconds
    while time.monotonic() < end: dialled.sendall(frame)
"""
# One throws a datagram every 50 microseconds or so. The other is told since when one counts, until
# when to wait, and whether the first that counts is enough; it says when that one came, and the
# last one of all; 0: none did.
THROWER = """
import socket, sys, time
thrown = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    thrown.sendto(b"x", (sys.argv[1], 9))
    time.sleep(0.00002)
"""
CATCHER = """
import select, socket, sys, time
caught = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
caught.bind(("0.0.0.0", 9))
print("ready", flush=True)
came = [0.0] * 2
for line in sys.stdin:
    since, until, is_first_enough = map(float, line.split())
    first = last = 0.0
    while time.monotonic() < until and not (first and is_first_enough):
        if select.select([caught], [], [], max(0, until - time.monotonic()))[0]:
            caught.recv(10)
            last = time.monotonic()
            first = first or (last if last >= since else 0.0)
    print(first, last, flush=True)
"""


def started(network: Network | None, place: str, script: str, *words: str) -> subprocess.Popen[str]:
    prefix = [] if network is None else network.prefix(place)
    pipe = subprocess.PIPE
    command = [*prefix, sys.executable, "-I", "-S", "-c", script, *words]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def carried(
    network: Network | None, sink: subprocess.Popen[str], address: str, seconds: float
) -> float:
    """Return bytes a second that one stream carried to a sink."""
    with started(network, "0", SOURCE, address, str(PORT), str(seconds)) as source:
        source.wait()
    return float(line(sink))


class NoFigureError(Exception):
    """What was to be timed has not happened while somebody looked."""


def ask(catcher: subprocess.Popen[str], since: float, wait_s: float, *, is_first: bool) -> None:
    assert catcher.stdin
    catcher.stdin.write(f"{since} {since + wait_s} {int(is_first)}\n")
    catcher.stdin.flush()


def waited(catcher: subprocess.Popen[str], since: float, *, is_first: bool) -> float:
    """Return how long after that moment the first packet came, or the last. NoFigureError."""
    first, last = map(float, line(catcher).split())
    if not (first if is_first else last):
        raise NoFigureError("no packet came in time: there is no figure on a machine so busy")
    return max(0.0, (first if is_first else last) - since)


def in_force(
    network: Network, links: Links, rounds: int, ends: tuple[str, str], what: str
) -> dict[str, list[float]]:
    """Return how long after a call's begin the last packet came, or the first one again.

    `ends`: of what is cut, the link that is looked at among it.
    """
    found: dict[str, list[float]] = {
        f"cut {what}: call to last packet": [],
        f"cut {what}: call returns": [],
        f"heal {what}: call to first packet": [],
        f"heal {what}: call returns": [],
    }
    cut_last, cut_returns, heal_first, heal_returns = found.values()
    address = network.plan.place("1").address
    with (
        started(network, "1", CATCHER) as catcher,
        started(network, "0", THROWER, address) as thrower,
    ):
        try:
            line(catcher)
            begun = time.monotonic()
            ask(catcher, begun, FIRST_S, is_first=True)
            waited(catcher, begun, is_first=True)  # before that a cut would have nothing to drop
            for _ in range(rounds):
                begun = time.monotonic()
                ask(catcher, begun, CUT_S, is_first=False)
                links.cut(*ends)
                took = time.monotonic() - begun
                cut_returns.append(took)
                cut_last.append(waited(catcher, begun, is_first=False))
                if took > CUT_S:
                    raise NoFigureError(f"to cut took {took:.1f} s: nobody looked for so long")
                begun = time.monotonic()
                ask(catcher, begun, FIRST_S, is_first=True)
                links.heal(*ends)
                heal_returns.append(time.monotonic() - begun)
                heal_first.append(waited(catcher, begun, is_first=True))
        finally:
            thrower.kill()
            catcher.kill()
    return found


def nft(network: Network, *words: str, text: str = "") -> None:
    command = [*network.prefix(addresses.ROUTER), ground.find_tools()["nft"], *words]
    subprocess.run(command, input=text, text=True, check=True)


def throughput(
    network: Network, links: Links, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return bytes a second of each way, a figure a round."""
    address = network.plan.place("1").address

    def no_rules() -> None:
        for chain in ("pass", "detour"):
            nft(network, "delete", "chain", "ip", link_rules.TABLE, chain)

    def rules_again() -> None:
        nft(network, "-f", "-", text=link_rules.BASE)

    def slowed() -> None:
        links.slow("0", "1", latency="1ms", one_way=True)

    def relayed() -> None:
        links.drop_responses("0", "1", "Fetch")

    ways: Sequence[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("veth, no rules at all", no_rules, rules_again),
        ("a whole link, others broken", lambda: links.isolate("2"), links.heal),
        ("a slowed link (1 ms)", slowed, links.heal),
        ("a relay that swallows answers", relayed, links.heal),
    ]
    found: dict[str, list[float]] = {"loopback, no network": [], **{way[0]: [] for way in ways}}
    with started(network, "1", SINK, str(PORT)) as sink, started(None, "", SINK, str(PORT)) as own:
        line(sink)
        line(own)
        for _ in range(rounds):
            found["loopback, no network"].append(carried(None, own, "127.0.0.1", seconds))
            for name, before, after in ways:
                before()
                found[name].append(carried(network, sink, address, seconds))
                after()
        sink.kill()
        own.kill()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="what a cluster's network costs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    nodes = [
        NodeRecord(id=number, roles=(BROKER,), host="", port=PORT, log_file="", config_file="")
        for number in range(3)
    ]
    plan = addresses.plan_network(nodes, ("a", "b", "c"))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        with ground.make(Path(folder), plan) as network:
            print(f"{len(plan.places)} places: made in {1000 * (time.monotonic() - begun):.0f} ms")
            links = Links(network.directory)
            times: dict[str, list[float]] = {}
            try:
                for ends, what in ((("0", "1"), "one link"), (("all", "all"), "all")):
                    times |= in_force(network, links, 5 * options.rounds, ends, what)
            except NoFigureError as error:
                print(error, file=sys.stderr)
                return 1
            for name, took in times.items():
                middle, most = 1000 * statistics.median(took), 1000 * max(took)
                print(f"{name:36} {middle:8.1f} ms  (most {most:.1f})")
            for name, rates in throughput(network, links, options.rounds, options.seconds).items():
                each = ", ".join(f"{rate / 1e6:.0f}" for rate in rates)
                print(f"{name:36} {max(rates) / 1e6:8.0f} MB/s  ({each})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
