"""`make fuzz`: a node is sent whatever there is, while another client is served by it.

Each case is one connection with a few frames: a request of any API and version, with absurd or
plausible content, whole, cut, changed in places or with lengths of gigabytes; or no request at all.
After each round what they created is deleted, and three things must hold: the processes live, their
memory is what it was, and the neighbour, who produces and reads its own topic all the while, had
its answers. A case that had an outcome of a new kind goes into the corpus, which each later run
sends first.

    python scripts/fuzz.py [--minutes 60] [--seed N] [--corpus FILE] [--results FILE]
"""

from __future__ import annotations

import argparse
import json
import secrets
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from fuzz_cases import KNOWN, NEIGHBOUR, Case, Known, drawn
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import State
from holdfast.lab.background import NODE, Results, ResultsError
from holdfast.node.door.api_table import BROKER, CONTROLLER, Api
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.uuids import parse_uuid

ROOT: Final = Path(__file__).resolve().parent.parent
CORPUS: Final = ROOT / "tests" / "node" / "fuzz_corpus.jsonl"
RESULTS: Final = ROOT / "docs" / "design" / "fuzz" / "hours.jsonl"
WARM_UP_S: Final = 20.0
ROUND_S: Final = 20.0
ANSWER_S: Final = 0.3  # a case that waits longer is left: many of them ask to wait for ever
PATIENCE_S: Final = 30.0  # of the neighbour; a busy broker is slow, one that stands still is broken
AT_ONCE: Final = 8  # connections: who is silent on one keeps no other case waiting
GROWTH_BYTES_MAX: Final = 20_000_000
PEAK_BYTES_MAX: Final = 400_000_000  # above rest: what one request may take, and a bit more
CASE_BYTES_MAX: Final = 400  # in the corpus
# What a member of the quorum may rightly say: believed, it ends the service that is watched here.
SPOKEN_BY_MEMBERS: Final = (52, 53, 54, 56, 62, 63, 64, 67, 73, 80, 81, 82)
APART: Final = 2  # the number of the controller of another cluster
URL_SAFE: Final = str.maketrans("+/", "-_")  # the client shows ids in the other alphabet
API_VERSIONS: Final = encode_request(ApiVersionsRequest(), 0, 1, "fuzz")


class FuzzError(Exception):
    """A node did what no client may bring it to do."""


class Flight:
    """A case under way: its connection, and what has come back."""

    def __init__(self, node: Node, case: Case) -> None:
        """ConnectionRefusedError: nobody listens."""
        self.node = node
        self.case = case
        self.deadline = time.monotonic() + ANSWER_S
        self.outcome = ""  # not known yet
        self._got = b""
        self.link = socket.create_connection((node.record.host, node.record.port), timeout=5)
        self.link.setblocking(False)
        self.unsent = memoryview(case.data)
        self.look()

    def look(self) -> None:
        """Send what is taken, take in what is there, and say what has come of it if it is known."""
        try:
            if self.unsent:
                self.unsent = self.unsent[self.link.send(self.unsent) :]
            data = self.link.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            self.outcome = "reset"
            return
        self._got += data
        if not data:
            self.outcome = "closed"
        elif len(self._got) >= 4 and len(self._got) >= 4 + int.from_bytes(self._got[:4]):
            self.outcome = "answered"

    def end(self) -> str:
        self.link.close()
        return self.outcome or ("part of an answer" if self._got else "silence")


class Node:
    """A process that is sent cases, and what is known of it."""

    def __init__(self, cluster: LocalCluster, node_id: int, apis: dict[int, Api]) -> None:
        self.cluster = cluster
        self.record = cluster.node(node_id)
        self.apis = apis
        self.resting_bytes = 0

    def rest(self) -> None:
        """Begin to measure here: what it holds, and the most that it has held since."""
        self.resting_bytes = self.memory("VmRSS")
        Path(f"/proc/{self.record.pid}/clear_refs").write_text("5")

    def check_alive(self, last: list[Case]) -> None:
        if self.cluster.state(self.record.id) is not State.RUNNING:
            log = Path(self.record.log_file).read_text(errors="replace")[-3000:]
            cases = "\n".join(f"{case.kind} {case.data.hex()[:4000]}" for case in last)
            raise FuzzError(f"node {self.record.id} is dead.\n{log}\nIts last cases:\n{cases}")

    def memory(self, kind: str) -> int:
        """Return bytes: VmRSS what it holds now, VmHWM the most since it came to rest."""
        for line in Path(f"/proc/{self.record.pid}/status").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1]) * 1024
        raise FuzzError(f"node {self.record.id} has no memory")

    def check_serves(self) -> None:
        """FuzzError: it lives and answers nobody. A connection alone is the kernel's doing."""
        with socket.create_connection((self.record.host, self.record.port), PATIENCE_S) as link:
            link.sendall(API_VERSIONS)
            try:
                answer = link.recv(4, socket.MSG_WAITALL)
            except OSError as error:
                raise FuzzError(f"node {self.record.id} answers nobody: {error!r}") from error
            if len(answer) < 4:
                raise FuzzError(f"node {self.record.id} closes every connection")


class Neighbour(threading.Thread):
    """Produces to its own topic and reads it back, one message at a time, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True, name=secrets.token_hex(8))
        self.bootstrap = bootstrap
        self.stopped = threading.Event()
        self.worst_ms = 0.0
        self.served = 0
        self.failure = ""

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread tells it
            self.failure = repr(error)

    def stop(self) -> None:
        """Let it end what it is at."""
        self.stopped.set()
        self.join(PATIENCE_S)

    def wait_served(self, count: int) -> None:
        """Wait until it has had so many answers, or has given up."""
        deadline = time.monotonic() + PATIENCE_S
        while self.served < count and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.served < count:
            raise FuzzError(f"the neighbour is not served: {self.failure or 'it still waits'}")

    def _serve(self) -> None:
        told: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "acks": "all"})
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none"})

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            told.append(error)
            if error is None and not self.served:
                consumer.assign([TopicPartition(NEIGHBOUR, 0, message.offset())])

        while not self.stopped.is_set():
            told.clear()
            value = f"{self.name} {self.served}".encode()
            begun = time.monotonic()
            producer.produce(NEIGHBOUR, value, partition=0, on_delivery=on_delivery)
            if producer.flush(PATIENCE_S) or told != [None]:
                raise FuzzError(f"message {self.served} was not acknowledged: {told}")
            self._read(consumer, value, begun + PATIENCE_S)
            self.worst_ms = max(self.worst_ms, (time.monotonic() - begun) * 1000)
            self.served += 1
            self.stopped.wait(0.02)
        consumer.close()

    def _read(self, consumer: Consumer, value: bytes, until: float) -> None:
        heard = ""
        while time.monotonic() < until:
            found = consumer.poll(0.5)
            if found is None:
                continue
            if found.error() is not None:
                heard = f": {found.error()}"
                continue
            if not (found.value() or b"").startswith(self.name.encode()):
                continue  # whoever names this topic may write to it
            if found.value() != value:
                raise FuzzError(f"read {found.value()!r} where {value!r} was written")
            return
        raise FuzzError(f"{value!r} was acknowledged and can't be read{heard}")


class Run:
    """One run: two clusters, their cases, and what came of them."""

    def __init__(self, directory: Path, seed: int, corpus: Path, *, apart: bool = True) -> None:
        """Without `apart` there is one cluster, the neighbour's."""
        self.random = Random(seed)  # noqa: S311 - a seed replays it
        self.corpus = corpus
        self.known: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.last: list[Case] = []
        self.topic_id = bytes(16)
        self.answered: set[tuple[int, int]] = set()  # node and API
        config = {"log.retention.check.interval.ms": "1000", "file.delete.delay.ms": "1000"}
        # What ends a controller's service by right must not end the neighbour's: two clusters.
        self.clusters = [
            LocalCluster.create(directory / name, brokers=1, controllers=1, port=0, config=config)
            for name in ("served", "apart")[: 1 + apart]
        ]

    def start(self) -> None:
        served = self.clusters[0]
        for cluster in self.clusters:
            cluster.start()
        admin = AdminClient({"bootstrap.servers": served.bootstrap_servers})
        # Anybody may write to it. What nobody can read would end its reader, and rightly so.
        validated = {"record.validation": "deep"}
        for future in admin.create_topics([NewTopic(NEIGHBOUR, 1, 1, config=validated)]).values():
            future.result(PATIENCE_S)
        self._make_known_topic(admin)
        quiet = {key: api for key, api in CONTROLLER.items() if key not in SPOKEN_BY_MEMBERS}
        self.nodes = [
            Node(served, served.broker_ids[0], BROKER),
            Node(served, served.controller_ids[0], quiet),
            *(Node(apart, apart.controller_ids[0], CONTROLLER) for apart in self.clusters[1:]),
        ]
        self.neighbour = Neighbour(served.bootstrap_servers)
        self.neighbour.start()

    def cases(self) -> Iterator[tuple[Node, Case]]:
        """What is in the corpus, then new ones without end."""
        for node, case, _ in self.kept():
            yield node, case
        while True:
            node = self.random.choice(self.nodes)
            apart = node is self.nodes[APART]
            yield node, drawn(self.random, node.apis, self._known(apart=apart), careful=not apart)

    def kept(self) -> Iterator[tuple[Node, Case, bool]]:
        """What is in the corpus, as it was sent then, and whether to the controller apart.

        Where there is none, the neighbour's own stands for it.
        """
        if not self.corpus.exists():
            return
        for line in self.corpus.read_text().splitlines():
            row = json.loads(line)
            self.known.add(row["what"])
            case = Case(row["kind"], row["key"], row["version"], bytes.fromhex(row["data"]))
            number = row["node"]
            yield self.nodes[min(number, len(self.nodes) - 1)], case, number == APART

    def _known(self, *, apart: bool) -> Known:
        cluster = self.clusters[apart]
        identity = cluster.record.cluster_id if apart else ""
        return Known(identity, (*cluster.broker_ids, *cluster.controller_ids), self.topic_id)

    def go_on(self, cases: Iterator[tuple[Node, Case]], until: float) -> None:
        """Send cases, many at a time, until this moment or until there are no more."""
        flights: list[Flight] = []
        for node, case in cases:
            self.last = [*self.last[-AT_ONCE:], case]
            try:
                flights.append(Flight(node, case))
            except ConnectionRefusedError:
                node.check_alive(self.last)
                raise
            while len(flights) >= AT_ONCE:
                flights = self._landed(flights)
            if time.monotonic() >= until:
                break
        while flights:
            flights = self._landed(flights)

    def _landed(self, flights: list[Flight]) -> list[Flight]:
        """Wait until something has come of one of them, and return the others."""
        open_until = min(each.deadline for each in flights)
        links = [each.link for each in flights if not each.outcome]
        if len(links) == len(flights):
            unsent = [each.link for each in flights if each.unsent]
            select.select(links, unsent, [], max(0.0, open_until - time.monotonic()))
        left = []
        for each in flights:
            if not each.outcome:
                each.look()
            if each.outcome or time.monotonic() >= each.deadline:
                self._count(each.node, each.case, each.end())
            else:
                left.append(each)
        return left

    def _count(self, node: Node, case: Case, outcome: str) -> None:
        number = self.nodes.index(node)
        what = f"{number} {case.key}: {outcome}"
        self.counts[outcome] += 1
        if outcome == "answered":
            self.answered.add((number, case.key))
        if what not in self.known and len(case.data) <= CASE_BYTES_MAX:
            self.known.add(what)
            self._keep(number, what, case)

    def _keep(self, node: int, what: str, case: Case) -> None:
        row = {"what": what, "node": node, "kind": case.kind, "key": case.key}
        row |= {"version": case.version, "data": case.data.hex()}
        self.corpus.parent.mkdir(parents=True, exist_ok=True)
        with self.corpus.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def tidy_up(self) -> None:
        """Delete every topic but the neighbour's: what was created rightly is no growth.

        Make one anew, whose id is told to those who spoil requests: broker and controller work.
        """
        admin = AdminClient({"bootstrap.servers": self.clusters[0].bootstrap_servers})
        names = set(admin.list_topics(timeout=PATIENCE_S).topics) - {NEIGHBOUR}
        if names:
            for future in admin.delete_topics(sorted(names)).values():
                with suppress(Exception):  # it went by itself
                    future.result(PATIENCE_S)
        time.sleep(2.5)  # their files go a second later
        self._make_known_topic(admin)

    def _make_known_topic(self, admin: AdminClient) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for future in admin.create_topics([NewTopic(KNOWN, 2, 1)]).values():
            try:
                future.result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise FuzzError(f"no topic can be made: {error}") from error
                self.tidy_up()  # a hostile client was sooner
                return
        while True:
            (found,) = admin.describe_topics(TopicCollection([KNOWN])).values()
            try:
                identity = str(found.result(PATIENCE_S).topic_id)
            except KafkaException as error:  # the broker has not heard of it yet
                if time.monotonic() > deadline:
                    raise FuzzError(f"a new topic is not shown: {error}") from error
                time.sleep(0.1)
            else:
                break
        self.topic_id = parse_uuid(identity.translate(URL_SAFE))

    def check(self) -> None:
        """FuzzError: a promise is broken."""
        for node in self.nodes:
            node.check_alive(self.last)
            node.check_serves()
        # The first may have been sent before the last case; the second one was sent behind it.
        self.neighbour.wait_served(self.neighbour.served + 2)

    def grown(self, kind: str) -> list[int]:
        """Return by how many bytes each node has grown since it was at rest; see `memory`."""
        return [node.memory(kind) - node.resting_bytes for node in self.nodes]

    @property
    def unanswered(self) -> list[str]:
        """APIs that nothing has got an answer from yet: behind the decoder they were not tried."""
        every = {(at, key) for at, node in enumerate(self.nodes) for key in node.apis}
        return [f"{at}/{key}" for at, key in sorted(every - self.answered)]

    def stop(self) -> None:
        if hasattr(self, "neighbour"):
            self.neighbour.stop()
        for cluster in self.clusters:
            cluster.down()


def fuzz(run: Run, minutes: float, results: Results) -> None:
    """Run for so long, with a row at the end. FuzzError: what broke."""
    run.start()
    cases = run.cases()
    run.go_on(cases, time.monotonic() + WARM_UP_S)
    run.tidy_up()
    for node in run.nodes:
        node.rest()
    run.neighbour.worst_ms = 0.0
    begun = time.monotonic()
    growth, peak = [0], [0]
    while time.monotonic() < begun + minutes * 60:
        run.go_on(cases, time.monotonic() + ROUND_S)
        run.tidy_up()
        run.check()
        growth, peak = run.grown("VmRSS"), run.grown("VmHWM")
        print(
            f"{(time.monotonic() - begun) / 60:.1f} of {minutes:g} minutes:"
            f" {run.counts.total():,} cases, {len(run.known):,} kinds, growth"
            f" {max(growth) / 1e6:.1f} MB, at most {max(peak) / 1e6:.1f} MB,"
            f" the neighbour's worst {run.neighbour.worst_ms:.0f} ms",
            flush=True,
        )
    if max(growth) > GROWTH_BYTES_MAX:
        raise FuzzError(f"a node grew by {max(growth) / 1e6:.1f} MB")
    if max(peak) > PEAK_BYTES_MAX:
        raise FuzzError(f"a node held {max(peak) / 1e6:.1f} MB more than at rest")
    results.add(
        {
            "minutes": minutes,
            "cases": run.counts.total(),
            "outcomes": dict(run.counts.most_common()),
            "kinds": len(run.known),
            "unanswered": run.unanswered,
            "growth_mb": [round(each / 1e6, 1) for each in growth],
            "peak_mb": [round(each / 1e6, 1) for each in peak],
            "neighbour_served": run.neighbour.served,
            "neighbour_worst_ms": round(run.neighbour.worst_ms),
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n    ")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 40))
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as directory, Results(options.results, NODE) as results:
        run = Run(Path(directory), options.seed, options.corpus)
        try:
            fuzz(run, options.minutes, results)
        except (FuzzError, ResultsError) as error:
            print(f"BROKEN (seed {options.seed}): {error}", file=sys.stderr)
            return 1
        finally:
            run.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
