"""What members of both protocols share: finding their coordinator, one request at a time, leaving.

A machine without a clock or a socket: `poll` gives the next request, `answered` or `lost` says what
became of it, `due_ms` when to look again. Must never have two requests on the way: the second could
overtake what the first one decides. Commits are not among them (see `light_offsets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.wire.schema import Request

Partition: TypeAlias = tuple[str, int]
Place: TypeAlias = tuple[str, int]
"""Host and port."""

_KEY_IS_GROUP: Final = 0
_LOOKS_AGAIN: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)
_WAITS: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class Topic(NamedTuple):
    """What a member knows of a topic, until it is told otherwise (`LightMember.learn`)."""

    name: str
    topic_id: bytes
    partitions: int


class Phase(Enum):
    """Where a member stands."""

    JOINING = auto()
    SYNCING = auto()  # classic: it waits for what the leader assigns
    RECONCILING = auto()  # KIP-848: the coordinator does not know yet that it did as it was told
    STABLE = auto()
    LEFT = auto()
    FAILED = auto()


_OVER: Final = frozenset({Phase.LEFT, Phase.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a member asks for, and how patient it is. The defaults are those of Kafka's consumer."""

    group_id: str
    topics: tuple[Topic, ...]
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_ms: int = 3_000  # of a classic member; the other is told by its coordinator
    retry_ms: int = 100
    answer_ms: int = 30_000


class LightMember(ABC):
    """One member. `over` once it has left or failed; then `failure` says why, if it did."""

    has_member_epoch: ClassVar[bool] = False
    """Whether `epoch` is one of KIP-848's."""

    def __init__(self, plan: Plan, member_id: str) -> None:
        self.plan = plan
        self.member_id = member_id
        self.epoch = -1
        """Of a classic member its generation."""
        self.phase = Phase.JOINING
        self.assignment: frozenset[Partition] = frozenset()
        self.place: Place | None = None
        """Where the next request goes; None: to any broker, to find the coordinator."""
        self.due_ms = 0
        """When `poll` has a request, or when the answer to the one on its way is late."""
        self.joined_ms: int | None = None
        """When it first asked to be let in."""
        self.changed_ms: int | None = None
        """When its assignment or its epoch last changed."""
        self.failure: str | None = None
        self._asked: Request | None = None
        self._leaving = False

    @property
    def over(self) -> bool:
        """Whether it has nothing more to say."""
        return self.phase in _OVER

    @property
    def waits(self) -> bool:
        """Whether a request is on its way."""
        return self._asked is not None

    def poll(self, now_ms: int) -> Request | None:
        """Return the request that is due now; None: wait until `due_ms`, or for an answer."""
        if self.over or self._asked is not None or now_ms < self.due_ms:
            return None
        patience_ms = self.plan.answer_ms
        if self.place is None:
            key = self.plan.group_id
            self._asked = FindCoordinatorRequest(key_type=_KEY_IS_GROUP, coordinator_keys=[key])
        elif self._leaving:
            self._asked = self._farewell()
        else:
            self._asked = self._next()
            patience_ms += self._parked_ms()
            if self.joined_ms is None:
                self.joined_ms = now_ms
        self.due_ms = now_ms + patience_ms
        return self._asked

    def answered(self, answer: Any, now_ms: int) -> None:
        """Take the answer to the request that is on its way."""
        asked, self._asked = self._asked, None
        assert asked is not None, "an answer to no request"
        if self._leaving and not isinstance(asked, FindCoordinatorRequest):
            self._read_while_leaving(asked, answer, now_ms)
            return
        try:
            if isinstance(asked, FindCoordinatorRequest):
                self._found(answer, now_ms)
            else:
                self._read(asked, answer, now_ms)
        except WireError as error:  # of what other members embedded
            self._fail(f"what was embedded is damaged: {error}")

    def lost(self, now_ms: int) -> None:
        """Take note that the connection ended, or an answer is late: it may have been done."""
        if self.over:
            return
        asked, self._asked = self._asked, None
        self._look_again(now_ms)
        if self._leaving and asked is not None and self._is_farewell(asked):
            self._end()  # as if it had been killed: the coordinator finds out by itself

    def leave(self, now_ms: int) -> None:
        """Leave as soon as no request is on its way."""
        if self.over:
            return
        self._leaving = True
        if self._asked is None:
            self.due_ms = now_ms
            if not self._is_known():
                self._end()

    def learn(self, topics: tuple[Topic, ...]) -> None:
        """Take note of what the same topics are by now: made anew, or with more partitions."""
        if topics != self.plan.topics:
            self.plan = replace(self.plan, topics=topics)
            self._learnt()

    # -- what each protocol has of its own -----------------------------------------------------

    @abstractmethod
    def _next(self) -> Request:
        """Return what to ask the coordinator now."""

    @abstractmethod
    def _read(self, asked: Request, answer: Any, now_ms: int) -> None:
        """Take the coordinator's answer."""

    @abstractmethod
    def _farewell(self) -> Request:
        """Return what says that it leaves."""

    @abstractmethod
    def _is_farewell(self, asked: Request) -> bool:
        """Return whether a request was the one that says that it leaves."""

    @abstractmethod
    def _is_known(self) -> bool:
        """Return whether a coordinator may know this member, so that it has to be told."""

    @abstractmethod
    def _interrupted(self) -> None:
        """Take note that what was asked last is not known to have been done."""

    @abstractmethod
    def _learnt(self) -> None:
        """Do what follows from topics that are other ones now."""

    def _parked_ms(self) -> int:
        """Return how much longer than others the next answer may take."""
        return 0

    # -- inside --------------------------------------------------------------------------------

    def _found(self, answer: FindCoordinatorResponse, now_ms: int) -> None:
        found = answer.coordinators[0] if answer.coordinators else None
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if found is None else found.error_code
        if code or found is None:
            self._refused(code, "FindCoordinator", now_ms)
            return
        self.place = (found.host, found.port)
        self.due_ms = now_ms
        if self._leaving and not self._is_known():
            self._end()

    def _read_while_leaving(self, asked: Request, answer: Any, now_ms: int) -> None:
        if self._is_farewell(asked):
            self._end()  # whatever the answer is: there is nothing more to do
            return
        self.member_id = getattr(answer, "member_id", "") or self.member_id
        self.due_ms = now_ms
        if not self._is_known():
            self._end()

    def _refused(self, code: int, what: str, now_ms: int) -> None:
        """Do what a refusal asks for that means the same whatever was asked."""
        if code in _LOOKS_AGAIN:
            self._look_again(now_ms)
        elif code in _WAITS:
            self.due_ms = now_ms + self.plan.retry_ms
        else:
            self._fail(f"{what}: {_name(code)}")

    def _look_again(self, now_ms: int) -> None:
        self.place = None
        self.due_ms = now_ms + self.plan.retry_ms
        self._interrupted()

    def _holds(self, assignment: Iterable[Partition], epoch: int, now_ms: int) -> None:
        """Own these from now on, and no others."""
        owned = frozenset(assignment)
        if (owned, epoch) != (self.assignment, self.epoch):
            self.assignment, self.epoch, self.changed_ms = owned, epoch, now_ms

    def _end(self) -> None:
        self.phase = Phase.LEFT
        self.assignment = frozenset()

    def _fail(self, why: str) -> None:
        self.phase, self.failure = Phase.FAILED, why
        self.assignment = frozenset()


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
