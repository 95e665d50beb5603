"""Goal: what comes too late on a machine that starves the nodes is no broken promise; the rest is.

Method: figures as the kernel gives them, by hand; verdicts over parts by hand; the kernel's own
count of a process that shares a processor with another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.judge.histories import Story

from holdfast.cluster.processes import wait_until
from holdfast.judge.checker import judge
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import PartResult
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import _verdict
from holdfast.lab.report import Check
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part
from holdfast.lab.steps import starvation as starvation_module
from holdfast.lab.steps.starvation import MEMORY_S, SECONDS_MAX, Starvation, Waits, waited

SECOND_NS = 10**9
STARVED = "a processor was waited for"
LATE = Check(name="all are back", expected="so", seen="not so", kept=False, late=True)
WRONG = Check(name="min ISR 2", expected="refused", seen="acknowledged", kept=False)


def starve(waits: Waits, seconds: int, thread: int = 7) -> None:
    """Let a thread of a node wait for all of so many seconds, one look a second."""
    waits.now_s = time.monotonic()
    for second in range(seconds + 1):
        waits.take("node 0", {thread: second * SECOND_NS}, 1.0)


def looks(shares: Sequence[float], thread: int = 7) -> Waits:
    """Return what a second's looks at one node come to, with these shares of waiting."""
    waits, waited_ns = Waits(now_s=time.monotonic()), 0
    waits.take("node 0", {thread: waited_ns}, 1.0)
    for share in shares:
        waited_ns += int(share * SECOND_NS)
        waits.take("node 0", {thread: waited_ns, thread + 1: 0}, 1.0)
    return waits


def run_of(starvation: Starvation, kept: list[Check]) -> Any:
    """Return as much of a run as its checks take, which go to `kept`."""
    return SimpleNamespace(
        cluster=SimpleNamespace(refuse_broken_network=lambda: None),
        relied_on=[],
        starvation=starvation,
        checks=kept,
        record_check=kept.append,
        foretold=None,
        say=lambda _line: None,
    )


def test_a_node_is_starved_that_waits_most_of_the_time_for_long() -> None:
    assert looks([0.8] * 60).text is None
    assert looks([0.95] * int(SECONDS_MAX - 1)).text is None
    text = looks([0.95, 0.1] * 6).text
    assert text is not None
    assert "node 0 for 6 s" in text


def test_a_wait_of_long_ago_excuses_nothing() -> None:
    """Goal: a storm's last bound, an hour later, is not missed for a busy minute at its start."""
    waits, waited_ns = Waits(), 0
    for second in range(3600):
        waited_ns += SECOND_NS if 100 <= second < 106 else 0
        waits.now_s = 1000.0 + second
        waits.take("node 0", {7: waited_ns}, 1.0)
        is_near = 104 <= second <= 101 + MEMORY_S
        assert waits.excuses() == is_near, second
    assert waits.excuses({})  # what is to hold all the time is held against all of it
    assert waits.text is not None
    assert "node 0 for 6 s" in waits.text


def test_a_node_that_begins_anew_is_not_taken_for_the_one_before() -> None:
    waits = looks([0.1] * 3)
    for thread in range(100, 110):  # another process each time, with a past of its own
        waits.take("node 0", {thread: 60 * SECOND_NS}, 1.0)
    assert waits.text is None
    assert waits.worst < 0.2


@pytest.mark.parametrize(
    ("checks", "starved", "wanted"),
    [
        ([], STARVED, Exit.KEPT),
        ([LATE], None, Exit.NOT_MADE),
        ([LATE], STARVED, Exit.NOT_MADE),
        ([WRONG], None, Exit.BROKEN),
        ([WRONG], STARVED, Exit.BROKEN),
        ([LATE, WRONG], STARVED, Exit.BROKEN),
    ],
)
def test_only_what_is_late_is_excused_and_only_by_starvation(
    checks: list[Check], starved: str | None, wanted: Exit
) -> None:
    """Method: of a run that was killed only its checks say so: late are those of starved nodes."""
    evidence = judge(Story().send(0).ack(0, 0).final(0).events)
    result = PartResult(
        part=Part(name="main", title="Main", steps=lambda _run: None),
        parameters=Parameters(),
        evidence=evidence,
        checks=tuple(checks),
        tables=(),
        broken=(),
        history=Path("history"),
        starved=starved,
    )
    code, words = _verdict([result], None)
    assert code is wanted
    assert ("too busy for this run (Main: not so" in words) == (wanted is Exit.NOT_MADE)
    assert words.count(STARVED) == (starved is not None)  # whatever became of the run
    assert ("when this failed: all are back" in words) == (starved is None and LATE in checks)


def test_what_had_failed_before_nodes_were_starved_is_not_excused() -> None:
    """Method: a run's own check, failing twice: before the machine is too busy, and behind that."""
    starvation = Starvation(cast("Any", SimpleNamespace(nodes=[])))
    kept: list[Check] = []
    run = run_of(starvation, kept)
    Run.check(run, "all are back", "so", "not so", kept=False, late=True)
    starvation._waits = looks([0.95] * int(SECONDS_MAX))
    Run.check(run, "all are back", "so", "not so", kept=False, late=True)
    Run.check(run, "min ISR 2", "refused", "acknowledged", kept=False)
    assert [check.late for check in kept] == [False, True, False]


def test_starvation_that_was_overcome_excuses_nothing_more() -> None:
    """Goal: who was starved as nodes started is no excuse for a leader that never comes.

    Method: a bound that is kept behind it; before that another one fails, as may be.
    """
    starvation = Starvation(cast("Any", SimpleNamespace(nodes=[])))
    kept: list[Check] = []
    run = run_of(starvation, kept)
    starve(starvation._waits, int(SECONDS_MAX))
    Run.check(run, "one leads", "so", "not so", kept=False, late=True)
    Run.check(run, "acknowledged", "so", "so", kept=True)  # no bound, so nothing is overcome
    Run.check(run, "one leads now", "so", "not so", kept=False, late=True)
    Run.check(run, "all are back", "so", "so", kept=True, late=True)
    Run.check(run, "another one leads", "so", "not so", kept=False, late=True)
    starve(starvation._waits, int(SECONDS_MAX) - 1)
    Run.check(run, "another one leads", "so", "not so", kept=False, late=True)
    starve(starvation._waits, 1)
    Run.check(run, "another one leads", "so", "not so", kept=False, late=True)
    assert [check.late for check in kept] == [True, False, True, False, False, False, True]
    assert starvation.text is not None
    assert f"0 for {2 * SECONDS_MAX:.0f} s" in starvation.text  # a report tells of all


def test_what_rests_on_what_came_too_late_is_late_as_well() -> None:
    """Goal: a check that has no bound of its own is excused by what it rests on, and only by that.

    Method: one that fails behind an expectation that was late, that was in time, and that failed
    where nobody was starved.
    """
    starvation = Starvation(cast("Any", SimpleNamespace(nodes=[])))
    kept: list[Check] = []
    run = run_of(starvation, kept)

    def epoch_rises(*, given: bool) -> bool:
        Run.check(run, "epoch", "above 5", "5", kept=False, given=given)
        return kept[-1].late

    given = Run.check(run, "one leads", "so", "not so", kept=False, late=True)
    assert not epoch_rises(given=given)  # nobody was starved
    starve(starvation._waits, int(SECONDS_MAX))
    assert not epoch_rises(given=True)
    given = Run.check(run, "one leads", "so", "not so", kept=False, late=True)
    assert epoch_rises(given=given)
    Run.check(run, "all are back", "so", "so", kept=True, late=True)
    assert epoch_rises(given=given)  # what it is about was over before all were back
    assert not epoch_rises(given=True)


def test_what_is_to_hold_all_the_time_is_excused_by_all_that_was_waited_for() -> None:
    """Goal: a rebalance that was not to be is none of what a bound excuses that was kept since.

    Method: a mark, starvation, and a bound that is kept behind it; then a mark of its own.
    """
    starvation = Starvation(cast("Any", SimpleNamespace(nodes=[])))
    since = starvation.mark()
    assert not starvation.excuses(since)
    starve(starvation._waits, int(SECONDS_MAX))
    starvation.overcome()
    assert starvation.excuses(since)
    assert not starvation.excuses(late=True)
    assert not starvation.excuses(starvation.mark())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_all_that_takes_part_in_a_run_is_looked_at(
    elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a starved client, or link agent, or the lab, is late as a starved node is, and named.

    Method: each waits for all of the time; of nodes elsewhere no process is known.
    """
    called = {
        1: "python -P -m holdfast.node --config here",
        2: "python -P -m holdfast.clients.workload.raw_producer --history h --process raw --acks 1",
        3: "python -P -m holdfast.cluster.network.links.link_agent here",
        4: "python -P -m holdfast.lab.guard abc",
        5: "python -I -S -B holder.py",
        6: "",  # it has just ended
    }
    pid = None if elsewhere else 1
    starvation = Starvation(cast("Any", SimpleNamespace(nodes=[SimpleNamespace(id=7, pid=pid)])))
    clock = SimpleNamespace(now_s=1000)
    monkeypatch.setattr(starvation_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr(starvation_module, "waited", lambda _pid: {1: clock.now_s * SECOND_NS})
    monkeypatch.setattr(starvation_module, "below", lambda _pid: [*called][elsewhere:])
    monkeypatch.setattr(starvation_module, "command", called.__getitem__)
    assert not starvation.excuses(late=True)
    clock.now_s += int(SECONDS_MAX)
    assert starvation.excuses(late=True)
    names = ["holder.py (process 5)", "link_agent (process 3)", *([] if elsewhere else ["node 7"])]
    names += ["raw", "the lab itself"]
    told = ", ".join(f"{name} for {SECONDS_MAX:.0f} s" for name in names)
    assert starvation.text == f"nine tenths of the time a processor was waited for: {told}"


def test_one_long_wait_counts_for_as_long_as_it_was() -> None:
    """Goal: the kernel counts a wait when it has ended, in one of the looks that it lasted for."""
    assert looks([0.0] * int(SECONDS_MAX - 2) + [SECONDS_MAX - 1]).text is None
    text = looks([0.0] * int(SECONDS_MAX - 1) + [SECONDS_MAX]).text
    assert text is not None
    assert f"0 for {SECONDS_MAX:.0f} s" in text


def test_a_node_that_is_starved_just_now_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a node that has waited for all of the time, asked of between two looks."""
    cluster = SimpleNamespace(nodes=[SimpleNamespace(id=0, pid=1)])
    starvation = Starvation(cast("Any", cluster))
    clock = SimpleNamespace(now_s=1000)
    monkeypatch.setattr(
        starvation_module, "time", SimpleNamespace(monotonic=lambda: float(clock.now_s))
    )
    monkeypatch.setattr(
        starvation_module, "waited", lambda pid: {1: clock.now_s * SECOND_NS} if pid == 1 else {}
    )
    assert not starvation.excuses(late=True)
    clock.now_s += int(SECONDS_MAX) - 1
    assert not starvation.excuses(late=True)
    clock.now_s += 1
    assert starvation.excuses(late=True)


@pytest.mark.slow
@pytest.mark.process
def test_the_kernel_counts_it() -> None:
    """Method: two processes that want all of one processor."""
    mine = min(os.sched_getaffinity(0))
    endless = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{mine}])\nwhile 1: pass"]
    with subprocess.Popen(endless) as one, subprocess.Popen(endless) as other:
        try:
            if not waited(one.pid):
                pytest.skip("this kernel does not count it")
            wait_until(
                lambda: min(waited(one.pid)[one.pid], waited(other.pid)[other.pid]) > 10**7,
                timeout_s=30,
                what="both to wait",
            )
        finally:
            one.kill()
            other.kill()
    assert waited(one.pid) == {}


def test_a_jvms_compilers_are_nobodys_wait(tmp_path: Path) -> None:
    """Seen to fail: one thread of a hundred, which nobody waits for, excused whatever was late."""
    names = ["java", "kafka-raft-io-t", "a CompilerThread", "G1 Conc#0", "GC Thread#0"]
    for number, name in enumerate(names):
        folder = tmp_path / "7" / "task" / str(number)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "schedstat").write_text(f"1 {number} 3\n")
    assert waited(7, tmp_path) == {0: 0, 1: 1, 4: 4}
