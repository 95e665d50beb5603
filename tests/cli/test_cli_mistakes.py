"""What a person does by mistake: a wrong word, a wrong address, Kafka's order of options."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.cli import shared_options as options
from holdfast.cli.exit_status import CommandError
from holdfast.cli.shared_options import connected, did_you_mean, listed, target
from holdfast.cluster import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Run

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topisc --list", "topics"),
        ("kafka-topics --list", "topics"),
        ("stop", "holdfast down"),
        ("console-consumer", "holdfast cat -C"),
        ("elect-leaders", "leader-election"),
        ("reassign --list", "reassign-partitions"),
        ("leader", "leader-election"),
        ("consumer-groups --list", "holdfast groups"),
        ("group --list", "groups"),
        ("get-offset", "get-offsets"),
        ("groups --list --state stabel", "Stable"),
        ("groups --lst", "--list"),
        ("get-offsets --time latets", "latest"),
        ("metadata-quorum descirbe", "describe"),
        ("topics --lst", "--list"),
        ("up --brokrs 3", "--brokers"),
        ("configs --entity-type topic --describe", "topics"),
        ("configs --entity-type group --describe", "Did you mean groups?"),
        ("cat -P -t t -z gzp", "gzip"),
        ("features upgrade --metadata 4.0-IV33", "4.0-IV3"),
        ("prove one-brokr-down", "Did you mean one-broker-down"),
    ],
)
def test_did_you_mean(run: Run, line: str, meant: str) -> None:
    """Goal: a mistyped word is met with the right one. Method: commands, options, values."""
    outcome = run(*line.split())
    assert outcome.status == 2
    assert meant in outcome.errors


def test_what_is_near_and_what_is_not() -> None:
    """Goal: no wild guesses. Method: close, several, far."""
    assert did_you_mean("paymets", ["payments", "users"]) == " Did you mean payments?"
    assert did_you_mean("payment", ["payments", "payment2"]) in {
        " Did you mean payments or payment2?",
        " Did you mean payment2 or payments?",
    }
    assert did_you_mean("zzz", ["payments"]) == ""
    assert options.unknown_keys(["retention.m", "a.b"], ["retention.ms", "a.b"]) == (
        " Did you mean retention.ms?"
    )
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"


@pytest.mark.parametrize(
    "line",
    [
        "topics --list",
        "configs --describe",
        "leader-election --election-type preferred --all-topic-partitions",
        "delete-records --topic t --all",
        "reassign-partitions --list",
        "groups --list",
        "groups --describe --group g",
        "groups --reset-offsets --group g --all-topics --to-latest",
        "get-offsets",
        "inspect t-0",
        "cluster cluster-id",
        "cluster unregister --id 1",
        "features describe",
        "features upgrade --feature a=1",
        "metadata-quorum describe --status",
    ],
)
def test_nobody_answers(run: Run, line: str) -> None:
    """Goal: one line that names the option and the address. Method: a closed port, every command.

    Seen to be "can't connect to ..." without the option, where that was all the command knew.
    """
    outcome = run(*line.split(), "--bootstrap-server", NOBODY)
    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors.startswith(f"holdfast: --bootstrap-server {NOBODY}: nobody answers")
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize("order", ["before", "behind"])
@pytest.mark.parametrize(
    "words",
    [
        ["features", "describe"],
        ["features", "upgrade", "--feature", "a=1"],
        ["cluster", "cluster-id"],
        ["metadata-quorum", "describe", "--status"],
    ],
)
@pytest.mark.parametrize("where", [["--bootstrap-server", NOBODY], ["--data-dir", "/proc/nowhere"]])
def test_an_address_may_stand_before_the_action(
    run: Run, words: list[str], order: str, where: list[str]
) -> None:
    """Goal: Kafka's order and a person's both work. Method: either, at an address without anyone.

    Seen to end in "No such option: --bootstrap-server" for features and cluster.
    """
    first, *rest = words
    outcome = run(first, *where, *rest) if order == "before" else run(*words, *where)
    expected = {"--bootstrap-server": "nobody answers", "--data-dir": "no cluster in /proc/nowhere"}
    assert expected[where[0]] in outcome.errors


@pytest.mark.parametrize(
    "line",
    ["groups --list", "get-offsets", "inspect t-0", "topics --list", "groups --describe --group g"],
)
def test_the_port_of_a_controller(run: Run, bootstrap: str, line: str) -> None:
    """Goal: who takes a controller's port for a broker's is told so. Method: the cluster's own.

    Seen to be asked "Does this cluster serve groups?", without the option.
    """
    told = run("metadata-quorum", "describe", "--status", "--bootstrap-server", bootstrap).output
    found = re.search(r"CONTROLLER://([^\s\"]+)", told)
    assert found is not None, told
    outcome = run(*line.split(), "--bootstrap-server", found[1])
    assert (outcome.status, outcome.output) == (1, "")
    assert f"{found[1]} serves no clients: is it a controller?" in outcome.errors
    assert "--bootstrap-server" in outcome.errors
    assert "groups" not in outcome.errors


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """An address that accepts and never says a word, as a wrong port often does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(server.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for each in taken:
            each.close()


def test_somebody_who_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a wrong port is an error soon. Method: one that accepts, and never says a word.

    Seen to wait for as long as an answer may take, 35 s and more: a connection has its own bound.
    """
    monkeypatch.setattr(options, "CONNECT_S", 0.2)
    with silent() as address, pytest.raises(CommandError, match=f"--bootstrap-server {address}"):
        connected(target(address), timeout_s=3600.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [["-L"], ["-C", "-t", "t"], ["-P", "-t", "t", "-l"], ["-G", "g", "t"]]
)
def test_cat_finds_nobody(run: Run, mode: list[str], tmp_path: Path) -> None:
    """Goal: -b is named, soon. Method: a closed port. Producing would try for five minutes."""
    file = tmp_path / "lines"
    file.write_text("a\nb\n")
    files = [str(file)] if "-P" in mode else []
    outcome = run("cat", "-b", NOBODY, "-m", "0.3", *mode, *files)
    assert (outcome.status, outcome.output) == (1, "")
    assert f"-b {NOBODY}: nobody answers" in outcome.errors


@pytest.mark.parametrize(
    "line",
    [
        "down --data-dir /proc/nowhere",
        "topics --list --data-dir /proc/nowhere",
        "cat -L --data-dir /proc/nowhere",
        "up --data-dir /proc/nowhere --brokers 0",
        "up --data-dir /proc/nowhere --port 70000",
        "up --data-dir /proc/nowhere --controllers 5 --combined",
        "up --data-dir /proc/nowhere --config a=1 --config a=2",
        "up --data-dir /proc/nowhere --feature a=b",
        "cat -P -t t -b 127.0.0.1:1 -m 0.1 --nope",
        "node --config /proc/nowhere",
        "node --config /proc",
        f"storage format --config {__file__} --cluster-id short",
        "kill",
        "topics --partitions 0 --create --topic t",
        "leader-election --all-topic-partitions",
        "groups --describe",
        "get-offsets --time x",
        "inspect t",
        "cat -G g -b 127.0.0.1:1",
    ],
)
def test_a_wrong_command_line_is_status_2(run: Run, line: str) -> None:
    """Goal: 2 means that the line is wrong, 1 that it was refused. Method: one by one."""
    outcome = run(*line.split())
    assert (outcome.status, outcome.output) == (2, "")
    assert outcome.errors
    assert "can't be used" not in outcome.errors  # it was not tried


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """Goal: the option is named. Method: each option that reads a file."""
    missing = str(tmp_path / "none")
    at = ["--bootstrap-server", NOBODY]
    for option, line in {
        "--offset-json-file": ["delete-records"],
        "--path-to-json-file": ["leader-election", "--election-type", "preferred"],
        "--command-config": ["metadata-quorum", "add-controller"],
    }.items():
        outcome = run(*line, option, missing, *at)
        assert outcome.status == 2
        assert f"{option} {missing}: No such file" in outcome.errors


def test_the_local_cluster_does_not_answer(run: Run, tmp_path: Path) -> None:
    """Goal: its commands are named, not an option. Method: a description whose nodes are gone."""
    cluster = LocalCluster.create(tmp_path, brokers=1, combined=True, port=0)
    outcome = run("topics", "--list", "--data-dir", str(tmp_path))
    assert outcome.status == 1
    assert f"The local cluster in {cluster.directory}: nobody answers" in outcome.errors
    assert f"holdfast up --data-dir {tmp_path}" in outcome.errors


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format":1,"cluster_id":"x","nodes":[]}', '{"format":1,"nodes":[{"id":"a"}]}'],
)
@pytest.mark.parametrize("line", ["status", "down", "up --detach", "kill 0", "topics --list"])
def test_a_description_that_is_none(run: Run, line: str, text: str, tmp_path: Path) -> None:
    """Goal: one line names the file. Method: no JSON, no cluster; seen to end in a trace."""
    (tmp_path / "cluster.json").write_text(text)
    outcome = run(*line.split(), "--data-dir", str(tmp_path))
    assert (outcome.status, outcome.output) == (1, "")
    assert f"{tmp_path}/cluster.json can't be read" in outcome.errors
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize(
    "config",
    [
        "node.id=4",
        "listeners=PLAINTEXT://0.0.0.0:1",
        "log.dirs=/x",
        "controller.quorum.voters=1@a:1",
    ],
)
def test_what_each_node_has_of_its_own(run: Run, config: str, tmp_path: Path) -> None:
    """Goal: --config is refused where one value can't suit all nodes. Method: a new cluster.

    Seen to be refused in a node's words about its voters, or to start nodes that end at once.
    """
    directory = tmp_path / "new"
    outcome = run("up", "--config", config, "--data-dir", str(directory))
    assert (outcome.status, outcome.output) == (2, "")
    assert f"--config {config.partition('=')[0]}: " in outcome.errors
    assert not directory.exists()


def test_one_process_may_have_its_directories_elsewhere(tmp_path: Path) -> None:
    """Goal: no more is refused. Method: a cluster of one process, two log directories."""
    cluster = LocalCluster.create(
        tmp_path, brokers=1, combined=True, port=0, config={"log.dirs": "/a,/b"}
    )
    assert "log.dirs=/a,/b" in Path(cluster.node(0).config_file).read_text()


def test_a_port_in_use_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    """Goal: a cluster that can't be made leaves no folder. Method: a port that is taken."""
    directory = tmp_path / "new"
    with silent() as address:
        port = address.rpartition(":")[2]
        at = ["--data-dir", str(directory), "--brokers", "1", "--port", port]
        outcome = run("up", "--detach", *at)
    assert (outcome.status, outcome.output) == (1, "")
    assert f"Port {port} of node 0" in outcome.errors
    assert "--port" in outcome.errors
    assert not directory.exists()


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("reassign-partitions --execute --reassignment-json-file", "--reassignment-json-file"),
        ("reassign-partitions --verify --reassignment-json-file", "--reassignment-json-file"),
        (
            "reassign-partitions --generate --broker-list 1 --topics-to-move-json-file",
            "--topics-to-move-json-file",
        ),
        ("delete-records --offset-json-file", "--offset-json-file"),
        ("leader-election --election-type unclean --path-to-json-file", "--path-to-json-file"),
        ("metadata-quorum add-controller --command-config", "--command-config"),
    ],
)
def test_a_file_that_is_something_else(run: Run, line: str, option: str, tmp_path: Path) -> None:
    """Goal: the file is looked at before anybody is asked. Method: bytes, at a dead address."""
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(128, 256)))
    first, *rest = line.split()
    outcome = run(first, *rest, str(file), "--bootstrap-server", NOBODY)
    assert (outcome.status, outcome.output) == (2, "")
    assert f"{option} {file}" in outcome.errors


def test_a_data_directory_that_is_a_file(run: Run, tmp_path: Path) -> None:
    """Goal: the option is named. Method: `up` into a file, and below one."""
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        outcome = run("up", "--data-dir", str(path), "--port", "0")
        assert outcome.status == 2
        assert f"--data-dir {path} can't be used" in outcome.errors
        assert "XDG_STATE_HOME" in outcome.errors  # of who gave no such option, in each command


def test_bytes_that_are_no_text(run: Run) -> None:
    """Goal: no trace. Method: an argument as Python gets one that is no UTF-8."""
    outcome = run("cat", "-L", "-t", "\udcff", "-b", NOBODY)
    assert (outcome.status, outcome.output) == (2, "")
    assert outcome.errors == "holdfast: An argument holds bytes that are no text in UTF-8.\n"


@pytest.mark.parametrize("line", ["down", "up --detach", "status", "kill 0", "topics --list"])
def test_a_cluster_that_was_copied(run: Run, line: str, tmp_path: Path) -> None:
    """Goal: nothing is done to the original's nodes. Method: the copy of a directory.

    Seen to start and to stop the nodes of the original, whose files the description names.
    """
    LocalCluster.create(tmp_path / "first", brokers=1, combined=True, port=0)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    outcome = run(*line.split(), "--data-dir", str(tmp_path / "second"))
    assert (outcome.status, outcome.output) == (2, "")
    assert f"a copy of the cluster in {tmp_path}/first" in outcome.errors


def test_a_cluster_by_another_name(tmp_path: Path) -> None:
    """Goal: no more is refused. Method: a link to its directory."""
    LocalCluster.create(tmp_path / "first", brokers=1, combined=True, port=0)
    (tmp_path / "link").symlink_to(tmp_path / "first")
    assert LocalCluster.open(tmp_path / "link").broker_ids == (0,)
