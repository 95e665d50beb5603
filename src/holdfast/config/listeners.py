"""Listeners, voters and bootstrap servers: the texts of Kafka's keys as values. Pure.

Owns their syntax and the refusal of what is not built. It knows no sockets: an empty host stays
empty, and whoever listens puts the machine's own name in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.config.key import ConfigError, refuse_if

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65535


class Listener(NamedTuple):
    """One endpoint. An empty host means every address of the machine, port 0 any free port."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT


class Voter(NamedTuple):
    """A member of the controller quorum."""

    node_id: int
    host: str
    port: int


class Server(NamedTuple):
    """Where a controller may be asked for the quorum."""

    host: str
    port: int


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return listener name -> security protocol of listener.security.protocol.map."""
    protocols: dict[str, str] = {}
    for member in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = member.rpartition(":")
        refuse_if(
            not colon or not name or protocol not in _PROTOCOLS,
            f"listener.security.protocol.map={text}: {member} must be NAME:PROTOCOL"
            f" with one of {', '.join(_PROTOCOLS)}",
        )
        refuse_if(
            name.upper() in protocols,
            f"listener.security.protocol.map={text}: {name} stands there twice",
        )
        protocols[name.upper()] = protocol
    return protocols


def parse_listeners(
    key: str, members: Iterable[str], protocols: dict[str, str]
) -> tuple[Listener, ...]:
    """Return the listeners in `members` of the form NAME://HOST:PORT. ConfigError names `key`."""
    listeners: list[Listener] = []
    for member in members:
        name, separator, address = member.partition("://")
        refuse_if(not separator or not name, f"{key}={member}: must look like NAME://HOST:PORT")
        host, port = _parse_address(key, member, address)
        listener = Listener(name.upper(), host, port, _protocol(key, name.upper(), protocols))
        refuse_if(
            any(listener.name == other.name for other in listeners),
            f"{key}: the listener name {listener.name} stands there twice",
        )
        refuse_if(
            port and any((host, port) == (other.host, other.port) for other in listeners),
            f"{key}: port {port} stands there twice; each listener needs its own",
        )
        listeners.append(listener)
    return tuple(listeners)


def parse_voters(members: Iterable[str]) -> tuple[Voter, ...]:
    """Return the voters of controller.quorum.voters, each ID@HOST:PORT."""
    key = "controller.quorum.voters"
    voters: list[Voter] = []
    for member in members:
        node_id, separator, address = member.partition("@")
        refuse_if(
            not separator or not _is_number(node_id), f"{key}={member}: must look like ID@HOST:PORT"
        )
        host, port = _parse_address(key, member, address)
        refuse_if(
            not host or not port, f"{key}={member}: needs a host and a port that can be reached"
        )
        refuse_if(
            any(int(node_id) == other.node_id for other in voters),
            f"{key}: node {node_id} stands there twice",
        )
        voters.append(Voter(int(node_id), host, port))
    return tuple(voters)


def parse_servers(key: str, members: Iterable[str]) -> tuple[Server, ...]:
    """Return the servers in `members`, each HOST:PORT."""
    servers: list[Server] = []
    for member in members:
        host, port = _parse_address(key, member, member)
        refuse_if(
            not host or not port, f"{key}={member}: needs a host and a port that can be reached"
        )
        servers.append(Server(host, port))
    return tuple(servers)


def _protocol(key: str, name: str, protocols: dict[str, str]) -> str:
    # Kafka gives the name CONTROLLER no default; here one protocol exists, so nothing is unclear.
    protocol = protocols.get(name)
    if protocol is None:
        if name == "CONTROLLER":
            return PLAINTEXT
        raise ConfigError(
            f"{key}: no security protocol is known for the listener {name};"
            f" add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    refuse_if(
        protocol != PLAINTEXT,
        f"{key}: the listener {name} wants {protocol}, and TLS and SASL are not built yet;"
        f" use PLAINTEXT on a network you trust",
    )
    return protocol


def _parse_address(key: str, member: str, address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    refuse_if(
        not separator or not _is_number(port) or int(port) > PORT_MAX,
        f"{key}={member}: must end with :PORT, a number up to {PORT_MAX}",
    )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{key}={member}: an IPv6 address stands in [brackets]")
    refuse_if(
        any(character in host for character in "/@ []"),
        f"{key}={member}: {host} is not the name or address of a host",
    )
    return host, int(port)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
