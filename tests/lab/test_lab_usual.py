"""Goal: steps that many scenarios share wait for facts, not for moments.

Method: as much of a run as a step touches; clients whose answers are a list.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab import checked

from holdfast.cluster import ClusterError
from holdfast.judge.history import Acknowledged, Delivered, Refused
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenarios.compacted_topic import SINGLE, write_single
from holdfast.lab.scenarios.unclean_election import leave_a_alone
from holdfast.lab.scenarios.write_anomaly import strike
from holdfast.lab.steps.usual import acknowledge, expect_all_read, expect_consumed, settle
from holdfast.lab.steps.wants import Want, preferred, want, whole, without
from holdfast.lab.workload_processes import Worker

TRIES = 100
ASSIGNMENT = {0: (1, 0), 1: (2, 1), 2: (0, 2)}


def acknowledged() -> Acknowledged:
    return Acknowledged(at_ms=0, wall_ms=0, process="raw", topic="foo", partition=0, id="raw:0",
                        offset=0)  # fmt: skip


def refused() -> Refused:
    return Refused(at_ms=0, wall_ms=0, process="raw", topic="foo", partition=0, id="raw:0",
                   error="NOT_LEADER_OR_FOLLOWER", message="")  # fmt: skip


class Client:
    """A raw producer that gives these outcomes, and then acknowledges; it notes what it did."""

    topic = "foo"

    def __init__(self, name: str, done: list[str], refusals: int = 0) -> None:
        self.name = name
        self._done = done
        self._outcomes: Iterator[Refused] = iter([refused() for _ in range(refusals)])

    def send(self, _partition: int) -> Acknowledged | Refused:
        self._done.append(f"{self.name} sends")
        return next(self._outcomes, acknowledged())

    def post(self, _partition: int) -> None:
        self._done.append(f"{self.name} posts")

    def take(self) -> Acknowledged:
        return acknowledged()


class Scene:
    """As much of a run as these steps touch."""

    def __init__(self, refusals: int = 0) -> None:
        self.done: list[str] = []
        self.kept: list[bool] = []
        self.late: list[bool] = []
        self.parameters = Parameters(acks="1", count=2, config={})
        self.partitions = range(2)
        self._refusals = refusals

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return any(condition() for _ in range(TRIES))

    def wait(self, _what: str, condition: Callable[[], Any], _bound_s: float) -> None:
        del condition

    def raw_client(self, name: str, *, acks: str) -> Client:
        return Client(f"{name} acks={acks}", self.done, self._refusals)

    def fault(self, action: str, *nodes: int) -> None:
        self.done.append(f"{action} {nodes}")

    def note(self, _text: str) -> None: ...

    def check(
        self, _name: str, _expected: str, _seen: str, *, kept: bool, late: bool = False
    ) -> bool:
        self.kept.append(kept)
        self.late.append(late)
        return kept

    @property
    def as_run(self) -> Run:
        return cast("Run", self)


def test_refusals_while_a_leader_is_told_are_sat_out() -> None:
    """Goal: however fast refusals come, time bounds the patience and not their number."""
    scene = Scene()
    client = Client("raw", scene.done, refusals=TRIES // 2)
    assert acknowledge(scene.as_run, cast("Any", client), 0, 3) == 3
    stubborn = Client("raw", scene.done, refusals=2 * TRIES)
    assert acknowledge(scene.as_run, cast("Any", stubborn), 0, 3) == 0


def test_only_what_was_sent_to_the_leader_alone_can_be_lost_with_it() -> None:
    """Goal: acks=1 events sent before are on the followers when these are stopped."""
    scene = Scene()
    strike(scene.as_run, cast("Any", Client("raw", scene.done)), (1, 0, 2))
    first = ["settled-0 acks=all sends", "STOP (0, 2)"]
    assert scene.done == [*first, "raw posts", "raw posts", "KILL (1,)", "CONT (0, 2)"]


@pytest.mark.parametrize(("c_by", "bound_s"), [("TERM", 15.0), ("KILL", 18.0)])
def test_who_leaves_in_good_order_is_not_waited_for_as_long_as_who_dies(
    c_by: str, bound_s: float
) -> None:
    """Goal: a session, which only a dead broker needs, is no excuse for a clean one's leaving."""
    scene: Any = Scene()
    bounds: list[float] = []
    scene.expect = lambda _when, _wanted, bound_s: bounds.append(bound_s)
    n1, _ = leave_a_alone(scene, cast("Any", Client("raw", scene.done)), c_by, "TERM", "alone")
    assert n1 == 2
    assert bounds == [bound_s, bound_s]


def test_a_partition_that_does_not_settle_ends_the_run() -> None:
    with pytest.raises(LabError, match="foo-0 does not acknowledge"):
        settle(Scene(refusals=2 * TRIES).as_run, 0)


@pytest.mark.parametrize(
    ("delivered_ms", "kept"),
    [({0: 11.0, 1: 12.0}, True), ({0: 11.0, 1: 9.0}, False), ({0: 11.0}, False)],
    ids=["every partition", "one only before", "one never"],
)
def test_a_consumer_goes_on_when_every_partition_delivers_again(
    delivered_ms: dict[int, float], kept: bool
) -> None:
    scene = Scene()
    tail = SimpleNamespace(delivered_ms=delivered_ms)
    tail.poll = lambda: tail
    expect_consumed(scene.as_run, cast("Worker", SimpleNamespace(tail=tail)), "again", 10.0)
    assert scene.kept == [kept]


def test_what_was_delivered_before_is_not_going_on() -> None:
    """Goal: without a moment of its own the check counts from its call."""
    scene = Scene()
    now_ms = time.monotonic() * 1000
    tail = SimpleNamespace(delivered_ms={0: now_ms, 1: now_ms})
    tail.poll = lambda: tail
    expect_consumed(scene.as_run, cast("Worker", SimpleNamespace(tail=tail)), "again")
    assert scene.kept == [False]


def test_a_client_that_ends_early_does_not_make_another_one_s_silence_a_broken_promise() -> None:
    def ended() -> None:
        raise LabError("the process consumer ended early")

    run: Any = object.__new__(Run)
    run.checks = []
    run.cluster = SimpleNamespace(refuse_broken_network=lambda: None)
    run.relied_on = []
    run._workers = [SimpleNamespace(raise_if_dead=ended)]
    tail = SimpleNamespace(acknowledged_ms={})
    tail.poll = lambda: tail
    producer = SimpleNamespace(name="producer", tail=tail, raise_if_dead=lambda: None)
    with pytest.raises(LabError, match="consumer ended early"):
        run.expect_flow(producer, "it is back", 20.0, [0])
    assert run.checks == []


@pytest.mark.parametrize(("state", "late"), [("dead", False), ("running", True)])
def test_a_node_that_does_not_come_to_serve_breaks_the_promise(state: str, late: bool) -> None:
    """Goal: that is no mishap of the run, unless that was starved; being starved ends no node."""

    def wait_serving(_node: int, *, timeout_s: float) -> None:
        assert timeout_s > 0
        raise ClusterError("it does not serve")

    scene = Scene()
    run = cast("Any", scene)
    run._observer = SimpleNamespace()
    run._start_s = 30.0
    run.ended = {1}
    run.not_serving = partial(Run.not_serving, run)
    run.record_fault = lambda *_: None
    run.cluster = SimpleNamespace(
        start_node=lambda *_, **__: None, wait_serving=wait_serving, state=lambda _node: state
    )
    with pytest.raises(ClusterError, match="does not serve"):
        Run.start_node(run, 1)
    assert (scene.kept, scene.late) == ([False], [late])


@pytest.mark.parametrize("is_hurt", [True, False])
def test_a_client_that_does_not_flow_behind_a_fault_breaks_the_promise(is_hurt: bool) -> None:
    """Goal: what a fault has left behind is not taken for a run that could not be made."""
    scene = cast("Any", Scene())
    scene.is_hurt = is_hurt
    scene._silent = lambda _worker, wanted, _bound_s: list(wanted)
    with pytest.raises(LabError, match=r"raw: no acknowledgement from partitions \[0, 1\]"):
        Run.must_flow(scene, cast("Worker", SimpleNamespace(name="raw")))
    assert (scene.kept, scene.late) == (([False], [True]) if is_hurt else ([], []))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (whole(ASSIGNMENT), "ISR {0,1}; ISR {1,2}; ISR {0,2}"),
        (preferred(ASSIGNMENT), "leader 1, ISR {0,1}; leader 2, ISR {1,2}; leader 0, ISR {0,2}"),
        (without(ASSIGNMENT, {2}), "leader 1, ISR {0,1}; leader 1, ISR {1}; leader 0, ISR {0}"),
        (without(ASSIGNMENT, {1, 2}), "leader 0, ISR {0}; leader none; leader 0, ISR {0}"),
        ({0: want()}, "anything"),
    ],
)
def test_what_partitions_must_look_like(wanted: dict[int, Want], text: str) -> None:
    assert "; ".join(map(str, wanted.values())) == text


def test_some_keys_of_a_compacted_topic_never_come_again() -> None:
    """Goal: of keys that come again and again, whatever is taken by mistake is excused."""
    sent: list[tuple[int, str]] = []
    client = SimpleNamespace(send=lambda partition, key: sent.append((partition, key)))
    run, keys = SimpleNamespace(partitions=range(3)), count()
    for _ in range(2):
        write_single(cast("Run", run), cast("Any", client), keys)
    assert set(Counter(key for _, key in sent).values()) == {1}
    assert set(Counter(partition for partition, _ in sent).values()) == {2 * SINGLE}


@pytest.mark.parametrize(
    ("read", "kept"),
    [(5, True), (6, True), (4, False), (0, False)],
    ids=["all", "one more, that nobody knew of", "one is stuck", "none"],
)
def test_each_event_that_is_acknowledged_must_be_read(read: int, kept: bool) -> None:
    """Goal: a broker that gives no consumer its largest events is named."""
    scene = checked.Scene()
    senders = [
        checked.wrote("size-100", {Acknowledged: 4}),
        checked.wrote("size-5000000", {Acknowledged: 1}),
    ]
    expect_all_read(
        cast("Any", scene), checked.wrote("consumer", {Delivered: read}), senders, "all"
    )
    assert scene.kept == [kept]
