"""Goal: the campaigns of kills around the sinks ask for what they promise.

Method: what plain Python makes of a log, by hand; the entries of the sinks held against the code
that they name. The campaigns themselves run in `make soak`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.lab.postgresql import ServerError
from holdfast.lab.soak import latest_campaigns, redis_server, sink_campaigns, sink_truth
from holdfast.lab.soak.sink_endings import (
    REFUSALS_MAX,
    BrokenError,
    Endings,
    refuse_unless_fenced,
)
from holdfast.lab.soak.sink_kinds import CONTROL, SINKS, Sink
from holdfast.lab.soak.sink_trial import PARTITIONS, ROWS_A_BATCH, Trial
from holdfast.lab.soak.sink_truth import CHUNK, STEP_MS, Event, Row
from holdfast.lab.soak.stateful_campaigns import ProofError
from holdfast.pipelines.proving.holding import found
from holdfast.pipelines.sinks.writing import SCHEMES

LOG = [
    Event(0, 0, 10_000, "a", 1, 7),
    Event(0, 1, 10_999, "a", 2, None),
    Event(1, 0, 10_500, "b", 3, 5),
    Event(1, 1, 11_000, "b", 4, 6),
    Event(0, 2, 22_000, "c", 5, None),
]


def test_what_plain_python_makes_of_a_log() -> None:
    every = [
        ("0", "0", "10000", "a", "1", "7"),
        ("0", "1", "10999", "a", "2", None),
        ("1", "0", "10500", "b", "3", "5"),
        ("1", "1", "11000", "b", "4", "6"),
        ("0", "2", "22000", "c", "5", None),
    ]
    assert sink_truth.rows(LOG) == Counter(every)
    assert sink_truth.last_rows(reversed(LOG)) == Counter([every[3]])
    closed = [("10000", "a", "2", "7"), ("10000", "b", "1", "5"), ("11000", "b", "1", "6")]
    assert sink_truth.closed_windows(LOG) == Counter(closed)
    assert sink_truth.all_windows(LOG) == Counter([*closed, ("22000", "c", "1", None)])
    assert sink_truth.closed_windows(LOG[:4]) == Counter()


def test_a_commit_is_not_waited_for_once_the_table_has_batch_0() -> None:
    """Spark begins batch 0 again, and the sink has nothing to commit in it any more.

    Seen to fail: a campaign waited for a commit that came in batch 1.
    """
    commit, seen = latest_campaigns.COMMIT, Counter[tuple[str, str]]()
    for seed in range(100):
        drawn = latest_campaigns.draw(random.Random(seed), 5)
        assert len(drawn) == 5
        done = [at for at, each in enumerate(drawn) if each in AFTER_BATCH_0]
        assert commit not in [place for place, _ in drawn[min(done, default=5) + 1 :]]
        seen.update(drawn)
    assert len(seen) == 2 * len(latest_campaigns.PLACES)  # and nothing is left out


AFTER_BATCH_0 = {(latest_campaigns.PROCESS, "after"), (latest_campaigns.COMMIT, "after")}


def test_a_table_is_spelt_as_the_truth_is() -> None:
    row: dict[str, object] = {
        "amount": None,
        "events": 2,
        "key": "a",
        "begin_ms": 10_000,
        "more": "x",
    }
    assert sink_truth.found("windows", [row, row]) == {("10000", "a", "2", None): 2}


def test_what_a_table_has_shown_counts_though_it_is_gone() -> None:
    once: Counter[Row] = Counter([("1",), ("2",)])
    part: Counter[Row] = Counter([("1",)])
    assert not sink_truth.shown([Counter(), part, once], once)
    twice: Counter[Row] = Counter([("1",), ("1",)])
    assert sink_truth.shown([twice, once], once) == Counter([("1",)])


@pytest.mark.parametrize("makes", [sink_truth.last_rows, sink_truth.all_windows])
def test_no_batch_may_be_left_out_of_an_upserted_table(makes: Any) -> None:
    """Goal: what comes later does not write over all that a batch has written."""
    chance, log, ends = random.Random(7), [], Counter[int]()
    for number in range(4):
        begin_ms = number * CHUNK * STEP_MS
        for event in sink_truth.chunk(chance, number * CHUNK, begin_ms, PARTITIONS):
            log.append(replace(event, offset=ends[event.partition]))
            ends[event.partition] += 1
    assert len({event.id for event in log}) == len(log) == 4 * CHUNK
    for begin in range(0, len(log), ROWS_A_BATCH):
        assert makes(log[:begin] + log[begin + ROWS_A_BATCH :]) != makes(log), begin


@pytest.mark.slow
def test_every_place_is_a_function() -> None:
    for place in (*latest_campaigns.PLACES, *(p for s in (*SINKS, CONTROL) for p in s.places)):
        assert callable(getattr(*found(place))), place


def test_every_target_of_write_has_its_campaigns() -> None:
    known = {sink.name.partition("-")[0] for sink in SINKS}
    assert known | {"rediss", "unix"} == set(SCHEMES), "give a new target its entry in sink_kinds"


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.name)
def test_places_begin_with_the_tasks_and_end_with_the_commit(sink: Sink) -> None:
    assert sink.places[0].endswith(".stage")
    assert sink.places[-1].endswith(".commit")
    assert set(sink.inner) <= set(sink.places[1:-1])


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.name)
def test_a_run_kills_each_kind_and_two_at_places(sink: Sink) -> None:
    """Of ten runs of five kills each twenty or more are aimed: fifteen were promised."""
    for _ in range(20):
        plan = sink_campaigns._plan(sink)
        kinds = {"driver", "executor", "broker"} | ({"database"} if sink.server else set())
        assert {kind for kind, _ in plan} == kinds
        assert len(plan) == 5
        assert sum(aimed and kind != "executor" for kind, aimed in plan) >= 2
        assert plan[-1][0] == "driver"


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.name)
def test_who_aims_at_a_commit_does_not_meet_tasks(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first place is where tasks compute rows: nothing is committed there."""
    places: list[str] = []

    def bring(_life: object, place: str, *_: object) -> bool:
        places.append(place)
        return True

    trial = object.__new__(Trial)
    trial._sink, trial._chance = sink, random.SystemRandom()
    life = SimpleNamespace(wait_for_its_moment=lambda: None, ended=lambda: False)
    monkeypatch.setattr(trial, "alive", lambda: life)
    monkeypatch.setattr(trial, "_bring", bring)
    monkeypatch.setattr(trial, "_strike", lambda *_: {})
    monkeypatch.setattr(trial, "batches", lambda: 0)
    for _ in range(100):
        trial.kill("driver", aimed=True)
    assert set(places) == set(sink.places[1:])


def test_a_worker_s_death_is_none_at_a_commit() -> None:
    """A worker dies where tasks are, whatever the place is called."""
    done = [{"kind": kind, "at": "amid it"} for kind in ("executor", "driver", "broker")]
    assert sink_campaigns._told(None, [*done, {"kind": "driver"}])["aimed"] == 2


@dataclass
class Ended:
    """Stands for a driver that has ended, with these words."""

    said: str | None = None
    killed: bool = False
    disturbed: bool = False
    unfinished: bool = False
    ended_with: int = 1

    def status(self) -> int:
        return self.ended_with

    def failure(self) -> dict[str, Any] | None:
        return None if self.said is None else {"error": self.said, "unfinished": self.unfinished}

    def tail(self) -> str:
        return "the last lines of a log"


def test_what_was_killed_explains_an_end() -> None:
    endings = Endings()
    for _ in range(2 * REFUSALS_MAX):
        assert not endings.learn(Ended("x", killed=True), 3)
        assert not endings.learn(Ended("x", disturbed=True), 3)
    assert endings.failures == ["x"] * 2 * REFUSALS_MAX
    assert not endings.refusals


@pytest.mark.parametrize(
    "said",
    [
        "holdfast.pipelines.planned.PlanError: rows would be missing",
        "[STREAM_FAILED] (sqlite3.IntegrityError) UNIQUE constraint failed: rows.key",
        "[STREAM_FAILED] (psycopg.OperationalError) a lock that the sink itself holds timed out",
    ],
)
def test_drivers_that_end_by_themselves_are_a_broken_sink(said: str) -> None:
    endings = Endings()
    for _ in range(REFUSALS_MAX - 1):
        endings.learn(Ended(said), 3)
    assert endings.refusals == [said] * (REFUSALS_MAX - 1)
    with pytest.raises(BrokenError, match="No driver goes on any more"):
        endings.learn(Ended(said), 3)


@pytest.mark.parametrize(
    "said",
    [
        None,
        "holdfast.pipelines.reading.access.ReadError: foo-0 at 7: nothing in 120 s",
        "holdfast.pipelines.listing.ListingError: no broker answers",
        "[STREAM_FAILED] Query [id = 1] terminated: Python worker failed to connect back.",
        "org.apache.spark.rpc.RpcTimeoutException: Futures timed out after [120 seconds].",
        "ExecutorLostFailure: Executor heartbeat timed out after 130000 ms",
        "java.net.SocketTimeoutException: Accept timed out",
    ],
)
def test_a_machine_that_is_too_slow_is_no_broken_sink(said: str | None) -> None:
    endings = Endings()
    for _ in range(REFUSALS_MAX - 1):
        endings.learn(Ended(said), 3)
    with pytest.raises(ProofError, match="end by themselves"):
        endings.learn(Ended(said), 3)
    assert not endings.refusals


def test_only_a_checkpoint_without_a_batch_may_be_removed() -> None:
    endings = Endings()
    unfinished = Ended("not empty", unfinished=True, disturbed=True)
    assert endings.learn(unfinished, 0)
    assert endings.unfinished == 1
    with pytest.raises(BrokenError, match="has committed 2 batches"):
        endings.learn(unfinished, 2)


def test_who_was_replaced_has_to_say_so() -> None:
    refuse_unless_fenced(Ended("holdfast.pipelines.fence.FencedError: query 'q' was taken over"))
    for other in (Ended("[Errno 2] No such file or directory"), Ended(ended_with=0)):
        with pytest.raises(BrokenError, match="ended otherwise"):
            refuse_unless_fenced(other)


def test_who_ends_well_and_says_nothing_has_stopped_by_itself() -> None:
    endings = Endings()
    for _ in range(REFUSALS_MAX - 1):
        endings.learn(Ended(ended_with=0), 3)
    with pytest.raises(BrokenError, match="No driver goes on any more: It said nothing"):
        endings.learn(Ended(ended_with=0), 3)


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "holdfast.pipelines.listing.ListingError: no broker answers",
        None,
    ],
)
def test_who_was_replaced_may_die_of_the_machine(said: str | None) -> None:
    """Goal: that proves nothing, neither for a sink nor against it."""
    with pytest.raises(ProofError, match="did not come to be refused"):
        refuse_unless_fenced(Ended(said))
    refuse_unless_fenced(Ended(f"FencedError, by {said}"))


@pytest.mark.process
@pytest.mark.skipif(redis_server.program() is None, reason=redis_server.MISSING)
def test_a_server_that_does_not_start_is_an_error_that_a_run_knows(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="Redis ended with 1"):
        redis_server.RedisServer(tmp_path, "--nonsense", "1")
