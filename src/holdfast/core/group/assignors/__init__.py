"""What decides which member of a consumer group is to have which partitions: an assignor a file.

An assignor is a pure function of who subscribes to what, and of what each had until now. It knows
no topic that isn't there: whoever calls leaves those out.

Rules: consumer-groups.md#assignors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.group.assignors.range_assignor import assign_range
from holdfast.core.group.assignors.subscriber import (
    NOTHING,
    Assignor,
    Partitions,
    Subscriber,
    nothing,
    partition_count,
)
from holdfast.core.group.assignors.uniform_assignor import assign_uniform

__all__ = [
    "ASSIGNORS",
    "NOTHING",
    "Assignor",
    "Partitions",
    "Subscriber",
    "assign_range",
    "assign_uniform",
    "nothing",
    "partition_count",
]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""Every assignor there is, by the name that clients and `group.consumer.assignors` use."""
