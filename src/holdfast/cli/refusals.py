"""What a user reads when a cluster says no: the node's own words, or ours for its code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.exit_status import CommandError
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode, error_code

_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.NOT_CONTROLLER: "no controller answered for the cluster",
    ErrorCode.REQUEST_TIMED_OUT: "the cluster didn't do it in time; it may still happen",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync or not alive",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that may lead is alive",
}


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn the cluster's refusals into CommandErrors."""
    try:
        yield
    except AdminError as error:
        raise CommandError(refusal_text(error)) from None


def refusal_text(error: AdminError) -> str:
    """Return what was refused and why."""
    known, text = outcome(error.code, error.message)
    return f"{error.subject}: {text or 'refused'} ({known.name})"


def outcome(code: int, message: str | None) -> tuple[ErrorCode, str]:
    """Return a code by its name, and what to say of it."""
    known = error_code(code)
    return known, message or _SENTENCES.get(known, "")
