"""Rules between the keys of groups: at a node's start, and for what a group has for itself. Pure.

What a group may not have is refused in Apache Kafka's words; a start says which values there are.

Rules: consumer-groups.md#settings-of-a-group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from holdfast.config.group_keys import (
    GROUP_BOUNDS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    NODE_GROUP_KEYS,
    REBALANCE_PROTOCOLS,
)
from holdfast.config.key import ConfigError, ConfigType, Key, Value, refuse_if

_KINDS: Final = ("consumer", "share", "streams")
_OWN_NAMES: Final = {synonym: own for own, synonym in GROUP_SYNONYMS.items()}
_KEYS: Final[dict[str, Key]] = {key.name: key for key in (*NODE_GROUP_KEYS, *GROUP_KEYS)}
_NumberOf: TypeAlias = Callable[[str], int]


class _Order(NamedTuple):
    """Two keys of which the first may not be the larger one; nor, if `strict`, as large."""

    less: str
    more: str
    strict: bool = False

    def broken(self, number_of: _NumberOf) -> bool:
        less, more = number_of(self.less), number_of(self.more)
        return less > more or (self.strict and less == more)


def _node_orders() -> Iterator[_Order]:
    for name, (low, high) in GROUP_BOUNDS.items():
        own = GROUP_SYNONYMS[name]
        if low is not None:
            yield _Order(low, high)
            yield _Order(low, own)
        yield _Order(own, high)
    for kind in _KINDS:
        interval, timeout = (
            f"group.{kind}.heartbeat.interval.ms",
            f"group.{kind}.session.timeout.ms",
        )
        yield _Order(interval, timeout, strict=True)
    yield _Order("group.share.max.size", "group.share.max.share.sessions")


_NODE_ORDERS: Final = tuple(_node_orders())
_GROUP_ORDERS: Final = tuple(
    _Order(f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms", strict=True)
    for kind in _KINDS
)


def check_groups(values: Mapping[str, Value]) -> None:
    """Refuse a node's values that contradict each other, given by key. ConfigError."""

    def number_of(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), f"{name} is a number"
        return value

    for order in _NODE_ORDERS:
        less, more = number_of(order.less), number_of(order.more)
        words = "below" if order.strict else "at most"
        refuse_if(
            order.broken(number_of),
            f"{order.less}={less}: must be {words} {order.more}={more}",
        )
    protocols = values[REBALANCE_PROTOCOLS]
    assert isinstance(protocols, tuple), "it is a list"
    refuse_if(
        "classic" not in protocols,
        f"{REBALANCE_PROTOCOLS}={','.join(protocols)}: disabling the 'classic' protocol is not"
        " supported; add classic",
    )
    refuse_if(
        not values["group.consumer.assignors"],
        "group.consumer.assignors is empty: name the default one, such as uniform",
    )


def refuse_group_configs(configs: Mapping[str, str], static: Mapping[str, str]) -> str | None:
    """Return why a group can't have these together, each being right by itself (INVALID_CONFIG).

    `static` is a node's properties file: where the group says nothing, and its bounds.
    """

    def number_of(name: str) -> int:
        own = configs.get(name)
        if own is not None:
            return _number(name, own)
        return _number_at(static, GROUP_SYNONYMS.get(name, name))

    try:
        for name in GROUP_BOUNDS:
            # Where the group says nothing, the node's start has seen to it.
            refusal = _out_of_bounds(name, name, number_of) if name in configs else None
            if refusal is not None:
                return refusal
        for order in _GROUP_ORDERS:
            if order.broken(number_of):
                return f"{order.more} must be greater than {order.less}"
    except ConfigError as error:  # of what another controller than ours has let through
        return str(error)
    return None


def refuse_node_interval(name: str, text: str, static: Mapping[str, str]) -> str | None:
    """Return why a node's key can't have this value at run time; None where it can (Kafka's words).

    The keys that may change at run time are the defaults of a group's; their bounds may not.
    """
    own = _OWN_NAMES.get(name)
    if own is None or own not in GROUP_BOUNDS:
        return None
    value = _number(name, text)
    return _out_of_bounds(own, name, lambda key: value if key == own else _number_at(static, key))


def _out_of_bounds(name: str, shown: str, number_of: _NumberOf) -> str | None:
    low, high = GROUP_BOUNDS[name]
    value = number_of(name)
    if low is not None and value < number_of(low):
        return f"{shown} must be greater than or equal to {low}"
    if value > number_of(high):
        return f"{shown} must be less than or equal to {high}"
    return None


def _number_at(static: Mapping[str, str], name: str) -> int:
    text = static.get(name, _KEYS[name].default)
    assert text is not None, f"{name} has a default"
    return _number(name, text)


def _number(name: str, text: str) -> int:
    key = _KEYS[name]
    assert key.type is ConfigType.INT, f"{name} is a number"
    value = key.parse(text)
    assert isinstance(value, int), f"{name} is a number"
    return value
