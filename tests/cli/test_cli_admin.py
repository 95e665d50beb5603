"""topics, configs, leader-election and cat on a running cluster."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from holdfast import cli
from holdfast.cluster.processes import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome, Run

BOUND_S = 30.0
PREFIX = f"cli-{os.getpid()}"


def shown(run: Run, *command: str, until: Callable[[str], bool]) -> str:
    """Repeat a command until its output is as expected: metadata arrives a little later."""

    def found() -> Outcome | None:
        outcome = run(*command)
        return outcome if outcome.status == 0 and until(outcome.output) else None

    what = f"{' '.join(command)} to show the change"
    return wait_until(found, timeout_s=BOUND_S, what=what).output


def test_the_life_of_a_topic(run: Run, bootstrap: str) -> None:
    """Goal: create, list, describe, alter, delete. Method: each step seen by the next."""
    name = f"{PREFIX}-life"
    at = ["--bootstrap-server", bootstrap]
    made = run("topics", *at, "--create", "--topic", name, "--partitions", "2",
               "--config", "retention.ms=1000")  # fmt: skip
    assert (made.status, made.output) == (0, f"Created topic {name}.\n")
    again = run("topics", *at, "--create", "--topic", name)
    assert again.status == 1
    assert "exists already" in again.errors
    assert run("topics", *at, "--create", "--topic", name, "--if-not-exists").status == 0
    shown(run, "topics", *at, "--list", until=lambda output: name in output.splitlines())
    describe = ["topics", *at, "--describe", "--topic", name]
    lines = shown(run, *describe, until=lambda output: "Leader: none" not in output).splitlines()
    assert lines[0].startswith(f"Topic: {name}\tTopicId: ")
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: " in lines[0]
    assert "retention.ms=1000" in lines[0]
    assert lines[1].startswith(f"\tTopic: {name}\tPartition: 0\tLeader: ")
    assert run("topics", *at, "--alter", "--topic", name, "--partitions", "3").status == 0
    grown = json.loads(
        shown(
            run, *describe, "--json", until=lambda text: len(json.loads(text)[0]["partitions"]) == 3
        )
    )
    assert [found["partition"] for found in grown[0]["partitions"]] == [0, 1, 2]
    less = run("topics", *at, "--alter", "--topic", name, "--partitions", "1")
    assert (less.status, "INVALID_PARTITIONS" in less.errors) == (1, True)
    assert run("topics", *at, "--delete", "--topic", name).status == 0
    shown(run, "topics", *at, "--list", until=lambda output: name not in output.splitlines())
    assert run("topics", *at, "--delete", "--topic", name).status == 1
    assert run("topics", *at, "--delete", "--topic", name, "--if-exists").status == 0


def test_replicas_are_assigned_by_hand(run: Run, bootstrap: str) -> None:
    """Goal: --replica-assignment, when creating and when adding. Method: describe."""
    name = f"{PREFIX}-assigned"
    at = ["--bootstrap-server", bootstrap]
    live = json.loads(run("cat", "-L", "-J", "-b", bootstrap).output)
    broker = str(live["brokers"][0]["id"])
    made = run("topics", *at, "--create", "--topic", name, "--replica-assignment", broker)
    assert made.status == 0, made.errors
    alter = ["--alter", "--topic", name, "--partitions", "2", "--replica-assignment"]
    assert run("topics", *at, *alter, f"{broker},{broker},{broker}").status == 2
    assert run("topics", *at, *alter, broker).status == 0
    unknown = run("topics", *at, "--create", "--topic", f"{name}2", "--replica-assignment", "77")
    assert (unknown.status, "INVALID_REPLICA_ASSIGNMENT" in unknown.errors) == (1, True)


def test_refusals_are_one_line_with_the_brokers_reason(run: Run, bootstrap: str) -> None:
    """Goal: the proper code and what to do. Method: a bad name, config, number of copies."""
    at = ["topics", "--bootstrap-server", bootstrap, "--create", "--topic"]
    for arguments, code in (
        (["a b"], "INVALID_TOPIC_EXCEPTION"),
        (["x", "--config", "nope=1"], "INVALID_CONFIG"),
        (["x", "--replication-factor", "9"], "INVALID_REPLICATION_FACTOR"),
    ):
        outcome = run(*at, *arguments)
        assert outcome.status == 1
        assert code in outcome.errors
        assert outcome.errors.count("\n") == 1


def test_settings_are_changed_and_shown(run: Run, bootstrap: str) -> None:
    """Goal: alter, describe, and back to the default. Method: a topic, then all brokers."""
    name = f"{PREFIX}-settings"
    at = ["--bootstrap-server", bootstrap]
    assert run("topics", *at, "--create", "--topic", name).status == 0
    of_topic = ["configs", *at, "--entity-type", "topics", "--entity-name", name]
    done = run(*of_topic, "--alter", "--add-config", "retention.ms=5,segment.bytes=2000000")
    assert (done.status, done.output) == (0, f"Completed updating config for topic {name}.\n")
    lines = shown(
        run, *of_topic, "--describe", until=lambda output: "segment" in output
    ).splitlines()
    assert lines[0] == f"Dynamic configs for topic {name} are:"
    assert lines[1].startswith("  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert len(lines) == 3
    everything = run(*of_topic, "--describe", "--all").output.splitlines()
    assert everything[0] == f"All configs for topic {name} are:"
    assert len(everything) > 20
    assert run(*of_topic, "--alter", "--delete-config", "retention.ms,segment.bytes").status == 0
    shown(run, *of_topic, "--describe", until=lambda output: len(output.splitlines()) == 1)
    wrong = run(*of_topic, "--alter", "--add-config", "nope=1")
    assert (wrong.status, "INVALID_CONFIG" in wrong.errors) == (1, True)


def test_settings_of_brokers(run: Run, bootstrap: str) -> None:
    """Goal: the cluster's default is set and taken back. Method: log.retention.ms."""
    default = ["configs", "--bootstrap-server", bootstrap, "--entity-type", "brokers",
               "--entity-default"]  # fmt: skip
    done = run(*default, "--alter", "--add-config", "log.retention.ms=99")
    assert done.output == "Completed updating default config for brokers in the cluster.\n"
    described = json.loads(
        shown(run, *default, "--describe", "--json", until=lambda output: "log.retention" in output)
    )
    found = {entry["name"]: entry["value"] for entry in described[0]["configs"]}
    assert found["log.retention.ms"] == "99"
    assert run(*default, "--alter", "--delete-config", "log.retention.ms").status == 0


def test_leaders_are_elected(run: Run, bootstrap: str) -> None:
    """Goal: an election that isn't needed says so; an unknown partition fails. Method: both."""
    name = f"{PREFIX}-election"
    at = ["--bootstrap-server", bootstrap]
    assert run("topics", *at, "--create", "--topic", name).status == 0
    of_one = ["leader-election", *at, "--election-type", "preferred", "--partition", "0"]
    same = run(*of_one, "--topic", name)
    assert (same.status, same.output) == (
        0,
        f"Valid replica already elected for partitions {name}-0\n",
    )
    unknown = run(*of_one, "--topic", f"{name}-none")
    assert (unknown.status, "UNKNOWN_TOPIC_OR_PARTITION" in unknown.output) == (1, True)
    assert run("leader-election", *at, "--election-type", "preferred",
               "--all-topic-partitions").status == 0  # fmt: skip


@pytest.mark.slow
def test_cat_produces_and_consumes(
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Goal: what goes in comes out, with keys, nulls and headers. Method: pipe in, read back."""
    name = f"{PREFIX}-cat"

    def cat(*arguments: str, stdin: bytes = b"") -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        assert cli.run(["cat", "-b", bootstrap, "-t", name, *arguments]) == 0
        return capfdbinary.readouterr().out

    cat("-P", "-K", ":", "-Z", "-z", "lz4", "-H", "h=1", stdin=b"k1:v1\nk2:\n\nplain\n")
    assert cat("-C", "-e", "-q", "-Z", "-f", "%o %k=%s %h\\n") == (
        b"0 k1=v1 h=1\n1 k2=NULL h=1\n2 NULL=plain h=1\n"
    )
    assert cat("-C", "-e", "-q", "-o", "-1") == b"plain\n"
    assert cat("-C", "-q", "-o", "0", "-c", "1", "-K", "=") == b"k1=v1\n"
    assert cat("-C", "-e", "-q", "-o", "end") == b""
    assert cat("-C", "-e", "-q", "-o", "99") == b""  # seen to begin anew, at the first message
    assert cli.run(["cat", "-b", bootstrap, "-t", name, "-C", "-e", "-o", "99"]) == 0
    assert b"holds offsets 0 to 3, not 99: reading from 3" in capfdbinary.readouterr().err
    (first, *_) = cat("-C", "-e", "-q", "-J").splitlines()
    assert json.loads(first)["payload"] == "v1"
    assert name.encode() in cat("-L")
    stored = ["-o", "stored", "-X", "group.id=g"]
    assert cat("-C", "-e", "-q", *stored) == b"v1\n\nplain\n"  # the group has none yet
