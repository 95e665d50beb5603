"""Which consumer group is told how far a query is, and over which connection. Pure.

Owns the form that this has in a source's offsets. It comes back from a checkpoint, so it is looked
at again: a checkpoint may name servers and secrets' references, and never a program to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OPTION: Final = "progressGroup"
# Among an offset's topics: no topic can have this name, since Kafka's have no such sign.
KEY: Final = "@progressGroup"
# How to reach a cluster. What else a reader sets is about reading.
_CONNECTING: Final = frozenset(
    {
        "bootstrap.servers",
        "broker.address.family",
        "client.dns.lookup",
        "client.id",
        "enable.ssl.certificate.verification",
        "security.protocol",
    }
)
_CONNECTING_PREFIXES: Final = ("https.", "reconnect.", "sasl.", "socket.", "ssl.")
# librdkafka makes a command line of these and runs it.
_RUN_BY_A_SHELL: Final = "sasl.kerberos."


class GroupError(ValueError):
    """A group that can't be told anything: its form or one of its settings makes no sense."""


@dataclass(frozen=True, slots=True)
class ProgressGroup:
    """A group, and librdkafka's properties of a connection; secrets are references."""

    name: str
    client: tuple[tuple[str, str], ...]

    def is_same_as(self, other: ProgressGroup) -> bool:
        """Return whether both are one group of one cluster, as far as addresses tell."""
        return self.name == other.name and not self._addresses().isdisjoint(other._addresses())

    def _addresses(self) -> set[str]:
        return {each.strip() for each in dict(self.client).get("bootstrap.servers", "").split(",")}


def connecting(client: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return which of a reader's properties are about reaching the cluster."""
    return tuple(sorted((name, value) for name, value in client.items() if _connects(name)))


def uses_kerberos(client: Mapping[str, str]) -> bool:
    """Whether the client logs in by Kerberos, which is librdkafka's default where it logs in."""
    mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms") or "GSSAPI"
    protocol = client.get("security.protocol", "")
    return protocol.upper().startswith("SASL") and mechanism.upper() == "GSSAPI"


def _connects(name: str) -> bool:
    if name.startswith(_RUN_BY_A_SHELL):
        return False
    return name in _CONNECTING or name.startswith(_CONNECTING_PREFIXES)


def group_to_json(group: ProgressGroup) -> dict[str, Any]:
    return {"name": group.name, "kafka": dict(group.client)}


def group_from_json(value: Any) -> ProgressGroup:
    """Read what `group_to_json` gave. GroupError: it is something else, or names a program."""
    name = value.get("name") if isinstance(value, dict) else None
    kafka = value.get("kafka") if isinstance(value, dict) else None
    if not (isinstance(name, str) and name and isinstance(kafka, dict)):
        raise GroupError(f"{KEY}: {value!r} is no group")
    for setting, told in kafka.items():
        if not (_connects(setting) and isinstance(told, str)):
            raise GroupError(f"{KEY}: {setting!r} is no setting of a group's connection")
    return ProgressGroup(name, tuple(sorted(kafka.items())))
