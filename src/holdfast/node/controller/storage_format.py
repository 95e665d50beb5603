"""`storage format`: make log directories that belong to one cluster and one node.

Owns what a fresh directory holds: `meta.properties` with an id of its own and, for a controller
that shall begin with other features than usual, `bootstrap.checkpoint`; for one that begins with
voters of its own choice, their snapshot. It never touches a directory that is formatted already,
and never anybody's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.core.metadata.feature_levels import BOOTSTRAP, refuse_levels
from holdfast.core.quorum.voter_set import VoterSet
from holdfast.log.checkpoints import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from holdfast.node.controller.bootstrap_checkpoint import BOOTSTRAP_FILE, bootstrap_file
from holdfast.node.quorum.initial_voters import own_voter, write_initial_voters
from holdfast.runtime.ports import Disk, Random
from holdfast.wire.uuids import NULL_UUID, parse_uuid, uuid_text


class FormatError(Exception):
    """A directory can't be formatted. The text says which and what to do."""


class Formatted(NamedTuple):
    """What was done to one directory."""

    directory: str
    fresh: bool  # False: it was formatted before, and was left as it is


def random_cluster_id(random: Random) -> str:
    """An id for a new cluster: 22 characters, never beginning with a dash."""
    return uuid_text(random.uuid())


class Beginning(NamedTuple):
    """What a cluster is to begin with in place of the usual.

    `features` are levels; they are looked at by the controllers only, and only while the metadata
    log is empty. `standalone`: this controller is the only voter of a quorum that can change; with
    `initial_controllers` these are, and it is one of them (KIP-853). With neither, the voters are
    those of controller.quorum.voters, or this controller joins others later.
    """

    features: Mapping[str, int] | None = None
    standalone: bool = False
    initial_controllers: VoterSet | None = None


USUAL: Final = Beginning()


def format_directories(
    disk: Disk,
    random: Random,
    settings: NodeSettings,
    cluster_id: str,
    beginning: Beginning = USUAL,
    *,
    ignore_formatted: bool = False,
) -> Sequence[Formatted]:
    """Format the node's directories for a cluster; all of them or, on a refusal, none.

    FormatError: the cluster id is none, or a directory is formatted already or can't be used. With
    `ignore_formatted` the formatted are left alone, unless they belong to another cluster or node;
    so are those that can't be read beside one that is formatted: the node starts without them.
    """
    try:
        parse_uuid(cluster_id)
    except ValueError as error:
        raise FormatError(
            f"cluster id: {error}. Make one with `holdfast storage random-uuid`, and use the same "
            "for every node of the cluster."
        ) from error
    refusal = refuse_levels({**BOOTSTRAP, **(beginning.features or {})})
    if refusal is not None:
        raise FormatError(refusal)
    directory_id = _check_voters(settings, beginning)
    known = _look(disk, settings, cluster_id, ignore_formatted)
    for directory in (name for name, found in known.items() if found is None):
        holds_log = directory == settings.metadata_log_dir
        own_id = directory_id if holds_log and directory_id else random.uuid()
        try:
            _make_durably(disk, directory)
            if holds_log:
                _write_beginning(disk, settings, own_id, beginning)
            write_meta_properties(
                disk,
                directory,
                MetaProperties(
                    cluster_id=cluster_id, node_id=settings.node_id, directory_id=own_id
                ),
            )
        except OSError as error:
            raise FormatError(_unusable(directory, error)) from error
    return [Formatted(directory, found is None) for directory, found in known.items()]


def _look(
    disk: Disk, settings: NodeSettings, cluster_id: str, ignore_formatted: bool
) -> dict[str, MetaProperties | None]:
    """Return the directories to be had, with what is in those that are formatted. FormatError."""
    known: dict[str, MetaProperties | None] = {}
    unreadable: dict[str, OSError] = {}
    for directory in dict.fromkeys([*settings.log_dirs, settings.metadata_log_dir]):
        try:
            found = read_meta_properties(disk, directory) if disk.exists(directory) else None
        except OSError as error:
            unreadable[directory] = error
        else:
            known[directory] = found
            if found is not None:
                _check_formatted(directory, found, settings, cluster_id, ignore_formatted)
    if unreadable and not (ignore_formatted and any(known.values())):
        raise FormatError(_unusable(*next(iter(unreadable.items()))))
    return known


def _write_beginning(
    disk: Disk, settings: NodeSettings, own_id: bytes, beginning: Beginning
) -> None:
    """Write what is not usual into the directory of the metadata log. OSError."""
    if beginning.features:
        disk.write_atomic(
            f"{settings.metadata_log_dir}/{BOOTSTRAP_FILE}",
            bootstrap_file({**BOOTSTRAP, **beginning.features}),
        )
    voters = beginning.initial_controllers
    if beginning.standalone:
        voters = VoterSet((own_voter(settings, own_id),))
    if voters is not None:
        write_initial_voters(disk, settings, voters)


def _check_voters(settings: NodeSettings, beginning: Beginning) -> bytes | None:
    """Return the id that the metadata log's directory must get; None: any. FormatError."""
    standalone, initial_controllers = beginning.standalone, beginning.initial_controllers
    if not standalone and initial_controllers is None:
        return None
    if standalone and initial_controllers is not None:
        raise FormatError("--standalone and --initial-controllers exclude each other")
    if not settings.is_controller or settings.controller_quorum_voters:
        raise FormatError(
            "voters that can change are for controllers without controller.quorum.voters: set "
            "controller.quorum.bootstrap.servers in its place"
        )
    try:
        own = own_voter(settings, NULL_UUID)
    except ConfigError as error:
        raise FormatError(str(error)) from error
    if initial_controllers is None:
        return None
    found = initial_controllers.find(own.node_id)
    if found is None:
        raise FormatError(f"node {own.node_id} is not one of the initial controllers")
    if (found.host, found.port) != (own.host, own.port):
        raise FormatError(
            f"node {own.node_id} listens on {own.host}:{own.port}, and the initial controllers "
            f"say {found.host}:{found.port}"
        )
    return found.directory_id


def _unusable(directory: str, error: OSError) -> str:
    return (
        f"{directory} can't be used: {error.strerror or error}. Mend it, or name another directory "
        "in log.dirs."
    )


def _make_durably(disk: Disk, directory: str) -> None:
    """Make a directory and its parents so that a power cut does not take the node's data away.

    What will be synced in it is of no use when the entry that leads to it is not.
    """
    missing = []
    path = directory.rstrip("/")
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    disk.make_directories(directory)
    for made in reversed(missing):
        disk.sync_directory(made.rpartition("/")[0] or "/")


def _check_formatted(
    directory: str,
    found: MetaProperties,
    settings: NodeSettings,
    cluster_id: str,
    ignore_formatted: bool,
) -> None:
    if not ignore_formatted:
        raise FormatError(
            f"{directory} is formatted already, for node {found.node_id} of cluster "
            f"{found.cluster_id}. Pass --ignore-formatted to leave it as it is, or empty it first."
        )
    if found.cluster_id != cluster_id:
        raise FormatError(
            f"{directory} belongs to cluster {found.cluster_id}, not {cluster_id}: use that id, or "
            "an empty directory."
        )
    if found.node_id != settings.node_id:
        raise FormatError(
            f"{directory} belongs to node {found.node_id}, not {settings.node_id}: set node.id or "
            "log.dirs right, or use an empty directory."
        )
