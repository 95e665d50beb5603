"""What a batch of runs has really exercised, as totals; and what one failing run has to say.

Owns the list of what must have happened in a large batch: a simulation that never elects proves
nothing about elections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.testing.simulation.faults import KINDS
from holdfast.testing.simulation.oracle import Violation
from holdfast.testing.simulation.run import Outcome

# Besides every kind of event, these must have come of them.
REQUIRED: Final = (
    "EARLIEST answers judged",
    "ISR expansions",
    "ISR shrinks",
    "LATEST answers judged",
    "batches larger than a fetch's limit",
    "batches refused: INVALID_TIMESTAMP",
    "batches refused: MESSAGE_TOO_LARGE",
    "batches in the codec of their topic",
    "batches stamped by their leader",
    "batches stamped future",
    "batches stamped mixed",
    "batches stamped none",
    "batches stamped past",
    "batches stamped wild",
    "brokers fenced",
    "classic generations committed",
    "brokers lost among many partitions",
    "clean stops",
    "commits acknowledged",
    "commits taken in an older epoch",
    "committed offsets told",
    "coordinators elected",
    "committed batches lost as allowed",
    "controlled shutdowns",
    "controller elections",
    "answers about false records",
    "deep batches judged",
    "disk operations that failed",
    "elections",
    "leaders in recovery",
    "eligible leader replicas used",
    "epoch generations committed",
    "groups described as they are",
    "links cut both ways",
    "links cut one way",
    "log directories lost by a broker that serves on",
    "logs begun anew",
    "machines without power",
    "members that left",
    "offsets removed with their topic",
    "offsets told at the end",
    "partitions left without a leader",
    "fetch sessions evicted",
    "fetch sessions of readers",
    "fetch sessions that a reader ended",
    "fetch sessions that found no room",
    "fetch sessions that went on after an error",
    "hostile clients that got an answer",
    "connections of hostile clients that a broker ended",
    "replicas made anew behind a waiting job",
    "replicas of groups read at the end",
    "requests over several partitions",
    "partitions with several batches in a request",
    "producers with several requests in flight",
    "producers served while a minority was dead",
    "reassignments begun",
    "reassignments ended",
    "records acknowledged",
    "records in doubt",
    "records looked up by timestamp",
    "records read from followers",
    "records read in sessions",
    "records refused",
    "records sent with acks=0",
    "recoveries that lost records",
    "requests in a fetch session",
    "requests of a strange fetch session",
    "runs in which calls take time",
    "runs with hundreds of partitions",
    "segments full by size",
    "segments that expired",
    "sequences that started over",
    "sets of voters committed",
    "snapshots written",
    "stray commits",
    "snapshots loaded",
    "truncations of records",
    "unclean elections",
    "writes that a full disk refused",
)


def totals(counts: Mapping[str, int]) -> list[str]:
    """Lines: what was done, then what came of it."""
    done = [(name, counts.get(name, 0)) for name in KINDS]
    came = sorted(
        (name, number)
        for name, number in counts.items()
        if name not in KINDS and not name.endswith(" passed over")
    )
    return [
        "what was done:",
        *(f"  {number:9,}  {name}" for name, number in done),
        "what came of it:",
        *(f"  {number:9,}  {name}" for name, number in came),
    ]


def missing(counts: Mapping[str, int]) -> list[str]:
    """What never happened, and should have."""
    return [name for name in (*KINDS, *REQUIRED) if not counts.get(name)]


def failure(outcome: Outcome, violation: Violation, command: str) -> list[str]:
    """Everything about a broken invariant: which, both sides, the last events, the command."""
    return [
        f"seed {outcome.plan.seed}: BROKEN at {violation.at_s:.3f} s: {violation.invariant}",
        *("    " + line for line in violation.text.splitlines()),
        "  the last events:",
        *("    " + line for line in outcome.last),
        f"  again: {command}",
    ]
