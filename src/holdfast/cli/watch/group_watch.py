"""How far groups are behind, asked again and again by a thread of its own.

Asks over the observer's way, which no cut touches, and says what it does not know: how many
partitions, and since when nobody has told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import DEAD, Description, described
from holdfast.clients.group_lags import PartitionLag, lags_of
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from holdfast.wire.messages.metadata import MetadataResponse

PAUSE_S = 2.0  # between two looks at groups
ANSWER_S = 2.0
# It is asked again soon: what is known now counts, and not what will be after an election.
PATIENCE_S = 0.0
# Who answers so tells that there is no such group, or that it is none of consumers.
NO_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL})

Ways = Mapping[int, tuple[str, int]]
"""Host and port of each broker that may be asked; who knows most comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind, as it was told at a moment: the same until it is told anew.

    `lag`: over the partitions of which it is known; None: it is of none. `unknown_partitions`: of
    how many it isn't; None: not even that is known.
    """

    lag: int | None
    unknown_partitions: int | None
    told_monotonic_s: float = 0.0


NOTHING_KNOWN = GroupLag(lag=None, unknown_partitions=None)


def summed(rows: Iterable[PartitionLag]) -> GroupLag:
    """Return the lag of a group, of these partitions.

    Of one whose log's end nobody tells, or of which nothing is committed, it is not known.
    """
    lags = [row.lag for row in rows]
    known = [lag for lag in lags if lag is not None]
    return GroupLag(lag=sum(known) if known else None, unknown_partitions=len(lags) - len(known))


def group_names_of(driver: Driver, node: int) -> set[str]:
    """Return the groups that one broker coordinates. DriverError, AdminError: it does not say."""
    response = driver.peer(node).send(ListGroupsRequest(states_filter=[], types_filter=[]))
    assert isinstance(response, ListGroupsResponse)
    if response.error_code:
        raise AdminError(f"listing the groups of broker {node}", response.error_code)
    return {one.group_id for one in response.groups}


class DriverByWays(Driver):
    """Reaches brokers over the ways given, whatever addresses they advertise, and no others."""

    def __init__(self, ways: Ways) -> None:
        servers = ",".join(f"{host}:{port}" for host, port in ways.values())
        super().__init__(servers, "holdfast-watch", timeout_s=ANSWER_S)
        self._ways = ways

    def metadata(
        self, topics: Sequence[str] | None = None, *, auto_creation: bool = False
    ) -> MetadataResponse:
        response = super().metadata(topics, auto_creation=auto_creation)
        self._nodes = {node: self._ways[node] for node in self._nodes if node in self._ways}
        return response


class GroupLags:
    """Asks all groups how far they are behind, from `start` to `stop`."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._ways: Ways = {}
        self._told: Mapping[str, GroupLag] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def go_by(self, ways: Ways) -> None:
        """Ask these brokers from now on; who knows most comes first."""
        self._ways = ways

    def latest(self) -> dict[str, GroupLag]:
        """Return what was told of each group last."""
        return dict(sorted(self._told.items()))

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            ways = self._ways
            if ways:
                with suppress(DriverError), DriverByWays(ways) as driver:
                    self.look(driver)

    def look(self, driver: Driver) -> None:
        """Ask once. DriverError: what was told before stays, and gets old.

        So it does of a group that can't be asked, until its coordinator says that it is no more: a
        list of groups lacks those whose coordinator is down.
        """
        coordinators = Coordinators(driver, patience_s=PATIENCE_S)
        names = set(self._told)
        for node in driver.nodes():
            with suppress(DriverError, AdminError):
                names |= group_names_of(driver, node)
        answers = described(coordinators, sorted(names))
        there = {
            group: answer
            for group, answer in answers.items()
            if not isinstance(answer, AdminError) and answer.state != DEAD
        }
        lags = lags_of(coordinators, there, patience_s=PATIENCE_S)
        now_s = self._now_s()
        unknown = replace(NOTHING_KNOWN, told_monotonic_s=now_s)
        told: dict[str, GroupLag] = {}
        for group, answer in (answers | lags).items():
            if isinstance(answer, AdminError):
                if answer.code not in NO_GROUP:
                    told[group] = self._told.get(group, unknown)
            elif not isinstance(answer, Description):
                told[group] = replace(summed(answer), told_monotonic_s=now_s)
        self._told = told
