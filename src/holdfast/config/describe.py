"""What DescribeConfigs answers: every key with its value, source and synonyms. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from holdfast.config.group_keys import GROUP_SYNONYMS
from holdfast.config.key import ConfigError, ConfigType, Key, Update
from holdfast.config.registry import GROUP, NODE, TOPIC
from holdfast.config.topic import NO_CONFIGS, inherited
from holdfast.config.topic_keys import SYNONYMS


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as on the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class ConfigSynonym(NamedTuple):
    """A key that gives the described key its value, or would if the stronger ones were gone."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One described key. A sensitive value is None. Synonyms come strongest first."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def documentation(self) -> str:
        """What the key means; loaded when first asked for."""
        from holdfast.config.documentation import document  # noqa: PLC0415  rarely asked for

        return document(self.name)


_BROKER_SOURCES: Final = (
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
)


def describe_topic(
    topic: Mapping[str, str] = NO_CONFIGS,
    *,
    cluster: Mapping[str, str] = NO_CONFIGS,
    broker: Mapping[str, str] = NO_CONFIGS,
    static: Mapping[str, str] = NO_CONFIGS,
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Describe a topic as one broker sees it; the sources are `TopicSettings.resolve`'s.

    `names` selects keys; None means all of them. A name that is no topic key is left out.
    """
    entries = []
    for name, key in TOPIC.items():
        if names is not None and name not in names:
            continue
        synonyms = []
        if name in topic:
            synonyms.append(ConfigSynonym(name, topic[name], ConfigSource.DYNAMIC_TOPIC))
        for index, synonym, _ in inherited(key, broker, cluster, static):
            text = (broker, cluster, static)[index][synonym]
            synonyms.append(ConfigSynonym(synonym, text, _BROKER_SOURCES[index]))
        synonyms.extend(_inherited_default(name))
        value = topic.get(name)
        if value is None:
            weaker = next(inherited(key, broker, cluster, static), None)
            value = key.default if weaker is None else weaker[2]
        entries.append(_entry(key, value, synonyms, read_only=False))
    return entries


def describe_group(
    group: Mapping[str, str] = NO_CONFIGS,
    *,
    cluster: Mapping[str, str] = NO_CONFIGS,
    broker: Mapping[str, str] = NO_CONFIGS,
    static: Mapping[str, str] = NO_CONFIGS,
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Describe a group as one broker sees it: its own, then the broker's of the same meaning.

    Values are shown as they are understood (without spaces, say), as by Apache Kafka. `names`
    selects keys; None means all of them. A name that is no key of groups is left out.
    """
    entries = []
    for name, key in GROUP.items():
        if names is not None and name not in names:
            continue
        synonym = GROUP_SYNONYMS.get(name)
        synonyms = []
        if name in group:
            synonyms.append(ConfigSynonym(name, group[name], ConfigSource.DYNAMIC_GROUP))
        if synonym is None:
            synonyms.append(ConfigSynonym(name, key.default, ConfigSource.DEFAULT))
        else:
            synonyms.extend(_of_broker(NODE[synonym], broker, cluster, static))
        value = synonyms[0].value
        shown = None if value is None else _as_understood(key, value)
        synonyms[0] = synonyms[0]._replace(value=shown)
        entries.append(_entry(key, shown, synonyms, read_only=False))
    return entries


def _as_understood(key: Key, text: str) -> str:
    try:
        value = key.parse(text)
    except ConfigError:  # another controller than ours has let it through
        return text
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe_broker(
    *,
    cluster: Mapping[str, str] = NO_CONFIGS,
    broker: Mapping[str, str] = NO_CONFIGS,
    static: Mapping[str, str] = NO_CONFIGS,
    names: Collection[str] | None = None,
) -> list[ConfigEntry]:
    """Describe one broker: its own dynamic configs, the cluster's, its properties file's."""
    entries = []
    static = _under_both_names(static)
    for name, key in NODE.items():
        if names is not None and name not in names:
            continue
        synonyms = _of_broker(key, broker, cluster, static)
        value = synonyms[0].value if synonyms else None
        read_only = key.update is Update.READ_ONLY
        entries.append(_entry(key, value, synonyms, read_only=read_only))
    return entries


def _of_broker(key: Key, *sources: Mapping[str, str]) -> list[ConfigSynonym]:
    """Return where a broker has a key from: its own dynamic configs, all brokers', its file."""
    synonyms = [
        ConfigSynonym(key.name, source[key.name], kind)
        for source, kind in zip(sources, _BROKER_SOURCES, strict=True)
        if key.name in source
    ]
    if key.default is not None:
        synonyms.append(ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT))
    return synonyms


def _under_both_names(static: Mapping[str, str]) -> Mapping[str, str]:
    """Return a node's properties, with node.id and broker.id standing for each other."""
    number = static.get("node.id", static.get("broker.id"))
    return static if number is None else {"node.id": number, "broker.id": number, **static}


def describe_cluster_default(
    cluster: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe the broker resource with the empty name: only what was set for all brokers."""
    entries = []
    for name, text in sorted(cluster.items()):
        key = NODE.get(name)
        if key is None or (names is not None and name not in names):
            continue
        synonym = ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(_entry(key, text, [synonym], read_only=False))
    return entries


def _inherited_default(name: str) -> list[ConfigSynonym]:
    """A topic key's default is reported under the broker key that holds it, as Kafka does.

    A key that brokers know nothing of has no synonym.
    """
    for synonym, _ in SYNONYMS.get(name, ()):
        default = NODE[synonym].default
        if default is not None:
            return [ConfigSynonym(synonym, default, ConfigSource.DEFAULT)]
    return []


def _entry(
    key: Key, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if key.sensitive:
        value = None
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    return ConfigEntry(
        name=key.name,
        value=value,
        source=source,
        type=key.type,
        read_only=read_only,
        sensitive=key.sensitive,
        synonyms=tuple(synonyms),
    )
