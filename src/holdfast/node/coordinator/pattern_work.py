"""Patterns of a group, held to the names of topics: in slices, on the loop.

Rules: consumer-groups.md#pattern-refresh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.core.group.consumer.consumer_patterns import (
    PatternRefresh,
    PatternScan,
    ResolvedPattern,
    TopicJournal,
)
from holdfast.core.metadata.image import MetadataImage
from holdfast.runtime.sliced_work import REST, Steps

NAMES_A_SLICE: Final = 2000  # held to one pattern


class Scanned(NamedTuple):
    """A refresh that was done, and the metadata's version that its names were taken from."""

    scan: PatternScan
    version: int

    def result(self, now_ms: int) -> dict[str, ResolvedPattern]:
        return self.scan.outcome(self.version, now_ms)


def scan(
    refresh: PatternRefresh,
    journal: TopicJournal,
    image: MetadataImage,
    may_describe: Callable[[str], bool],
    bytes_max: int,
) -> Steps[Scanned]:
    """Hold a group's patterns to all topics, or to those that came since its last refresh.

    TooManyNamesError: they match more than `bytes_max` of names.
    """
    names = None if refresh.since is None else journal.since(refresh.since)
    if names is None:
        refresh = PatternRefresh(
            group_id=refresh.group_id, patterns=refresh.patterns, call=refresh.call
        )
        names = list(image.topics)
    version = image.offset
    work = PatternScan(
        refresh,
        names,
        exists=lambda name: name in image.topics,
        allowed=may_describe,
        bytes_max=bytes_max,
    )
    while not work.advance(NAMES_A_SLICE):
        yield REST
    return Scanned(work, version)
