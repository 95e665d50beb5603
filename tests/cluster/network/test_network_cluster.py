"""Goal: a cluster of real brokers goes on when its leader is cut off, and is whole when it heals.

Method: three brokers and a controller, each started by entering its place, with the files that a
local cluster has; a producer outside, which comes in by doors; the observer's look at each broker.
The leader is isolated: meanwhile two brokers say that they lead, and one of them acknowledges.
Then one answer to a producer is swallowed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.network.conftest import MARK, nothing_is_left

from holdfast.cluster import nodes, plan, processes
from holdfast.cluster.layout import ClusterRecord, NodeRecord
from holdfast.cluster.network import addresses, ground, possible
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until

pytestmark = [pytest.mark.serial, pytest.mark.slow]

PATIENCE_S = 60.0
INSIDE, OUTSIDE, CONTROLLER = 9092, 19092, 9093
SHAPE = plan.Shape(brokers=3, controllers=1)
# In the observer's place: what each broker says of the topic's one partition, or null.
OBSERVER = """
import json, sys
from dataclasses import asdict
from holdfast.cluster import probe
for line in sys.stdin:
    said = {}
    for name, address in json.loads(line).items():
        answer = probe.ask((address, 9092), ["t"])
        found = None if answer is None else answer.topics["t"].get(0)
        said[name] = None if found is None else asdict(found)
    print(json.dumps(said), flush=True)
"""


class Observer(AbstractContextManager["Observer"]):
    """A process in the observer's place that looks at every broker."""

    def __init__(self, network: Network) -> None:
        brokers = network.plan.members("brokers")
        self._asked = json.dumps({place.name: place.address for place in brokers}).encode() + b"\n"
        command = [*network.prefix("observer"), sys.executable, "-P", "-c", OBSERVER]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def look(self) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(self._asked)
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


def plan_cluster(folder: Path) -> tuple[ClusterRecord, addresses.Plan]:
    """Return the cluster's nodes where their places have them, and these places."""
    ports = [INSIDE] * 3 + [CONTROLLER]
    record = plan.plan_nodes(folder, nodes.new_cluster_id(), SHAPE, ports)
    planned = addresses.plan_network(record.nodes, ("a", "b", "c"))
    moved = [replace(node, host=planned.place(str(node.id)).address) for node in record.nodes]
    return replace(record, nodes=tuple(moved)), planned


def properties(record: ClusterRecord, node: NodeRecord, door: int | None) -> str:
    """Return a node's properties as a local cluster's are, with a second listener behind a door."""
    text = plan.properties(record, node, SHAPE)
    if door is None:
        return text
    both = f"PLAINTEXT://{node.address},OUTSIDE://{node.host}:{OUTSIDE}"
    advertised = f"PLAINTEXT://{node.address},OUTSIDE://127.0.0.1:{door}"
    return plan.with_config(
        text,
        {
            "listeners": both,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "OUTSIDE:PLAINTEXT",
        },
    )


def start(network: Network, record: ClusterRecord, node: NodeRecord) -> NodeRecord:
    command = [*network.prefix(str(node.id)), sys.executable, "-P", "-m", "holdfast.node"]
    command += ["--config", node.config_file, "--format-if-needed", record.cluster_id]
    pid = processes.spawn(command, log_file=Path(node.log_file))
    return replace(node, pid=pid, process=processes.identify(pid))


@pytest.fixture
def cluster(
    possibility: Possibility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Network, str]]:
    """A running cluster in a network, and its bootstrap servers outside."""
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")
    folder = tmp_path / "network"
    folder.mkdir()
    monkeypatch.setenv(MARK, str(folder))
    record, planned = plan_cluster(tmp_path)
    doors = dict(zip((node.id for node in record.brokers), free_ports(3), strict=True))
    leads = {doors[node.id]: f"{node.host}:{OUTSIDE}" for node in record.brokers}
    with ExitStack() as stack:
        stack.callback(nothing_is_left, str(folder), folder)
        network = stack.enter_context(ground.make(folder, planned, doors=leads))
        for node in sorted(record.nodes, key=lambda each: not each.is_controller):
            Path(node.config_file).parent.mkdir()
            Path(node.config_file).write_text(properties(record, node, doors.get(node.id)))
            started = start(network, record, node)
            stack.callback(nodes.stop, [started], nodes.STOP_TIMEOUT_S)
        yield network, ",".join(f"127.0.0.1:{port}" for port in leads)


def produce(producer: Producer, values: range) -> None:
    """Produce these and wait until each is acknowledged by all in sync."""
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce("t", str(value), partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def create_topic(bootstrap: str) -> None:
    """Create the topic, as soon as all three brokers are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def created() -> bool:
        try:
            if len(admin.list_topics(timeout=5).brokers) < 3:
                return False
            topic = NewTopic("t", num_partitions=1, replication_factor=3)
            admin.create_topics([topic])["t"].result(PATIENCE_S)
        except Exception:  # noqa: BLE001 - librdkafka's, while nodes still start
            return False
        return True

    wait_until(created, timeout_s=PATIENCE_S, what="three brokers and a topic")


def read_all(bootstrap: str, count: int) -> list[int]:
    options = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        return [int(each.value()) for each in consumer.consume(count, timeout=PATIENCE_S)]
    finally:
        consumer.close()


def test_the_leader_is_cut_off_and_comes_back(cluster: tuple[Network, str]) -> None:
    network, bootstrap = cluster
    links = Links(network.directory)
    create_topic(bootstrap)
    # So long it waits for a leader that hears nothing, before it asks who leads now.
    options = {"socket.timeout.ms": 3000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **options})
    produce(producer, range(10))
    with Observer(network) as observer:
        first = observer.look()
        (old,) = {str(each["leader"]) for each in first.values()}
        assert len(links.isolate(old)) == 2 * 7  # 2 brokers, a controller, 3 zones' clients, host
        produce(producer, range(10, 20))
        seen = observer.look()
        others = {seen[name]["leader"] for name in seen if name != old}
        assert len(others) == 1
        assert others != {int(old)}
        assert seen[old]["leader"] == int(old), "it can't know, and still believes that it leads"
        assert seen[old]["leader_epoch"] < seen[str(*others)]["leader_epoch"]
        dropped = {
            (each["from"], each["to"]): each["dropped"]["cut"] for each in links.status()["links"]
        }
        assert dropped[old, "100"] > 0, "its heartbeats"
        links.heal()

        def whole() -> bool:
            looks = observer.look()
            return all(
                look is not None and {look["leader"]} == others and len(look["isr"]) == 3
                for look in looks.values()
            )

        wait_until(whole, timeout_s=PATIENCE_S, what="the old leader to follow", poll_s=0.1)
    produce(producer, range(20, 30))
    assert read_all(bootstrap, 30) == [*range(30)]
    # An acknowledgement that gets lost: who may not number its batches writes the record again.
    links.drop_responses("host", "brokers", "Produce")
    plain = Producer({"bootstrap.servers": bootstrap, "acks": "all", "socket.timeout.ms": 1000})
    produce(plain, range(30, 31))
    assert read_all(bootstrap, 32)[-2:] == [30, 30]
    answers = [each["answers"] for each in links.status()["links"] if each["answers"]]
    assert sum(each["swallowed"] for each in answers) >= 1
