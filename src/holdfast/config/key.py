"""One configuration key: its type, default, bounds, and when it may change. Pure.

A named tuple and not a dataclass: the tables of keys are built each time a node starts, and making
a dataclass costs more than all of them together.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
INT_MAX_TEXT = str(INT_MAX)  # Kafka writes its unbounded integers as the largest one
LONG_MAX = 2**63 - 1
LONG_MAX_TEXT = str(LONG_MAX)
NO_PLUGIN = "classes for the Java machine can't be loaded here"


class ConfigError(Exception):
    """A configuration that can't be used. The message names the key and says what to do."""


def refuse_if(condition: object, text: str) -> None:
    """Refuse a configuration in which this is so. ConfigError: `text`."""
    if condition:
        raise ConfigError(text)


class ConfigType(IntEnum):
    """Types of values, numbered as DescribeConfigs reports them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(IntEnum):
    """When a broker key may change: at start only, for one broker, or for the whole cluster."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


_INTEGER_BOUNDS = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}
_BOOLEANS = {"true": True, "false": False}


class Key(NamedTuple):
    """What is known about one key.

    `default` is text, as in a properties file; None is Kafka's null. `low` and `high` bound
    numbers, `choices` bounds strings and the members of lists. `honoured` holds the values that
    this version can act upon when they are fewer than Kafka's, and `reason` says why the others
    are refused.
    `members` is what a string, or each member of a list, has to look like: a regular expression,
    and in words. With `any_case` choices are written in capitals or not, and are small as values.
    `effect` is False for a key that is read and reported but changes nothing here.
    """

    name: str
    type: ConfigType
    default: str | None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    effect: bool = True
    honoured: tuple[str, ...] = ()
    reason: str = ""
    members: tuple[str, str] | None = None
    any_case: bool = False

    @property
    def attribute(self) -> str:
        """Name of the settings object's attribute that holds the value."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """A sensitive value is never reported."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Return the value of `text`. ConfigError: it isn't one, or it can't be honoured."""
        if self.type is ConfigType.LIST:
            return self._parse_list(text)
        stripped = text.strip()
        if self.type is ConfigType.BOOLEAN:
            return self._parse_boolean(stripped)
        if self.type in _INTEGER_BOUNDS or self.type is ConfigType.DOUBLE:
            return self._parse_number(stripped)
        if self.any_case:
            stripped = stripped.lower()
        self._check_choice(stripped)
        return stripped

    def parse_default(self) -> Value:
        """Return the default as a value. The tables are ours, so it is known to be valid."""
        if self.default is None:
            return None
        return self.parse(self.default)

    def _parse_boolean(self, text: str) -> bool:
        value = _BOOLEANS.get(text.lower())
        if value is None:
            raise ConfigError(f"{self.name}={text}: must be true or false")
        self._check_honoured(text.lower())
        return value

    def _parse_number(self, text: str) -> int | float:
        value: int | float
        # int() and float() read digits with underscores and of other scripts too; Kafka does not.
        refuse_if(not text.isascii() or "_" in text, f"{self.name}={text}: must be a number")
        try:
            value = float(text) if self.type is ConfigType.DOUBLE else int(text)
        except ValueError:
            kind = "a number" if self.type is ConfigType.DOUBLE else "a whole number"
            raise ConfigError(f"{self.name}={text}: must be {kind}") from None
        if value != value:  # noqa: PLR0124  NaN, which passes every comparison below
            raise ConfigError(f"{self.name}={text}: must be a number")
        type_low, type_high = _INTEGER_BOUNDS.get(self.type, (None, None))
        low = type_low if self.low is None else self.low
        high = type_high if self.high is None else self.high
        refuse_if(low is not None and value < low, f"{self.name}={text}: must be at least {low}")
        refuse_if(high is not None and value > high, f"{self.name}={text}: must be at most {high}")
        self._check_honoured(text)
        return value

    def _parse_list(self, text: str) -> tuple[str, ...]:
        members = [member.strip() for member in text.split(",")]
        if members == [""]:
            return ()
        refuse_if("" in members, f"{self.name}={text}: has an empty member; remove the extra comma")
        unique = tuple(dict.fromkeys(members))  # what is named twice counts once, as in Kafka
        for member in unique:
            self._check_choice(member)
        return unique

    def _check_choice(self, text: str) -> None:
        if self.members is not None and not re.fullmatch(self.members[0], text):
            raise ConfigError(f"{self.name}={text}: must be {self.members[1]}")
        refuse_if(
            self.choices and text not in self.choices,
            f"{self.name}={text}: must be one of {', '.join(self.choices)}",
        )
        self._check_honoured(text)

    def _check_honoured(self, text: str) -> None:
        if self.honoured and text not in self.honoured:
            allowed = " or ".join(value or "nothing" for value in self.honoured)
            raise ConfigError(f"{self.name}={text}: {self.reason}; use {allowed}")
