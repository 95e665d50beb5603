"""Patterns of topic names that members subscribe to: which are valid, and what they match.

A pattern comes from a stranger, so it is never given to Python's `re`, which some patterns keep
busy for ever. RE2 takes time in proportion to the text. Its library is imported when the first
pattern comes; a broker without it refuses patterns and does everything else.

Names are held against patterns in slices, by whoever has them. Where a pattern is known already,
only topics that came since then are looked at.

Rules: consumer-groups.md#patterns, consumer-groups.md#pattern-refresh.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeAlias

from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode

REFRESH_MIN_MS: Final = 10_000
"""A group's patterns are not held to the topics again before."""

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""What one compiled pattern may take. RE2 gives up on a larger one: it is refused."""

PATTERNS_MAX: Final = 100
"""Different patterns in one group: each is held to the names of all topics, again and again."""

MATCHED_BYTES_MAX: Final = 1 << 20
"""What the names may have that a group's patterns match: they are written in one batch."""

Matches: TypeAlias = Callable[[str], bool]
"""Says whether a pattern matches a whole name."""


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a pattern matched, sorted; at which version of the metadata, and when."""

    topics: tuple[str, ...] = ()
    version: int = -1
    at_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRefresh:
    """What a group asks: hold its patterns to the names of topics.

    `known` is what they matched before, all at version `since`: then only topics count that came
    after that, or are gone. `since` is None when all names are to be looked at. `call` is that of
    the member whose heartbeat asks: topics that it may not describe don't count.
    """

    group_id: str
    patterns: tuple[str, ...]
    call: int
    since: int | None = None
    known: Mapping[str, ResolvedPattern] = field(default_factory=dict)


def compile_pattern(pattern: str) -> Matches | Refusal:
    """Return what matches a pattern, or why it can't be had."""
    try:
        re2 = import_module("re2")
    except ImportError:
        return Refusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "This broker can't match regular expressions: its Python lacks the package google-re2.",
        )
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled: Any = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        return Refusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {_text(error)}.",
        )
    return lambda name: compiled.fullmatch(name) is not None


def _text(error: Exception) -> str:
    """RE2 gives its reasons as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


class TopicJournal:
    """The names of topics that came lately, in the order of the metadata's versions."""

    __slots__ = ("_count", "_entries", "_names_max", "_oldest", "newest")

    def __init__(self, version: int = -1, names_max: int = 10_000) -> None:
        self.newest = version  # of the last metadata with a new topic, as far as is known
        self._oldest = version  # what came up to here is not known
        self._names_max = names_max
        self._entries: deque[tuple[int, tuple[str, ...]]] = deque()
        self._count = 0

    def note(self, version: int, names: Iterable[str]) -> None:
        """Note that topics have come with this version."""
        entry = (version, tuple(names))
        if not entry[1]:
            return
        assert version > self.newest, "metadata went backwards"
        self.newest = version
        self._entries.append(entry)
        self._count += len(entry[1])
        while self._count > self._names_max:
            self._oldest, forgotten = self._entries.popleft()
            self._count -= len(forgotten)

    def since(self, version: int) -> list[str] | None:
        """Return the names that came after a version. None: that is not known any more."""
        if version < self._oldest:
            return None
        return [name for came_with, names in self._entries if came_with > version for name in names]


class TooManyNamesError(Exception):
    """Patterns match more than one batch of the log takes. The text says so."""


class PatternScan:
    """One refresh, as far as it has come. It touches no group: its outcome is told to one.

    `names` are those of all topics, or of those that came after `refresh.since`. One pattern after
    the other is compiled and held to all of them: compiled, each may take a megabyte, and ten
    milliseconds. One that can't be compiled any more (the library went with a restart) matches
    nothing.
    """

    __slots__ = (
        "_allowed",
        "_compiled",
        "_exists",
        "_found",
        "_matched",
        "_matches",
        "_names",
        "_patterns",
        "_refresh",
        "_rest",
        "_room",
    )

    def __init__(
        self,
        refresh: PatternRefresh,
        names: Iterable[str],
        *,
        exists: Callable[[str], bool],
        allowed: Callable[[str], bool] = lambda _: True,
        compiled: Callable[[str], Matches | Refusal] = compile_pattern,
        bytes_max: int = MATCHED_BYTES_MAX,
    ) -> None:
        """`bytes_max`: so much the names that each pattern matches may have, together."""
        self._refresh = refresh
        self._names = names if isinstance(names, Sequence) else list(names)
        self._exists = exists
        self._allowed = allowed
        self._compiled = compiled
        self._room = bytes_max
        self._patterns = iter(refresh.patterns)
        self._matched: dict[str, tuple[str, ...]] = {}
        # Of the pattern that is looked at now:
        self._matches: Matches | None = None
        self._rest: Iterator[str] = iter(())
        self._found: set[str] = set()

    def advance(self, names_max: int) -> bool:
        """Compile the next pattern, or hold one to so many more names. True: all is done.

        TooManyNamesError: there would be no room for the outcome.
        """
        if self._matches is None:
            return self._begin_next()
        seen = 0
        for name in islice(self._rest, names_max):
            seen += 1
            if self._matches(name) and self._allowed(name):
                self._add(name)
        if seen < names_max:
            self._end()
        return False

    def _begin_next(self) -> bool:
        pattern = next(self._patterns, None)
        if pattern is None:
            return True
        before: Iterable[str] = ()
        if self._refresh.since is not None:
            before = self._refresh.known[pattern].topics
        self._found = set()
        for name in before:
            if self._exists(name):
                self._add(name)
        self._matched[pattern] = ()
        matches = self._compiled(pattern)
        self._rest = iter(self._names)
        self._matches = _nothing if isinstance(matches, Refusal) else matches
        return False

    def _add(self, name: str) -> None:
        if name in self._found:
            return
        self._found.add(name)
        self._room -= len(name)
        if self._room < 0:
            raise TooManyNamesError(
                f"the patterns of group {self._refresh.group_id} match more topics than fit into "
                "max.message.bytes"
            )

    def _end(self) -> None:
        pattern = next(reversed(self._matched))
        self._matched[pattern] = tuple(sorted(self._found))
        self._matches = None

    def outcome(self, version: int, now_ms: int) -> dict[str, ResolvedPattern]:
        """Return what each pattern matches at this version, which the names were taken from."""
        return {
            pattern: ResolvedPattern(topics, version, now_ms)
            for pattern, topics in self._matched.items()
        }


def _nothing(_name: str) -> bool:
    return False
