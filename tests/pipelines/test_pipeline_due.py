"""Goal: the table never has a gap or a second row, whatever became of the checkpoint.

Method: every position of a table against a plan, as values.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.pipelines.due import (
    Due,
    Last,
    Memory,
    Rows,
    Stored,
    Work,
    decide,
    due,
    gaps_of,
    had_before,
)
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Checkpoint, PlanError, Planned, Reader
from holdfast.pipelines.sinks import table_sink
from holdfast.pipelines.sinks.store import Store
from holdfast.pipelines.sinks.table_sink import TableSink

P, Q = Reader(Partition("t", 0)), Reader(Partition("t", 1))
TWIN = Reader(Partition("t", 0), 1)


def batch(number: int, *ranges: Planned, **changed: Any) -> Batch:
    given = {"checkpoint": "here", "plan": f"plan {number}", "stateful": False, **changed}
    return Batch(number=number, ranges=ranges, **given)


def remembers(number: int | None, offsets: dict[Reader, Stored], **changed: Any) -> Memory:
    given = {"checkpoint": "here", "plan": f"plan {number}", "stateful": False, **changed}
    return Memory(offsets, Last(batch=number, **given))


def weigh(what: Batch, memory: Memory, *begin_anew: str) -> Work:
    return decide(what, memory, begin_anew, "q")


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (10, (Due(P, 10, 10, 20, 10),)),  # what usually happens
        (15, (Due(P, 10, 15, 20, 15),)),  # the checkpoint was removed: other batches, half there
        (20, ()),  # a crash between the table's commit and Spark's
        (35, ()),  # far behind, all of it there
    ],
)
def test_what_is_due(stored: int, expected: tuple[Due, ...]) -> None:
    assert due([Planned(P, 10, 20)], {P: Stored(stored)}) == expected


def test_a_gap_is_refused_even_by_an_empty_batch() -> None:
    """A deleted checkpoint and startingOffsets=latest would silently skip rows."""
    for planned in (Planned(P, 10, 20), Planned(P, 10, 10)):
        with pytest.raises(PlanError, match=r"ends at offset 9.*goes on at 10"):
            due([planned], {P: Stored(9)})


def test_a_partition_is_remembered_before_its_first_row() -> None:
    assert due([Planned(Q, 5, 5, "x")], {P: Stored(3)}) == (Due(Q, 5, 5, 5, None, "x"),)
    with pytest.raises(PlanError, match="t-1: the tables know nothing of it"):
        due([Planned(Q, 5, 6)], {P: Stored(3)})


def test_a_new_table_under_an_old_checkpoint_is_refused() -> None:
    """The database was removed or the query renamed: the rows of the batches before are lost."""
    first = weigh(batch(0, Planned(P, 3, 3)), Memory())
    assert first == Work(rows=Rows.ALL, moves=(Due(P, 3, 3, 3, None),))
    with pytest.raises(PlanError, match="know nothing of query 'q'"):
        weigh(batch(1, Planned(P, 3, 9)), Memory())


@pytest.mark.parametrize("stateful", [False, True])
def test_the_batch_that_is_there_is_computed_and_not_written(stateful: bool) -> None:
    """Spark died before it knew. A stateful one may have no new offset, and has rows."""
    for planned in (Planned(P, 3, 9), Planned(P, 9, 9)):
        again = batch(4, planned, stateful=stateful)
        there = remembers(4, {P: Stored(9)}, stateful=stateful)
        assert weigh(again, there) == Work(rows=Rows.NONE, replay=True)


def test_a_stateful_batch_without_new_offsets_has_its_rows_written() -> None:
    memory = remembers(4, {P: Stored(9)}, stateful=True)
    assert weigh(batch(5, Planned(P, 9, 9), stateful=True), memory) == Work(rows=Rows.ALL)


@pytest.mark.parametrize(
    ("number", "changed", "said"),
    [
        (4, {"plan": "another"}, "by another plan: this checkpoint is an older copy"),
        (3, {}, "this checkpoint is an older copy"),
        (6, {}, "rows of the batches between would be missing"),
        (5, {"checkpoint": "elsewhere"}, "belong to checkpoint here, and this is elsewhere"),
        (0, {"checkpoint": "elsewhere"}, r"empty these.*--begin-anew here"),
        # The query has got its state since, or has lost it: its tables are a stateful one's.
        (0, {"checkpoint": "elsewhere", "stateful": False}, "belong to checkpoint here"),
    ],
)
def test_a_stateful_query_goes_on_where_it_was_or_not_at_all(
    number: int, changed: dict[str, Any], said: str
) -> None:
    memory = remembers(4, {P: Stored(9)}, stateful=True)
    planned = Planned(P, 9, 12) if number else Planned(P, 0, 0)
    with pytest.raises(PlanError, match=said):
        weigh(batch(number, planned, **{"stateful": True, **changed}), memory)


def test_a_query_that_got_state_does_not_go_on_in_another_checkpoint() -> None:
    memory = remembers(4, {P: Stored(9)})
    with pytest.raises(PlanError, match="belong to checkpoint here"):
        weigh(batch(0, Planned(P, 0, 0), stateful=True, checkpoint="elsewhere"), memory)


def test_offsets_decide_for_a_query_without_state() -> None:
    """Whichever checkpoint it has, older, newer, or another plan under the same number."""
    memory = remembers(4, {P: Stored(9)})
    for number, changed in ((4, {"plan": "other"}), (2, {}), (7, {}), (1, {"checkpoint": "new"})):
        found = weigh(batch(number, Planned(P, 5, 12), **changed), memory)
        assert found == Work(rows=Rows.NEW, moves=(Due(P, 5, 9, 12, 9),))
        found = weigh(batch(number, Planned(P, 2, 9), **changed), memory)
        assert found == Work(rows=Rows.NONE)
        found = weigh(batch(number, Planned(P, 9, 12), **changed), memory)
        assert found == Work(rows=Rows.ALL, moves=(Due(P, 9, 9, 12, 9),))


def test_a_partition_that_is_wholly_there_is_left_out() -> None:
    """Its rows are in the batch beside those of a partition that is wholly due."""
    memory = remembers(4, {P: Stored(9), Q: Stored(0)}, checkpoint="lost")
    found = weigh(batch(1, Planned(P, 0, 9), Planned(Q, 0, 5)), memory)
    assert found == Work(rows=Rows.NEW, moves=(Due(Q, 0, 0, 5, 0),))


def test_a_stateful_batch_is_wholly_due_or_refused() -> None:
    memory = remembers(4, {P: Stored(9), Q: Stored(0)}, stateful=True)
    for ranges in ((Planned(P, 5, 12),), (Planned(P, 5, 9), Planned(Q, 0, 5))):
        with pytest.raises(PlanError, match="t-0: a part of this batch is in the tables already"):
            weigh(batch(5, *ranges, stateful=True), memory)


def test_a_stateful_query_may_be_begun_anew_by_the_id_of_what_is_over() -> None:
    memory = remembers(4, {P: Stored(9, "x"), Q: Stored(4, "x")}, stateful=True)
    fresh = batch(0, Planned(P, 0, 0, "x"), stateful=True, checkpoint="elsewhere")
    assert weigh(fresh, memory, "here") == Work(
        rows=Rows.ALL, moves=(Due(P, 0, 0, 0, None, "x"),), forget=(P, Q)
    )
    later = batch(3, Planned(P, 0, 5, "x"), stateful=True, checkpoint="elsewhere")
    with pytest.raises(PlanError, match="a fresh checkpoint"):
        weigh(later, memory, "here")
    # The switch stays on the command line: it has no effect on what is begun.
    on = batch(5, Planned(P, 9, 12, "x"), stateful=True)
    assert weigh(on, memory, "here", "long ago").forget == ()


def test_tables_of_an_older_version() -> None:
    """They have offsets and nothing else. Without state they are gone on with, and learn ids."""
    memory = Memory({P: Stored(9), Q: Stored(2)}, Last(None, None, None))
    found = weigh(batch(7, Planned(P, 9, 12, "x"), Planned(Q, 2, 2, "x")), memory)
    assert found.moves == (Due(P, 9, 9, 12, 9, "x"),)
    assert found.named == {"t": "x"}
    with pytest.raises(PlanError, match="Give the query another name"):
        weigh(batch(7, Planned(P, 9, 12), stateful=True), memory)


def test_another_topic_of_the_same_name_is_refused_until_it_is_allowed() -> None:
    other = Reader(Partition("other", 0))
    stored = {P: Stored(50, "old"), Q: Stored(40, "old"), other: Stored(3, "o")}
    memory = remembers(4, stored, checkpoint="lost")
    # The new topic has one partition, the old one had two.
    fresh = batch(0, Planned(other, 0, 0, "o"), Planned(P, 0, 0, "new"))
    with pytest.raises(PlanError, match=r"topic 't' was deleted and made anew.*--begin-anew old"):
        weigh(fresh, memory)
    with pytest.raises(PlanError, match="made anew"):
        weigh(fresh, memory, "new", "o")
    assert weigh(fresh, memory, "old") == Work(
        rows=Rows.ALL, moves=(Due(P, 0, 0, 0, None, "new"),), forget=(P, Q)
    )


def test_an_id_that_is_not_told_is_no_other_topic() -> None:
    """An older checkpoint's entry, replayed, or a cluster that tells none."""
    memory = remembers(4, {P: Stored(9, "x")})
    found = weigh(batch(5, Planned(P, 9, 12)), memory)
    assert found.forget == ()
    assert found.named == {}
    assert found.moves[0].expected == 9


def test_two_sources_of_one_partition() -> None:
    """Each has offsets of its own; in a half-written batch their rows can't be told apart."""
    memory = remembers(4, {P: Stored(9), TWIN: Stored(5)})
    found = weigh(batch(5, Planned(P, 9, 12), Planned(TWIN, 5, 12)), memory)
    assert found.rows is Rows.ALL
    assert [move.expected for move in found.moves] == [9, 5]
    again = remembers(4, {P: Stored(12), TWIN: Stored(12)}, checkpoint="lost")
    assert weigh(batch(1, Planned(P, 0, 12), Planned(TWIN, 0, 7)), again).rows is Rows.NONE
    for ranges in (
        (Planned(P, 7, 12), Planned(TWIN, 5, 12)),
        (Planned(P, 0, 9), Planned(TWIN, 5, 9)),
    ):
        with pytest.raises(PlanError, match="two sources of the query read it"):
            weigh(batch(1, *ranges, checkpoint="new"), memory)
    quiet = weigh(batch(1, Planned(P, 0, 12), Planned(TWIN, 5, 5), checkpoint="new"), memory)
    assert quiet.rows is Rows.NEW, "only one of them has rows"


def lacked(what: Batch, work: Work) -> list[tuple[int, int]]:
    return [(gap.first, gap.behind) for gap in gaps_of(what, work)]


def test_what_two_batches_lacked_is_told_whole_where_it_is_one_gap() -> None:
    """The source joins what it found too late of the batch before to what lies behind it.

    Seen to tell only what lies behind, of the most usual way in which retention overtakes a query.
    """
    what = batch(5, Planned(P, 9, 15, gaps=((3, 12),)))
    whole = weigh(what, remembers(4, {P: Stored(9)}))
    assert lacked(what, whole) == [(3, 9), (9, 12)]
    # The table had some of this batch, in an earlier life; of the batch before nothing is known.
    partial = weigh(what, remembers(4, {P: Stored(10)}))
    assert lacked(what, partial) == [(3, 9), (10, 12)]
    there = weigh(what, remembers(4, {P: Stored(15)}))
    assert lacked(what, there) == [(3, 9)]


def test_what_the_table_had_when_it_went_was_not_lacking() -> None:
    """Spark died before it knew, and retention took the rows that the table has: none is lost."""
    before, late = batch(4, Planned(P, 3, 9), Planned(Q, 3, 9)), ((3, 7),)
    after = batch(5, Planned(P, 9, 15, gaps=late), Planned(Q, 9, 15, gaps=late))
    for stored, told in ((9, []), (5, [(5, 7)]), (3, [(3, 7)])):
        memory = remembers(3, {P: Stored(stored), Q: Stored(9)})
        again = weigh(before, memory)
        now = weigh(after, remembers(4, {P: Stored(9), Q: Stored(9)}))
        work = replace(now, had=had_before(before, again))
        assert lacked(after, work) == told
    replay = weigh(before, remembers(4, {P: Stored(9), Q: Stored(9)}))
    assert had_before(before, replay) == {P: 9, Q: 9}


def test_what_was_cut_is_told_however_far_back_it_is() -> None:
    """The table has rows of the log before: they are none of the records that are there now."""
    what = batch(5, Planned(P, 9, 15, gaps=((9, 12),), cuts=((2, 9),)))
    work = weigh(what, remembers(4, {P: Stored(9)}))
    assert lacked(what, replace(work, had={P: 7})) == [(2, 9), (9, 12)]
    there = weigh(what, remembers(4, {P: Stored(15)}))
    assert lacked(what, there) == [(2, 9)]


def test_a_sink_knows_what_it_had_of_the_batch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the sink's own order of steps, over a store and a checkpoint of values."""
    first, second = batch(4, Planned(P, 3, 9)), batch(5, Planned(P, 9, 15, gaps=((3, 12),)))

    class Values(SimpleNamespace):
        """A store that had batch 4, and what it is told of the next one."""

        query, folder = "q", None

        def memory(self) -> Memory:
            return remembers(4, {P: Stored(9)})

        def stage(self, frame: Any, what: Batch) -> Any:
            del frame, what
            return SimpleNamespace(count=3, close=lambda: None)

        def commit(self, what: Batch, work: Work, staged: Any) -> None:
            del staged
            told.append((what.number, lacked(what, work)))

    told: list[tuple[int, list[tuple[int, int]]]] = []
    monkeypatch.setattr(table_sink, "_consume", lambda _frame: None)
    sink = TableSink(cast("Store", Values()), checkpoint="nowhere")
    batches = {4: first, 5: second}
    sink._checkpoint = cast("Checkpoint", SimpleNamespace(batch=lambda n, _query: batches[n]))
    frame: Any = SimpleNamespace(sparkSession=None)
    sink(frame, 4)
    assert told == [], "it has that one"
    sink(frame, 5)
    assert told == [(5, [(9, 12)])]
