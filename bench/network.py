"""What a cluster's network costs: how soon a change of links is in force, and what links carry.

    python bench/network.py [--rounds 3] [--seconds 1.0] [--only times|rates]

Real sockets between places of real networks (docs/design/networks.md). Changes are timed for three
brokers, and for six and nine nodes, since the links of `all` grow with the square of them.
Throughput is that of TCP streams between two places each, in interleaved rounds: without any rules,
with rules for many other links, over slowed links, over a relay that swallows answers, and over
loopback beside all that. Whatever leaves something behind has a network of its own. The best round
stands first, because on a busy machine the others say how busy it was.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.cluster.layout import BROKER, CONTROLLER, NodeRecord
from holdfast.cluster.network import addresses, ground, link_table, possible
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links import link_rules
from holdfast.cluster.network.links.link_calls import Links

PORT = 9092
NODES = (3, 6, 9)  # three brokers, `up`'s three and three controllers, and six of the former
ZONES = ("a", "b", "c")
Streams = tuple[tuple[str, str], ...]  # from a place to another one, at once
CUT_S = 0.2  # how long packets are looked for behind a call that cuts
FIRST_S = 10.0  # and how long a first one is waited for
# Frames of the protocol, so that a relay that looks at them has what it looks for.
SINK = """
import socket, time
listener = socket.create_server(("0.0.0.0", 0))
print(listener.getsockname()[1], flush=True)
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


class Sink:
    """A process in a place that takes what streams carry, one after the other."""

    def __init__(self, network: Network | None, place: str) -> None:
        self.network, self.process = network, started(network, place, SINK)
        self.address = "127.0.0.1" if network is None else network.plan.place(place).address
        self.port = line(self.process).strip()

    def source(self, place: str, seconds: float) -> subprocess.Popen[str]:
        """Start what sends to it from a place for so long."""
        return started(self.network, place, SOURCE, self.address, self.port, str(seconds))

    def took(self) -> float:
        """Return bytes a second of the stream that has just ended."""
        return float(line(self.process))


def carried(sinks: dict[str, Sink], streams: Streams, seconds: float) -> float:
    """Return bytes a second that streams carried to the sinks of their places, together."""
    with ExitStack() as stack:
        sources = [
            stack.enter_context(sinks[target].source(source, seconds)) for source, target in streams
        ]
        for each in sources:
            each.wait()
    return sum(sinks[target].took() for _, target in streams)


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
    network: Network,
    links: Links,
    rounds: int,
    cut: Callable[[], list[tuple[str, str]]],
    *,
    watch: bool = False,
) -> tuple[int, dict[str, list[float]]]:
    """Return how many links were cut, and how soon: the last packet after the call's begin.

    The same of the first packet once they are healed, with `watch` or without. `cut`: the link from
    0 to 1 is among them.
    """
    found: dict[str, list[float]] = {
        "call to last packet": [],
        "call returns": [],
        "healed: call to first packet": [],
        "healed: call returns": [],
    }
    number = 0
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
                number = len(cut())
                took = time.monotonic() - begun
                cut_returns.append(took)
                cut_last.append(waited(catcher, begun, is_first=False))
                if took > CUT_S:
                    raise NoFigureError(f"to cut took {took:.1f} s: nobody looked for so long")
                begun = time.monotonic()
                ask(catcher, begun, FIRST_S, is_first=True)
                links.heal(watch=watch)
                heal_returns.append(time.monotonic() - begun)
                heal_first.append(waited(catcher, begun, is_first=True))
        finally:
            thrower.kill()
            catcher.kill()
    return number, found


def took_s(doing: Callable[[], object]) -> float:
    begun = time.monotonic()
    doing()
    return time.monotonic() - begun


def show(times: dict[str, list[float]]) -> None:
    for name, took in times.items():
        middle, most = 1000 * statistics.median(took), 1000 * max(took)
        print(f"  {name:42} {middle:8.1f} ms  (most {most:.1f}; first {1000 * took[0]:.1f})")


@contextmanager
def made(nodes: int) -> Iterator[Network]:
    """Make a network of so many nodes, of which three are controllers but where there are three."""
    brokers = max(3, nodes - 3)
    records = [
        NodeRecord(
            id=number if number < brokers else 100 + number - brokers,
            roles=(BROKER,) if number < brokers else (CONTROLLER,),
            host="",
            port=PORT,
            log_file="",
            config_file="",
        )
        for number in range(nodes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        plan = addresses.plan_network(records, ZONES)
        with ground.make(Path(folder), plan) as network:
            yield network


def nft(network: Network, *words: str, text: str = "") -> float:
    """Have nft do something in a router, and return the seconds of CPU that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*network.prefix(addresses.ROUTER), ground.find_tools()["nft"], *words]
    subprocess.run(command, input=text, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu_of_cuts(nodes: int, rounds: int) -> None:
    """Show nft's CPU for a cut of all links, which hardly depends on what else the machine does.

    Behind the agent's back, so in a network that nobody uses.
    """
    with made(nodes) as network:
        plan = network.plan
        cut = link_table.cut(plan, {}, "all", "all")
        first: list[float] = []
        again: list[float] = []
        for _ in range(rounds):
            entered = nft(network, "-f", "-")  # nothing: what entering and nft's start take
            nft(network, "delete", "table", "ip", link_rules.TABLE)
            nft(network, "-f", "-", text=link_rules.BASE)
            text = link_rules.transaction(plan, {}, cut)
            first.append(nft(network, "-f", "-", text=text) - entered)
            nft(network, "-f", "-", text=link_rules.transaction(plan, cut, {}))
            text = link_rules.transaction(plan, {}, cut, link_rules.names(cut))
            again.append(nft(network, "-f", "-", text=text) - entered)
        middle = [1000 * statistics.median(took) for took in (first, again)]
        print(f" nft's CPU to cut {len(cut)} links, but for its start:", end=" ")
        print(f"{middle[0]:.1f} ms the first time, {middle[1]:.1f} ms again")


def times(nodes: int, rounds: int) -> None:
    """Show what changes of a network's links take. NoFigureError."""
    with ExitStack() as stack:
        network = None

        def make() -> None:
            nonlocal network
            network = stack.enter_context(made(nodes))

        begin_s = took_s(make)
        assert network is not None
        links = Links(network.directory)
        print(f"{nodes} nodes, {len(network.plan.places)} places: made in {1000 * begin_s:.0f} ms")
        entered = [*network.prefix("0"), "true"]
        show(
            {
                "a place entered": [
                    took_s(lambda: subprocess.run(entered, check=True)) for _ in range(rounds)
                ]
            }
        )
        changes: Sequence[tuple[str, Callable[[], list[tuple[str, str]]]]] = [
            ("cut 0 1", lambda: links.cut("0", "1")),
            ("isolate a", lambda: links.isolate("a")),
            ("cut all all", lambda: links.cut("all", "all")),
        ]
        for what, change in changes:
            number, took = in_force(network, links, rounds, change)
            print(f" {what}: {number} links")
            show(took)
        # As the lab heals. Behind the others, since what is watched is waited for until it speaks.
        number, took = in_force(network, links, rounds, lambda: links.cut("all", "all"), watch=True)
        print(f" cut all all, heals watched: {number} links")
        show({name: each for name, each in took.items() if name.startswith("healed")})
        # Last, since what these start stays: the switch, and NAT.
        others: Sequence[tuple[str, Callable[[], list[tuple[str, str]]]]] = [
            ("lose all all 1%", lambda: links.lose("all", "all", "1%")),
            ("slow all all --latency 1ms", lambda: links.slow("all", "all", latency="1ms")),
            (
                "drop-responses clients brokers",
                lambda: links.drop_responses("clients", "brokers", "Produce"),
            ),
        ]
        for what, change in others:
            begun = time.monotonic()
            number = len(change())
            once = [time.monotonic() - begun]
            print(f" {what}: {number} links, the first time")
            show({"call returns": once})
            links.heal()
        end_s = took_s(stack.close)
        print(f" ended in {1000 * end_s:.0f} ms")


def bare(network: Network) -> None:
    """Take all rules out of a network, for good: nothing of ours is left, and no NAT was begun."""
    nft(network, "delete", "table", "ip", link_rules.TABLE)


def rates(rounds: int, seconds: float) -> None:
    """Show bytes a second of each way, a figure a round."""
    one: Streams = (("0", "1"),)
    two: Streams = (("0", "1"), ("client-a", "2"))
    with ExitStack() as stack:
        networks = {name: stack.enter_context(made(3)) for name in ("bare", "ruled", "relaying")}
        bare(networks["bare"])
        links = Links(networks["ruled"].directory)

        def slowed() -> None:
            for source, target in two:
                links.slow(source, target, latency="1ms", one_way=True)

        # In a network of its own: NAT stays there when it is healed, and costs every packet.
        Links(networks["relaying"].directory).drop_responses("0", "1", "Fetch")
        ways: Sequence[tuple[str, str, Streams, Callable[[], object]]] = [
            ("loopback, no network", "outside", one, links.heal),
            ("veth, no rules at all", "bare", one, links.heal),
            ("a whole link, others broken", "ruled", one, lambda: links.isolate("2")),
            ("a slowed link (1 ms)", "ruled", one, slowed),
            ("two slowed links, together", "ruled", two, slowed),
            ("a relay that swallows answers", "relaying", one, links.heal),
        ]
        found: dict[str, list[float]] = {way[0]: [] for way in ways}
        sinks = {"outside": {"1": Sink(None, "")}}
        for name, network in networks.items():
            sinks[name] = {place: Sink(network, place) for place in ("1", "2")}
        try:
            for _ in range(rounds):
                for way, name, streams, before in ways:
                    before()
                    found[way].append(carried(sinks[name], streams, seconds))
                    links.heal()
        finally:
            for sink in (each for of in sinks.values() for each in of.values()):
                sink.process.kill()
    for name, of in found.items():
        each_round = ", ".join(f"{rate / 1e6:.0f}" for rate in of)
        print(f"{name:36} {max(of) / 1e6:8.0f} MB/s  ({each_round})")


def main() -> int:
    parser = argparse.ArgumentParser(description="what a cluster's network costs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", choices=("times", "rates"), help="one half of it")
    options = parser.parse_args()
    if options.only != "rates":
        looked_s = took_s(lambda: possible.look({}))
        print(f"whether a network can be had: known after {1000 * looked_s:.0f} ms")
        try:
            for nodes in NODES:
                times(nodes, 5 * options.rounds)
                cpu_of_cuts(nodes, 5 * options.rounds)
        except NoFigureError as error:
            print(error, file=sys.stderr)
            return 1
    if options.only != "times":
        rates(options.rounds, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
