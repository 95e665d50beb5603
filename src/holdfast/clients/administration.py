"""What takes more than one administrative request, or a second try, on any Kafka.

Single requests are `wire.administration`'s, and `Driver.perform` carries them. AdminError: the
cluster refused; DriverError and its kinds: it did not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.wire.administration import AdminError, AdminRequest, ConfigEntry, describe_configs
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType

T = TypeVar("T")

CONTROLLER_MOVES_S: Final = 10.0
_PAUSE_S: Final = 0.1


def perform_patiently(driver: Driver, asked: AdminRequest[T]) -> T:
    """Ask the controller; while it moves, ask again: such a refusal has changed nothing."""
    deadline = time.monotonic() + CONTROLLER_MOVES_S
    while True:
        try:
            return driver.perform(asked, node="controller")
        except AdminError as error:
            if error.code != ErrorCode.NOT_CONTROLLER or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
        driver.metadata([])  # which names the one that it has moved to


def configs_of(
    driver: Driver, kind: ResourceType, names: Sequence[str]
) -> dict[str, list[ConfigEntry]]:
    """Return every value of each resource, in the broker's order. A broker is asked itself."""
    groups: dict[int | None, list[str]] = {}
    for name in names:
        groups.setdefault(who_answers(kind, name), []).append(name)
    found: dict[str, list[ConfigEntry]] = {}
    for node, group in groups.items():
        told = driver.perform(describe_configs(kind, group, synonyms=True), node=node)
        found |= told
    return found


def who_answers(kind: ResourceType, name: str) -> int | None:
    """Return the broker that alone can speak of its configs; None: any node can."""
    return int(name) if kind is ResourceType.BROKER and name else None


def all_have(driver: Driver, nodes: Iterable[int], name: str, configs: Mapping[str, str]) -> bool:
    """Whether each of these brokers answers, and has these configs of a topic."""
    asked = describe_configs(ResourceType.TOPIC, [name], configs)
    try:
        return all(
            {each.name: each.value for each in driver.perform(asked, node=node)[name]} == configs
            for node in nodes
        )
    except (AdminError, DriverError):
        return False
