"""The voters that a new cluster begins with where they can change, as `storage format` writes them.

Owns the snapshot of offset 0 that holds them (KIP-853), and how they are written on the command
line. A node that is formatted without it waits until somebody adds it.
"""

from __future__ import annotations

from typing import Final

from holdfast.config.key import ConfigError
from holdfast.config.listeners import parse_voters
from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SnapshotId
from holdfast.core.quorum.voter_changes import KRAFT_VERSIONS, voters_record
from holdfast.core.quorum.voter_set import Voter, VoterSet
from holdfast.log.checkpoints import PARTITION_METADATA, encode_partition_metadata
from holdfast.node.metadata.snapshot_format import snapshot_batches
from holdfast.runtime.ports import Disk
from holdfast.wire.uuids import METADATA_TOPIC_ID, parse_uuid
from holdfast.wire.well_known import METADATA_TOPIC

BEGINNING: Final = SnapshotId(0, 0)


def parse_initial_controllers(text: str) -> VoterSet:
    """Read `ID@HOST:PORT:DIRECTORY_ID,...`, as Kafka's storage tool takes them. ConfigError."""
    found = []
    for member in text.split(","):
        address, _, directory = member.strip().rpartition(":")
        try:
            directory_id = parse_uuid(directory)
        except ValueError as error:
            raise ConfigError(
                f"{member}: must look like ID@HOST:PORT:DIRECTORY_ID ({error})"
            ) from error
        (voter,) = parse_voters([address])
        found.append(Voter(voter.node_id, voter.host, voter.port, directory_id))
    if len({voter.node_id for voter in found}) < len(found):
        raise ConfigError(f"{text}: a node stands there twice")
    return VoterSet.of(found)


def own_voter(settings: NodeSettings, directory_id: bytes) -> Voter:
    """This controller as a voter, where it is advertised. ConfigError: nobody could reach it.

    Of several listeners the one whose name comes first counts, as everywhere else.
    """
    advertised = {listener.name: listener for listener in settings.advertised_listeners}
    names = [name for name in settings.controller_listener_names if name in advertised]
    listener = advertised[names[0]] if names else None
    if listener is not None and listener.host and listener.port:
        return Voter(settings.node_id, listener.host, listener.port, directory_id)
    raise ConfigError(
        "the controllers' listener needs a host and a port that can be reached: set listeners, or "
        "advertised.listeners"
    )


def write_initial_voters(disk: Disk, settings: NodeSettings, voters: VoterSet) -> None:
    """Put the snapshot of offset 0 into the metadata log's directory. OSError."""
    directory = f"{settings.metadata_log_dir}/{METADATA_TOPIC}-0"
    disk.make_directories(directory)
    disk.sync_directory(settings.metadata_log_dir)
    disk.write_atomic(
        f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(METADATA_TOPIC_ID)
    )
    image = MetadataImage(offset=BEGINNING.end_offset - 1, epoch=BEGINNING.epoch)
    record = voters_record(voters, settings.controller_listener_names[0])
    disk.write_atomic(
        f"{directory}/{BEGINNING.file_name}",
        b"".join(snapshot_batches(image, 0, kraft_version=KRAFT_VERSIONS[1], voters=record)),
    )
