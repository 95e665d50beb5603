"""Goal: a key that is read has an effect, and one without effect says so. Method: look for its use.

A settings attribute that no code reads is a promise that nobody keeps.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.config.node import NodeSettings
from holdfast.config.registry import NODE, TOPIC
from holdfast.config.topic import TopicSettings
from holdfast.config.topic_keys import SYNONYMS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(SOURCE.rglob("*.py"))
    if SOURCE / "config" not in path.parents
)
# Read by NodeSettings' own properties, which the node uses.
READ_INSIDE = {"controller_listener_names"}
# Parts of other attributes: listeners, log_dirs, node_id.
MERGED = {"broker.id", "listener.security.protocol.map", "log.dir"}


def is_read(attribute: str) -> bool:
    return re.search(rf"\.{attribute}\b", CODE) is not None


@pytest.mark.parametrize("attribute", [*NodeSettings.__slots__, *TopicSettings.__slots__])
def test_settings_are_read(attribute: str) -> None:
    assert attribute in READ_INSIDE or is_read(attribute)


@pytest.mark.parametrize(
    "name", [name for name, key in TOPIC.items() if key.effect and not key.honoured]
)
def test_every_topic_key_with_an_effect_is_a_setting(name: str) -> None:
    assert TOPIC[name].attribute in TopicSettings.__slots__


def test_every_node_key_with_an_effect_reaches_a_setting() -> None:
    defaults = {broker_key for synonyms in SYNONYMS.values() for broker_key, _ in synonyms}
    silent = {
        name
        for name, key in NODE.items()
        if key.effect and not key.honoured and key.attribute not in NodeSettings.__slots__
    }
    assert silent - defaults == MERGED
