"""Goal: a light connection cuts, pairs and ends as a client's must.

Method: bytes by hand into the protocol, over a transport that keeps what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from holdfast.clients.group_member.light_connection import ANSWERS, LightConnection
from holdfast.wire.frame import encode_response
from holdfast.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.messages.leave_group import LeaveGroupRequest

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Written(asyncio.Transport):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.frames.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


def answer(correlation_id: int, code: int = 0, version: int = 4) -> bytes:
    return b"".join(encode_response(correlation_id, HeartbeatResponse(error_code=code), version))


async def negotiated() -> tuple[LightConnection, Written]:
    """A connection to a peer that serves Heartbeat alone."""
    connection, transport = LightConnection("c"), Written()
    connection.connection_made(transport)
    waiting = asyncio.ensure_future(connection.negotiate())
    await asyncio.sleep(0)
    served = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=HeartbeatRequest.KEY, min_version=0, max_version=4)]
    )
    connection.data_received(b"".join(encode_response(0, served, 4)))
    await waiting
    return connection, transport


async def in_pieces() -> None:
    connection, transport = await negotiated()
    first, second = connection.ask(HEARTBEAT), connection.ask(HEARTBEAT)
    assert len(transport.frames) == 3
    both = answer(1, 27) + answer(2, 25)
    for at in range(len(both)):
        connection.data_received(both[at : at + 1])
    assert [(await each).error_code for each in (first, second)] == [27, 25]


async def given_up() -> None:
    """Whoever gave an answer up does not stand in the way of the next."""
    connection, _ = await negotiated()
    first, second = connection.ask(HEARTBEAT), connection.ask(HEARTBEAT)
    first.cancel()
    connection.data_received(answer(1) + answer(2, 22))
    assert (await second).error_code == 22


async def not_served() -> None:
    connection, transport = await negotiated()
    with pytest.raises(ConnectionError, match="does not serve it"):
        connection.ask(LeaveGroupRequest(group_id="g"))
    assert connection.is_open
    assert len(transport.frames) == 1


async def an_answer_to_another_request() -> None:
    await ended_by(answer(2))


async def a_frame_without_a_number() -> None:
    await ended_by(b"\0\0\0\3abc")


async def a_frame_that_is_too_large() -> None:
    await ended_by(b"\x7f\0\0\0")


async def an_answer_that_is_cut_off() -> None:
    await ended_by(b"\0\0\0\6" + answer(1)[4:10])


async def ended_by(data: bytes) -> None:
    connection, transport = await negotiated()
    asked = connection.ask(HEARTBEAT)
    connection.data_received(data)
    assert transport.aborted
    with pytest.raises(ConnectionError, match="speak the protocol"):
        await asked


async def lost() -> None:
    connection, _ = await negotiated()
    asked = connection.ask(HEARTBEAT)
    connection.connection_lost(None)
    with pytest.raises(ConnectionError, match="the peer closed"):
        await asked
    assert not connection.is_open
    with pytest.raises(ConnectionError, match="has ended"):
        connection.ask(HEARTBEAT)


@pytest.mark.parametrize(
    "story",
    [
        in_pieces,
        given_up,
        not_served,
        an_answer_to_another_request,
        a_frame_without_a_number,
        a_frame_that_is_too_large,
        an_answer_that_is_cut_off,
        lost,
    ],
)
def test_a_connection(story: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(story())


def test_each_request_is_read_as_its_own_answer() -> None:
    for request, response in ANSWERS.items():
        assert request.KEY == response.KEY
        assert request.__name__.removesuffix("Request") == response.__name__.removesuffix(
            "Response"
        )
