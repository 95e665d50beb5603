"""`bootstrap.checkpoint`: the features that a new cluster begins with, as its nodes were formatted.

Owns the file, in Kafka's name and form. It is looked at only while the metadata log is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.feature_levels import BOOTSTRAP
from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SnapshotId
from holdfast.log.errors import StorageError
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.metadata.snapshot_format import SnapshotError, SnapshotReader, snapshot_batches
from holdfast.runtime.ports import Disk
from holdfast.wire.records.metadata import FeatureLevelRecord

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"


def bootstrap_file(levels: Mapping[str, int]) -> bytes:
    """The file's content for these levels; one of 0 is left out."""
    image = MetadataImage()
    image.apply(
        [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    )
    return b"".join(snapshot_batches(image, 0))


def bootstrap_levels(disk: Disk, settings: NodeSettings) -> Mapping[str, int]:
    """The levels that a new cluster begins with; the usual ones where no file says otherwise.

    MetadataLogError: the file is damaged. StorageError: the disk fails.
    """
    path = f"{settings.metadata_log_dir}/{BOOTSTRAP_FILE}"
    try:
        if not disk.exists(path):
            return BOOTSTRAP
        reader = SnapshotReader(SnapshotId(0, 0), path)
        reader.feed(disk.read(path))
        return reader.finish().features
    except OSError as error:
        raise StorageError(settings.metadata_log_dir, str(error)) from error
    except SnapshotError as error:
        raise MetadataLogError(
            f"{path} can't be used: {error}. Format the controller anew."
        ) from error
