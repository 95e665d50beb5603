"""One connection: frames in, answers out in order, bounds on both.

Goal: whatever a peer sends and however it is cut, each whole frame is handled once, answers leave
in the order of requests, and a peer that misbehaves loses its own connection only. Method: real
sockets on the loopback, with a handler that echoes, waits or refuses as the first byte says.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from math import inf
from struct import pack, unpack
from typing import Any

import pytest

from holdfast.node.door import connection as module
from holdfast.node.door.admission import Admission, Limits
from holdfast.node.door.budget import Bounds, Budget
from holdfast.node.door.connection import (
    BUFFER_BYTES,
    BUFFER_FULL_BYTES,
    FLOOD_REQUESTS,
    PIECES_MAX,
    Connection,
    Connections,
)
from holdfast.node.door.ledger import ANSWERS, REQUESTS, Ledger
from holdfast.node.door.line import DEAR_BYTES, REST_FACTOR
from holdfast.node.door.request_context import Buffers, Deferred
from holdfast.runtime import own_time
from holdfast.runtime.real import real_runtime
from holdfast.wire.errors import WireError

FRAME_BYTES_MAX = 1 << 20
USUAL = Bounds()
BOUND_SECONDS = 20
PATIENCE_SECONDS = 15  # with one step of a test


class Echo:
    """The handler under test: `e` echoes, `w` waits until told, `r` refuses, `n` has no answer.

    `b` does its work later, also when its client has gone, and keeps so many bytes for that. `d`
    may do so, and has done it at once.
    """

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.waiting: list[tuple[Deferred, bytes]] = []
        self.connections: list[Connection] = []
        self.reserved = 0
        self.partitions = 0
        self.kept = 0
        self.ended: list[Deferred] = []  # whose work has ended before it was done

    def __call__(self, connection: Connection, frame: memoryview) -> Buffers | Deferred | None:
        body = bytes(frame)
        self.seen.append(body)
        if connection not in self.connections:
            self.connections.append(connection)
        kind = body[:1]
        if kind == b"w":
            deferred = Deferred(
                lambda _: framed(body), connection.deliver, self.reserved, self.partitions
            )
            self.waiting.append((deferred, body))
            return deferred
        if kind == b"b":
            deferred = Deferred(
                lambda _: [], connection.deliver, kept=self.kept, is_before_effect=True
            )
            deferred.outlives = True
            deferred.lost = lambda: self.ended.append(deferred)
            self.waiting.append((deferred, body))
            return deferred
        if kind == b"d":
            deferred = Deferred(lambda _: framed(body), connection.deliver, is_before_effect=True)
            deferred.answer(None)
            return deferred
        if kind == b"r":
            raise WireError("refused on purpose")
        return None if kind == b"n" else framed(body)


def framed(body: bytes) -> list[bytes]:
    return [pack(">i", len(body)), body]


def frame(text: str, size: int = 8) -> bytes:
    body = text.encode().ljust(size, b".")
    return b"".join(framed(body))


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(
    *,
    held: bool = False,
    bounds: Bounds = USUAL,
    budget: Budget | None = None,
    admission: Admission | None = None,
) -> AsyncIterator[tuple[Echo, Connections, Callable[[], Awaitable[Client]]]]:
    """A listener with the echo handler, and a way to connect to it."""
    echo = Echo()
    group = Connections(
        listener="TEST",
        handle=echo,
        frame_bytes_max=FRAME_BYTES_MAX,
        budget=budget or Budget(bounds=bounds),
        admission=admission,
    )
    listener = await real_runtime().network.listen(group.accept, "127.0.0.1", 0)
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writers.append(writer)
        return reader, writer

    if not held:
        group.release()
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            yield echo, group, connect
    finally:
        listener.close()
        group.close()
        for writer in writers:
            writer.close()
        for writer in writers:
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def answer(reader: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (length,) = unpack(">i", await reader.readexactly(4))
            return (await reader.readexactly(length)).rstrip(b".").decode()
    except TimeoutError:
        raise AssertionError("there is no answer") from None


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    give_up = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < give_up, "not in time"
        await asyncio.sleep(0.001)


def test_answers_leave_in_the_order_of_requests() -> None:
    async def scenario() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("w1") + frame("e2") + frame("w3") + frame("n4") + frame("e5"))
            await until(lambda: len(echo.seen) == 5)
            (first, _), (third, _) = echo.waiting
            third.answer(object())
            first.answer(object())
            assert [await answer(reader) for _ in range(4)] == ["w1", "e2", "w3", "e5"]

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11])
def test_frames_may_arrive_in_any_pieces(cut: int) -> None:
    async def scenario() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            stream = b"".join(frame(f"e{n}", size=8 + n) for n in range(20))
            for start in range(0, len(stream), cut):
                writer.write(stream[start : start + cut])
                await writer.drain()
                await asyncio.sleep(0)
            assert [await answer(reader) for _ in range(20)] == [f"e{n}" for n in range(20)]
            assert len(echo.seen) == 20

    asyncio.run(scenario())


def test_a_frame_larger_than_the_buffer_is_taken_and_the_buffer_given_back() -> None:
    async def scenario() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("e1") + frame("e2", size=FRAME_BYTES_MAX) + frame("e3"))
            assert [await answer(reader) for _ in range(3)] == ["e1", "e2", "e3"]
            assert len(echo.seen[1]) == FRAME_BYTES_MAX

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent",
    [
        pack(">i", FRAME_BYTES_MAX + 1),
        pack(">i", -1),
        pack(">i", 7) + b"short..",
        frame("r"),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["too long", "negative", "too short", "does not parse", "another protocol"],
)
def test_who_does_not_speak_the_protocol_is_alone_to_be_closed(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served() as (_, _, connect):
            good_reader, good_writer = await connect()
            bad_reader, bad_writer = await connect()
            host, port = bad_writer.get_extra_info("sockname")[:2]
            bad_writer.write(sent)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await bad_reader.readexactly(1)
            good_writer.write(frame("e1"))
            assert await answer(good_reader) == "e1"
            assert f"{host}:{port}" in caplog.text, "the log says who"

    asyncio.run(scenario())


def test_a_scanner_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSALS_LOGGED_MAX", 3)
    monkeypatch.setattr(module, "REFUSALS_STRETCH_S", 3600.0)

    async def scenario() -> None:
        async with served() as (_, group, connect):
            for _ in range(20):
                reader, writer = await connect()
                writer.write(pack(">i", 3))
                assert await reader.read() == b""
            assert group.refused == 20, "every one is counted"
            lines = [line for line in caplog.messages if "closing the connection" in line]
            assert len(lines) == 3, "the first are told at once, the others share a later line"

    with caplog.at_level("WARNING", logger="holdfast.connection"):
        asyncio.run(scenario())


def test_reading_stops_at_the_bound_of_unanswered_requests() -> None:

    async def scenario() -> None:
        async with served(bounds=Bounds(requests=10)) as (echo, _, connect):
            reader, writer = await connect()
            writer.write(b"".join(frame(f"w{n}") for n in range(25)))
            await until(lambda: len(echo.waiting) >= 10)
            writer.write(frame("e25"))
            for number in range(25):
                await until(lambda: bool(echo.waiting))
                assert len(echo.waiting) <= 10, "no more are taken than the bound"
                deferred, _ = echo.waiting.pop(0)
                deferred.answer(object())
                assert await answer(reader) == f"w{number}"
            assert await answer(reader) == "e25"

    asyncio.run(scenario())


def test_reading_stops_at_the_bound_of_answers_that_wait_for_an_earlier_one() -> None:
    """Seen to fail: behind a fetch that waits, a thousand answers of 50 MB each were kept."""

    async def scenario() -> None:
        async with served(bounds=Bounds(answer_bytes=1000)) as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("w0") + b"".join(frame(f"e{n}", 400) for n in range(1, 10)))
            await until(lambda: len(echo.seen) >= 4)
            writer.write(frame("w10"))
            await asyncio.sleep(0.02)
            assert len(echo.seen) == 4, "three answers are more than the bound"
            echo.waiting.pop()[0].answer(object())
            for number in range(10):
                assert (await answer(reader))[1:] == str(number)
            await until(lambda: bool(echo.waiting))
            echo.waiting.pop()[0].answer(object())
            assert await answer(reader) == "w10"

    asyncio.run(scenario())


def test_reading_stops_while_very_many_partitions_are_waited_for() -> None:
    """Seen to fail: a thousand fetches, each of which waited for 100,000 partitions."""

    async def scenario() -> None:
        async with served(bounds=Bounds(partitions=100)) as (echo, _, connect):
            echo.partitions = 60
            reader, writer = await connect()
            writer.write(b"".join(frame(f"w{n}") for n in range(5)))
            for number in range(5):
                await asyncio.sleep(0.01)
                assert len(echo.waiting) <= 2, "both are more than the bound"
                await until(lambda: bool(echo.waiting))
                echo.waiting.pop(0)[0].answer(object())
                assert await answer(reader) == f"w{number}"

    asyncio.run(scenario())


def test_reading_stops_while_the_node_holds_much_for_those_who_owe_much() -> None:
    """Who has taken all of its answers is served on."""

    async def scenario() -> None:
        budget = Budget(answers=Ledger(ANSWERS, 1 << 20))
        async with served(budget=budget) as (echo, group, connect):
            slow, slow_writer = await connect()
            slow_writer.write(frame("w0") + frame("e1", 300_000) + frame("e2", 300_000))
            await until(lambda: budget.answers.held > 600_000 - 100)
            assert budget.answers.is_tight("elsewhere")
            slow_writer.write(frame("e3"))
            reader, writer = await connect()
            writer.write(frame("e4"))
            assert await answer(reader) == "e4"
            assert len(echo.seen) == 4, "who owes much is not read"
            echo.waiting.pop()[0].answer(object())
            for number in range(4):
                assert (await answer(slow))[1:] == str(number)
            assert (budget.answers.held, budget.answers.closed, len(group.open)) == (0, 0, 2)

    asyncio.run(scenario())


@pytest.mark.slow
def test_who_takes_nothing_is_closed_on_when_the_node_holds_too_much() -> None:
    """Seen to fail: each of many connections was within its bound, and all of them were not."""

    async def scenario() -> None:
        answers = Ledger(ANSWERS, 8 << 20)
        async with served(budget=Budget(answers=answers)) as (_, group, connect):
            reader, writer = await connect()
            for _ in range(40):
                _, greedy = await connect()
                greedy.write(frame("w0") + frame("e1", 300_000) * 9)
            await until(lambda: answers.closed > 0 and answers.held > 7 << 20)
            writer.write(frame("e1"))
            assert await answer(reader) == "e1"
            assert answers.held <= 8 << 20
            group.close()
            for connection in list(group.open):
                connection.abort()
            assert answers.held == 0

    asyncio.run(scenario())


def test_reading_stops_while_large_answers_are_promised() -> None:
    """Seen to fail: a thousand fetches that waited for much were answered with 50 MB each."""

    async def scenario() -> None:
        async with served(bounds=Bounds(answer_bytes=1000)) as (echo, _, connect):
            echo.reserved = 600
            reader, writer = await connect()
            writer.write(b"".join(frame(f"w{n}") for n in range(7)))
            await until(lambda: len(echo.waiting) >= 2)
            for number in range(7):
                await asyncio.sleep(0.01)
                assert len(echo.waiting) <= 2, "both are more than the bound"
                await until(lambda: bool(echo.waiting))
                echo.waiting.pop(0)[0].answer(object())
                assert await answer(reader) == f"w{number}"

    asyncio.run(scenario())


def test_who_leaves_the_largest_request_unfinished_is_closed_on_when_all_are_too_large(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Others are served on, and what the closed ones had sent is no longer counted."""

    async def scenario() -> None:
        requests = Ledger(REQUESTS, 3 << 20)
        async with served(budget=Budget(requests=requests)) as (_, group, connect):
            reader, writer = await connect()
            for _ in range(8):
                _, slow = await connect()
                slow.write(pack(">i", FRAME_BYTES_MAX) + b"\0" * (FRAME_BYTES_MAX // 2))
            await until(lambda: len(group.open) + requests.closed == 9)  # all were accepted
            half = FRAME_BYTES_MAX // 2
            await until(lambda: [each._filled > half for each in group.open].count(False) == 1)
            assert requests.closed > 0
            writer.write(frame("e1", FRAME_BYTES_MAX))
            assert await answer(reader) == "e1"
            assert requests.held <= 3 << 20
            for connection in list(group.open):
                connection.abort()
            assert requests.held == 0

    with caplog.at_level("WARNING", logger="holdfast.budget"):
        asyncio.run(scenario())
    assert len(caplog.messages) == 1, "the log says so once a minute"
    assert "than holdfast.request.bytes.max allows" in caplog.text


@pytest.mark.parametrize("rest", [b"", b"\0"])
def test_a_large_buffer_is_not_kept_when_there_are_many(rest: bytes) -> None:
    """Seen to fail: the first byte of another request was enough to keep it."""

    async def scenario() -> None:
        requests = Ledger(REQUESTS, address_most=FRAME_BYTES_MAX)
        async with served(budget=Budget(requests=requests)) as (echo, _, connect):
            reader, writer = await connect()
            whole = frame("e1", FRAME_BYTES_MAX // 2)
            writer.write(whole)
            await answer(reader)
            writer.write(whole)
            assert await answer(reader) == "e1"
            writer.write(whole + rest)
            assert await answer(reader) == "e1"
            (connection,) = echo.connections
            await until(lambda: connection._filled == len(rest))
            assert len(connection._buffer) <= BUFFER_FULL_BYTES
            assert (requests.held, requests.closed) == (0, 0)

    asyncio.run(scenario())


def filled(connection: Connection, size: int) -> bool:
    return connection._filled == size


def test_a_connection_has_a_buffer_while_it_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: 64 KB for each of thousands that have nothing to say."""
    assert BUFFER_BYTES <= 8 * 1024

    async def scenario() -> None:
        async with served() as (_, group, connect):
            await connect()
            reader, writer = await connect()
            await until(lambda: len(group.open) == 2)
            writer.write(frame("e1"))
            assert await answer(reader) == "e1"
            sizes = sorted(len(each._buffer) for each in group.open)
            assert sizes == [0, BUFFER_BYTES], "one of them has said something"
            group.give_buffers_back()
            assert len(group.buffered) == 1, "and not long ago"
            monkeypatch.setattr(module, "BUFFER_SILENT_S", -1.0)
            group.give_buffers_back()
            assert [len(each._buffer) for each in group.open] == [0, 0]
            assert not group.buffered
            writer.write(frame("e2"))
            assert await answer(reader) == "e2"

    asyncio.run(scenario())


def test_who_is_in_the_middle_of_taking_an_answer_is_owed_it() -> None:
    """Seen to fail: 4 MB of one were unsent when its connection went for a newcomer."""

    async def body() -> None:
        async with served() as (_, group, _):
            connection = group.accept()
            assert not connection.is_owed
            connection.pause_writing()
            assert connection.is_owed
            connection.resume_writing()
            assert not connection.is_owed

    asyncio.run(body())


def test_a_place_is_taken_by_who_is_there_alone() -> None:
    """One too many is closed on and never read; whoever leaves makes room."""

    async def scenario() -> None:
        admission = Admission(limits=Limits(address=1))
        async with served(admission=admission) as (echo, group, connect):
            reader, writer = await connect()
            writer.write(frame("e1"))
            assert await answer(reader) == "e1"
            other, other_writer = await connect()
            other_writer.write(frame("e2"))
            with suppress(ConnectionResetError):
                assert await other.read(1) == b""
            assert (len(group.open), len(admission), len(echo.seen)) == (1, 1, 1)
            writer.close()
            await until(lambda: not group.open)
            assert len(admission) == 0
            reader, writer = await connect()
            writer.write(frame("e3"))
            assert await answer(reader) == "e3"

    asyncio.run(scenario())


def test_a_request_that_never_ends_is_as_good_as_silence() -> None:
    """Seen to fail: a byte every nine minutes kept a connection and its buffer for ever.

    Rules: connections.md#silence.
    """

    async def scenario() -> None:
        async with served() as (echo, group, connect):
            reader, writer = await connect()
            slow_reader, slow = await connect()
            slow.write(frame("e1") + pack(">i", 100))
            await answer(slow_reader)
            writer.write(frame("e1"))
            await answer(reader)
            slow_one, other = echo.connections
            began = slow_one.active_at
            for received in range(5, 15):
                slow.write(b"s")
                await until(partial(filled, slow_one, received))
                assert slow_one.active_at == began, "it counts from its first byte"
            before = asyncio.get_running_loop().time()
            writer.write(frame("e2"))
            await answer(reader)
            assert other.active_at >= before
            group.close_idle(before)
            assert await slow_reader.read() == b""
            writer.write(frame("e3"))
            assert await answer(reader) == "e3"

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", [0, 1], ids=["idle", "unread"])
def test_who_is_silent_is_closed_on(asked: int) -> None:
    """A peer that has vanished, or takes nothing: what it is owed goes with it.

    Seen to fail: what was written to who takes nothing was counted up to the first pause alone.
    """

    async def scenario() -> None:
        answers = Ledger(ANSWERS)
        async with served(budget=Budget(answers=answers)) as (_, group, connect):
            _, writer = await connect()
            await until(lambda: len(group.open) == 1)
            if asked:
                writer.write(frame("e1", FRAME_BYTES_MAX) * 20)
                await until(lambda: answers.held > 4 << 20)
            group.close_idle(asyncio.get_running_loop().time() + 1)
            await until(lambda: not group.open)
            assert answers.held == 0

    asyncio.run(scenario())


def test_the_end_of_a_peer_is_heard_while_it_may_ask_nothing_more() -> None:
    """Seen to fail: it was held back before it had sent anything more, and so was its end."""

    async def scenario() -> None:
        async with served(bounds=Bounds(requests=1)) as (echo, group, connect):
            _, writer = await connect()
            writer.write(frame("w0"))
            await until(lambda: bool(echo.waiting))
            writer.close()
            await until(lambda: not group.open)

    asyncio.run(scenario())


def test_a_connection_is_held_until_the_node_is_ready() -> None:
    async def scenario() -> None:
        async with served(held=True) as (echo, group, connect):
            reader, writer = await connect()
            writer.write(frame("e1"))
            await until(lambda: len(group.open) == 1 and not next(iter(group.open))._reading)
            assert not echo.seen
            group.release()
            assert await answer(reader) == "e1"

    asyncio.run(scenario())


def test_many_requests_at_once_let_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: slices of one request; how many are handled between two turns of the loop."""
    monkeypatch.setattr(module, "SLICE_S", 0.0)

    async def scenario() -> None:
        async with served(held=True) as (echo, group, connect):
            clients = [await connect() for _ in range(3)]
            for number, (_, writer) in enumerate(clients):
                writer.write(b"".join(frame(f"e{number}{n:02}") for n in range(40)))
            whole = 40 * len(frame("e00"))
            await until(lambda: [each._filled for each in group.open] == [whole] * 3)
            group.dear_s = inf  # a busy machine makes anything take long
            turns: list[int] = []

            def turn() -> None:
                turns.append(len(echo.seen))
                if len(echo.seen) < 3 * 40:
                    asyncio.get_running_loop().call_soon(turn)

            group.release()
            turn()
            for number, (reader, _) in enumerate(clients):
                found = [await answer(reader) for _ in range(40)]
                assert found == [f"e{number}{n:02}" for n in range(40)]
            steps = [after - before for before, after in pairwise(turns)]
            assert max(steps) <= 3, "each may begin at once, then one of them goes on in each turn"
            assert steps.count(1) > 80
            assert len({seen[1:2] for seen in echo.seen[40:46]}) == 3, "in turn"

    asyncio.run(scenario())


def test_who_asks_what_takes_long_leaves_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On one connection or on many: one dear request is served, then there is a rest.

    Method: a request that takes long moves the loop's clock on. Large ones may be dear, so they
    wait for the end of a rest, too; small ones, and those that data comes by, go on at once.
    """
    monkeypatch.setattr(sys.modules[__name__], "BOUND_SECONDS", 1000)  # of a clock that is moved
    large = DEAR_BYTES + 1

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        real, ahead = loop.time, [0]
        monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
        monkeypatch.setattr(own_time, "thread_time", lambda: ahead[0])
        async with served() as (echo, group, connect):

            def handle(connection: Connection, received: memoryview) -> Any:
                ahead[0] += 10 * (bytes(received[:1]) == b"d")
                return echo(connection, received)

            group.handle = handle
            for number in range(3):
                _, writer = await connect()
                writer.write(frame(f"d{number}", large) * 2)
                await until(lambda: len(group.dear) > number or len(echo.seen) > 1)  # noqa: B023
                assert len(group.dear) == number + 1
            _, writer = await connect()
            writer.write(frame("e") + frame("\0\0", large) + frame("e"))
            await until(lambda: len(echo.seen) == 4)
            assert [each[:1] for each in echo.seen] == [b"d", b"e", b"\0", b"e"]
            for seen in range(6, 16, 2):
                ahead[0] += 20  # the rest is over
                writer.write(frame("e"))  # so that the loop looks at its clock
                await until(lambda wanted=seen: len(echo.seen) >= wanted)  # type: ignore[misc]
                assert sum(each[:1] == b"d" for each in echo.seen) == seen // 2 - 1
            group.dear_s = inf  # as where controllers serve brokers
            ahead[0] += 20
            for number in range(2):
                writer.write(frame(f"d{number}", large))
                await until(lambda wanted=number: echo.seen[-1][1:2] == b"%d" % wanted)  # type: ignore[misc]

    asyncio.run(scenario())


@pytest.mark.parametrize("together", [1, 2], ids=["alone", "with another"])
def test_who_asked_while_the_process_stood_still_does_not_wait_for_so_long(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Goal: a broker that was stopped in the middle of a request goes on when it goes on.

    Seen to fail: behind two seconds of SIGSTOP the commits of members lay unread for four. Their
    clients gave up, and committed by another connection; the commit left behind took effect last.

    Method: a request moves the loop's clock on, and takes no processor time.
    """
    monkeypatch.setattr(sys.modules[__name__], "BOUND_SECONDS", 10_000)  # of a clock that is moved

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        real, ahead = loop.time, [0.0]
        monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
        monkeypatch.setattr(own_time, "thread_time", lambda: 0.0)
        async with served() as (echo, group, connect):

            def handle(connection: Connection, received: memoryview) -> Any:
                ahead[0] += 5.0
                return echo(connection, received)

            group.handle = handle
            reader, writer = await connect()
            writer.write(frame("e1") * together)
            for _ in range(together):
                assert await answer(reader) == "e1"
            for line in (group.dear, group.many):
                assert line._rests_until <= loop.time() + REST_FACTOR * own_time.WAIT_S

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("asked", "count", "rests"),
    [
        ("e", 3, True),
        ("\0\1", 5, False),
        ("\0\1", 1 + FLOOD_REQUESTS, True),
        ("\0\0", 1 + FLOOD_REQUESTS, False),
    ],
    ids=["all", "records", "flood", "a producer's"],
)
def test_who_asks_many_things_at_once_rests_between_them(
    monkeypatch: pytest.MonkeyPatch, asked: str, count: int, *, rests: bool
) -> None:
    """For longer than they took; but data goes by as fast as turns come, if it can be much.

    A producer may send a request for each of its hundreds of partitions, as librdkafka does.
    Seen to fail: one that did had a tenth of its throughput.

    Method: a request moves the loop's clock on, so that each is a slice.
    """

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        real, ahead = loop.time, [0.0]
        monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
        monkeypatch.setattr(own_time, "thread_time", lambda: ahead[0])
        async with served() as (echo, group, connect):
            group.dear_s = 1000.0

            def handle(connection: Connection, received: memoryview) -> Any:
                ahead[0] += 0.1
                return echo(connection, received)

            group.handle = handle
            _, writer = await connect()
            writer.write(frame(asked) * count)
            if rests:
                await until(lambda: len(group.many) == 1)
                assert group.many.is_resting
                assert len(echo.seen) == 1
                ahead[0] += REST_FACTOR
                (await connect())[1].write(frame("e"))  # so that the loop looks at its clock
                await until(lambda: len(echo.seen) >= 3)
            else:
                await until(lambda: len(echo.seen) == count)
                assert group.many._rests_until < 0, "it never rested"

    monkeypatch.setattr(sys.modules[__name__], "BOUND_SECONDS", 10_000)  # of a clock that is moved
    asyncio.run(scenario())


def test_a_frame_that_comes_byte_by_byte_is_read_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More of it comes together meanwhile. One that comes in a few pieces waits for nothing.

    Seen to fail: a hundred such connections took a broker's whole loop.
    """
    monkeypatch.setattr(module, "PIECE_REST_S", 3600.0)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        real, ahead = loop.time, [0]
        monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
        async with served() as (echo, group, connect):
            reader, writer = await connect()
            for text in ("e1", "e2"):  # it counts anew for each frame
                whole = frame(text)
                for end in range(1, PIECES_MAX + 1):
                    writer.write(whole[end - 1 : end])
                    await until(lambda filled=end: next(iter(group.open))._filled == filled)  # type: ignore[misc]
                writer.write(whole[PIECES_MAX:])
                assert await answer(reader) == text
            (server_side,) = echo.connections
            for end in range(1, PIECES_MAX + 2):
                assert not group.many
                writer.write(whole[end - 1 : end])
                await until(partial(filled, server_side, end))
            assert len(group.many) == 1
            assert not server_side._reading
            ahead[0] += 3600
            writer.write(whole[PIECES_MAX + 1 :])
            (await connect())[1].write(frame("e3"))  # so that the loop looks at its clock
            assert await answer(reader) == "e2"
            group.dear_s = inf  # as where controllers serve brokers
            for end in range(1, PIECES_MAX + 2):
                writer.write(whole[end - 1 : end])
                await until(partial(filled, server_side, end))
            assert not group.many

    monkeypatch.setattr(sys.modules[__name__], "BOUND_SECONDS", 10_000)  # of a clock that is moved
    asyncio.run(scenario())


def test_who_never_stops_between_two_frames_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: a producer that had always begun the next request was closed on as idle."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        real, ahead = loop.time, [0]
        monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            stream = b"".join(frame(f"e{n}") for n in range(5))
            at = 0
            for number in range(4):
                before = loop.time()
                to = (number + 1) * len(frame("e0")) + 6
                writer.write(stream[at:to])
                at = to
                assert await answer(reader) == f"e{number}"
                assert echo.connections[0].active_at >= before
                ahead[0] += 1

    monkeypatch.setattr(sys.modules[__name__], "BOUND_SECONDS", 10_000)  # of a clock that is moved
    asyncio.run(scenario())


def test_a_muted_connection_handles_nothing_until_it_is_unmuted() -> None:
    async def scenario() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("w1"))
            await until(lambda: len(echo.seen) == 1)
            (server_side,) = echo.connections
            server_side.mute()
            writer.write(frame("e2"))
            echo.waiting.pop()[0].answer(object())
            assert await answer(reader) == "w1"
            assert len(echo.seen) == 1
            server_side.unmute()
            assert await answer(reader) == "e2"

    asyncio.run(scenario())


def test_what_was_done_at_once_holds_nothing_back() -> None:
    """What is behind a request that waits is not looked at; this one has been answered already."""

    async def main() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("d1") + frame("d2") + frame("e3"))
            for text in ("d1", "d2", "e3"):
                assert await reader.readexactly(12) == frame(text)
            assert len(echo.seen) == 3

    asyncio.run(main())


def test_a_throttled_connection_is_read_again_when_its_time_is_over() -> None:
    """Also with a second throttle meanwhile: the longer one counts."""

    async def scenario() -> None:
        async with served() as (echo, _, connect):
            reader, writer = await connect()
            writer.write(frame("e1"))
            assert await answer(reader) == "e1"
            (server_side,) = echo.connections
            server_side.mute_for(0.05)
            server_side.mute_for(0.001)
            writer.write(frame("e2"))
            await asyncio.sleep(0.01)
            assert len(echo.seen) == 1
            assert await answer(reader) == "e2"

    asyncio.run(scenario())


def test_an_answer_after_the_peer_left_is_dropped() -> None:
    async def scenario() -> None:
        async with served() as (echo, group, connect):
            _, writer = await connect()
            writer.write(frame("w1"))
            await until(lambda: bool(echo.waiting))
            writer.close()
            await until(lambda: not group.open)
            echo.waiting.pop()[0].answer(object())

    asyncio.run(scenario())


@pytest.mark.parametrize("ending", ["the peer leaves", "it speaks no protocol", "an answer closes"])
def test_what_waits_is_put_away_with_its_connection(ending: str) -> None:
    """Seen to fail: waits lived on for a minute, 30 MB for each connection that asked for much."""

    async def scenario() -> None:
        async with served() as (echo, group, connect):
            _, writer = await connect()
            writer.write(frame("w1") + frame("w2"))
            await until(lambda: len(echo.waiting) == 2)
            lost: list[bytes] = []
            for deferred, body in echo.waiting:
                deferred.lost = partial(lost.append, body[:2])
            if ending == "the peer leaves":
                writer.close()
            elif ending == "it speaks no protocol":
                writer.write(frame("r3"))
            else:
                echo.waiting.pop()[0].abandon()
            await until(lambda: not group.open)
            assert lost == [b"w1", b"w2"][: len(echo.waiting)]

    asyncio.run(scenario())


def test_an_answer_that_is_given_is_not_put_away() -> None:
    async def scenario() -> None:
        async with served() as (echo, group, connect):
            _, writer = await connect()
            writer.write(frame("w1") + frame("w2"))
            await until(lambda: len(echo.waiting) == 2)
            (second, _), lost = echo.waiting.pop(), []
            second.lost = lambda: lost.append("second")
            second.answer(object())  # it has to wait for the first one's
            writer.close()
            await until(lambda: not group.open)
            assert lost == []

    asyncio.run(scenario())


def test_what_is_promised_on_a_connection_that_ends_meanwhile_is_put_away() -> None:
    """A request's own effect may close the connection that it came by, before it has an answer."""

    async def scenario() -> None:
        async with served() as (echo, group, connect):
            lost: list[str] = []

            def handle(connection: Connection, body: memoryview) -> Deferred:
                deferred = echo(connection, body)
                assert isinstance(deferred, Deferred)
                deferred.lost = lambda: lost.append("promised")
                connection.abort()
                return deferred

            group.handle = handle
            _, writer = await connect()
            writer.write(frame("w1"))
            await until(lambda: bool(lost))
            assert lost == ["promised"]

    asyncio.run(scenario())


async def leave(client: Client, group: Connections) -> None:
    """Send a request whose work goes on, and go; return when that was noticed."""
    there = len(group.open)
    _, writer = client
    writer.write(frame("b"))
    writer.close()
    await until(lambda: len(group.open) < there)


def test_who_leaves_work_behind_keeps_his_place_until_it_is_done() -> None:
    """Else a client that comes, asks and leaves, over and over, would be bounded by nothing."""

    async def scenario() -> None:
        admission = Admission(limits=Limits(address=2))
        async with served(admission=admission) as (echo, group, connect):
            echo.kept = 5000
            for _ in range(2):
                await leave(await connect(), group)
            requests = group.budget.requests
            assert (len(admission), requests.held) == (2, 10_000), "also of what is little"
            assert not any(len(each._buffer) for each in echo.connections)
            reader, _ = await connect()
            assert await reader.read() == b"", "no place is left for this one"
            assert not echo.ended
            (first, _), (second, _) = echo.waiting
            assert first.is_left
            first.answer_nothing()
            first.proceed()
            assert (len(admission), requests.held) == (1, 5000)
            reader, writer = await connect()
            writer.write(frame("e"))
            assert await answer(reader) == "e"
            second.abandon()
            assert (len(admission), requests.held, group.refused) == (1, 0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("bound", ["bytes of an address", "places"])
def test_work_that_was_left_behind_ends_where_too_much_is_held(bound: str) -> None:
    """It makes room like a connection that is open; what it would have written is not."""

    async def scenario() -> None:
        ledger, admission = Ledger(REQUESTS), Admission()
        if bound == "places":
            admission = Admission(descriptors=2)
        else:
            ledger = Ledger(REQUESTS, address_most=250_000)
        budget = Budget(requests=ledger)
        async with served(budget=budget, admission=admission) as (echo, group, connect):
            echo.kept = 100_000
            for _ in range(20):
                await leave(await connect(), group)
            left = [each for each, _ in echo.waiting if each not in echo.ended]
            assert len(left) == len(admission) == 2
            assert ledger.held == 200_000
            for each in left:
                each.answer_nothing()
            assert (len(admission), ledger.held) == (0, 0)

    asyncio.run(scenario())
