"""Adding and removing voters of the quorum (KIP-853): `holdfast metadata-quorum add-controller`.

Owns the requests, what is read from the new controller's own files, and kafka-metadata-quorum's
sentences. A cluster whose voters are fixed refuses, and its words are passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.shared_options import CONNECT_S
from holdfast.clients.blocking_driver import DriverError, Peer, UnsupportedError, parse_addresses
from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.config.properties import parse_properties
from holdfast.wire.administration import AdminError, AdminRequest, add_voter, remove_voter
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.uuids import parse_uuid, uuid_text

CLIENT_ID = "holdfast-admin"
TIMEOUT_MS = 60_000
ANSWER_S = TIMEOUT_MS / 1000 + 5
# Of several controllers the active one alone may answer.
NOT_THIS_ONE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVoter:
    """A controller as its own files describe it."""

    id: int
    directory_id: bytes
    listeners: Sequence[tuple[str, str, int]]  # name, host, port

    def sentence(self, what: str) -> str:
        """Kafka's sentence about adding it."""
        endpoints = ", ".join(f"{name}://{host}:{port}" for name, host, port in self.listeners)
        directory = uuid_text(self.directory_id)
        return (
            f"{what} controller {self.id} with directory id {directory} and endpoints: {endpoints}"
        )


def read_voter(config: Path) -> NewVoter:
    """Read a controller's properties file, and its directory's id from the disk."""
    try:
        settings, _ = NodeSettings.from_properties(parse_properties(config.read_text()))
    except OSError as error:
        raise CommandError(
            f"--command-config {config}: {error.strerror}.", code=EXIT_USAGE
        ) from None
    except UnicodeDecodeError:
        raise CommandError(
            f"--command-config {config} is no text: is it a properties file?", code=EXIT_USAGE
        ) from None
    except ConfigError as error:
        raise CommandError(f"--command-config {config}: {error}.", code=EXIT_USAGE) from None
    refuse_if(
        "controller" not in settings.process_roles,
        f"--command-config {config}: node {settings.node_id} is not a controller.",
    )
    names = settings.controller_listener_names
    listeners = [
        (listener.name, listener.host, listener.port)
        for listener in settings.advertised_listeners
        if listener.name in names and listener.host
    ]
    refuse_if(
        not listeners,
        f"--command-config {config}: the controllers' listener has no host that others could "
        "reach: set advertised.listeners.",
    )
    return NewVoter(
        id=settings.node_id,
        directory_id=_directory_id(Path(settings.metadata_log_dir)),
        listeners=listeners,
    )


def add(bootstrap: str, cluster_id: str, voter: NewVoter) -> None:
    """Ask the cluster to make this controller a voter. CommandError: it refuses."""
    asked = add_voter(cluster_id, voter.id, voter.directory_id, voter.listeners, TIMEOUT_MS)
    _ask(bootstrap, asked, f"Adding controller {voter.id}")


def remove(bootstrap: str, cluster_id: str, voter_id: int, directory_id: bytes) -> None:
    """Ask the cluster to take a voter out of the quorum. CommandError: it refuses."""
    asked = remove_voter(cluster_id, voter_id, directory_id)
    _ask(bootstrap, asked, f"Removing controller {voter_id}")


def parse_directory_id(text: str) -> bytes:
    """Read a directory's id. CommandError: it isn't one."""
    try:
        return parse_uuid(text)
    except ValueError:
        raise CommandError(
            f"--controller-directory-id {text}: it is not an id in Kafka's form; "
            "`metadata-quorum describe --replication` shows those of the voters.",
            code=EXIT_USAGE,
        ) from None


def _ask(bootstrap: str, asked: AdminRequest[None], what: str) -> None:
    """Ask one address after another until one doesn't send us elsewhere."""
    reason = ""
    for host, port in parse_addresses(bootstrap):
        try:
            peer = Peer(host, port, CLIENT_ID, timeout_s=ANSWER_S, connect_s=CONNECT_S)
        except DriverError as error:
            reason = str(error)
            continue
        try:
            peer.perform(asked)
        except UnsupportedError:
            raise CommandError(f"{what}: the voters of this cluster are fixed.") from None
        except AdminError as error:
            reason = f"{error.message or 'refused'} ({error_name(error.code)})"
            if error.code not in NOT_THIS_ONE:
                break
        else:
            return
        finally:
            peer.close()
    raise CommandError(f"{what}: {reason}")


def _directory_id(directory: Path) -> bytes:
    """Return directory.id of a formatted log directory."""
    file = directory / "meta.properties"
    try:
        return parse_uuid(parse_properties(file.read_text())["directory.id"])
    except OSError as error:
        raise CommandError(
            f"{file}: {error.strerror}; format the controller's directory first."
        ) from None
    except (KeyError, ValueError, ConfigError):
        raise CommandError(f"{file}: it holds no directory.id.") from None
