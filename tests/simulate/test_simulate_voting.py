"""Whose copies count: the set of voters that a replica's own log names last.

Goal: the oracle neither counts voters that a log does not name yet, nor one set for all logs.
Method: batches that name voters, in two replicas that differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.testing.simulation.chain import Entry, entries_of
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.voting import Voters
from holdfast.wire.batch import ControlType, Record, build_batch, control_key
from holdfast.wire.codec import encode
from holdfast.wire.records.control import VotersRecord, VotersRecordVoter


def naming(offset: int, voters: Sequence[int]) -> tuple[Entry, bytes]:
    record = VotersRecord(version=0, voters=[VotersRecordVoter(voter_id=each) for each in voters])
    batch = bytes(
        build_batch(
            [Record(control_key(ControlType.KRAFT_VOTERS), encode(record, 0), 0)],
            base_offset=offset,
            control=True,
        )
    )
    return next(entries_of(batch)), batch


def test_each_log_counts_the_set_that_it_names_last() -> None:
    voters = Voters(lambda: (100,))
    ahead, behind = Replica(100, None), Replica(101, None)
    assert voters.counting(ahead) == (100,)
    first, second = naming(0, (100, 101)), naming(1, (101, 102, 103))
    for entry, batch in (first, second):
        voters.saw(entry, batch)
        ahead.chain.append(entry)
    behind.chain.append(first[0])
    assert voters.counting(ahead) == (101, 102, 103)
    assert voters.counting(behind) == (100, 101)


def test_what_a_snapshot_has_taken_away_is_remembered_once_it_is_committed() -> None:
    voters = Voters(lambda: (100,))
    entry, batch = naming(0, (100, 101))
    voters.saw(entry, batch)
    assert voters.counting(Replica(100, None)) == (100,)
    assert voters.commit(entry)
    assert voters.counting(Replica(100, None)) == (100, 101)
    assert not voters.commit(entry)
