"""A topic's settings as the controller sees them, and as the answer to CreateTopics shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.config.describe import ConfigEntry, describe_topic
from holdfast.core.controller.decisions import ControllerState
from holdfast.wire.messages.create_topics import CreatableTopic
from holdfast.wire.structs import ShownConfig


def described(
    state: ControllerState, configs: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """A topic's settings as the controller sees them: its own, then the cluster's defaults.

    `names` selects keys; None means all of them.
    """
    return describe_topic(
        configs,
        cluster=state.image.cluster_configs(),
        static=state.settings.properties,
        names=names,
    )


class ShownSettings:
    """The settings of new topics, as the answer to one CreateTopics shows them.

    A topic's own are described for it, all others once for the request: that costs most of it.
    """

    __slots__ = ("_common", "_places", "_state")

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._common: list[ShownConfig] = []
        self._places: dict[str, int] = {}

    def of(self, asked: CreatableTopic) -> list[ShownConfig]:
        if not self._common:
            self._common = [_shown(entry) for entry in described(self._state, {})]
            self._places = {each.name: place for place, each in enumerate(self._common)}
        found = list(self._common)
        own = {config.name: config.value or "" for config in asked.configs}
        for entry in described(self._state, own, names=own) if own else ():
            found[self._places[entry.name]] = _shown(entry)
        return found


def _shown(entry: ConfigEntry) -> ShownConfig:
    return ShownConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
    )
