"""The voters as the metadata log names them: control records, found as the log grows and is cut.

Owns the way from control batches to `core.quorum.voter_changes.VoterHistory` and back. With voters
that the configuration fixes (kraft.version 0) nothing is ever looked at. It never appends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.quorum.voter_changes import VoterHistory, voters_of, voters_record
from holdfast.core.quorum.voter_set import VoterSet
from holdfast.log.log import Log
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.metadata.metadata_snapshots import LoadedSnapshot
from holdfast.wire.batch import ControlType, batches, read_control_type, read_records
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import WireError
from holdfast.wire.records.control import KRaftVersionRecord, VotersRecord

READ_BYTES: Final = 1024 * 1024


class VoterLog:
    """Keeps a history of voters in step with one log."""

    def __init__(self, configured: VoterSet, listeners: Sequence[str], log: Log) -> None:
        """`listeners` are the names under which controllers may listen, the best first."""
        self.history: Final = VoterHistory(configured)
        self.fixed: Final = bool(configured.voters)
        self._listeners = list(listeners)
        self._log = log
        self._seen = log.start  # so far the log was looked through

    def restart(self, loaded: LoadedSnapshot | None) -> None:
        """Begin anew with what a snapshot says, then look through the log behind it."""
        if self.fixed:
            return
        self._seen = self._log.start
        if loaded is not None:
            voters = None if loaded.voters is None else voters_of(loaded.voters, self._listeners)
            end = loaded.identity.end_offset
            self.history.loaded(end - 1, loaded.kraft_version, voters)
            self._seen = max(self._seen, end)
        self.follow()

    def follow(self) -> bool:
        """Look at what the log has gained, or lost. True: another set of voters is in force.

        To be called after every change of the log: a cut and what is appended after it must not be
        seen as one. MetadataLogError: the log can't be read.
        """
        if self.fixed:
            return False
        before = self.history.latest
        end = self._log.end
        if end < self._seen:
            self.history.truncated(end)
            self._seen = end
        while self._seen < end:
            part = self._log.read(self._seen, READ_BYTES, end)
            if part.next_offset <= self._seen:
                raise MetadataLogError(
                    f"{self._log.directory}: the metadata log can't be read at offset {self._seen}"
                )
            self._look(part.records)
            self._seen = part.next_offset
        return self.history.latest != before

    def at(self, end: int) -> tuple[int, VotersRecord | None]:
        """Return kraft.version and the voters as a snapshot up to `end` has to name them."""
        version = self.history.kraft_version
        return version, self.record(self.history.at(end)) if version > 0 else None

    def record(self, voters: VoterSet) -> VotersRecord:
        return voters_record(voters, self._listeners[0])

    def beginning(self) -> list[tuple[ControlType, bytes]]:
        """Return what a new leader writes of voters that came from a file; else nothing."""
        history = self.history
        if not history.needs_writing:
            return []
        return [
            (
                ControlType.KRAFT_VERSION,
                encode(KRaftVersionRecord(k_raft_version=history.kraft_version), 0),
            ),
            self.change(history.latest),
        ]

    def change(self, voters: VoterSet) -> tuple[ControlType, bytes]:
        """The control record that puts a set into force."""
        return ControlType.KRAFT_VOTERS, encode(self.record(voters), 0)

    def _look(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            for position, header in batches(view):
                if not header.is_control or header.base_offset < self._seen:
                    continue
                for delta, record in enumerate(read_records(view[position:])):
                    kind, offset = read_control_type(record.key), header.base_offset + delta
                    if kind == ControlType.KRAFT_VERSION:
                        found = decode(KRaftVersionRecord, 0, record.value or b"")
                        self.history.version_appended(offset, found.k_raft_version)
                    elif kind == ControlType.KRAFT_VOTERS:
                        named = decode(VotersRecord, 0, record.value or b"")
                        self.history.voters_appended(offset, voters_of(named, self._listeners))
        except WireError as error:
            raise MetadataLogError(f"{self._log.directory}: {error}") from error
