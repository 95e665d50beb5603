"""Addresses of clients as a configuration writes them, and as a socket tells them. Pure.

Owns that both are compared in one form. No name is looked up: a peer is known by its address alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from holdfast.config.key import ConfigError

OVERRIDES = "max.connections.per.ip.overrides"
_NETWORK_BYTES = 8  # of an IPv6 address: the rest is whatever its owner likes


def override_of(member: str) -> tuple[str, int]:
    """Return the address, as sockets write it, and the number in ADDRESS:NUMBER.

    ConfigError: it has no address.
    """
    text, _, most = member.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        address = ip_address(text.partition("%")[0])  # a peer is told without its interface
    except ValueError:
        raise ConfigError(
            f"{OVERRIDES}={member}: {text} is no IP address, and names are not looked up"
        ) from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address), int(most)


def refuse_overrides(members: Iterable[str]) -> None:
    """Refuse overrides that can never match. ConfigError: one of them has no address."""
    for member in members:
        override_of(member)


def network_of(host: str) -> str:
    """Return what one owner has as a rule: an IPv4 address, or 64 bits of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:_NETWORK_BYTES].hex()
