"""Goal: from an answer to one API on a connection is silent, however its bytes are cut.

Method: frames of requests and answers, given in pieces of every size.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.layout import UsageError
from holdfast.cluster.network.link_table import Answers
from holdfast.cluster.network.relays.answers import (
    Connection,
    NotFramesError,
    Swallowing,
    api_key,
)

PRODUCE, FETCH = 0, 1


def request(api: int, correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api, 1, correlation) + body


def answer(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(
    st.lists(st.tuples(st.sampled_from([PRODUCE, FETCH, 3]), st.binary(max_size=20)), max_size=12),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_what_is_swallowed_leaves_the_connection_silent(
    asked: list[tuple[int, bytes]], there: int, back: int, count: int
) -> None:
    connection, swallowing = Connection(), Swallowing(Answers(api=FETCH, count=count))
    sent = b"".join(request(api, number, body) for number, (api, body) in enumerate(asked))
    for piece in pieces(sent, there):
        connection.asked(piece)
    answers = [answer(number, body) for number, (_, body) in enumerate(asked)]
    got = b""
    for piece in pieces(b"".join(answers), back):
        kept, ends = connection.answered(piece, swallowing)
        got += kept
        assert not ends
    fetches = [number for number, (api, _) in enumerate(asked) if api == FETCH][:count]
    assert got == b"".join(answers[: fetches[0]] if fetches else answers)
    assert swallowing.swallowed == len(fetches)


def test_close_ends_the_connection_at_the_first() -> None:
    connection = Connection()
    swallowing = Swallowing(Answers(api=PRODUCE, count=2, close=True))
    connection.asked(request(FETCH, 1) + request(PRODUCE, 2))
    data = answer(1, b"kept") + answer(2, b"swallowed")
    assert connection.answered(data, swallowing) == (answer(1, b"kept"), True)
    another = Connection()
    another.asked(request(PRODUCE, 1))
    assert another.answered(answer(1), swallowing) == (b"", True)
    third = Connection()
    third.asked(request(PRODUCE, 1))
    assert third.answered(answer(1), swallowing) == (answer(1), False), "two of two are gone"


def test_a_client_that_repeats_its_ids() -> None:
    """Answers come in the requests' order. Seen to fail: the last one's API was taken for all."""
    connection, swallowing = Connection(), Swallowing(Answers(api=PRODUCE, count=9))
    connection.asked(request(FETCH, 0) + request(PRODUCE, 0) + request(FETCH, 0))
    got = [connection.answered(answer(0, bytes([number])), swallowing)[0] for number in range(3)]
    assert got == [answer(0, b"\0"), b"", b""]
    assert swallowing.swallowed == 1


def test_each_connection_has_its_own_silence() -> None:
    swallowing = Swallowing(Answers(api=PRODUCE, count=2))
    for number in range(3):
        connection = Connection()
        connection.asked(request(PRODUCE, 1) + request(FETCH, 2))
        got = b"".join(connection.answered(answer(each), swallowing)[0] for each in (1, 2))
        assert got == (b"" if number < 2 else answer(1) + answer(2))
    assert swallowing.swallowed == 2


def test_requests_without_answers_are_forgotten_in_the_end() -> None:
    connection, swallowing = Connection(), Swallowing(Answers(api=PRODUCE, count=1))
    for number in range(20_000):
        connection.asked(request(PRODUCE, number))
    assert connection.answered(answer(0), swallowing) == (answer(0), False)
    assert connection.answered(answer(19_999), swallowing) == (b"", False)


def test_what_is_no_frame() -> None:
    with pytest.raises(NotFramesError):
        Connection().asked(b"\xff" * 12)


def test_apis_by_name() -> None:
    assert (api_key("Produce"), api_key("fetch")) == (PRODUCE, FETCH)
    with pytest.raises(UsageError, match="no API 'Push': Produce, Fetch"):
        api_key("Push")
