"""What a client is told when the log did not take what its request came to.

Rules: classic-groups.md#refused-appends.
"""

from __future__ import annotations

from typing import Final

from holdfast.wire.errors import ErrorCode

_E = ErrorCode
_TOLD_AS: Final = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.INVALID_FETCH_SIZE: _E.UNKNOWN_SERVER_ERROR,
}
_TOO_LARGE: Final = frozenset({_E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE})


def append_error(code: ErrorCode) -> ErrorCode:
    """Return what a member is told."""
    return _TOLD_AS.get(code, code)


def is_too_large(code: ErrorCode) -> bool:
    """Whether the log had no room for the batch, and never will."""
    return code in _TOO_LARGE


def commit_append_error(code: ErrorCode) -> ErrorCode:
    """Return what those are told who commit offsets: too many at once have their own name."""
    return _E.INVALID_COMMIT_OFFSET_SIZE if is_too_large(code) else append_error(code)
