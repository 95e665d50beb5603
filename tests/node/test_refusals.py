"""Every refusal of every API can be said in every version.

Goal: no client waits for an answer that its version has no words for, and no mistake of ours in
this costs anybody else theirs. Method: every refusal, encoded; and an answer that can't be.
Rules: errors.md#an-answer-in-every-version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.refusal import Refusal
from holdfast.node.door.api_table import APIS, Api, Role
from holdfast.node.door.dispatch import refuse
from holdfast.node.door.request_context import Buffers, Deferred
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import EncodeError, ErrorCode
from holdfast.wire.messages import request_class, response_class
from holdfast.wire.schema import Struct

FORWARDED = [
    pytest.param(api, version, id=f"{api.module}-{version}")
    for api in APIS
    if Role.FORWARDING in api.role
    for version in range(api.versions[0], api.versions[1] + 1)
]


@pytest.mark.parametrize(("api", "version"), FORWARDED)
def test_what_is_forwarded_can_be_refused_in_every_version(api: Api, version: int) -> None:
    """ElectLeaders version 0 had no place for the code: the client waited for ever."""
    asked = _with_one_of_each(request_class(api.key), version)
    answer = refuse(api, asked, Refusal(ErrorCode.NOT_CONTROLLER, "the controller has moved"))
    decoded = decode(response_class(api.key), version, encode(answer, version))
    assert ErrorCode.NOT_CONTROLLER in list(_codes(decoded))


def _with_one_of_each(cls: type[Any], version: int) -> Any:
    """A struct whose lists have one element each, so that there is something to refuse."""
    made = cls()
    for field in [each for each in cls.FIELDS if each.present(version)]:
        if field.kind == "array" and isinstance(field.element, type):
            setattr(made, field.name, [_with_one_of_each(field.element, version)])
        elif field.kind == "array" and field.element.name == "int32":
            setattr(made, field.name, [0])
        elif field.kind == "array":
            setattr(made, field.name, ["name"])
    return made


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, Struct):
        if hasattr(value, "error_code"):
            yield value.error_code
        for field in type(value).FIELDS:
            yield from _codes(getattr(value, field.name))


def test_an_answer_that_cannot_be_said_ends_its_connection_only() -> None:
    """Whoever answers answers others too: the controller, or a partition whose records are safe."""
    delivered: list[Deferred] = []

    def encode_it(response: object) -> Buffers:
        if response == "unspeakable":
            raise EncodeError("there is no such field in that version")
        return [b"said"]

    answers = [Deferred(encode_it, delivered.append) for _ in range(3)]
    for answer, response in zip(answers, ["a", "unspeakable", "b"], strict=True):
        answer.answer(response)
    assert delivered == answers
    assert [each.closes for each in answers] == [False, True, False]
    assert [each.buffers for each in answers] == [[b"said"], (), [b"said"]]
