"""Opening a replica: what is on disk, what can be trusted, what is rebuilt.

Owns the rules after a crash. Runs before the replica serves; every repair is logged. OSError: the
disk failed.

Rules: log.md#recovery, log.md#high-watermark-after-a-start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.config.topic import TopicSettings
from holdfast.log import epochs as epoch_files
from holdfast.log.compaction.half_done_swaps import finish_swaps
from holdfast.log.epochs import UNDEFINED, EpochCache, parse_epochs
from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.index import RELATIVE_MAX
from holdfast.log.producers import Producers, decode_snapshot
from holdfast.log.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    READ_STEP_BYTES,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    prefix_of,
)
from holdfast.runtime.ports import Random, Runtime
from holdfast.wire.batch_header import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
)
from holdfast.wire.checksum import crc32c

SNAPSHOT_SUFFIX: Final = ".snapshot"
_TEMPORARY_SUFFIX: Final = ".tmp"
_REPLAY_STEP_BYTES: Final = 65536

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the log directory's checkpoints say of a replica."""

    clean: bool = False  # the node was shut down properly
    recovery_point: int = 0
    start: int = 0
    high_watermark: int = 0
    cleaned_to: int | None = None  # compaction's checkpoint


@dataclass(slots=True, kw_only=True)
class Loaded:
    """A replica as it was found, repaired."""

    segments: list[Segment]  # at least one; the last is active
    epochs: EpochCache
    producers: Producers
    snapshots: set[int]  # offsets of the snapshots on disk
    start: int
    end: int
    recovery_point: int
    high_watermark: int
    cleaned_to: int | None  # so far compaction has come; None: nowhere, or nobody knows
    clean: bool  # closed properly, and nothing had to be repaired


def jitter_of(random: Random, settings: TopicSettings) -> int:
    """Draw a segment's segment.jitter.ms."""
    bound = min(settings.segment_jitter_ms, settings.segment_ms)
    return random.below(bound) if bound > 0 else 0


class Recovery:
    """Opens one replica; used once."""

    def __init__(
        self,
        runtime: Runtime,
        files: FileCache,
        directory: str,
        settings: TopicSettings,
        remembered: Remembered,
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._files = files
        self._directory = directory
        self._settings = settings
        self._remembered = remembered
        self._repaired = False
        self._flushed = remembered.recovery_point
        self._epoch = -1  # of the last batch that was read whole

    def run(self) -> Loaded:
        """Return the replica, repaired as far as need be. OSError: the disk failed."""
        names = self._tidy()
        remembered = self._remembered
        bases = sorted(_offset_of(name) for name in names if _is_of(name, LOG_SUFFIX))
        segments, scanned, end = self._open_all(bases)
        if not segments or end < remembered.start:
            if segments:
                self._note(
                    f"ends at {end}, before its start {remembered.start}: starts again there"
                )
                self._remove_segments(segment.base for segment in segments)
            end = remembered.start
            segments, scanned = [self._create(end)], []
        start = max(remembered.start, segments[0].base)
        epochs = self._load_epochs(names, segments, scanned)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(start)
        snapshots = self._trusted_snapshots(names, segments[0].base, end)
        producers = Producers()
        replay_producers(self._runtime, self._directory, segments, snapshots, producers, end)
        cleaned_to = remembered.cleaned_to
        if cleaned_to is not None and cleaned_to > end:
            cleaned_to = None  # what is written there from now on was never looked at
        return Loaded(
            segments=segments,
            epochs=epochs,
            producers=producers,
            snapshots=snapshots,
            start=start,
            end=end,
            recovery_point=min(self._flushed, end),
            high_watermark=min(max(remembered.high_watermark, start), end),
            cleaned_to=cleaned_to,
            clean=remembered.clean and not self._repaired,
        )

    def begin(self) -> Loaded:
        """Return a replica in a directory that was made just now: there is nothing to look for."""
        return Loaded(
            segments=[self._create(0)],
            epochs=EpochCache(),
            producers=Producers(),
            snapshots=set(),
            start=0,
            end=0,
            recovery_point=0,
            high_watermark=0,
            cleaned_to=None,
            clean=True,
        )

    # --- segments ---

    def _open_all(self, bases: Sequence[int]) -> tuple[list[Segment], list[Segment], int]:
        """Return the segments, those of them that were read whole, and the end offset.

        Our rounds leave holes between batches, none between segments: one there is a loss. Only
        what no index can count is left out by who follows, and what Apache Kafka's cleaner has gone
        over has such holes.
        """
        remembered = self._remembered
        segments: list[Segment] = []
        scanned: list[Segment] = []
        end = -1  # of the segment before, -1 when it was not looked at
        for index, base in enumerate(bases):
            following = bases[index + 1] if index + 1 < len(bases) else None
            if end > base or (0 <= end < base and self._is_lost_between(end, base)):
                self._note(f"segment {base} does not go on from offset {end}: dropped")
                self._remove_segments(bases[index:])
                break
            trusted = remembered.clean or (
                following is not None and following <= remembered.recovery_point
            )
            segment, end = self._open_trusted(base, following) if trusted else _NO
            if segment is None:
                if trusted:
                    self._flushed = min(self._flushed, base)  # its indexes are made anew
                segment, end, problem = self._rebuild(base)
                scanned.append(segment)
                segments.append(segment)
                if problem:
                    self._remove_segments(bases[index + 1 :])
                    break
                if following is not None:
                    segment.seal()
            else:
                segments.append(segment)
        return segments, scanned, end

    def _is_lost_between(self, end: int, base: int) -> bool:
        """Whether something was in the hole between two segments that nobody has taken out."""
        cleaned_to = self._remembered.cleaned_to
        return base <= end + RELATIVE_MAX and (cleaned_to is None or base > cleaned_to)

    def _open_trusted(self, base: int, following: int | None) -> tuple[Segment | None, int]:
        """Open a segment whose files were closed or flushed properly; None: they were not.

        `following`: where the next one begins, if there is one.
        """
        try:
            segment = Segment.open(
                self._disk,
                self._files,
                prefix_of(self._directory, base),
                base,
                indexes=True,
                jitter_ms=jitter_of(self._runtime.random, self._settings),
            )
            if following is not None:
                if following == self._remembered.recovery_point and not segment.is_sealed:
                    # All of it was flushed before it was sealed, which adds an entry.
                    self._note(f"{segment.log_path}: its time index was not finished")
                    return _NO
                return segment, -1
            segment.offsets.load()
            segment.times.load()
            end = base
            for _, header in segment.headers(segment.offsets.last_position):
                end = header.next_offset
        except CorruptFileError as error:
            self._note(f"{error}: the segment is read whole")
            return _NO
        return segment, end

    def _rebuild(self, base: int) -> tuple[Segment, int, str]:
        """Read a segment whole: cut it at the first bad batch, make its indexes anew."""
        segment = Segment.open(
            self._disk,
            self._files,
            prefix_of(self._directory, base),
            base,
            indexes=False,
            jitter_ms=jitter_of(self._runtime.random, self._settings),
        )
        size = segment.size
        end, self._epoch, problem = rebuild(
            self._files, segment, self._settings.index_interval_bytes, self._epoch
        )
        if problem:
            self._note(
                f"{segment.log_path}: {problem} at byte {segment.size}: cut there,"
                f" {size - segment.size} bytes dropped, offset {end} is next"
            )
            self._files.get(segment.log_path).truncate(segment.size)
            self._flushed = min(self._flushed, base)  # what was cut off may come back
        return segment, end, problem

    def _create(self, base: int) -> Segment:
        return Segment.create(
            self._files,
            prefix_of(self._directory, base),
            base,
            now_ms=self._runtime.clock.wall_ms(),
            jitter_ms=jitter_of(self._runtime.random, self._settings),
        )

    def _remove_segments(self, bases: Iterable[int]) -> None:
        for base in bases:
            for suffix in SUFFIXES:
                path = prefix_of(self._directory, base) + suffix
                self._files.forget(path)
                if self._disk.exists(path):
                    self._disk.remove(path)

    # --- epochs and producers ---

    def _load_epochs(
        self, names: Sequence[str], segments: Sequence[Segment], scanned: Sequence[Segment]
    ) -> EpochCache:
        """Return the checkpoint's epochs, corrected by the batches that were read again.

        Batches are the truth: the file may have entries that a truncation had thrown away.
        """
        path = f"{self._directory}/{epoch_files.FILE_NAME}"
        epochs = None
        if epoch_files.FILE_NAME in names:
            try:
                epochs = parse_epochs(self._disk.read(path), path)
            except CorruptFileError as error:
                self._note(f"{error}: made again from the batches")
        if epochs is None:
            epochs = EpochCache()
            scanned = segments
        # What contradicts a batch goes, later entries too: those behind are to be read as well. An
        # entry in a hole contradicts none: compaction has taken what an epoch began with.
        known = epochs.entries()
        latest, end = UNDEFINED, UNDEFINED
        for segment in segments[segments.index(scanned[0]) :] if scanned else []:
            for _, header in segment.headers(0, _REPLAY_STEP_BYTES):
                epoch, base = header.leader_epoch, header.base_offset
                if epoch >= 0 and epoch != latest:
                    for entry, start in known:
                        if latest < entry <= epoch and 0 <= end <= start <= base:
                            epochs.assign(entry, start)
                    epochs.assign(epoch, base)
                    latest = epoch
                end = header.next_offset
        return epochs

    def _trusted_snapshots(self, names: Sequence[str], first: int, end: int) -> set[int]:
        """Return the offsets of producer snapshots that still hold; the others are removed.

        After a crash, one beyond the recovery point may be of a history that was truncated, and
        one before the first segment of a log that was thrown away.
        """
        remembered = self._remembered
        bound = end if remembered.clean else min(end, remembered.recovery_point)
        kept = set()
        for name in names:
            if _is_of(name, SNAPSHOT_SUFFIX):
                if first <= _offset_of(name) <= bound:
                    kept.add(_offset_of(name))
                else:
                    self._disk.remove(f"{self._directory}/{name}")
        return kept

    # --- leftovers ---

    def _tidy(self) -> list[str]:
        """Remove or finish what a crash left half done; return the names that stay."""
        names = finish_swaps(self._disk, self._files, self._directory)
        for name in [n for n in names if n.endswith(_LEFTOVERS)]:
            self._remove(names, name)
        logs = {_offset_of(name) for name in names if _is_of(name, LOG_SUFFIX)}
        for name in [n for n in names if n.endswith(_INDEX_SUFFIXES)]:
            if _offset_of(name) not in logs:
                self._remove(names, name)
        return names

    def _remove(self, names: list[str], name: str) -> None:
        self._disk.remove(f"{self._directory}/{name}")
        names.remove(name)

    def _note(self, repair: str) -> None:
        text = repair if repair.startswith(self._directory) else f"{self._directory}: {repair}"
        self._repaired = True
        logger.warning("%s", text)


def rebuild(
    files: FileCache, segment: Segment, interval: int, epoch: int = -1
) -> tuple[int, int, str]:
    """Read all batches of a segment, checking each; fill its indexes. `epoch`: of the one before.

    Returns the next offset, the last epoch, and what is wrong with the first bad batch ("" for
    nothing), before which `segment.size` ends.
    """
    file_size = segment.rewind()
    expected = segment.base
    data, start = b"", 0
    while segment.size < file_size:
        position = segment.size
        at = position - start
        if at + HEADER_SIZE > len(data) or at + _batch_size(data, at) > len(data):
            data = files.get(segment.log_path).pread(READ_STEP_BYTES, position)
            start, at = position, 0
            if len(data) < HEADER_SIZE:
                return expected, epoch, "a batch is cut in its header"
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        problem = _problem_of(header, segment, expected, file_size - position)
        if not problem and header.leader_epoch < epoch:
            # A stretch that was truncated once, and came back when the power went.
            problem = f"epoch {header.leader_epoch} after epoch {epoch}"
        if problem:
            return expected, epoch, problem
        if not _crc_is_right(files, segment.log_path, position, header, data, at):
            problem = f"the CRC of the batch at offset {header.base_offset} is wrong"
            return expected, epoch, problem
        expected, epoch = header.next_offset, header.leader_epoch
        segment.note(header.size, header.last_offset, header.max_timestamp, interval)
    return expected, epoch, ""


def _batch_size(data: bytes, at: int) -> int:
    return LENGTH_END + int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True)


def _problem_of(header: BatchHeader, segment: Segment, expected: int, left: int) -> str:
    """Say why this can't be the log's next batch, "" if it can. The CRC is another matter."""
    if header.magic != MAGIC:
        return f"a batch of magic {header.magic}"
    if header.batch_length < BATCH_LENGTH_MIN:
        return f"a batch of length {header.batch_length}"
    if header.size > left:
        return f"a batch of {header.size} bytes is cut after {left}"
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"offset {header.base_offset} after {expected - 1}"
    if not segment.reaches(header.last_offset):
        return f"offset {header.last_offset} in the segment of {segment.base}"
    return ""


def _crc_is_right(
    files: FileCache, path: str, position: int, header: BatchHeader, data: bytes, at: int
) -> bool:
    """Check a batch of which perhaps only the front is in `data`; the rest is read in steps."""
    crc = crc32c(memoryview(data)[at + CRC_START : at + header.size])
    done, end = position + len(data) - at, position + header.size
    while done < end:
        part = files.get(path).pread(min(READ_STEP_BYTES, end - done), done)
        if not part:
            return False
        crc = crc32c(part, crc)
        done += len(part)
    return bool(crc == header.crc)


def replay_producers(
    runtime: Runtime,
    directory: str,
    segments: Sequence[Segment],
    snapshots: set[int],
    producers: Producers,
    end: int,
) -> None:
    """Make the producers' state at `end` from the latest snapshot that can be read.

    `snapshots` loses those that can't. Only batch headers are read.
    """
    now_ms = runtime.clock.wall_ms()
    producers.clear()
    start = segments[0].base
    for offset in sorted(snapshots, reverse=True):
        if offset > end:
            continue
        path = prefix_of(directory, offset) + SNAPSHOT_SUFFIX
        try:
            producers.restore(decode_snapshot(runtime.disk.read(path), path), now_ms)
        except (CorruptFileError, FileNotFoundError) as error:
            logger.warning("%s: an older one is used", error)
            snapshots.discard(offset)
            continue
        start = max(start, offset)
        break
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base <= start:
            continue
        for _, header in segment.headers(
            segment.offsets.floor(start) if start > segment.base else 0, _REPLAY_STEP_BYTES
        ):
            if start <= header.base_offset < end and header.producer_id >= 0:
                producers.update(header, now_ms)


_NO: Final = (None, -1)
_LEFTOVERS: Final = (DELETED_SUFFIX, _TEMPORARY_SUFFIX)
_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def _is_of(name: str, suffix: str) -> bool:
    stem = name.removesuffix(suffix)
    return stem != name and stem.isascii() and stem.isdigit()


def _offset_of(name: str) -> int:
    """Return the offset in the name of one of a segment's files, -1 if it has none."""
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else -1
