"""Goal: the promise follows from the settings as Kafka's rules say. Method: a table."""

from __future__ import annotations

import pytest

from holdfast.judge.promise import ALWAYS_FORBIDDEN, promise_for
from holdfast.judge.verdict import Anomaly

L, D, R, V = Anomaly.LOST, Anomaly.DUPLICATED, Anomaly.REORDERED, Anomaly.VANISHED

# Named one by one, so that none can leave the promises without a test that fails.
NEVER = {
    Anomaly.DIVERGED,
    Anomaly.PHANTOM,
    Anomaly.RESURRECTED,
    Anomaly.UNCOMMITTED,
    Anomaly.SKIPPED,
}


@pytest.mark.parametrize(
    ("acks", "factor", "min_isr", "idempotent", "retries", "unclean", "forbidden"),
    [
        ("all", 3, 2, True, 100, False, {L, D, R, V}),
        ("all", 3, 1, True, 100, False, {L, D, R, V}),
        ("all", 3, 2, False, 100, False, {L, V}),
        ("all", 3, 2, False, 0, False, {L, D, R, V}),
        ("all", 3, 1, True, 100, True, {D, R}),
        ("all", 1, 1, True, 100, False, {L, D, R, V}),
        ("1", 3, 2, False, 0, False, {D, R, V}),
        ("0", 3, 2, False, 0, False, {D, R, V}),
    ],
)
def test_what_is_forbidden(
    acks: str,
    factor: int,
    min_isr: int,
    idempotent: bool,
    retries: int,
    unclean: bool,
    forbidden: set[Anomaly],
) -> None:
    promise = promise_for(
        acks=acks,
        replication_factor=factor,
        min_isr=min_isr,
        idempotent=idempotent,
        retries=retries,
        unclean=unclean,
    )
    assert promise.forbids == forbidden | NEVER
    assert promise.text.endswith(".")
    assert ("Nothing acknowledged is lost" in promise.text) == (L in forbidden)


def test_what_no_settings_excuse() -> None:
    assert ALWAYS_FORBIDDEN == NEVER
    assert NEVER | {L, D, R, V} == set(Anomaly)
