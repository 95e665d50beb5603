"""Goal: `holdfast groups`, `get-offsets` and `inspect` say of Apache Kafka what its own tools say.

Method: groups of real consumers of both protocols, at rest; each command and Kafka's tool for the
same moment, line by line. Where Kafka's lines stand in the order of a Java map, ours are sorted and
the lines compared without order. Our changes are read back with Kafka's tool.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from tests.cli.conftest import Outcome
from tests.group_clients.members import BOUND_S, CLIENTS, Committed, Member, close_all, share

from holdfast import cli
from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic

pytestmark = pytest.mark.apache

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
SHORT, LONG = "gt", "gt-long-topic-name-for-widths"
PARTITIONS = {SHORT: 3, LONG: 12}
PER_PARTITION = 20
LIBRDKAFKA = {client.protocol: client for client in CLIENTS if client.name.startswith("librdkafka")}


@pytest.fixture(scope="module")
def cluster(apache_kafka: str) -> str:
    """A cluster whose partitions of two topics hold 20 records each."""
    with Driver(apache_kafka) as driver:
        for name, partitions in PARTITIONS.items():
            asked = create_topic(name, partitions=partitions, replication_factor=1)
            driver.perform(asked, node="controller")
    producer = Producer({"bootstrap.servers": apache_kafka})
    for name, partitions in PARTITIONS.items():
        for number in range(PER_PARTITION * partitions):
            producer.produce(name, value=b"v", partition=number % partitions)
    assert producer.flush(60) == 0
    return apache_kafka


@pytest.fixture(scope="module")
def at_rest(cluster: str) -> Iterator[str]:
    """A cluster with two members of each protocol, who share all partitions, and a group of nobody.

    The groups are `gt-classic` and `gt-consumer`; a part is committed, so that there is a lag.
    """
    members: list[Member] = []
    try:
        for protocol, client in LIBRDKAFKA.items():
            pair = [client.member(cluster, f"gt-{protocol}", instance=name) for name in "ab"]
            members += pair
            for each in pair:
                each.subscribe(*PARTITIONS)
            share(pair, [(name, n) for name, count in PARTITIONS.items() for n in range(count)])
            some = sorted(pair[0].assignment())[:4]
            pair[0].commit({partition: Committed(10, "noted") for partition in some})
        commit(cluster, "gt-empty", {(SHORT, 0): 5, (SHORT, 2): 7})
        yield cluster
    finally:
        close_all(members)


def commit(cluster: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Make a group without members that has committed these."""
    member = LIBRDKAFKA["classic"].member(cluster, group)
    member.assign(*offsets)
    asked = {key: Committed(offset, "") for key, offset in offsets.items()}

    def taken() -> bool:
        try:
            member.commit(asked)
        except KafkaException:  # its coordinator is only being made
            return False
        return True

    wait_until(taken, timeout_s=BOUND_S, what="a commit")
    member.close()


@pytest.fixture
def theirs(kafka_tools: Path, cluster: str) -> Callable[[str, str], tuple[str, str]]:
    """Return what runs Kafka's tool of a main class; its output, and its errors."""

    def run(main_class: str, line: str) -> tuple[str, str]:
        done = subprocess.run(
            [kafka_tools, "class", main_class, "--bootstrap-server", cluster, *line.split()],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.stdout, done.stderr

    return run


@pytest.fixture
def ours(cluster: str, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Outcome]:
    """Return what runs a command of ours."""

    def run(line: str) -> Outcome:
        capsys.readouterr()
        status = cli.run([*line.split(), "--bootstrap-server", cluster])
        captured = capsys.readouterr()
        return Outcome(status=status, output=captured.out, errors=captured.err)

    return run


Ours = Callable[[str], Outcome]
Theirs = Callable[[str, str], tuple[str, str]]


@pytest.mark.slow
@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize(
    "line",
    [
        "--describe --group gt-classic",
        "--describe --group gt-consumer --offsets",
        "--describe --group gt-consumer --verbose",
        "--describe --group gt-classic --members",
        "--describe --group gt-classic --members --verbose",
        "--describe --group gt-consumer --members --verbose",
        "--describe --group gt-empty --members",
        "--describe --group gt-empty --verbose",
        "--describe --group gt-empty --group gt-consumer --state",
        "--describe --all-groups --state --verbose",
        "--describe --all-groups",
    ],
)
def test_descriptions_are_kafkas_byte_for_byte(ours: Ours, theirs: Theirs, line: str) -> None:
    found = ours(f"groups {line}")
    assert (found.output, found.errors) == theirs(GROUPS, line)
    assert found.status == 0
    assert "gt-" in found.output + found.errors


@pytest.mark.slow
@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize(
    "line",
    [
        "--list",
        "--list --state",
        "--list --type",
        "--list --state --type",
        "--list --state stable,EMPTY",
        "--list --type consumer",
        "--list --type classic --state Empty",
    ],
)
def test_lists_have_kafkas_lines(ours: Ours, theirs: Theirs, line: str) -> None:
    found = ours(f"groups {line}")
    output, errors = theirs(GROUPS, line)
    assert (sorted(found.output.split("\n")), found.errors) == (sorted(output.split("\n")), errors)
    assert "gt-" in found.output


SHIFTED = "--reset-offsets --group gt-empty --all-topics --shift-by"


@pytest.mark.slow
@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize(
    "line",
    [
        f"--reset-offsets --group gt-empty --topic {SHORT} --topic {LONG}:3,11 --to-earliest",
        f"--reset-offsets --group gt-empty --topic {SHORT} --to-latest",
        f"--reset-offsets --group gt-empty --topic {SHORT} --to-current",
        f"--reset-offsets --group gt-empty --topic {SHORT}:0,1 --to-offset 1000",
        f"--reset-offsets --group gt-fresh --topic {SHORT} --to-offset 13",
        f"{SHIFTED} 3",
        f"{SHIFTED} -100",
        f"--reset-offsets --group gt-empty --topic {SHORT} --by-duration PT1H",
        f"--reset-offsets --group gt-empty --topic {SHORT} --to-datetime 2001-02-03T04:05:06.789",
        f"--reset-offsets --group gt-empty --topic {LONG} --to-current --export",
        f"--reset-offsets --group gt-empty --group gt-fresh --topic {LONG}:0 --to-latest --export",
    ],
)
def test_resets_would_set_what_kafkas_tool_would(ours: Ours, theirs: Theirs, line: str) -> None:
    """Clamped to the log's ends, too; only where notes stand differs."""
    found = ours(f"groups {line} --dry-run")
    output, errors = theirs(GROUPS, f"{line} --dry-run")
    assert sorted(found.output.split("\n")) == sorted(output.split("\n"))
    clamped = [text.partition("WARN ")[2].partition(" (org.")[0] for text in errors.splitlines()]
    notes = [text for text in found.errors.splitlines() if text.startswith("New offset")]
    assert sorted(notes) == sorted(clamped)


@pytest.mark.slow
def test_a_time_behind_the_last_record_means_the_end(
    ours: Ours, theirs: Theirs, cluster: str
) -> None:
    """Theirs says so in its output and calls the partition empty; ours says it beside it."""
    commit(cluster, "gt-late", {(SHORT, 0): 5})
    line = "--reset-offsets --group gt-late --all-topics --to-datetime 2100-01-01T00:00:00.000Z"
    found = ours(f"groups {line} --dry-run")
    assert f"{SHORT}-0 has no record of that time or later" in found.errors
    assert theirs(GROUPS, f"{line} --dry-run")[0].endswith(found.output)


@pytest.mark.slow
def test_offsets_are_set_and_go(ours: Ours, theirs: Theirs, cluster: str, tmp_path: Path) -> None:
    """Goal: what --execute prints is what Kafka's tool then finds, in both kinds of groups."""
    plan = tmp_path / "plan.csv"
    commit(cluster, "gt-set", {(SHORT, 0): 5})
    member = LIBRDKAFKA["consumer"].member(cluster, "gt-set-new")
    member.subscribe(SHORT)
    share([member], [(SHORT, number) for number in range(3)])
    member.close()
    for group in ("gt-set", "gt-set-new"):
        reset = f"groups --reset-offsets --group {group} --topic {SHORT}"
        done = ours(f"{reset} --to-offset 12 --execute")
        assert (done.status, done.output.count(" 12\n")) == (0, 3)
        output, _ = theirs(GROUPS, f"--describe --group {group}")
        rows = [row.split() for row in output.splitlines() if row.startswith(group)]
        assert [row[:6] for row in rows] == [
            [group, SHORT, str(number), "12", "20", "8"] for number in range(3)
        ]
        plan.write_text(ours(f"{reset} --shift-by 2 --export --dry-run").output)
        done = ours(f"groups --reset-offsets --group {group} --from-file {plan} --execute")
        assert (done.status, done.output.count(" 14\n")) == (0, 3)
        again = theirs(GROUPS, f"--reset-offsets --group {group} --from-file {plan} --dry-run")
        assert sorted(again[0].split("\n")) == sorted(done.output.split("\n"))
        gone = ours(f"groups --delete-offsets --group {group} --topic {SHORT}:1")
        assert gone.output.startswith(f"Request succeeded for deleting offsets from group {group}")
        found = json.loads(ours(f"groups --describe --group {group} --json").output)
        assert [
            (row["partition"], row["current_offset"], row["lag"]) for row in found[0]["partitions"]
        ] == [(0, 14, 6), (2, 14, 6)]
    done = ours("groups --delete --group gt-set --group gt-set-new")
    assert done.output == (
        "Deletion of requested consumer groups ('gt-set', 'gt-set-new') was successful.\n"
    )
    assert "gt-set" not in theirs(GROUPS, "--list")[0]


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("group", ["gt-classic", "gt-consumer"])
def test_a_group_that_is_used_is_left_alone(ours: Ours, group: str) -> None:
    """Goal: the refusal says who holds it, and where; nothing is changed."""
    before = ours(f"groups --describe --group {group}").output
    members = json.loads(ours(f"groups --describe --members --group {group} --json").output)
    for line in (
        f"--reset-offsets --group {group} --topic {SHORT} --to-earliest --execute",
        f"--delete --group {group}",
    ):
        refused = ours(f"groups {line}")
        assert (refused.status, refused.output) == (1, "")
        assert f"--group {group}: it is Stable" in refused.errors
        for member in members[0]["members"]:
            assert f"{member['consumer_id']} (client rdkafka) on 127.0.0.1" in refused.errors
    kept = ours(f"groups --delete-offsets --group {group} --topic {SHORT}")
    assert (kept.status, "GROUP_SUBSCRIBED_TO_TOPIC" in kept.output) == (1, True)
    assert ours(f"groups --describe --group {group}").output == before


def test_groups_that_are_not_there(ours: Ours, cluster: str) -> None:
    """Goal: the others are served all the same. Method: one with a typing mistake among them."""
    commit(cluster, "gt-there", {(SHORT, 0): 5})
    found = ours("groups --describe --group gt-ther --group gt-there")
    assert found.status == 1
    assert f"gt-there        {SHORT} " in found.output
    assert "--group gt-ther: there is no such group. Did you mean gt-there" in found.errors
    found = ours("groups --delete --group gt-ther --group gt-there")
    assert found.status == 1
    assert found.output == "\nThese consumer groups were deleted successfully: 'gt-there'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "",
        f"--topic {SHORT}",
        "--topic gt.* --partitions 0,2,11",
        f"--topic-partitions {SHORT}:1,{LONG}:9-12,{LONG}:-2",
        "--exclude-internal-topics --time earliest",
        f"--topic {LONG} --time -3",
        f"--topic {SHORT} --time 1",
        f"--topic {SHORT} --time 4000000000000",
        f"--topic {SHORT} --time earliest-local",
        f"--topic {SHORT} --time latest-tiered",
    ],
)
def test_offsets_are_kafkas_line_by_line(ours: Ours, theirs: Theirs, line: str) -> None:
    found = ours(f"get-offsets {line}")
    assert (found.output, found.errors) == theirs(OFFSETS, line)
    assert found.status == 0


def test_a_message_is_inspected(ours: Ours) -> None:
    found = json.loads(ours(f"inspect {SHORT}-0 --offset 3 --json").output)
    (replica,) = found["replica_states"]
    assert (replica["log_start"], replica["log_end"], replica["high_watermark"]) == (0, 20, 20)
    assert (replica["not_told"], found["not_told"]) == ([], [])
    assert found["epochs"] == [{"epoch": 0, "start_offset": 0, "end_offset": 20}]
    assert found["message"]["standing"] == "committed"
    assert found["message"]["replicas"] == [{"node": 0, "holds": True, "read_there": True}]
    later = json.loads(ours(f"inspect {SHORT}-0 --offset 20 --json").output)
    assert later["message"]["standing"] == "not written"


# cat -G


def typed(cluster: str, *arguments: str) -> list[str]:
    """A command line of `holdfast cat` on a cluster."""
    return [sys.executable, "-m", "holdfast.cli", "cat", "-b", cluster, *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", list(LIBRDKAFKA))
def test_cat_commits_what_it_printed(cluster: str, ours: Ours, protocol: str) -> None:
    """Goal: -c leaves the rest to whoever comes next, who gets all of it. Method: two, in turn."""
    group = f"gt-cat-{protocol}"
    member = ["-G", group, SHORT, "-q", "-e", "-f", "%p:%o\\n", "-X", f"group.protocol={protocol}"]
    run = partial(subprocess.run, capture_output=True, text=True, timeout=100, check=True)
    first = run(typed(cluster, *member, "-c", "7", "-X", "auto.offset.reset=earliest"))
    assert (len(first.stdout.splitlines()), first.stderr) == (7, "")
    lags = json.loads(ours(f"groups --describe --group {group} --json").output)[0]["partitions"]
    assert sum(each["lag"] for each in lags) + 7 == sum(each["log_end_offset"] for each in lags)
    second = run(typed(cluster, *member, "-X", "auto.offset.reset=earliest"))
    both = [*first.stdout.splitlines(), *second.stdout.splitlines()]
    assert sorted(both) == sorted(f"{n}:{offset}" for n in range(3) for offset in range(20))
    again = run(typed(cluster, *member, "-o", "-2"))
    assert sorted(again.stdout.splitlines()) == sorted(
        f"{n}:{offset}" for n in range(3) for offset in (18, 19)
    )


@pytest.mark.slow
def test_cat_says_what_kcat_says(cluster: str) -> None:
    """Goal: kcat's lines on standard error, until SIGTERM, which leaves. Method: read them."""
    words = typed(cluster, "-G", "gt-cat-words", SHORT, "-X", "session.timeout.ms=6000")
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as cat:
        assert cat.stderr is not None
        said: list[str] = []
        for line in cat.stderr:
            said.append(line.rstrip("\n"))
            if said[-1].startswith("% Reached end"):
                cat.terminate()
    assert said[0] == "% Waiting for group rebalance"
    given = ", ".join(f"{SHORT} [{number}]" for number in range(3))
    pattern = r"% Group gt-cat-words rebalanced \(memberid \S+\): assigned: (.*)"
    assert [found[1] for line in said if (found := re.fullmatch(pattern, line))] == [given]
    ends = [line for line in said if line.startswith("% Reached end of topic")]
    assert re.fullmatch(rf"% Reached end of topic {SHORT} \[[012]\] at offset 20", ends[0])
    assert said[-1].endswith(f": revoked: {given}")
    assert cat.returncode == 0
