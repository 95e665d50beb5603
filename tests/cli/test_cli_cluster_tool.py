"""`holdfast cluster` and `holdfast metadata-quorum`, on a running cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.quorum import metadata_quorum
from holdfast.cluster.quorum import QuorumState, RefusedError
from holdfast.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse

Run = Callable[..., Any]


def test_the_cluster_s_id(run: Run, bootstrap: str) -> None:
    """Goal: kafka-cluster's line. Method: against what the quorum's command says."""
    quorum = run(
        "metadata-quorum", "describe", "--status", "--json", "--bootstrap-server", bootstrap
    )
    outcome = run("cluster", "cluster-id", "--bootstrap-server", bootstrap)
    assert outcome.output == f"Cluster ID: {json.loads(quorum.output)['cluster_id']}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("describe",), "--status or --replication"),
        (("describe", "--status", "--human-readable"), "--human-readable"),
        (("--bootstrap-server", "a:1", "--bootstrap-controller", "b:1", "describe", "--status"),
         "one of them"),
        (("--bootstrap-controller", "b", "describe", "--status"), "--bootstrap-controller 'b'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Goal: the error names the option. Method: each combination that is none."""
    outcome = run("metadata-quorum", *arguments)
    assert outcome.status == 2
    assert words in outcome.errors


def test_nobody_describes(run: Run) -> None:
    """Goal: one line that names whom we asked. Method: a closed port."""
    flags = ("--bootstrap-controller", "127.0.0.1:1")
    outcome = run("metadata-quorum", *flags, "describe", "--status")
    assert outcome.status == 1
    assert "127.0.0.1:1" in outcome.errors
    assert "Traceback" not in outcome.errors


def test_the_quorum_of_a_running_cluster(run: Run, bootstrap: str) -> None:
    """Goal: status, table and JSON agree. Method: all three."""
    flags = ("--bootstrap-server", bootstrap)
    state = json.loads(run("metadata-quorum", "describe", "--json", *flags).output)
    status = run("metadata-quorum", *flags, "describe", "--status").output
    assert f"LeaderId:               {state['leader']}\n" in status
    table = run("metadata-quorum", *flags, "describe", "--replication", "--human-readable").output
    _, first, *_ = table.splitlines()
    assert first.split("\t")[0].strip() == str(state["leader"])
    assert first.rstrip().endswith("Leader")


def test_a_broker_is_no_controller(run: Run, bootstrap: str) -> None:
    """Goal: no answer without the cluster's id. Method: a broker named as controller."""
    flags = ("--bootstrap-controller", bootstrap)
    outcome = run("metadata-quorum", *flags, "describe", "--status")
    assert (outcome.status, outcome.output) == (2, "")
    assert "--bootstrap-server" in outcome.errors


def test_any_controller_shows_the_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one controller may be named, whichever it is. Method: the standby one of two.

    Seen to fail: all but the active one ended it with NOT_LEADER_OR_FOLLOWER.
    """
    told = DescribeClusterResponse(
        controller_id=101,
        cluster_id="c",
        brokers=[
            DescribeClusterBroker(broker_id=100, host="a", port=1),
            DescribeClusterBroker(broker_id=101, host="b", port=2),
        ],
    )
    state = QuorumState(leader=101, epoch=7, high_watermark=9, voters=(), observers=())

    def described(_host: str, port: int, **_times: float) -> QuorumState:
        if port != 2:
            raise RefusedError("NOT_LEADER_OR_FOLLOWER")
        return state

    driver = nullcontext(SimpleNamespace(send=lambda _request: told))
    monkeypatch.setattr(metadata_quorum, "connected", lambda _whom: driver)
    monkeypatch.setattr(metadata_quorum, "describe", described)
    outcome = run("metadata-quorum", "--bootstrap-controller", "a:1", "describe", "--status")
    assert (outcome.status, outcome.errors) == (0, "")
    assert "LeaderId:               101\n" in outcome.output


def test_who_waited_in_vain_is_not_followed_by_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no controller is one wait, not one a broker. Method: every answer takes too long.

    Seen to fail: three brokers were asked for half a minute each.
    """
    asked: list[int] = []

    def refused(_host: str, port: int, **_times: float) -> None:
        asked.append(port)
        raise RefusedError("REQUEST_TIMED_OUT")

    monkeypatch.setattr(metadata_quorum, "describe", refused)
    monkeypatch.setattr(metadata_quorum, "LONG_S", -1.0)
    outcome = run("metadata-quorum", "--bootstrap-server", "a:1,b:2,c:3", "describe", "--status")
    assert (outcome.status, asked) == (1, [1])
    assert "REQUEST_TIMED_OUT" in outcome.errors


def test_a_broker_that_lives_is_not_unregistered(run: Run, bootstrap: str) -> None:
    """Goal: no success that lasts a moment: it would register again. Method: the broker asked."""
    outcome = run("cluster", "unregister", "--id", "0", "--bootstrap-server", bootstrap)
    assert (outcome.status, outcome.output) == (1, "")
    assert "Stop it first" in outcome.errors
