"""A run tells what breaks its promise from what was never tried.

Goal: an idempotent producer that meets a gap is a broken promise, not a run that could not be made;
a part that never met what it is about is not kept; what a leader only said that it had written is
no loss of its disk. Method: made-up ends of clients, histories and offsets.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from confluent_kafka import KafkaException
from tests.judge.histories import Story

from holdfast.clients.workload import verifiable_producer
from holdfast.clients.workload.command import GAVE_UP
from holdfast.clients.workload.verifiable_producer import Options
from holdfast.judge.checker import judge
from holdfast.judge.history import Refused, Unknown
from holdfast.lab import prove as proving
from holdfast.lab.aftermath import Errors
from holdfast.lab.journal import Exit, write_manifest
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report import Check
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part
from holdfast.lab.scenarios.disk_full import SCENARIO, expect_written
from holdfast.lab.soak import group_campaigns, scenario_campaigns
from holdfast.lab.soak.campaign import not_judged
from holdfast.lab.workload_processes import GaveUpError, NoRecordsError, Process

GAP = "OUT_OF_ORDER_SEQUENCE_NUMBER"
MAIN = SCENARIO.parts[0]


class Fatal:
    """What the client library tells of."""

    def __init__(self, *, fatal: bool) -> None:
        self._fatal = fatal

    def fatal(self) -> bool:
        return self._fatal

    def name(self) -> str:
        return GAP

    def str(self) -> str:
        return "a gap"


class FailingClient:
    """Its first call of `poll`, or of `flush`, ends as the library ends them."""

    def __init__(self, config: dict[str, Any], logger: object) -> None:
        assert logger is None
        self._at = config["fails.at"]

    def produce(self, *_: object, **__: object) -> None:
        """Take it."""

    def poll(self, _timeout_s: float) -> None:
        self._fail("poll")

    def flush(self, _timeout_s: float) -> int:
        self._fail("flush")
        return 0

    def __len__(self) -> int:
        return 2

    def _fail(self, at: str) -> None:
        if self._at == at:
            raise KafkaException(Fatal(fatal=True))


@pytest.mark.parametrize("at", ["poll", "flush"])
def test_a_producer_that_can_not_go_on_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    """Method: the client raises what it raises, wherever it is called, when it has met a gap."""
    monkeypatch.setattr("confluent_kafka.Producer", FailingClient)
    options = Options(
        bootstrap="nowhere", topic="t", history=tmp_path / "history", process="p", partitions=1,
        messages=1, config=(("fails.at", at),),
    )  # fmt: skip
    assert verifiable_producer.run(options) == GAVE_UP
    assert f"gave up: {GAP}: a gap" in capsys.readouterr().err
    history = options.history.read_text()
    assert "p ended, 2 sends without an outcome" in history
    assert f"p gave up: {GAP}" in history


@pytest.mark.process
@pytest.mark.parametrize(("code", "kind"), [(GAVE_UP, GaveUpError), (1, LabError)])
def test_the_end_of_a_process_says_which_it_was(
    tmp_path: Path, code: int, kind: type[LabError]
) -> None:
    """Method: a module that ends with this status, seen by who waits and by who looks on."""
    (tmp_path / "ends.py").write_text(f"import sys; sys.exit({code})")
    environment = {"PYTHONPATH": str(tmp_path)}
    looked_at = Process("p", "ends", [], tmp_path / "said", environment)
    looked_at._process.wait(30)
    for end in (looked_at.raise_if_dead, looked_at.wait):
        with pytest.raises(LabError) as seen:
            end()
        assert seen.type is kind


@pytest.mark.process
@pytest.mark.parametrize(
    ("problem", "changes", "code"),
    [
        (GaveUpError(GAP), {}, Exit.BROKEN),
        (GaveUpError(GAP), {"unclean": True}, Exit.NOT_MADE),
        (LabError(GAP), {}, Exit.NOT_MADE),
    ],
    ids=["a gap", "a gap that is allowed", "something else"],
)
def test_a_gap_breaks_the_promise_where_nothing_may_be_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: LabError,
    changes: dict[str, Any],
    code: Exit,
) -> None:
    """Method: the steps of a run without a cluster end so."""

    def steps(_run: Run) -> None:
        raise problem

    monkeypatch.setattr(proving, "Run", NoCluster)
    base = Parameters(**changes)
    write_manifest(tmp_path, "proof", scenario="x", parameters={}, parts=["main"], command="x")
    part = Part(name="main", title="Main", steps=steps)
    result = proving._run_part(part, base, tmp_path / "main", lambda _line: None)
    assert proving._verdict([result], result.broke_off)[0] is code
    again = proving.judge_part(part, base, tmp_path / "main")
    assert again.seen_broken is (code is Exit.BROKEN)


WRONG = "foo-1 at offset 403: wrong CRC"


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "code", "kind"),
    [
        (f"{WRONG}\n", 1, NoRecordsError),
        (f"foo-0 at offset 7: the reader broke\n{WRONG}\n", 1, NoRecordsError),
        ("Traceback\nfoo-0 at offset 7: the reader broke\n", 1, LabError),
        ("consumer: the end was not reached in 40 s\n", 1, LabError),
        (f"{WRONG}\n", GAVE_UP, GaveUpError),
    ],
)
def test_a_reader_that_was_given_no_records_says_so_however_it_is_missed(
    tmp_path: Path, said: str, code: int, kind: type[LabError]
) -> None:
    """Method: a process that ends as a raw reader does; a wait, a stop, and the end of clients."""
    (tmp_path / "ends.py").write_text(f"import sys; sys.stderr.write({said!r}); sys.exit({code})")
    environment = {"PYTHONPATH": str(tmp_path)}
    ended = Process("raw-reader", "ends", [], tmp_path / "said", environment)
    ended._process.wait(30)
    run = cast("Any", Run.__new__(Run))
    run._workers, run._clients = [ended], ExitStack()
    for end in (ended.raise_if_dead, lambda: Run.stop_workers(run), ended.stop):
        with pytest.raises(LabError) as seen:
            end()
        assert seen.type is kind
    Run.stop_workers(run)  # its end has been told, and nobody waits for it any more


@pytest.mark.process
@pytest.mark.parametrize("wrapped", [False, True])
def test_brokers_that_hand_out_no_records_break_every_promise(
    tmp_path: Path, wrapped: bool
) -> None:
    """Goal: not "could not be made", which is repeated; nor may any setting allow it.

    Method: a run without a cluster; whoever waited for the reader says so in its own words, or not.
    """

    def steps(_run: Run) -> None:
        given = NoRecordsError(f"the process raw-reader ended early: {WRONG}")
        if wrapped:
            raise LabError("the last read can't be had") from given
        raise given

    base = Parameters(unclean=True, acks="1")
    write_manifest(tmp_path, "proof", scenario="x", parameters={}, parts=["main"], command="x")
    part = Part(name="main", title="Main", steps=steps)
    result = proving._run_part(part, base, tmp_path / "main", lambda _line: None, NoCluster)
    assert proving._verdict([result], result.broke_off)[0] is Exit.BROKEN
    (check,) = proving.judge_part(part, base, tmp_path / "main").checks
    assert (check.name, check.kept, check.late) == ("what brokers hand out", False, False)
    assert WRONG in check.seen


class NoCluster(Run):
    """A run without a process: nobody misses its nodes."""

    def __enter__(self) -> Self:
        self.ended = {node.id for node in self.cluster.nodes}
        return self


@pytest.mark.process
@pytest.mark.parametrize(
    ("problem", "kept"), [(GaveUpError(GAP), False), (LabError(GAP), None)], ids=["gap", "other"]
)
@pytest.mark.parametrize("campaign", ["groups", "random kills"])
def test_a_gap_breaks_the_promise_of_a_long_run_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    campaign: str,
    problem: LabError,
    kept: bool | None,
) -> None:
    """Method: as above. What could not be made is repeated, so a gap would never be told of."""

    def steps(*_: object) -> None:
        raise problem

    looked: list[Run] = []
    for module in (group_campaigns, scenario_campaigns):
        monkeypatch.setattr(module, "Run", NoCluster)
        monkeypatch.setattr(module, "expect_kept_somewhere", looked.append)
    monkeypatch.setattr(group_campaigns, "_hurt", steps)
    monkeypatch.setattr(scenario_campaigns, "_kill_at_random", steps)
    if campaign == "groups":
        row = group_campaigns.kill_for(tmp_path / "run", "classic", 1.0)
    else:
        row = scenario_campaigns.random_kills(tmp_path / "run")
    assert row["kept"] is kept, row
    assert len(looked) == 1, "nothing was read back, so all files are looked through"
    assert "seed" in row


@pytest.mark.process
@pytest.mark.parametrize(
    ("ends", "late", "kept"),
    [(True, True, None), (False, True, None), (True, False, False)],
    ids=["late", "late, and breaks off", "wrong"],
)
@pytest.mark.parametrize("campaign", ["groups", "random kills"])
def test_what_is_only_late_on_a_starved_machine_breaks_no_long_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    campaign: str,
    *,
    ends: bool,
    late: bool,
    kept: bool | None,
) -> None:
    """Goal: as in a proof, that is no run at all, and is repeated.

    Method: as above, with a check that fails, and a history in which nothing is wrong.
    """

    def steps(run: Run, *_: object) -> None:
        run.record_check(Check(name="all", expected="so", seen="no", kept=False, late=late))
        if not ends:
            raise LabError("waited in vain")

    evidence = judge(Story().send(0).ack(0, 0).final(0).events)
    for module in (group_campaigns, scenario_campaigns):
        monkeypatch.setattr(module, "Run", NoCluster)
        monkeypatch.setattr(module, "expect_kept_somewhere", lambda _run: None)
        monkeypatch.setattr(module, "evidence_of", lambda *_, **__: evidence)
    monkeypatch.setattr(group_campaigns, "_hurt", steps)
    monkeypatch.setattr(scenario_campaigns, "_kill_at_random", steps)
    if campaign == "groups":
        row = group_campaigns.kill_for(tmp_path / "run", "classic", 1.0)
    else:
        row = scenario_campaigns.random_kills(tmp_path / "run")
    assert row["kept"] is kept, row
    said = "waited in vain" if not ends else "the machine is too busy for this run (not so: all)"
    assert (said in row["verdict"]) or not late


def test_a_late_check_is_none_of_a_run_that_can_not_be_judged() -> None:
    check = Check(name="1 runs", expected="", seen="", kept=False, late=True)
    row = not_judged(OSError("no room"), cast("Run", SimpleNamespace(checks=[check])))
    assert row["kept"] is None


def test_what_a_run_has_seen_broken_stays_so_when_its_history_is_not_to_be_judged() -> None:
    run = SimpleNamespace(checks=[Check(name="1 runs", expected="", seen="", kept=False)])
    row = not_judged(OSError("no room"), cast("Run", run))
    assert (row["kept"], row["failed"]) == (False, ["1 runs"])
    assert "1 runs" in row["verdict"]
    for nothing in (None, cast("Run", SimpleNamespace(checks=[]))):
        assert not_judged(OSError("no room"), nothing)["kept"] is None


@pytest.mark.parametrize(
    ("process", "error", "code"),
    [
        ("large", "KAFKA_STORAGE_ERROR", Exit.KEPT),
        ("raw", "KAFKA_STORAGE_ERROR", Exit.NOT_MADE),
        ("large", "NOT_LEADER_OR_FOLLOWER", Exit.NOT_MADE),
    ],
)
def test_a_full_disk_that_no_leader_met_proves_nothing(
    process: str, error: str, code: Exit
) -> None:
    errors = Errors()
    for kind in (Unknown, Refused):
        errors.feed(
            kind(at_ms=1, wall_ms=1, process=process, topic="t", partition=0, id="x", error=error)
        )
    assert MAIN.met is not None
    result = SimpleNamespace(
        part=MAIN,
        seen_broken=False,
        decided=True,
        busy=None,
        unreached=None,
        not_met=errors.missing(*MAIN.met),
        evidence=judge(Story().send(0).ack(0, 0).final(0).events),
        sentence=lambda: "",
    )
    found, words = proving._verdict([cast("Any", result)], None)
    assert found is code, words


@pytest.mark.parametrize(("end", "written", "kept"), [(12, 2, True), (11, 1, False)])
def test_what_was_never_written_is_not_lost_with_the_disk(
    end: int, written: int, *, kept: bool
) -> None:
    """Method: offsets 10 and 11 were told, and the log ends behind one of them, or both."""
    checks: list[bool] = []
    run = SimpleNamespace(check=lambda *_: None)
    run.check = lambda *_, kept: checks.append(kept)
    assert expect_written(cast("Run", run), 1, [10, 11], end) == written
    assert checks == [kept]
