"""What a group has committed, as a client says it that shares no code with the one that commits."""

from __future__ import annotations

import time
import warnings
from typing import Any

from holdfast.pipelines.offsets import Partition

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated; some of them later on.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.errors import (
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        NotCoordinatorError,
    )
    from kafka.structs import OffsetAndMetadata

_BEING_MADE = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)


def told(bootstrap: str, group: str) -> dict[Partition, OffsetAndMetadata]:
    """Return offsets with what stands beside them, once the group has a coordinator."""
    deadline = time.monotonic() + 60
    while True:
        try:
            found = _asked(bootstrap, group)
        except _BEING_MADE:
            assert time.monotonic() < deadline, f"{group} has no coordinator"
        else:
            return {Partition(at.topic, at.partition): what for at, what in found.items()}


def _asked(bootstrap: str, group: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        try:
            return admin.list_group_offsets({group: None})[group]
        finally:
            admin.close()


def offsets(bootstrap: str, group: str) -> dict[int, int]:
    """Return offsets by partition, of a group that knows one topic."""
    return {where.number: what.offset for where, what in told(bootstrap, group).items()}
