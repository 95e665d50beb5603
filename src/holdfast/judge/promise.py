"""What a run is promised before it begins, from its settings alone. Owns the table of guarantees.

The text is written for the person who starts a run; the set is what the verdict is held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from holdfast.judge.findings import AnomalyT
from holdfast.judge.verdict import Anomaly

# However weak the settings, these never happen in a log that works.
ALWAYS_FORBIDDEN = frozenset(
    {Anomaly.DIVERGED, Anomaly.PHANTOM, Anomaly.RESURRECTED, Anomaly.UNCOMMITTED, Anomaly.SKIPPED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyPromise(Generic[AnomalyT]):
    """What is promised, for people and as what must not be seen."""

    text: str
    forbids: frozenset[AnomalyT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise(AnyPromise[Anomaly]):
    """What is promised of a log."""


def promise_for(
    *,
    acks: str,
    replication_factor: int,
    min_isr: int,
    idempotent: bool,
    retries: int,
    unclean: bool = False,
) -> Promise:
    """State the guarantee of these settings; `acks` is "0", "1" or "all".

    Rules: produce.md#acks, losses.md#acknowledged-is-not-synced.
    """
    assert acks in {"0", "1", "all"}, acks
    assert 1 <= min_isr <= replication_factor, (min_isr, replication_factor)
    forbids = set(ALWAYS_FORBIDDEN)
    sentences = [_about_loss(acks, replication_factor, min_isr, unclean)]
    if acks == "all" and not unclean:
        forbids.add(Anomaly.LOST)
    if not unclean:
        forbids.add(Anomaly.VANISHED)
        sentences.append("What a consumer has read stays in the log.")
    else:
        sentences.append("What a consumer has read may vanish.")
    if idempotent:
        forbids |= {Anomaly.DUPLICATED, Anomaly.REORDERED}
        sentences.append("Nothing is doubled or reordered: the producer is idempotent.")
    elif retries == 0:
        forbids |= {Anomaly.DUPLICATED, Anomaly.REORDERED}
        sentences.append("Nothing is doubled or reordered: the producer never sends twice.")
    else:
        sentences.append("A retry may double or reorder records: the producer isn't idempotent.")
    return Promise(text=" ".join(sentences), forbids=frozenset(forbids))


def _about_loss(acks: str, replication_factor: int, min_isr: int, unclean: bool) -> str:
    if acks == "0":
        return "Nothing is acknowledged (acks=0), so any event may be lost; losses are counted."
    if acks == "1":
        return (
            "An event is acknowledged by its leader alone (acks=1): it is lost if the leader dies "
            "before a follower has it; losses are counted."
        )
    if unclean:
        return (
            "Unclean election is on: a replica that lacks acknowledged events may lead, and they "
            "are lost; losses are counted."
        )
    if replication_factor == 1:
        return "Nothing acknowledged is lost while the only copy's disk is kept (acks=all, RF 1)."
    copies = f"{min_isr} copies" if min_isr > 1 else "1 copy"
    return (
        f"Nothing acknowledged is lost: each event is on every in-sync replica, at least {copies} "
        f"(acks=all, RF {replication_factor}, min ISR {min_isr}), before it is acknowledged."
    )
