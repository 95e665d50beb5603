"""In which epoch a member got each of its partitions: since then nobody else has had it (KIP-1251).

A member hears of its next epoch later than the log. What it commits meanwhile carries the one
before, and is as good for all that it has had since that one.

Rules: consumer-groups.md#assignment-epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from holdfast.core.group.assignors import Partitions

AssignmentEpochs: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id to partition number to epoch. Never changed."""

NO_EPOCHS: Final[AssignmentEpochs] = MappingProxyType({})


def no_epochs() -> AssignmentEpochs:
    """Return those of no partitions: what a field has by default."""
    return NO_EPOCHS


def all_since(partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """Return the epochs of partitions that were all got in the same one."""
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}


def only_of(epochs: AssignmentEpochs, *those: Partitions) -> AssignmentEpochs:
    """Return the epochs of these partitions alone."""
    found: dict[bytes, dict[int, int]] = {}
    for partitions in those:
        for topic_id, numbers in partitions.items():
            known = epochs[topic_id]
            found.setdefault(topic_id, {}).update((each, known[each]) for each in numbers)
    return found


def after_move(
    epochs: AssignmentEpochs, had: Partitions, has: Partitions, epoch: int
) -> AssignmentEpochs:
    """Return the epochs once a member has other partitions. What it had not it gets in this epoch.

    What it was to give up, and gets again, is not among what it had.
    """
    found: dict[bytes, dict[int, int]] = {}
    for topic_id, numbers in has.items():
        kept = set(had.get(topic_id, ()))
        known = epochs.get(topic_id, {})
        found[topic_id] = {each: known[each] if each in kept else epoch for each in numbers}
    return found


class ListedPartitions(Protocol):
    """A topic's partitions in the record of what a member has, and their epochs beside them."""

    topic_id: bytes
    partitions: list[int]
    assignment_epochs: list[int] | None


def epochs_of(listed: Sequence[ListedPartitions], member_epoch: int) -> AssignmentEpochs:
    """Return the epochs that a record tells; of a partition that is there twice, the first.

    Where a record has none, being older than KIP-1251, it is the member's epoch, or 0 of a member
    that is away: as in Apache Kafka.
    """
    found: dict[bytes, dict[int, int]] = {}
    for topic in listed:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        known = found.setdefault(bytes(topic.topic_id), {})
        for number, epoch in zip(topic.partitions, epochs, strict=True):
            known.setdefault(number, epoch)
    return found
