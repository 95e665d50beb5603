"""The settings of one topic, frozen, resolved once when they change. Pure.

A partition holds a `TopicSettings` and reads its attributes; no key is looked up per request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.config.key import Key
from holdfast.config.registry import NODE, TOPIC
from holdfast.config.settings import Settings
from holdfast.config.topic_keys import SYNONYMS

NO_CONFIGS: Final[Mapping[str, str]] = {}
# Thousands of replicas may be named, and each replica there is looks itself up.
_LOOKED_UP: Final = (
    "follower_replication_throttled_replicas",
    "leader_replication_throttled_replicas",
)


class TopicSettings(Settings):
    """One attribute per topic key that changes something, named as the key with underscores.

    Units are Kafka's. The constructor takes any by keyword, unchecked; the others have defaults.
    """

    cleanup_policy: tuple[str, ...]
    compression_type: str
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: Mapping[str, None]
    index_interval_bytes: int
    leader_replication_throttled_replicas: Mapping[str, None]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    record_validation: str
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    __slots__ = tuple(__annotations__)

    @classmethod
    def resolve(
        cls,
        topic: Mapping[str, str] = NO_CONFIGS,
        *,
        cluster: Mapping[str, str] = NO_CONFIGS,
        broker: Mapping[str, str] = NO_CONFIGS,
        static: Mapping[str, str] = NO_CONFIGS,
    ) -> TopicSettings:
        """Return a topic's settings as one broker sees them.

        Strongest first: `topic` (the topic's own), `broker` (dynamic, of this broker), `cluster`
        (dynamic, of all brokers), `static` (the properties file), the default. All four hold text
        that was validated when it was set. (A missing synonym in one source never hides a weaker
        source's, so log.retention.hours in the file counts until log.retention.ms is set.)
        """
        values = {}
        for name, key in TOPIC.items():
            text = topic.get(name)
            if text is None and (broker or cluster or static):
                text = next((text for *_, text in inherited(key, broker, cluster, static)), None)
            if text is not None:
                values[key.attribute] = _value(key, text)
        return cls(**{name: value for name, value in values.items() if name in cls.__slots__})


def _value(key: Key, text: str | None) -> object:
    value = key.parse_default() if text is None else key.parse(text)
    if key.attribute not in _LOOKED_UP:
        return value
    assert isinstance(value, tuple), f"{key.name} is a list"
    return dict.fromkeys(sorted(value))


def inherited(key: Key, *sources: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield (source's index, broker key, text in the topic key's unit), strongest first.

    A source beats a later one, and within a source a finer unit beats a coarser one.
    """
    for index, source in enumerate(sources):
        for name, factor in SYNONYMS.get(key.name, ()):
            text = source.get(name)
            if text is not None:
                yield index, name, in_topic_unit(name, text, factor)


def in_topic_unit(name: str, text: str, factor: int) -> str:
    """Turn a broker key's text into the topic key's unit (hours into milliseconds, say)."""
    if factor == 1:
        return text
    value = NODE[name].parse(text)
    assert isinstance(value, int), f"{name} has a unit, so it is a number"
    return str(-1 if value < 0 else value * factor)


TopicSettings.defaults = {
    key.attribute: _value(key, None)
    for key in TOPIC.values()
    if key.attribute in TopicSettings.__slots__
}
