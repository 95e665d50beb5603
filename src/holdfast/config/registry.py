"""Look-ups in the tables of keys, and the rules for values that arrive over the wire.

Owns which keys exist. A value is refused with a sentence, never raised, because the refusal is
Kafka's answer (INVALID_CONFIG), not our failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.config.addresses import OVERRIDES, refuse_overrides
from holdfast.config.group_keys import GROUP_KEYS, GROUP_SYNONYMS
from holdfast.config.key import ConfigError, ConfigType, Key, Update
from holdfast.config.node_keys import NODE_KEYS
from holdfast.config.retired import RETIRED_NODE_KEYS, RETIRED_TOPIC_KEYS
from holdfast.config.topic_keys import SYNONYMS, TOPIC_KEYS

TOPIC: Final[dict[str, Key]] = {key.name: key for key in TOPIC_KEYS}
NODE: Final[dict[str, Key]] = {key.name: key for key in NODE_KEYS}
GROUP: Final[dict[str, Key]] = {key.name: key for key in GROUP_KEYS}

VALUE_BYTES_MAX: Final = 32_767  # of UTF-8, as in Kafka since 4.3: older requests carry no more
_LAGS: Final = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_MAP_BYTES: Final = "log.cleaner.dedupe.buffer.size"
_MAP_BYTES_MIN: Final = 1024 * 1024
_THREADS: Final = "log.cleaner.threads"
_TOO_LONG: Final = (
    "The configuration value cannot be added because it exceeds the maximum value size of "
    f"{VALUE_BYTES_MAX} bytes."
)

assert len(TOPIC) == len(TOPIC_KEYS), "a topic key stands in the table twice"
assert len(NODE) == len(NODE_KEYS), "a node key stands in the table twice"
assert len(GROUP) == len(GROUP_KEYS), "a key of groups stands in the table twice"
assert SYNONYMS.keys() <= TOPIC.keys(), "a synonym belongs to no topic key"
assert set(GROUP_SYNONYMS.values()) <= NODE.keys(), "a group's default is no node's key"


def validate_topic_config(name: str, value: str | None) -> str | None:
    """Return why a topic can't have this configuration, or None when it can (INVALID_CONFIG)."""
    if _is_too_long(value):
        return _TOO_LONG
    key = TOPIC.get(name)
    if key is None:
        retired = RETIRED_TOPIC_KEYS.get(name)
        if retired is not None:
            return f"Topic config {name} no longer exists: {retired}"
        if name in NODE:
            return f"{name} is a broker config, not a topic config{_topic_name_for(name)}"
        return f"Unknown topic config name: {name}"
    return _refusal(key, value)


def validate_broker_config(name: str, value: str | None, *, per_broker: bool) -> str | None:
    """Return why brokers can't be given this configuration at run time, or None when they can.

    `per_broker` says that one broker is addressed, not the default of the whole cluster.
    """
    if _is_too_long(value):
        return _TOO_LONG
    key = NODE.get(name)
    if key is None:
        retired = RETIRED_NODE_KEYS.get(name)
        if retired is not None:
            return f"Broker config {name} no longer exists: {retired}"
        return None  # it is kept, as by Apache Kafka, where a plug-in may know it
    if key.update is Update.READ_ONLY:
        return f"{name} can't be changed at run time: set it in the properties file and restart"
    if key.update is Update.PER_BROKER and not per_broker:
        return f"{name} can't be set for the whole cluster: name one broker"
    return _refusal(key, value) or _refuse_overrides(key, value)


def validate_group_config(name: str, value: str | None) -> str | None:
    """Return why a group can't have this configuration, or None when it can (INVALID_CONFIG)."""
    if _is_too_long(value):
        return _TOO_LONG
    key = GROUP.get(name)
    return f"Unknown group config name: {name}" if key is None else _refusal(key, value)


def refuse_topic_configs(configs: Mapping[str, str]) -> str | None:
    """Return why a topic can't have these together, each being right by itself (INVALID_CONFIG).

    What the topic has not itself has the key's own default.
    """
    least, largest = (_number(configs, name, TOPIC) for name in _LAGS)
    if least > largest:
        return f"conflict topic config setting {_LAGS[0]} ({least}) > {_LAGS[1]} ({largest})"
    return None


def refuse_broker_configs(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """Return why brokers can't be given these together, each being right by itself.

    Both are what is in force: what no source sets has the key's own default.
    """
    if all(before.get(name) == after.get(name) for name in (_MAP_BYTES, _THREADS)):
        return None
    now, wanted = (_number(configs, _THREADS, NODE) for configs in (before, after))
    small = why_too_small(_number(after, _MAP_BYTES, NODE), wanted)
    if small:
        return small
    if wanted == now:
        return None
    problem = ""
    if wanted < 1:
        problem = "should be at least 1"
    elif wanted < now // 2:
        problem = f"cannot be reduced to less than half the current value {now}"
    elif wanted > now * 2 > 0:
        problem = f"cannot be increased to more than double the current value {now}"
    return f"Log cleaner threads {problem}" if problem else None


def why_too_small(map_bytes: int, threads: int) -> str:
    """Say why compaction can't have so much memory for its keys, "" if it can (as Kafka does)."""
    if not threads or map_bytes // threads > _MAP_BYTES_MIN:
        return ""
    return f"{_MAP_BYTES} must be at least 1MB per cleaner thread."


def unknown_broker_keys(names: Iterable[str]) -> list[str]:
    """Return the keys of brokers that are kept and do nothing, for a warning."""
    return [name for name in names if name not in NODE]


def is_list(name: str) -> bool:
    """Whether APPEND and SUBTRACT make sense for this key; no key of a group is a list."""
    key = TOPIC.get(name) or NODE.get(name)
    return key is not None and key.type is ConfigType.LIST


def append_to_list(current: str, addition: str) -> str:
    """Return the list with the members of `addition` that it lacked."""
    members = _members(current)
    present = set(members)
    return ",".join(members + [item for item in _members(addition) if item not in present])


def subtract_from_list(current: str, removal: str) -> str:
    """Return the list without the members of `removal`."""
    removed = set(_members(removal))
    return ",".join(item for item in _members(current) if item not in removed)


def node_default(name: str) -> str:
    """Return a node key's own default, as text; "" where there is none, or no such key."""
    key = NODE.get(name)
    return (key.default or "") if key is not None else ""


def _number(configs: Mapping[str, str], name: str, keys: Mapping[str, Key]) -> Any:
    text = configs.get(name)
    return keys[name].parse_default() if text is None else keys[name].parse(text)


def _is_too_long(value: str | None) -> bool:
    return value is not None and len(value.encode()) > VALUE_BYTES_MAX


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",") if member.strip()]


def _refusal(key: Key, value: str | None) -> str | None:
    if value is None:
        return f"{key.name}: a null value can't be set; use DELETE to go back to the default"
    try:
        key.parse(value)
    except ConfigError as error:
        return f"Invalid value {value} for configuration {error}"
    return None


def _refuse_overrides(key: Key, value: str | None) -> str | None:
    """Refuse what can't match. It is no part of the syntax: older logs have it, and are read."""
    if key.name != OVERRIDES or value is None:
        return None
    try:
        refuse_overrides(_members(value))
    except ConfigError as error:
        return f"Invalid value {value} for configuration {error}"
    return None


def _topic_name_for(name: str) -> str:
    for topic_name, synonyms in SYNONYMS.items():
        if any(synonym == name for synonym, _ in synonyms):
            return f"; topics call it {topic_name}"
    return ""
