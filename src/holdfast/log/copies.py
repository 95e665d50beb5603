"""Which of two copies of a replica is the newer one, when two log directories of a node have one.

It happens when a disk fails, its replica is deleted or moved away and made anew on another disk,
and then the first disk comes back. So a replica that is made while not all log directories work,
or that is in use where the metadata does not place it, has a file that lists those that work: a
copy in any other one is older. Apache Kafka refuses to start instead, and leaves such a file alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.log.checkpoints import decode_properties, read_partition_metadata
from holdfast.log.directory import LogDirectory, partition_of
from holdfast.log.errors import CorruptFileError, DirectoryError, StorageError
from holdfast.log.segment import LOG_SUFFIX
from holdfast.runtime.ports import Disk, Runtime
from holdfast.wire.uuids import NULL_UUID, parse_uuid, uuid_text

KNOWN_DIRECTORIES: Final = "partition.directories"
_VERSION: Final = "0"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """A replica's directory that is not opened yet."""

    directory: LogDirectory
    path: str
    known: frozenset[bytes] | None  # ids of log directories, from its file; None: it has none
    damaged: bool = False  # its file makes no sense

    def replaces(self, other: Copy) -> bool:
        """Whether it was in use while `other` was out of reach."""
        return self.known is not None and other.directory.directory_id not in self.known


class Claim(NamedTuple):
    """A replica in use that has a file, and what it says."""

    directory: LogDirectory
    path: str
    known: frozenset[bytes]


def newest(copies: Sequence[Copy]) -> Copy | None:
    """Return the one that replaces all others and is replaced by none; None if there is none."""
    if any(copy.damaged for copy in copies):
        return None
    for copy in copies:
        others = [other for other in copies if other is not copy]
        if all(copy.replaces(other) and not other.replaces(copy) for other in others):
            return copy
    return None


class Copies:
    """The files that tell copies apart, and what is done when a start finds copies."""

    def __init__(self, runtime: Runtime, directories: Sequence[LogDirectory]) -> None:
        self._runtime = runtime
        self._directories = directories
        self._claims: dict[tuple[str, int], Claim] = {}

    def set_older_aside(self) -> None:
        """Rename older copies, durably, before anything is opened.

        A disk that fails here goes offline. DirectoryError: nobody can tell which one is older.
        """
        found: dict[tuple[str, int], list[Copy]] = {}
        for directory in self._directories:
            for key, path in self._replicas(directory):
                found.setdefault(key, []).append(Copy(directory, path, None))
        for key, copies in found.items():
            if len(copies) > 1:
                self._keep_newest(key, list(self._with_files(self._begun(key, copies))))

    def _begun(self, key: tuple[str, int], copies: Sequence[Copy]) -> Iterator[Copy]:
        """Yield those that were ever in use; set aside who has no file for records, and no list.

        It was being made when its disk failed too, and says nothing about the other one. Its
        topic's id may be there: that comes first, and may be a second name of a file.
        """
        for copy in copies:
            if not copy.directory.online:
                continue  # it has failed meanwhile, at a copy of another replica
            try:
                names = self._runtime.disk.list(copy.path)
            except OSError as error:
                copy.directory.fail(error)
                continue
            if any(name == KNOWN_DIRECTORIES or name.endswith(LOG_SUFFIX) for name in names):
                yield copy
                continue
            with suppress(StorageError):  # that disk is offline now
                stray = copy.directory.set_aside(copy.path, *key)
                logger.warning(
                    "%s-%d was never begun: what there is of it is kept as %s", *key, stray
                )

    def _replicas(self, directory: LogDirectory) -> Iterator[tuple[tuple[str, int], str]]:
        if not directory.online:
            return
        try:
            names = self._runtime.disk.list(directory.path)
        except OSError as error:
            directory.fail(error)
            return
        for name in names:
            key = partition_of(name)
            if key is not None:
                yield key, f"{directory.path}/{name}"

    def _with_files(self, copies: Iterable[Copy]) -> Iterator[Copy]:
        for copy in copies:
            try:
                yield Copy(copy.directory, copy.path, _read(self._runtime.disk, copy.path))
            except OSError as error:
                copy.directory.fail(error)
            except CorruptFileError as error:
                logger.error("%s", error)  # noqa: TRY400 - it says all
                yield Copy(copy.directory, copy.path, None, damaged=True)

    def _keep_newest(self, key: tuple[str, int], copies: Sequence[Copy]) -> None:
        if len(copies) < 2:
            return  # the other one's disk has failed meanwhile
        keep = newest(copies)
        if keep is None:
            raise DirectoryError(
                f"{key[0]}-{key[1]} lies in"
                f" {' and in '.join(self._described(copy) for copy in copies)}: move away the one"
                " whose id is not the topic's, or, if they have one id, the copy"
            )
        for copy in copies:
            if copy is not keep:
                self._set_aside(key, copy, keep)

    def _set_aside(self, key: tuple[str, int], older: Copy, newer: Copy) -> None:
        try:
            stray = older.directory.set_aside(older.path, *key)
        except StorageError:
            return  # that disk is offline now
        logger.warning(
            "%s-%d was in use in %s while %s did not work: the older one is kept as %s."
            " Remove it if nothing in it is missed.",
            *key,
            newer.directory.path,
            older.directory.path,
            stray,
        )

    def _described(self, copy: Copy) -> str:
        try:
            topic_id = read_partition_metadata(self._runtime.disk, copy.path)
        except (OSError, CorruptFileError):
            topic_id = NULL_UUID
        return f"{copy.directory.path} (topic id {uuid_text(topic_id)})"

    def loaded(self, directory: LogDirectory, key: tuple[str, int], path: str) -> None:
        """A replica was found at `path`. OSError: the disk fails."""
        try:
            known = _read(self._runtime.disk, path)
        except CorruptFileError as error:
            logger.warning("%s: done without", error)
            return
        if known is not None:
            self._claims[key] = Claim(directory, path, known)

    def claim(self, directory: LogDirectory, key: tuple[str, int], path: str) -> None:
        """From now on this replica is the newer one, whatever comes back. OSError: the disk fails.

        Durable when this returns.
        """
        online = self._online()
        held = self._claims.get(key)
        if held is None or held.path != path or not held.known <= online:
            self._write(key, Claim(directory, path, online))

    def removed(self, key: tuple[str, int]) -> None:
        """The replica was deleted or set aside."""
        self._claims.pop(key, None)

    def settle(self) -> None:
        """In the directories that work are no copies any more: note it, for when others fail.

        The files stay, for a directory may be missing because `log.dirs` leaves it out.
        """
        online = self._online()
        for key, claim in list(self._claims.items()):
            if not claim.directory.online or online <= claim.known:
                continue
            try:
                self._write(key, Claim(claim.directory, claim.path, claim.known | online))
            except OSError as error:
                claim.directory.fail(error)

    def _online(self) -> frozenset[bytes]:
        return frozenset(each.directory_id for each in self._directories if each.online)

    def _write(self, key: tuple[str, int], claim: Claim) -> None:
        text = ",".join(uuid_text(each) for each in sorted(claim.known))
        content = f"version: {_VERSION}\ndirectory_ids: {text}"
        self._runtime.disk.write_atomic(
            f"{claim.path}/{KNOWN_DIRECTORIES}", content.encode("ascii")
        )
        self._claims[key] = claim


def _read(disk: Disk, path: str) -> frozenset[bytes] | None:
    """Return the ids in the file of the replica at `path`; None if it has none.

    CorruptFileError: it has one that makes no sense.
    """
    name = f"{path}/{KNOWN_DIRECTORIES}"
    if not disk.exists(name):
        return None
    fields = decode_properties(disk.read(name), ":")
    if fields.get("version") != _VERSION:
        raise CorruptFileError(f"{name}: version {fields.get('version')}, only {_VERSION} is known")
    try:
        return frozenset(parse_uuid(text) for text in fields["directory_ids"].split(","))
    except (KeyError, ValueError) as error:
        raise CorruptFileError(f"{name}: {error!r}") from error
