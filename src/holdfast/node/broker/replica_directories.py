"""What the controller has to be told of where this broker's replicas lie (KIP-858).

Owns the one AssignReplicasToDirs request that may be in flight. It compares, each time, what the
metadata says with where the replica is, and never remembers what it has said: so nothing is lost
when an answer is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.core.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    Partition,
    PartitionKey,
)
from holdfast.log.errors import StorageError
from holdfast.node.broker.controller_channel import ControllerChannel
from holdfast.node.broker.registration import Asking, Registration
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import assign_replicas_to_dirs as wire
from holdfast.wire.uuids import NULL_UUID

if TYPE_CHECKING:
    from holdfast.log.directories import LogDirectories
    from holdfast.log.log import Log

logger = logging.getLogger("holdfast.assignments")

PARTITIONS_MAX: Final = 500  # in one request: a controller decides on all of it in one turn
RETRY_SECONDS: Final = 0.5
NO_DIRECTORIES: Final = (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY)

_Wanted: TypeAlias = dict[bytes, dict[bytes, list[int]]]  # directory -> topic id -> partitions


class Assignments(Asking):
    """Tells the controller where replicas lie, as long as it does not know."""

    def __init__(
        self,
        channel: ControllerChannel,
        registration: Registration,
        image: MetadataImage,
        directories: LogDirectories,
    ) -> None:
        super().__init__(channel, registration)
        self._image = image
        self._directories = directories
        self._due: dict[PartitionKey, None] = {}

    def look(self, keys: Iterable[PartitionKey]) -> None:
        """See whether the controller knows where these replicas lie; tell it if it doesn't."""
        self._due.update(dict.fromkeys(keys))
        if self._due and not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        wanted: _Wanted = {}
        sent: list[PartitionKey] = []
        while self._due and len(sent) < PARTITIONS_MAX:
            key = next(iter(self._due))
            del self._due[key]
            directory = self._untold(key)
            if directory is not None:
                wanted.setdefault(directory, {}).setdefault(key[0], []).append(key[1])
                sent.append(key)
        if not sent or self._closed:
            self._busy = False
            return
        self._ask(self._request(wanted), partial(self._answered, sent))

    def _untold(self, key: PartitionKey) -> bytes | None:
        """Where this broker has the replica; None when that is recorded, or isn't known."""
        decided = self._image.partition_by_id(*key)
        if decided is None or self._registration.node not in decided.replicas:
            return None
        recorded = decided.directory_of(self._registration.node)
        found = self._lies_in(decided, recorded)
        return None if found in (recorded, UNASSIGNED_DIRECTORY) else found

    def _lies_in(self, decided: Partition, recorded: bytes) -> bytes:
        log = self._directories.get(decided.topic, decided.index)
        if log is not None and log.topic_id in (decided.topic_id, NULL_UUID):  # not a namesake's
            if not log.offline and self._may_have_copy(log, recorded):
                try:
                    self._directories.claim(log)
                except StorageError as error:
                    logger.error("%s: %s", log, error)  # noqa: TRY400 - the disk's reason
            return log.home.directory_id
        # On the disk that is missing, whichever that is, unless it is known: there it will be.
        lost = recorded == UNASSIGNED_DIRECTORY and not self._directories.complete
        return LOST_DIRECTORY if lost else recorded

    def _may_have_copy(self, log: Log, recorded: bytes) -> bool:
        """Whether a disk that this broker can't read may hold the replica as well."""
        if recorded == log.home.directory_id:
            return False
        missing = recorded not in (*NO_DIRECTORIES, *self._directories.online_ids)
        return missing or not self._directories.complete

    def _request(self, wanted: _Wanted) -> wire.AssignReplicasToDirsRequest:
        return wire.AssignReplicasToDirsRequest(
            broker_id=self._registration.node,
            broker_epoch=self._registration.epoch,
            directories=[
                wire.AssignedDirectory(
                    id=directory,
                    topics=[
                        wire.AssignedTopic(
                            topic_id=topic_id,
                            partitions=[
                                wire.AssignedPartition(partition_index=index) for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in wanted.items()
            ],
        )

    def _answered(
        self,
        sent: list[PartitionKey],
        response: wire.AssignReplicasToDirsResponse | None,
        why: object,
    ) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if response is None or why is not None:
            logger.warning("the controller can't be told where replicas lie: %s", why)
            self._due = dict.fromkeys(sent) | self._due
            loop.call_later(RETRY_SECONDS, self._send)
            return
        # What was refused is looked at again when the partition changes.
        ineligible = [
            self._image.partition_by_id(bytes(topic.topic_id), outcome.partition_index)
            for directory in response.directories
            for topic in directory.topics
            for outcome in topic.partitions
            if outcome.error_code == ErrorCode.INELIGIBLE_REPLICA
        ]
        for decided in filter(None, ineligible):
            logger.error(
                "%s-%d: the disk that held it is gone, and nobody leads who has the rest. Bring "
                "the disk back, or another replica; or elect one uncleanly, which gives up what "
                "was written.",
                decided.topic,
                decided.index,
            )
        loop.call_soon(self._send)
