"""Goal: each partition must refuse, and clients must be told the addresses that are for them.

Method: what the scenario checks, with answers made up.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.checked import Scene

from holdfast.lab.scenarios.networks import replication_network
from holdfast.lab.scenarios.networks.replication_network import expect_refused
from holdfast.lab.steps.usual import REFUSAL
from holdfast.lab.workload_processes import Worker


@pytest.mark.parametrize(
    ("later", "kept"),
    [([0, 1], True), ([0], False), ([], False)],
    ids=["every partition", "one", "none"],
)
def test_each_partition_must_refuse_from_then_on(later: list[int], kept: bool) -> None:
    """Goal: a refusal of before is none of now."""
    errors = Counter({(REFUSAL, 0): 1, (REFUSAL, 1): 1})
    looks = iter([errors, errors + Counter({(REFUSAL, p): 1 for p in later})])
    seen = errors

    def poll() -> Any:
        nonlocal seen
        seen = next(looks, seen)
        return SimpleNamespace(errors=seen)

    scene = Scene()
    raw = SimpleNamespace(tail=SimpleNamespace(poll=poll))
    expect_refused(cast("Any", scene), cast("Worker", raw), "who")
    assert scene.kept == [kept]


@pytest.mark.parametrize(
    ("told_ports", "kept"),
    [((9092, 9092), True), ((9092, 9094), False), ((9092,), False)],
    ids=["for clients", "for brokers", "one only"],
)
def test_clients_must_be_told_their_own_addresses(
    monkeypatch: pytest.MonkeyPatch, told_ports: tuple[int, ...], kept: bool
) -> None:
    brokers = [
        SimpleNamespace(address=f"10.1.0.{n}:9092", watch_address=("127.0.0.1", n)) for n in (1, 2)
    ]
    answer = {n: (f"10.1.0.{n}", port) for n, port in enumerate(told_ports, 1)}
    monkeypatch.setattr(
        replication_network, "ask", lambda *_, **__: SimpleNamespace(brokers=answer)
    )
    scene = Scene()
    cast("Any", scene).cluster = SimpleNamespace(record=SimpleNamespace(brokers=brokers))
    replication_network.expect_clients_addresses(cast("Any", scene))
    assert scene.kept == [kept]
