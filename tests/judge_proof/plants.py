"""All plants, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.judge_proof import plants_begin, plants_files, plants_log, plants_reading
from tests.judge_proof.planting import Planting

PLANTS: dict[str, Callable[[Planting], bool]] = {
    plant.__name__: plant
    for plant in (
        plants_log.lost,
        plants_log.vanished,
        plants_log.duplicated,
        plants_log.phantom,
        plants_log.changed_value,
        plants_log.changed_key,
        plants_log.changed_timestamp,
        plants_log.resurrected,
        plants_log.reordered_within,
        plants_log.reordered_across,
        plants_log.told_elsewhere,
        plants_log.epoch_falls,
        plants_begin.beginning_gone,
        plants_begin.everything_gone,
        plants_begin.gone_though_refused,
        plants_files.other_bytes,
        plants_files.batch_lacking,
        plants_files.batch_too_many,
        plants_files.hole_everywhere,
        plants_files.extents_alone,
        plants_files.ends_behind_the_read,
        plants_files.prefix_lacking,
        plants_files.replica_anew,
        plants_files.replica_empty,
        plants_reading.uncommitted,
        plants_reading.skipped,
        plants_reading.reset_in_silence,
        plants_reading.taken_back,
        plants_reading.read_too_late,
        plants_reading.misled,
        plants_reading.clock_behind,
        plants_reading.metadata_go_back,
        plants_reading.never_seen,
        plants_reading.not_read_back,
    )
}
