"""Goal: what is done to members is in the history first, and what must be seen of them is seen.

Method: members whose histories are written by hand, and a run that keeps what it is told.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.group_runs import kept, skipping

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.workload.group_diary import GroupDiary, Membership
from holdfast.clients.workload.member_sink import Result
from holdfast.clients.workload.recorder import Recorder
from holdfast.cluster.layout import APACHE, EMBEDDED
from holdfast.judge.groups.history import ConsumerFault
from holdfast.judge.history import Acknowledged
from holdfast.lab import group_observer
from holdfast.lab.aftermath import group_checks
from holdfast.lab.group import Group
from holdfast.lab.group_members import Held, Member, MemberTail
from holdfast.lab.group_observer import GroupObserver
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.scenarios.clients_cut_off import expect_session
from holdfast.lab.scenarios.consumer_replaced import VICTIMS, moment
from holdfast.lab.scenarios.rebalance_price import STRATEGIES
from holdfast.lab.steps.group_chaos import LONELY, THROWN_OUT, Chaos, Counts
from holdfast.lab.steps.group_results import expect_once, gaps
from holdfast.lab.steps.groups import BATCH, repeats
from holdfast.lab.workload_processes import HistoryTail, Worker
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode


class FakeRun:
    """Keeps what is written and checked; a wait looks once."""

    def __init__(self, directory: Path) -> None:
        self.history = directory / "history"
        self.partitions = range(3)
        self.written: list[tuple[str, ...]] = []
        self.checks: dict[str, tuple[str, bool]] = {}
        self.late: set[str] = set()  # those that a starved machine excuses
        self.waits: Callable[[str, Callable[[], Any]], Any] = lambda _what, look: look()

    def record(self, kind: type, **values: Any) -> Any:
        event = kind(at_ms=time.monotonic() * 1000, wall_ms=0, process="lab", **values)
        self.written.append((event.KIND, *map(str, values.values())))
        return event

    def say(self, _text: str) -> None:
        pass

    def check(
        self, name: str, _expected: str, seen: str, *, kept: bool, late: bool = False
    ) -> bool:
        self.checks[name] = seen, kept
        self.late |= {name} if late else set()
        return kept

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()

    def wait(self, what: str, condition: Callable[[], Any], _bound_s: float) -> Any:
        return self.waits(what, condition)


class FakeMember:
    """A member with a history of its own, which a test writes."""

    def __init__(self, run: FakeRun, directory: Path, name: str) -> None:
        self.name = name
        self._run = run
        self._recorder = Recorder(directory / f"{name}.jsonl", name)
        self.history = directory / f"{name}.jsonl"
        self.diary = GroupDiary(self._recorder, "g", "foo")
        self.me = Membership(name, 1)
        self._tail = MemberTail(directory / f"{name}.jsonl")

    def close(self) -> None:
        self._recorder.close()

    @property
    def told(self) -> MemberTail:
        self.diary.flush()
        self._tail.poll()
        return self._tail

    def own(self, *partitions: int) -> FakeMember:
        self.diary.assigned(self.me, partitions)
        for each in partitions:
            self.diary.started(self.me, each, committed=None, offset=0, reset="", begin_ms=1.0)
        return self

    def do(self, partition: int, *offsets: int) -> FakeMember:
        for offset in offsets:
            self.diary.processed(self.me, partition, offset, None, 1.0)
        return self

    def kill(self) -> None:
        self._run.written.append(("killed", self.name))

    def signal(self, number: int) -> None:
        self._run.written.append(("signal", self.name, str(int(number))))


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


@pytest.fixture
def group(run: FakeRun, tmp_path: Path) -> Iterator[tuple[Group, list[FakeMember]]]:
    """Two members, in a group that nobody has started."""
    members = [FakeMember(run, tmp_path, name) for name in ("a", "b")]
    made = object.__new__(Group)
    made.__dict__ |= {
        "run": run, "name": "g", "protocol": "classic", "members": list(members),
        "all": list(members),
    }  # fmt: skip
    yield made, members
    for member in members:
        member.close()


def those(members: list[FakeMember]) -> list[Member]:
    return cast("list[Member]", members)


def test_a_fault_is_written_before_it_is_done_and_its_end_afterwards(
    run: FakeRun, group: tuple[Group, list[FakeMember]]
) -> None:
    made, (a, b) = group
    made.fault("STOP", *those([a]))
    made.fault("CONT", *those([a]))
    made.fault("KILL", *those([b]))
    assert run.written == [
        (ConsumerFault.KIND, "a", "STOP"), ("signal", "a", "19"),
        ("signal", "a", "18"), (ConsumerFault.KIND, "a", "CONT"),
        (ConsumerFault.KIND, "b", "KILL"), ("killed", "b"),
    ]  # fmt: skip
    assert [member.name for member in made.members] == ["a"]


def test_partitions_are_shared_when_each_has_one_owner_that_has_begun(
    group: tuple[Group, list[FakeMember]],
) -> None:
    made, (a, b) = group
    assert not made.is_shared(made.members)
    a.own(0, 1, 2)
    assert not made.is_shared(made.members), "one has nothing"
    b.own(2)
    assert not made.is_shared(made.members), "two own one partition"
    a.diary.revoked(a.me, [2], lost=False)
    assert made.is_shared(made.members)
    assert made.owner(2) is cast("object", b)
    b.diary.assigned(b.me, [1])
    assert made.is_shared(made.members), "what has not begun counts for nobody"


def test_a_group_that_does_not_come_to_share_its_partitions_is_broken(
    run: FakeRun, group: tuple[Group, list[FakeMember]]
) -> None:
    """Goal: a group that is stuck is the cluster's doing, and no mishap of the run."""
    made, (a, b) = group
    a.own(0, 1)
    b.own(2)
    made.wait_shared()
    assert not run.checks
    b.diary.revoked(b.me, [2], lost=True)
    with pytest.raises(LabError, match="group g is stuck"):
        made.wait_shared()
    name, (seen, kept_) = run.checks.popitem()
    assert (name, kept_) == ("g: its members share the partitions", False)
    assert run.late == {name}, "where nodes were starved that proves nothing"
    assert seen == "a: P0, P1; b: , after 60 s"


def test_who_has_not_even_begun_breaks_nothing(
    run: FakeRun, group: tuple[Group, list[FakeMember]], tmp_path: Path
) -> None:
    made, (a, _b) = group
    a.history = tmp_path / "not there"
    waits: list[str] = []

    def wait(what: str, condition: Callable[[], Any]) -> Any:
        waits.append(what)
        if not condition():
            raise LabError(what)

    run.waits = wait
    with pytest.raises(LabError, match="to begin"):
        made.wait_shared()
    assert waits == ["the members of g to begin"]
    assert not run.checks


def test_all_is_processed_when_the_last_record_is(
    run: FakeRun, group: tuple[Group, list[FakeMember]], tmp_path: Path
) -> None:
    """Method: the producer that runs now is the second one: it has acknowledged only the last."""
    made, (a, _b) = group
    a.do(0, *range(9))
    path = tmp_path / "producer.jsonl"
    with Recorder(path, "producer") as recorder:
        where = {"topic": "foo", "partition": 0}
        recorder.record(Acknowledged, **where, id="p:1", offset=9)
        recorder.record(Acknowledged, **where, id="p:0", offset=8)
        recorder.record(Acknowledged, **where, id="p:2", offset=None)
    producer = cast("Worker", SimpleNamespace(tail=HistoryTail(path)))
    with pytest.raises(LabError, match="1 records of P0 are left"):
        made.wait_processed(producer)
    assert [kept_ for _, kept_ in run.checks.values()] == [False]
    a.do(0, 9)
    made.wait_processed(producer)


def test_a_group_is_not_done_before_somebody_was_told_what_it_has_committed(
    run: FakeRun, group: tuple[Group, list[FakeMember]], tmp_path: Path
) -> None:
    """Goal: a look that nobody answers can't see a committed offset go back: that is broken."""
    made, _ = group
    answers: list[Any] = [DriverError("no"), AdminError("no", ErrorCode.NOT_COORDINATOR), {}]
    observer = GroupObserver("127.0.0.1:1", "g", "foo", range(1), tmp_path)
    made.__dict__["_observer"] = observer
    looked: list[bool] = []

    def ask(*_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, DriverError):
            raise answer
        return {"g": answer}

    def soon(condition: Callable[[], bool], _bound_s: float) -> bool:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(group_observer, "committed", ask)
            patched.setattr(observer._coordinators, "is_doubted", lambda _: False)
            for _ in range(min(3, len(answers))):
                observer._look()
                looked.append(condition())
        return looked[-1]

    run.soon = soon  # type: ignore[method-assign]
    made.wait_looked()
    assert looked == [False, False, True]
    answers.append(DriverError("no"))
    with pytest.raises(LabError, match="is told what it has committed: none"):
        made.wait_looked()
    observer._driver.close()
    observer._recorder.close()
    assert run.checks == {
        "g: who is no member is told what it has committed": ("none, after 60 s", False)
    }


def test_what_a_former_coordinator_answers_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an answer from the memory of who stood still is no committed offset that goes back.

    Seen to fail: Apache Kafka's coordinator was asked while it stood still, and answered when it
    went on, before it had heard that members commit elsewhere: "offset moved back".
    """
    observer = GroupObserver("127.0.0.1:1", "g", "foo", range(1), tmp_path)
    monkeypatch.setattr(group_observer, "committed", lambda *_: {"g": {}})
    doubts: list[Any] = [True, DriverError("no"), False]

    def doubt(group: str) -> bool:
        assert group == "g"
        found = doubts.pop(0)
        if isinstance(found, DriverError):
            raise found
        return bool(found)

    monkeypatch.setattr(observer._coordinators, "is_doubted", doubt)
    looked: list[bool] = []
    for _ in range(3):
        observer._look()
        looked.append(observer.looked_ms > 0)
    assert looked == [False, False, True]
    observer._driver.close()
    observer._recorder.close()
    assert (tmp_path / "g-observer.jsonl").read_bytes().count(b"group_seen") == 1


@pytest.mark.parametrize(("engine", "may_lag"), [(EMBEDDED, False), (APACHE, True)])
def test_what_a_coordinator_tells_may_be_older_only_where_its_watermark_is_early(
    run: FakeRun, monkeypatch: pytest.MonkeyPatch, engine: str, may_lag: bool
) -> None:
    """Seen to fail: "offset moved back", of Apache Kafka's next coordinator behind a SIGTERM."""
    made = cast("Any", run)
    made.parameters = SimpleNamespace(
        early_watermark=Parameters(engine=engine).early_watermark,
        group_session_ms=6000,
        commits=None,
    )
    made.cluster = SimpleNamespace(bootstrap_servers="127.0.0.1:1")
    made.topic, made.relied_on = "foo", []
    made.end_with_clients = lambda _stop: None
    monkeypatch.setattr("holdfast.lab.group.name_in", lambda _run, name: name)
    monkeypatch.setattr(
        "holdfast.lab.group.GroupObserver",
        lambda *_: SimpleNamespace(start=lambda: None, stop=lambda: None),
    )
    Group(made, "g", "classic")
    ((kind, *values),) = run.written
    assert kind == "group_expected"
    assert values[-1] == str(may_lag)


def test_who_is_never_told_that_its_commit_is_taken_is_seen(
    run: FakeRun, group: tuple[Group, list[FakeMember]]
) -> None:
    """Goal: where nothing is ever committed all may be done again, and that is no small price."""
    made, (a, b) = group
    a.own(0, 1)
    assert not made.expect_commits("idle", 0.0), "b owns nothing, and has nothing to commit"
    assert run.checks == {"g, idle": ("none of a in 0 s", False)}
    assert run.late == {"g, idle"}
    b.own(2)

    def acknowledge(condition: Callable[[], bool], _bound_s: float) -> bool:
        assert not condition()
        for member, partition in ((a, 0), (b, 2)):
            member.diary.acknowledged(*member.diary.asks(member.me, {partition: 1}))
        return condition()

    run.__dict__["soon"] = acknowledge
    assert made.expect_commits("busy", 0.0)
    assert run.checks["g, busy"] == ("of every member", True)


@pytest.mark.parametrize(("commits", "waits"), [("after", True), ("never", False)])
def test_only_who_commits_by_itself_is_asked_for_commits(
    group: tuple[Group, list[FakeMember]], commits: str, waits: bool
) -> None:
    made, _ = group
    made.__dict__["_flags"] = {"commits": commits}
    assert made.waits_for_commits is waits
    assert repeats(7, [made], 2) == (7, 7 + 2 * 2 * BATCH)


@pytest.mark.parametrize(("ago_ms", "kept_"), [(100.0, False), (5000.0, True)])
def test_partitions_of_who_is_silent_move_when_its_session_is_over(
    run: FakeRun, group: tuple[Group, list[FakeMember]], ago_ms: float, kept_: bool
) -> None:
    made, (a, b) = group
    made.__dict__["session_ms"] = 6000
    a.own(0)
    b.own(1)
    (victim,) = those([a])
    stopped_ms = time.monotonic() * 1000 - ago_ms
    expect_session(made, victim, stopped_ms)
    assert [kept_ for _, kept_ in run.checks.values()] == [False], "nobody has it"
    b.own(0)
    expect_session(made, victim, stopped_ms)
    assert [kept_ for _, kept_ in run.checks.values()] == [kept_]
    # Who has given it up meanwhile, by itself, had it when it fell silent.
    run.checks.clear()
    victim.told.begun.clear()
    expect_session(made, victim, stopped_ms, "is deaf", {0})
    assert {name: kept_ for name, (_, kept_) in run.checks.items()} == {
        f"{victim.name} is deaf: its partitions move": kept_
    }
    expect_session(made, victim, stopped_ms)
    assert [kept_ for _, kept_ in run.checks.values()] == [kept_, False], "it had none"


def test_groups_that_wait_when_they_are_empty_are_classic_ones_whose_members_leave() -> None:
    assert [each.name for each in STRATEGIES if each.waits] == ["eager", "cooperative"]


def test_progress_is_of_every_partition(
    run: FakeRun, group: tuple[Group, list[FakeMember]]
) -> None:
    made, (a, b) = group
    a.do(0, 0, 1).do(1, 0)
    b.do(0, 5)
    assert [made.position(p) for p in range(3)] == [6, 1, 0]
    made.expect_progress("idle", 0.0)
    assert run.checks == {"g, idle: goes on": ("nothing of P0, P1, P2 in 0 s", False)}
    assert run.late == {"g, idle: goes on"}


@pytest.mark.parametrize(
    ("offsets", "kept_", "words"),
    [
        ([0, 1, 2], True, "3 results"),
        ([0, 1, 2, 1], False, "1 twice (P0:1...)"),
        ([0, 2], False, "1 missing (P0:1...)"),
        ([0, 1, 2, 3], False, "1 of no record (P0:3...)"),
    ],
)
def test_results_are_there_once(
    run: FakeRun, group: tuple[Group, list[FakeMember]], offsets: list[int], kept_: bool, words: str
) -> None:
    made, (a, _b) = group
    a.do(0, 0, 1, 2)
    expect_once(made, [Result("", 0, offset, "a", 0.0) for offset in offsets])
    (seen,) = run.checks.values()
    assert seen == (words, kept_)


def test_a_gap_is_the_longest_one_that_ends_later() -> None:
    at = [(0, 0.0), (0, 50.0), (0, 60.0), (0, 80.0), (1, 10.0), (1, 20.0), (0, 85.0)]
    rows = [Result("", partition, 0, "a", at_ms) for partition, at_ms in at]
    assert gaps(rows, 0.0) == {0: 50.0, 1: 10.0}
    assert gaps(rows, 60.0) == {0: 20.0}


def test_members_stand_still_where_they_are_told(
    run: FakeRun, group: tuple[Group, list[FakeMember]], tmp_path: Path
) -> None:
    """Method: both say at once that they do; the files say how far they were to go."""
    made, (a, b) = group

    def wait(what: str, condition: Callable[[], Any]) -> Any:
        member = a if what.startswith("a ") else b
        assert not condition()
        member.diary.note(f"{member.name} holds with 3 of 10 records processed")
        assert condition()

    run.waits = wait
    held = made.hold({those([a])[0]: 3, those([b])[0]: 7})
    assert list(held.values()) == [Held(3, 10), Held(3, 10)]
    assert held[those([a])[0]].left == 7
    assert (tmp_path / "a.hold").read_text() == "3"
    assert (tmp_path / "b.hold").read_text() == "7"
    made.let_go(*those([a, b]))
    assert not list(tmp_path.glob("*.hold"))


def test_every_moment_of_a_batch_comes() -> None:
    moments = {moment(number, n) for number in range(1, 6) for n in range(VICTIMS)}
    assert moments == set(range(BATCH + 1))


@pytest.mark.parametrize(
    ("expected", "kept_"),
    [
        ({"repeated": (2, 2)}, [True]),
        ({"repeated": (3, 9), "processed": (8, 8)}, [False, True]),
        ({"skipped": (0, 0), "processed twice": (0, 0)}, [True, True]),
    ],
)
def test_counts_and_anomalies_are_named_alike(
    expected: dict[str, tuple[int, int]], kept_: list[bool]
) -> None:
    checks = group_checks(expected, kept().evidence().groups)
    assert [check.kept for check in checks] == kept_
    (found,) = group_checks({"skipped": (3, 3)}, skipping().evidence().groups)
    assert (found.name, found.seen, found.kept) == ("records of groups: skipped", "3", True)


def test_a_tail_says_what_its_member_is_at(group: tuple[Group, list[FakeMember]]) -> None:
    _made, (a, _b) = group
    a.own(0, 1).do(1, 0, 1)
    first, second, third = a.diary.asks(a.me, {0: 1, 1: 2}) + a.diary.asks(a.me, {0: 2})
    a.diary.acknowledged(first)
    a.diary.refused(second, "UNKNOWN_MEMBER_ID")
    a.diary.unknown(third, "_TIMED_OUT")
    told = a.told
    assert (told.member, told.epoch, told.owned, told.begun) == ("a", 1, {0, 1}, {0: 0, 1: 0})
    assert (told.commits, dict(told.refusals), dict(told.doubts)) == (
        1, {"UNKNOWN_MEMBER_ID": 1}, {"_TIMED_OUT": 1},
    )  # fmt: skip
    assert (told.processed[1], told.positions) == (2, {1: 2})
    a.diary.left(a.me)
    assert a.told.owned == set()
    assert (told.assignments, told.revocations) == (2, 0)


def test_only_who_has_joined_is_asked_to_leave(
    group: tuple[Group, list[FakeMember]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: SIGTERM ends a process that knows of no signals yet, and with it the run."""
    made, (_a, b) = group
    left: list[str] = []
    monkeypatch.setattr(
        Group, "leave", lambda _self, *members: left.extend(m.name for m in members)
    )
    monkeypatch.setattr(Group, "start", lambda _self, name: name)
    chaos = Chaos(made, cast("Worker", None), random.Random(1))
    chaos._replace_member()
    assert left == []
    b.own(0)
    for _ in range(5):
        chaos._replace_member()
    assert left == ["b"] * 5


class Owner:
    """A member that has joined, and has begun with a partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told = SimpleNamespace(member=name, begun={0: 0})


class Scene:
    """A run and a group that write down what is asked of them; a fault takes a second."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.now_s = 0.0
        self.partitions = range(1)
        self.replicas = {0: (1, 2, 3)}
        self.cluster = SimpleNamespace(broker_ids=[1, 2, 3], controller_ids=[100], nodes=())
        self.run = self
        self.name, self.session_ms = "g", 6000
        self.members = [Owner("a"), Owner("b")]

    def coordinator(self) -> int:
        return 2

    def fault(self, action: str, *whom: Any) -> float:
        self.now_s += 1.0
        self.told.append((action, *(str(getattr(each, "name", each)) for each in whom)))
        return 0.0

    def start_node(self, node: int) -> None:
        self.told.append(("start", str(node)))

    def expect_progress(self, when: str, _bound_s: float) -> None:
        self.told.append(("works", when))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: self.told.append((name,))


def chaos_of(scene: Scene, counts: Counts | None = None) -> Chaos:
    return Chaos(cast("Group", scene), cast("Worker", None), random.Random(1), counts)


def hurt(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[list[tuple[str, ...]], Counts]:
    """Have chaos last for so many faults; return what was done, and the counts of it."""
    scene, counts = Scene(), Counts()
    monkeypatch.setattr(time, "monotonic", lambda: scene.now_s)
    chaos = chaos_of(scene, counts)
    monkeypatch.setattr(chaos, "_replace_member", lambda: scene.fault("leave"))
    chaos._deeds["member left"] = (chaos._replace_member, 2)
    chaos.last(seconds)
    monkeypatch.undo()
    return scene.told, counts


def test_every_kind_of_fault_comes_and_half_of_them_to_a_group_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: no long run is without a kind of fault, nor hurts only a group that does nothing."""
    told, counts = hurt(monkeypatch, 60.0)
    done = counts.done
    assert set(done) == {
        "broker killed", "coordinator killed", LONELY, "controller killed", "members killed",
        "member stood still", "member left", THROWN_OUT,
    }  # fmt: skip
    weights = {name: weight for name, (_, weight) in chaos_of(Scene())._deeds.items()}
    rounds = done.total() // sum(weights.values())
    assert rounds > 0
    assert all(n * rounds <= done[name] <= n * (rounds + 1) for name, n in weights.items())
    share = counts.at_work.total() / done.total()
    assert 0.3 < share < 0.8
    assert sum(each[0] == "works" for each in told) == counts.at_work.total()
    assert done[THROWN_OUT] == counts.at_work[THROWN_OUT] > 0
    at = told.index(("hold",))
    assert [each[0] for each in told[at:]][:5] == ["hold", "STOP", "steady", "let_go", "CONT"]
    assert told[-3:] == [("expect",), ("check",), ("expect_flow",)]


def test_a_coordinator_dies_when_nobody_has_what_it_took_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a commit that was acknowledged before others had it is gone for certain."""
    told, counts = hurt(monkeypatch, 60.0)
    assert counts.done[LONELY] == counts.at_work[LONELY] > 0
    at = told.index(("STOP", "1", "3"))
    assert told[at - 1] == ("works", f"before {LONELY}")
    assert [each for each in told[at:] if each[0] != "steady"][:5] == [
        ("STOP", "1", "3"), ("steady_view",), ("KILL", "2"), ("CONT", "1", "3"), ("start", "2"),
    ]  # fmt: skip
