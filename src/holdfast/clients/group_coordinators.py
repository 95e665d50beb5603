"""Which brokers coordinate groups, and questions that are put to them until they can answer.

A coordinator that loads, or that has moved, refuses for a while. Such a refusal has changed
nothing, so the question is put again, to whoever coordinates by then, for as long as is patient.
Must never repeat a question whose answer was lost: it may have been done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.clients.blocking_driver import Driver, DriverError, Peer, UnreachableError
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

PATIENCE_S: Final = 10.0
DOUBT_S: Final = 0.5  # for a broker that is not the coordinator to say so
GROUPS_PER_REQUEST: Final = 100
KEY_IS_GROUP: Final = 0
FIRST_VERSION_OF_MANY: Final = 4

_PAUSE_S: Final = 0.1
_LOADS: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_PASSING: Final = frozenset(
    {_LOADS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

Answers: TypeAlias = dict[str, T | AdminError]
"""By group: what was answered, or why it was refused."""
Put: TypeAlias = Callable[[Peer, Sequence[str]], Mapping[str, T | AdminError]]
"""Asks one broker about some of the groups that it coordinates."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that a group's offsets and members are kept by."""

    node: int
    host: str
    port: int


class Coordinators:
    """Finds the coordinators of groups, remembers them, and asks them."""

    def __init__(self, driver: Driver, *, patience_s: float = PATIENCE_S) -> None:
        self.driver = driver
        self._patience_s = patience_s
        self._known: dict[str, Coordinator] = {}
        self._nodes: tuple[int, ...] = ()  # whom there may be to ask beside a coordinator

    def of(self, group: str) -> Coordinator:
        """Return who has answered for a group. KeyError: nobody has yet."""
        return self._known[group]

    def is_doubted(self, group: str) -> bool:
        """Say whether another broker that can be reached may be the coordinator by now.

        One that stood still answers from memory until it hears that it is none any more; whoever
        took over from it knows. Who is doubted is looked up anew for the next question. KeyError:
        nobody has answered. DriverError: no broker tells which there are.
        """
        answered = self.of(group).node
        if not self._nodes:
            self._nodes = tuple(self.driver.nodes())
        doubted = any(self._names_itself(node, group) for node in self._nodes if node != answered)
        if doubted:
            del self._known[group]
        return doubted

    def _names_itself(self, node: int, group: str) -> bool:
        try:
            return any(
                found.node_id == node and not found.error_code
                for _, found in _find(self.driver.peer(node), [group], DOUBT_S)
            )
        except UnreachableError:
            return False
        except DriverError:  # it is there, and may be busy as it takes over: the next look tells
            return True

    def ask(self, groups: Sequence[str], put: Put[T]) -> Answers[T]:
        """Put a question about groups to their coordinators, and again where that can help."""
        deadline = time.monotonic() + self._patience_s
        found: Answers[T] = {}
        left = list(dict.fromkeys(groups))
        while True:
            found |= self._ask_once(left, put)
            left = [group for group in left if passes(found[group])]
            if not left or time.monotonic() >= deadline:
                return found
            time.sleep(_PAUSE_S)

    def _ask_once(self, groups: Sequence[str], put: Put[T]) -> Answers[T]:
        found: Answers[T] = dict(self._look_up([one for one in groups if one not in self._known]))
        by_node: dict[int, list[str]] = {}
        for group in groups:
            if group not in found:
                by_node.setdefault(self._known[group].node, []).append(group)
        for node, theirs in by_node.items():
            for some in _pieces(theirs):
                found |= self._put(node, some, put)
        for group, answer in found.items():
            if isinstance(answer, AdminError) and passes(answer) and answer.code != _LOADS:
                self._known.pop(group, None)
        return found

    def _put(self, node: int, groups: Sequence[str], put: Put[T]) -> Answers[T]:
        try:
            peer = self.driver.peer(node)
        except UnreachableError as error:  # nothing was sent: another broker will take it over
            return {group: _unavailable(group, str(error)) for group in groups}
        answers = put(peer, groups)
        return {group: answers.get(group, _unavailable(group, "no answer")) for group in groups}

    def _look_up(self, groups: Sequence[str]) -> dict[str, AdminError]:
        """Find the coordinators of groups, and return why some can't be found."""
        refused: dict[str, AdminError] = {}
        self._nodes = ()
        for some in _pieces(groups):
            for group, found in _find(self.driver.peer(), some):
                self._note(group, found, refused)
        missing = [each for each in groups if each not in self._known and each not in refused]
        return refused | {
            group: _unavailable(group, "no coordinator is named") for group in missing
        }

    def _note(
        self, group: str, found: FindCoordinatorResponse, refused: dict[str, AdminError]
    ) -> None:
        if found.error_code:
            what = f"finding the coordinator of group {group}"
            refused[group] = AdminError(
                what, found.error_code, found.error_message, subject=f"group {group}"
            )
        else:
            self._known[group] = Coordinator(found.node_id, found.host, found.port)


def _find(
    peer: Peer, groups: Sequence[str], timeout_s: float | None = None
) -> Iterator[tuple[str, Any]]:
    """Ask one broker who coordinates groups: each with the answer's own part, or its whole."""
    if peer.version_of(FindCoordinatorRequest) >= FIRST_VERSION_OF_MANY:
        request = FindCoordinatorRequest(key_type=KEY_IS_GROUP, coordinator_keys=list(groups))
        for each in peer.send(request, timeout_s=timeout_s).coordinators:
            yield each.key, each
        return
    for group in groups:
        request = FindCoordinatorRequest(key=group, key_type=KEY_IS_GROUP)
        yield group, peer.send(request, timeout_s=timeout_s)


def refusal(doing: str, group: str, code: int, message: str | None = None) -> AdminError:
    """Return why something was refused to a group, as a value."""
    return AdminError(f"{doing} group {group}", code, message, subject=f"group {group}")


def passes(answer: object) -> bool:
    """Say whether this is a refusal that goes by, so that asking again can help."""
    return isinstance(answer, AdminError) and answer.code in _PASSING


def _unavailable(group: str, why: str) -> AdminError:
    return refusal("asking about", group, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)


def _pieces(groups: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(groups), GROUPS_PER_REQUEST):
        yield groups[start : start + GROUPS_PER_REQUEST]
