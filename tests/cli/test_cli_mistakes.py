"""What a person does by mistake: a wrong word, a wrong address, Kafka's order of options."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.cli import CommandError, options
from holdfast.cli.options import connected, did_you_mean, listed, target

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
        ("metadata-quorum descirbe", "describe"),
        ("topics --lst", "--list"),
        ("up --brokrs 3", "--brokers"),
        ("configs --entity-type topic --describe", "topics"),
        ("cat -P -t t -z gzp", "gzip"),
        ("features upgrade --metadata 4.0-IV33", "4.0-IV3"),
        ("prove one-brokr-down", "one-broker-down"),
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
@pytest.mark.parametrize("where", [["--bootstrap-server", NOBODY], ["--data-dir", "/nowhere"]])
def test_an_address_may_stand_before_the_action(
    run: Run, words: list[str], order: str, where: list[str]
) -> None:
    """Goal: Kafka's order and a person's both work. Method: either, at an address without anyone.

    Seen to end in "No such option: --bootstrap-server" for features and cluster.
    """
    first, *rest = words
    outcome = run(first, *where, *rest) if order == "before" else run(*words, *where)
    expected = {"--bootstrap-server": "nobody answers", "--data-dir": "no cluster in /nowhere"}
    assert expected[where[0]] in outcome.errors


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


@pytest.mark.parametrize("mode", [["-L"], ["-C", "-t", "t"], ["-P", "-t", "t", "-l"]])
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
        "down --data-dir /nowhere",
        "topics --list --data-dir /nowhere",
        "cat -L --data-dir /nowhere",
        "up --data-dir /nowhere --brokers 0",
        "up --data-dir /nowhere --port 70000",
        "up --data-dir /nowhere --controllers 5 --combined",
        "up --data-dir /nowhere --config a=1 --config a=2",
        "up --data-dir /nowhere --feature a=b",
        "cat -P -t t -b 127.0.0.1:1 -m 0.1 --nope",
        "node --config /nowhere",
        "node --config /proc",
        "kill",
        "topics --partitions 0 --create --topic t",
        "leader-election --all-topic-partitions",
    ],
)
def test_a_wrong_command_line_is_status_2(run: Run, line: str) -> None:
    """Goal: 2 means that the line is wrong, 1 that it was refused. Method: one by one."""
    outcome = run(*line.split())
    assert (outcome.status, outcome.output) == (2, "")
    assert outcome.errors


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
    from holdfast.cluster import LocalCluster  # noqa: PLC0415 - a test of its own

    cluster = LocalCluster.create(tmp_path, brokers=1, combined=True, port=0)
    outcome = run("topics", "--list", "--data-dir", str(tmp_path))
    assert outcome.status == 1
    assert f"The local cluster in {cluster.directory}: nobody answers" in outcome.errors
    assert f"holdfast up --data-dir {tmp_path}" in outcome.errors
