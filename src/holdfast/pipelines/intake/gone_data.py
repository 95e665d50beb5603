"""What becomes of a query whose data went before it was read: the option `goneData`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from holdfast.pipelines.intake.bounds import Bound, Mode
from holdfast.pipelines.intake.json_texts import json_of
from holdfast.pipelines.intake.option_values import Given, OptionError, boolean
from holdfast.wire.well_known import EARLIEST, LATEST

OPTION: Final = "goneData"
Policy = Literal["fail", "skip", "reset"]
_POLICIES: Final = ("fail", "skip", "reset")
_FORM: Final = 'use fail, skip, reset or {"topic":"skip","other":"fail"}'


@dataclass(frozen=True, slots=True)
class GoneData:
    """What is done about gone data, topic by topic.

    fail: the query ends. skip: it goes on where the log begins. reset: as skip, and a topic that
    was made anew begins where the query did.
    """

    otherwise: Policy = "fail"
    topics: tuple[tuple[str, Policy], ...] = ()

    def of(self, topic: str) -> Policy:
        return dict(self.topics).get(topic, self.otherwise)

    def fails(self, topic: str) -> bool:
        return self.of(topic) == "fail"


FAIL: Final = GoneData()


def gone_data(given: Given, mode: Mode, starting: Bound) -> GoneData:
    """Return the policies. OptionError: none of them, or one that makes no sense here."""
    otherwise: Policy = "fail" if boolean(given, "failOnDataLoss", default=True) else "skip"
    text = given.get(OPTION.lower())
    if text is None:
        return GoneData(otherwise)
    word = text.strip().lower()
    if word in _POLICIES:
        found = GoneData(cast("Policy", word))
        if "failondataloss" in given and found.fails("") != (otherwise == "fail"):
            raise OptionError(f"{OPTION}: {word} is not what failOnDataLoss says; give one of them")
    else:
        found = GoneData(otherwise, tuple(sorted(_by_topic(text).items())))
    if "reset" in {found.otherwise, *dict(found.topics).values()}:
        if mode == "batch":
            raise OptionError(f"{OPTION}: a batch query is not reset; use fail or skip")
        if starting not in (EARLIEST, LATEST):
            raise OptionError(f"{OPTION}: reset needs startingOffsets to be earliest or latest")
    return found


def refuse_unread(gone: GoneData, is_read: Callable[[str], bool]) -> None:
    """Refuse a policy for a topic that the query does not read. OptionError."""
    for topic, _ in gone.topics:
        if not is_read(topic):
            raise OptionError(f"{OPTION}: the query does not read topic {topic!r}; check its name")


def _by_topic(text: str) -> Mapping[str, Policy]:
    try:
        value = json_of(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{OPTION}: {text!r} is no policy; {_FORM}") from error
    if not (isinstance(value, dict) and value and all(one in _POLICIES for one in value.values())):
        raise OptionError(f"{OPTION}: {text!r} is no policy by topic; {_FORM}")
    return cast("Mapping[str, Policy]", value)
