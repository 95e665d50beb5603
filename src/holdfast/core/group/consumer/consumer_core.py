"""What the decisions about one group work on: its state, its timers, and what is around it.

The surroundings are one for all groups of a shard. A group asks them for settings and topics, and
leaves with them what others have to do for it: hold its patterns to the names of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum, auto
from typing import Final, TypeAlias

from holdfast.core.deadlines import Deadlines
from holdfast.core.group.consumer.consumer_member import ConsumerMember
from holdfast.core.group.consumer.consumer_patterns import (
    Matches,
    PatternRefresh,
    TopicJournal,
    compile_pattern,
)
from holdfast.core.group.consumer.consumer_settings import ConsumerGroupSettings, GroupOverrides
from holdfast.core.group.consumer.consumer_state import ConsumerState
from holdfast.core.group.consumer.consumer_tellings import Tellings
from holdfast.core.group.consumer.consumer_topics import KnownTopics, TopicIndex
from holdfast.core.group.group_memory import GroupMemory
from holdfast.core.refusal import Refusal

METADATA_REFRESH_MS: Final = 2**31 - 1
"""A group looks at its topics again after that time, although nobody said that they changed."""

_AT_ONCE_MS: Final = -1
_NO_OVERRIDES: Final = GroupOverrides()


class Timer(IntEnum):  # whose hash is C's: each heartbeat looks for its member's
    """What is due in a group. All but the last are a member's."""

    SESSION = auto()  # to be heard of
    REBALANCE = auto()  # to give up partitions
    JOIN = auto()  # a member of the classic protocol: to join again
    SYNC = auto()  # a member of the classic protocol: to fetch what it got
    ASSIGNMENT = auto()  # an epoch waits for its assignment


TimerKey: TypeAlias = tuple[Timer, str]
ASSIGNMENT_TIMER: Final[TimerKey] = (Timer.ASSIGNMENT, "")
MEMBER_TIMERS: Final = (Timer.SESSION, Timer.REBALANCE, Timer.JOIN, Timer.SYNC)


class ConsumerSurroundings:
    """What the consumer groups of one shard have in common. Soft, but for the settings.

    `new_member_id` makes an id for a client that brings none, which those of the first version of
    the protocol may do, and members of the classic protocol do.
    """

    __slots__ = (
        "compiled",
        "downgraded",
        "index",
        "journal",
        "memory",
        "new_member_id",
        "overrides",
        "refreshes",
        "settings",
        "topics",
    )

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        topics: KnownTopics,
        new_member_id: Callable[[], str],
        compiled: Callable[[str], Matches | Refusal] = compile_pattern,
        memory: GroupMemory | None = None,
    ) -> None:
        self.settings = settings
        self.memory = memory or GroupMemory()  # of all groups of the broker
        self.topics = topics
        self.new_member_id = new_member_id
        self.compiled = compiled
        # By group id, where a group has its own. The shards of a broker share it.
        self.overrides: dict[str, GroupOverrides] = {}
        self.index = TopicIndex()
        self.journal = TopicJournal(topics.version)
        self.refreshes: dict[str, PatternRefresh] = {}  # what groups ask for, until it is taken
        # Groups that have become classic ones, and whether they are to begin a rebalance.
        self.downgraded: dict[str, bool] = {}

    def topics_changed(
        self,
        topics: KnownTopics,
        *,
        created: Iterable[str] = (),
        changed: Iterable[str] = (),
        deleted: Iterable[str] = (),
    ) -> list[str]:
        """Take over newer metadata. Return the groups whose `refresh_metadata` is to be called."""
        self.topics = topics
        came = list(created)
        self.journal.note(topics.version, came)
        return self.index.changed([*came, *changed, *deleted])

    def note_downgrade(self, group_id: str, *, rebalances: bool) -> None:
        """Note that a group is a classic one now, which has to begin its sessions."""
        self.downgraded[group_id] = rebalances

    def aside(self) -> ConsumerSurroundings:
        """Return surroundings for a group that isn't there yet: nobody is told of its topics."""
        around = ConsumerSurroundings(
            self.settings, self.topics, self.new_member_id, self.compiled, self.memory
        )
        around.overrides = self.overrides
        around.journal = self.journal
        around.refreshes = self.refreshes
        around.downgraded = self.downgraded
        return around

    def of_group(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings that hold for a group."""
        return self.settings.of_group(self.overrides.get(group_id, _NO_OVERRIDES))

    def take_refresh(self) -> PatternRefresh | None:
        """Take what a group asks for. Its outcome, or that there is none, is to be told to it."""
        for group_id in self.refreshes:
            return self.refreshes.pop(group_id)
        return None


class ConsumerCore:
    """One group, as decisions see it. Soft are the timers and what is behind them here."""

    __slots__ = (
        "_refresh_at_ms",
        "around",
        "is_refreshing",
        "refresh_failed_ms",
        "scanned_ms",
        "state",
        "tellings",
        "timers",
    )

    def __init__(self, group_id: str, around: ConsumerSurroundings) -> None:
        self.around = around
        self.state = ConsumerState(group_id, around.index)
        self.timers: Deadlines[TimerKey] = Deadlines()
        self.is_refreshing = False  # its patterns are being held to the names of topics
        self.scanned_ms: int | None = None  # when they were last held to all of them
        self.refresh_failed_ms: int | None = None  # when the log had no room for what came of it
        self.tellings = Tellings()
        self._refresh_at_ms = _AT_ONCE_MS

    @property
    def group_id(self) -> str:
        return self.state.group_id

    @property
    def settings(self) -> ConsumerGroupSettings:
        return self.around.of_group(self.state.group_id)

    # -- when the topics are looked at again ------------------------------------------------------

    def metadata_is_old(self, now_ms: int) -> bool:
        return now_ms >= self._refresh_at_ms

    def metadata_is_new(self, now_ms: int) -> None:
        self._refresh_at_ms = now_ms + METADATA_REFRESH_MS

    def refresh_metadata(self) -> None:
        """Look at the topics with the next heartbeat: one of them has changed."""
        self._refresh_at_ms = _AT_ONCE_MS

    def metadata_hash(self, names: Iterable[str]) -> int:
        return self.around.index.hash_of(names, self.around.topics)

    def scanned_all(self, now_ms: int) -> None:
        """Note that the group's patterns were held to the names of all topics."""
        self.scanned_ms = now_ms

    def refresh_failed(self, now_ms: int) -> None:
        """Note that what came of a refresh could not be written."""
        self.is_refreshing = False
        self.refresh_failed_ms = now_ms

    def take_over(self, other: ConsumerCore) -> None:
        """Take the soft part of a group that was decided on aside, before this one was there."""
        self.timers = other.timers
        self.is_refreshing = other.is_refreshing
        self.scanned_ms = other.scanned_ms
        self.refresh_failed_ms = other.refresh_failed_ms
        self.tellings = other.tellings
        self._refresh_at_ms = other._refresh_at_ms

    # -- timers of members -----------------------------------------------------------------------

    def keep_alive(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a member a whole session from now on; how long it is, classic members say."""
        session_ms = self.settings.session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        self.timers.set((Timer.SESSION, member.member_id), now_ms + session_ms)

    def await_rejoin(self, member: ConsumerMember, now_ms: int) -> None:
        """Give a member of the classic protocol its rebalance time-out to join again."""
        key = (Timer.JOIN, member.member_id)
        if key not in self.timers:
            self.timers.set(key, now_ms + member.rebalance_timeout_ms)

    def forget_member(self, member_id: str) -> None:
        self.tellings.confirmed(member_id)
        for kind in MEMBER_TIMERS:
            self.timers.cancel((kind, member_id))
