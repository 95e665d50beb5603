"""Goal: a value is what Kafka's parser would make of it, or is refused with the key's name.

Method: tables of texts per type, and a property: whatever the text, a value or a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import registry
from holdfast.config.key import LONG_MAX, ConfigError, ConfigType, Key
from holdfast.config.registry import (
    GROUP,
    NODE,
    TOPIC,
    append_to_list,
    is_list,
    subtract_from_list,
    validate_broker_config,
    validate_topic_config,
)
from holdfast.config.topic_keys import SYNONYMS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 1048576 ", 1048576),
        ("segment.ms", str(LONG_MAX), LONG_MAX),
        ("retention.ms", "-1", -1),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("unclean.leader.election.enable", "TRUE", True),
        ("cleanup.policy", "delete", ("delete",)),
        ("preallocate", "true", True),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_texts_become_values(name: str, text: str, value: object) -> None:
    assert TOPIC[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", "2147483648", "at most 2147483647"),
        ("segment.ms", str(LONG_MAX + 1), "at most"),
        ("segment.bytes", "10_000_000", "a number"),
        ("segment.bytes", "١٢٣٤٥٦٧٨", "a number"),
        ("segment.bytes", "1e9", "a whole number"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "1.1", "at most 1"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("cleanup.policy", "shred", "one of compact, delete"),
        ("cleanup.policy", "delete,", "empty member"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
    ],
)
def test_bad_texts_are_refused_by_name(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        TOPIC[name].parse(text)
    assert str(caught.value).startswith(f"{name}=")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("remote.storage.enable", "true"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=TOPIC[name].reason):
        TOPIC[name].parse(text)


@pytest.mark.slow
@given(st.sampled_from([*TOPIC.values(), *NODE.values(), *GROUP.values()]), st.text(max_size=30))
def test_any_text_is_a_value_or_a_refusal(key: Key, text: str) -> None:
    try:
        assert key.parse(text) is not None
    except ConfigError as error:
        refusal = str(error)
    else:
        return
    assert refusal.startswith(f"{key.name}=")


def test_every_default_is_a_value() -> None:
    for key in (*TOPIC.values(), *NODE.values(), *GROUP.values()):
        assert (key.parse_default() is None) == (key.default is None)


def test_synonyms_of_one_unit_agree_with_the_topic_key() -> None:
    for name, synonyms in SYNONYMS.items():
        key = TOPIC[name]
        for synonym, factor in synonyms:
            broker_key = NODE[synonym]
            if factor == 1:
                assert broker_key.type is key.type
                assert broker_key.honoured == key.honoured
                assert broker_key.default in (key.default, None)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.ms", "1000", None),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms"),
        ("retention.ms", None, "use DELETE"),
        ("retention.m", "1", "Unknown topic config name: retention.m"),
        ("log.retention.ms", "1", "topics call it retention.ms"),
        ("num.partitions", "1", "is a broker config"),
        ("message.format.version", "2.0", "one message format"),
    ],
)
def test_topic_configs_from_the_wire(name: str, value: str | None, says: str | None) -> None:
    refusal = validate_topic_config(name, value)
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert says in refusal


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("min.insync.replicas", "2", None),
        ("log.retention.ms", "-1", None),
        ("log.retention.hours", "1", "at run time"),
        ("node.id", "7", "at run time"),
        ("min.insync.replicas", "0", "at least 1"),
        ("no.such.key", "1", None),
        ("port", "1", "no longer exists"),
    ],
)
@pytest.mark.parametrize("per_broker", [True, False])
def test_broker_configs_from_the_wire(
    name: str, value: str, says: str | None, *, per_broker: bool
) -> None:
    refusal = validate_broker_config(name, value, per_broker=per_broker)
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert says in refusal


def test_lists_grow_and_shrink() -> None:
    assert is_list("cleanup.policy")
    assert not is_list("retention.ms")
    assert append_to_list("a", "b, a ,c") == "a,b,c"
    assert append_to_list("", "a") == "a"
    assert subtract_from_list("a,b,c", "b,x") == "a,c"
    assert subtract_from_list("a", "a") == ""


class Counted(str):
    """A member of a list that counts how often one was held against another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


@pytest.mark.parametrize("change", [append_to_list, subtract_from_list])
def test_no_member_is_held_against_every_other(
    change: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one APPEND or SUBTRACT of a long list costs what the two lists have.

    Seen to fail: members were looked for in a list.
    """
    monkeypatch.setattr(registry, "_members", lambda text: list(map(Counted, text.split(","))))
    Counted.compared = 0
    change(",".join(f"1:{n}" for n in range(300)), ",".join(f"2:{n}" for n in range(300)))
    assert Counted.compared < 3000


def test_a_password_is_sensitive() -> None:
    assert Key("secret", ConfigType.PASSWORD, None).sensitive
