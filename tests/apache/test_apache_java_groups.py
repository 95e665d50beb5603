"""Goal: Java clients and tools of Apache Kafka 4.3 and 3.9 work in groups on three brokers of ours.

Method: the tools as they are, as processes: consumers of both protocols in a group, what they read
by turns, hand over and commit; kafka-consumer-groups, which sees, sets and deletes it.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from tests.group_clients.members import CLIENTS, Client, close_all, share
from tests.group_clients.records import produce

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(300)]

KAFKA: Final = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableConsumer"
COMMANDS: Final = {"4.3": "class", "3.9": "older-class"}
BOUND_S: Final = 90.0
TIMEOUT_MS: Final = "60000"  # of a call of the tools; theirs is 5 s, too short where much else runs
PARTITIONS: Final = 6
LIBRDKAFKA: Final = {each.protocol: each for each in CLIENTS if each.name.startswith("librdkafka")}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Addresses of three brokers of ours."""
    assert kafka_tools == KAFKA
    directory = tmp_path_factory.mktemp("java-groups") / "cluster"
    with LocalCluster.create(directory, brokers=3, port=0) as cluster:
        cluster.start()
        yield cluster.bootstrap_servers


@pytest.fixture(params=list(COMMANDS))
def version(request: pytest.FixtureRequest) -> str:
    """Which tools; they are skipped where they were not brought."""
    version: str = request.param
    if version == "3.9" and subprocess.run([KAFKA, "older-available"], check=False).returncode:
        pytest.skip("there are no tools of Apache Kafka 3.9: `make apache` brings them")
    return version


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Whose members a group has."""
    protocol: str = request.param
    return protocol


@pytest.fixture
def name(cluster: str) -> str:
    """A topic of six partitions, and a group, that nobody else has."""
    name = f"java-{next(_numbers)}"
    with Driver(cluster) as driver:
        asked = create_topic(name, partitions=PARTITIONS, replication_factor=3)
        driver.perform(asked, node="controller")
    return name


Groups = Callable[..., str]


@pytest.fixture
def groups(cluster: str, version: str) -> Groups:
    """Return what runs kafka-consumer-groups; all that it says."""

    def run(line: str) -> str:
        done = subprocess.run(
            command(version, GROUPS, cluster, *line.split(), "--timeout", TIMEOUT_MS),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        return f"{done.stdout}\n{done.stderr}"

    return run


def command(version: str, main_class: str, cluster: str, *arguments: str) -> list[str]:
    return [
        *(str(KAFKA), COMMANDS[version], main_class),
        *("--bootstrap-server", cluster, *arguments),
    ]


def rows(said: str, group: str) -> list[list[str]]:
    """Return the lines of a table that are about a group, cut into columns."""
    return [line.split() for line in said.splitlines() if line.split()[:1] == [group]]


# -- consumers -------------------------------------------------------------------------------------


def test_console_consumers_read_by_turns(
    cluster: str, version: str, protocol: str, name: str, tmp_path: Path
) -> None:
    """Each goes on where the one before has committed: nothing twice, nothing skipped."""
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 10))
    config = tmp_path / "consumer.properties"
    config.write_text(f"group.protocol={protocol}\nauto.offset.reset=earliest\n")
    flag = "--command-config" if version == "4.3" else "--consumer.config"
    seen: list[str] = []
    for count in (20, 15, 25):
        wanted = ("--topic", name, "--group", name, "--max-messages", str(count))
        shown = ("property" if version == "3.9" else "formatter-property", "print.partition=true")
        done = subprocess.run(
            command(version, CONSOLE, cluster, *wanted, flag, str(config), f"--{shown[0]}",
                    shown[1]),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == count, done.stderr
        seen += lines
    every = [f"Partition:{part}\t{value}" for part in range(PARTITIONS) for value in range(10)]
    assert sorted(seen) == sorted(every)


class Verifiable:
    """A kafka-verifiable-consumer, and the events that it has told."""

    def __init__(self, version: str, cluster: str, name: str, protocol: str) -> None:
        line = ("--topic", name, "--group-id", name, "--verbose", "--group-protocol", protocol)
        session = ("--session-timeout", "10000") if protocol == "classic" else ()
        self.process = subprocess.Popen(
            command(version, VERIFIABLE, cluster, *line, *session),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["name"] == kind]

    def owned(self) -> set[int]:
        """Which partitions it has by now, by what it was given and what was taken."""
        owned: set[int] = set()
        for event in list(self.events):
            parts = {part["partition"] for part in event.get("partitions", ()) if part}
            if event["name"] == "partitions_assigned":
                owned |= parts
            elif event["name"] == "partitions_revoked":
                owned -= parts
        return owned

    def read(self) -> list[tuple[int, int]]:
        return [(event["partition"], event["offset"]) for event in self.of("record_data")]

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(BOUND_S)
        self._reader.join(BOUND_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def verifiable(
    cluster: str, version: str, protocol: str, name: str
) -> Iterator[Callable[[], Verifiable]]:
    """Return what starts one more consumer of the test's group."""
    started: list[Verifiable] = []

    def start() -> Verifiable:
        started.append(Verifiable(version, cluster, name, protocol))
        return started[-1]

    yield start
    for each in started:
        each.stop(signal.SIGKILL)


def test_verifiable_consumers_hand_over(
    cluster: str, name: str, verifiable: Callable[[], Verifiable], groups: Groups
) -> None:
    """Each record is read once, though one joins in the middle and the other leaves."""
    first = verifiable()
    everything = set(range(PARTITIONS))
    wait_until(lambda: first.owned() == everything, timeout_s=BOUND_S, what="all partitions")
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 20))
    wait_until(lambda: len(first.read()) == 120, timeout_s=BOUND_S, what="the records")
    second = verifiable()

    def is_shared() -> bool:
        return len(first.owned()) == len(second.owned()) == PARTITIONS // 2

    wait_until(is_shared, timeout_s=BOUND_S, what="half of them each")
    assert first.owned() | second.owned() == everything
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 20), first=20)
    wait_until(
        lambda: len(first.read()) + len(second.read()) == 240, timeout_s=BOUND_S, what="the rest"
    )
    first.stop()
    assert [event["name"] for event in first.events][-1] == "shutdown_complete"
    wait_until(lambda: second.owned() == everything, timeout_s=BOUND_S, what="what the other had")
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 20), first=40)
    wait_until(lambda: len(first.read()) + len(second.read()) == 360, timeout_s=BOUND_S, what="all")
    second.stop()
    read = Counter(first.read() + second.read())
    assert read == Counter((part, offset) for part in range(PARTITIONS) for offset in range(60))
    commits = first.of("offsets_committed") + second.of("offsets_committed")
    assert all(event["success"] for event in commits)
    found = rows(groups(f"--describe --group {name}"), name)
    assert sorted((int(row[2]), *map(int, row[3:6])) for row in found) == [
        (part, 60, 60, 0) for part in range(PARTITIONS)
    ]


def test_a_consumer_that_is_killed_is_replaced(
    cluster: str, name: str, protocol: str, verifiable: Callable[[], Verifiable]
) -> None:
    """Nothing is skipped, and what it had committed is not read again."""
    if protocol == "consumer":
        pytest.skip("its session is the broker's, 45 s")
    first = verifiable()
    everything = set(range(PARTITIONS))
    wait_until(lambda: first.owned() == everything, timeout_s=BOUND_S, what="all partitions")
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 20))

    def is_committed() -> bool:
        told = [each for event in first.of("offsets_committed") for each in event["offsets"]]
        return {each["partition"] for each in told if each["offset"] == 20} == everything

    wait_until(is_committed, timeout_s=BOUND_S, what="all to be committed")
    second = verifiable()
    wait_until(lambda: bool(second.owned()), timeout_s=BOUND_S, what="it to join")
    first.stop(signal.SIGKILL)
    wait_until(lambda: second.owned() == everything, timeout_s=BOUND_S, what="the dead one's")
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 5), first=20)
    wait_until(lambda: len(second.read()) == 30, timeout_s=BOUND_S, what="what came after")
    assert sorted(second.read()) == [
        (part, offset) for part in range(PARTITIONS) for offset in range(20, 25)
    ]


# -- kafka-consumer-groups -------------------------------------------------------------------------


@pytest.fixture
def client(protocol: str) -> Client:
    return LIBRDKAFKA[protocol]


def test_a_group_is_seen_and_left_alone(
    cluster: str, name: str, client: Client, protocol: str, groups: Groups
) -> None:
    """What is said of two members, and that nothing of theirs is changed."""
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 5))
    members = [client.member(cluster, name) for _ in range(2)]
    try:
        for member in members:
            member.subscribe(name)
        share(members, [(name, part) for part in range(PARTITIONS)])
        listed = groups("--list --state").splitlines()
        assert [line.split() for line in listed if line.split()[:1] == [name]] == [[name, "Stable"]]
        assert rows(groups("--list --type"), name) == [[name, protocol.capitalize()]]
        assert rows(groups("--list --state empty"), name) == []

        (state,) = rows(groups(f"--describe --group {name} --state"), name)
        strategy = "range" if protocol == "classic" else "uniform"
        assert re.fullmatch(r"127\.0\.0\.1:\d+", state[1])
        assert state[-3:] == [strategy, "Stable", "2"]
        shown = rows(groups(f"--describe --group {name} --members --verbose"), name)
        assert len(shown) == 2
        for row in shown:
            assert row[2:5] == ["/127.0.0.1", "rdkafka", "3"]
        # "topic:0,1,2" in 4.3, which shows the target of new members too, and "(0,1,2)" in 3.9.
        given = [re.findall(rf"(?: {name}:|\()([\d,]+)", " ".join(row))[0] for row in shown]
        assert sorted(",".join(given).split(",")) == [str(part) for part in range(PARTITIONS)]
        offsets = rows(groups(f"--describe --group {name} --offsets"), name)
        assert sorted(row[2] for row in offsets) == [str(part) for part in range(PARTITIONS)]
        assert {row[-2] for row in offsets} == {"/127.0.0.1"}

        refused = groups(f"--reset-offsets --group {name} --topic {name} --to-earliest --execute")
        assert "if the group" in refused
        assert "is inactive, but the current state is Stable" in refused
        assert "The group is not empty" in groups(f"--delete --group {name}")
        said = groups(f"--delete-offsets --group {name} --topic {name}")
        assert said.count("GroupSubscribedToTopicException") == PARTITIONS
        assert len(rows(groups(f"--describe --group {name} --members"), name)) == 2
    finally:
        close_all(members)


def test_offsets_are_reset_and_go(
    cluster: str,
    name: str,
    client: Client,
    protocol: str,
    version: str,
    groups: Groups,
    tmp_path: Path,
) -> None:
    """Every way to reset, what an export says, what is deleted, and the group itself."""
    if (version, protocol) == ("3.9", "consumer"):
        pytest.skip("offsets are the same in both kinds, which 4.3 is asked of")
    produce(cluster, name, dict.fromkeys(range(PARTITIONS), 10))
    member = client.member(cluster, name)
    member.subscribe(name)
    share([member], [(name, part) for part in range(PARTITIONS)])
    member.close()
    reset = f"--reset-offsets --group {name} --topic {name}"

    def after(how: str, flag: str = "--execute") -> list[int]:
        # 3.9 ends none of these lines.
        found = re.findall(rf"{name} +{name} +(\d+) +(\d+)", groups(f"{reset} {how} {flag}"))
        assert sorted(int(part) for part, _ in found) == list(range(PARTITIONS))
        return [int(offset) for _, offset in sorted(found)]

    assert after("--to-latest") == [10] * PARTITIONS
    assert after("--shift-by -4") == [6] * PARTITIONS
    assert after("--to-current") == [6] * PARTITIONS
    assert after("--by-duration PT1H") == [0] * PARTITIONS
    assert after("--to-offset 1000") == [10] * PARTITIONS
    assert after("--to-datetime 2001-02-03T04:05:06.789") == [0] * PARTITIONS
    assert after("--to-offset 3") == [3] * PARTITIONS
    assert after("--to-latest", "--dry-run") == [10] * PARTITIONS

    plan = tmp_path / "plan.csv"
    said = groups(f"{reset} --shift-by 2 --export --dry-run")
    plan.write_text("".join(re.findall(rf"{name},\d+,\d+\n", said)))
    assert sorted(plan.read_text().split()) == [f"{name},{part},5" for part in range(PARTITIONS)]
    groups(f"--reset-offsets --group {name} --from-file {plan} --execute")
    found = rows(groups(f"--describe --group {name}"), name)
    assert sorted((int(row[2]), *map(int, row[3:6])) for row in found) == [
        (part, 5, 10, 5) for part in range(PARTITIONS)
    ]

    said = groups(f"--delete-offsets --group {name} --topic {name}:1,4")
    assert re.match(r"\s*Request succe(ed|eded) for deleting offsets", said)
    found = rows(groups(f"--describe --group {name}"), name)
    assert sorted(row[2] for row in found) == ["0", "2", "3", "5"]
    assert "was successful" in groups(f"--delete --group {name}")
    assert name not in groups("--list")
    assert "GroupIdNotFoundException" in groups(f"--delete --group {name}")
