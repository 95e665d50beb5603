"""What only the real ports can get wrong: short writes, full disks, what their import costs."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.runtime import real
from holdfast.runtime.real import RealDisk, RealNetwork, RealRandom, RealWorker, real_runtime
from holdfast.wire.errors import WireError

LIMIT = 10_000


def limited_append(path: Path) -> str:
    """Append in a child whose files may not pass LIMIT bytes: what fits is written first."""
    code = f"""
import resource, signal
from holdfast.runtime.real import RealDisk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))
file = RealDisk().open({str(path)!r}, create=True)
file.append(b"a" * 6000)
try:
    file.append(memoryview(b"b" * 6000))
except OSError as error:
    print(error.errno, file.size)
file.append(b"c" * 4000)
print(file.size, file.pread(2, 5999))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.mark.process
def test_write_that_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert limited_append(path) == f"{errno.EFBIG} 6000\n10000 b'ac'\n"
    assert path.read_bytes() == b"a" * 6000 + b"c" * 4000


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(descriptor: int, data: memoryview | bytes, offset: int) -> int:
        return os.pwrite(descriptor, memoryview(data)[:7], offset)

    class Calls:
        def __getattr__(self, name: str) -> object:
            return short if name == "pwrite" else getattr(os, name)

    monkeypatch.setattr(real, "os", Calls())
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append(bytes(range(100)))
    file.append(b"end")
    assert file.pread(200, 0) == bytes(range(100)) + b"end"
    file.close()


def test_the_system_finds_out_that_a_peer_has_vanished() -> None:
    """Also where connections.max.idle.ms is off. Method: what an accepted connection was given."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport)

        listener = await RealNetwork().listen(Protocol, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        transport = await accepted
        found = transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for each in (transport, writer, listener):
            each.close()
        await writer.wait_closed()

    asyncio.run(scenario())


def test_a_flood_of_connections_is_accepted_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Method: twenty wait before the loop looks; how many begin between two pauses, which are long.

    Seen to fail: with 64 accepted at once, and without the pause.
    """
    monkeypatch.setattr(real, "_ACCEPT_PAUSE_S", 0.02)

    async def scenario() -> None:
        begun: list[int] = []

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                begun[-1] += 1
                transport.close()

        listener = await RealNetwork().listen(Protocol, "127.0.0.1", 0)
        assert isinstance(listener, real._RealListener)
        again = listener._listen_again

        def listen_again(listening: socket.socket) -> None:
            begun.append(0)
            again(listening)

        monkeypatch.setattr(listener, "_listen_again", listen_again)
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(20)]
        begun.append(0)
        async with asyncio.timeout(20):
            while sum(begun) < len(clients):
                await asyncio.sleep(0.001)
        assert max(begun) <= 4
        listener.close()
        for each in clients:
            each.close()

    asyncio.run(scenario())


def test_a_job_in_python_does_not_keep_the_loop_waiting_for_long() -> None:
    """The interpreter changes threads ten times as often as it would by itself."""
    before = sys.getswitchinterval()

    async def scenario() -> None:
        worker = RealWorker()
        sys.setswitchinterval(0.005)
        assert await worker.submit(sys.getswitchinterval) == pytest.approx(0.0005)
        worker.close()

    try:
        asyncio.run(scenario())
    finally:
        sys.setswitchinterval(before)


def test_what_a_job_held_that_fails_is_given_back_where_it_ran() -> None:
    """Seen to fail: 16 MB that a bomb had been inflated to were given back on the loop."""

    class Held:
        def __del__(self) -> None:
            threads.append(threading.current_thread().name)

    threads: list[str] = []

    def job() -> None:
        held = Held()
        raise WireError(f"with {held} in hand")

    async def scenario() -> None:
        worker = RealWorker()
        with pytest.raises(WireError):
            await worker.submit(job)
        worker.close()

    asyncio.run(scenario())
    assert threads == ["worker-0"]


@pytest.mark.process
def test_locks_hold_between_processes_and_end_with_them(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    code = f"""
from holdfast.runtime.real import RealDisk
lock = RealDisk().lock({path!r})
print("locked", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            RealDisk().lock(path)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
    RealDisk().lock(path).release()


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.sync_directory(str(tmp_path))  # so that the spare ones are there
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the descriptors themselves
    disk.write_atomic(str(tmp_path / "f"), b"x")
    disk.lock(str(tmp_path / "l")).release()
    disk.open(str(tmp_path / "f")).close()
    disk.sync_directory(str(tmp_path))
    with pytest.raises(OSError, match="Is a directory"):
        disk.read(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before


def test_uuids_are_version_4_and_never_begin_with_a_dash() -> None:
    made = [RealRandom().uuid() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert {(raw[6] >> 4, raw[8] >> 6, len(raw)) for raw in made} == {(4, 2, 16)}
    assert 62 not in {raw[0] >> 2 for raw in made}
    assert {RealRandom().below(3) for _ in range(200)} == {0, 1, 2}
    one = RealRandom()  # which draws for many numbers in one go, and none twice
    assert len({one.below(1 << 64) for _ in range(1_000)}) == 1_000


def test_both_ends_have_no_delay_of_nagle() -> None:
    async def main() -> list[int]:
        network = RealNetwork()
        accepted: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

        class Accept(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                accepted.set_result(transport)

        listener = await network.listen(Accept, "", 0)
        ours, _ = await network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        ends = [ours, await accepted]
        found = [
            end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for end in ends
        ]
        for end in ends:
            end.abort()
        listener.close()
        return found

    assert all(asyncio.run(main()))


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.9 is an address on Linux only")
def test_it_dials_from_the_address_that_it_was_given() -> None:
    """By it a proxy knows who dials. Method: another address of the loopback device."""

    async def main(source: str | None) -> str:
        accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        class Accept(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport.get_extra_info("peername")[0])
                assert isinstance(transport, asyncio.Transport)
                transport.abort()

        network = RealNetwork(source)
        listener = await network.listen(Accept, "127.0.0.1", 0)
        ours, _ = await network.connect(asyncio.Protocol, "127.0.0.1", listener.port)
        found = await accepted
        ours.abort()
        listener.close()
        return found

    assert asyncio.run(main("127.0.0.9")) == "127.0.0.9"
    assert asyncio.run(main(None)) == "127.0.0.1"


def test_lane_waits_for_its_own_job_and_for_no_other_lane() -> None:
    worker = real.RealWorker(2)
    gate = threading.Event()
    ran: list[str] = []

    def hold() -> None:
        gate.wait(30)
        ran.append("a0")

    def release() -> None:
        ran.append("b0")
        gate.set()

    async def main() -> None:
        jobs = [(hold, "a"), (lambda: ran.append("a1"), "a"), (release, "b")]
        await asyncio.gather(*(worker.submit(job, lane=lane) for job, lane in jobs))

    asyncio.run(main())
    worker.close()
    assert ran == ["b0", "a0", "a1"]


TURNED_AWAY = """
import asyncio, os, resource, socket
from holdfast.runtime.real import RealDisk, RealNetwork

async def main():
    listener = await RealNetwork().listen(asyncio.Protocol, "127.0.0.1", 0)
    RealDisk().list("/")  # what is kept back for files
    peer = socket.socket()
    peer.setblocking(False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, ("127.0.0.1", listener.port))
    try:
        print(await asyncio.wait_for(loop.sock_recv(peer, 1), 10))
    except TimeoutError:
        print("it waits")

asyncio.run(main())
"""


@pytest.mark.process
def test_who_can_not_be_accepted_is_turned_away() -> None:
    """Goal: nobody hangs where every descriptor is taken. Method: one who connects by then."""
    done = subprocess.run(
        [sys.executable, "-c", TURNED_AWAY], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "b''\n", done.stderr


def test_answer_to_a_loop_that_is_gone_is_dropped() -> None:
    """Goal: nobody is left to hear of a job that ends late, and its thread goes on. Method: the
    job ends only after its loop; an error in the thread fails the test.
    """
    worker = real.RealWorker(1)
    gone = threading.Event()
    ended: list[bool] = []

    async def main() -> None:
        worker.submit(lambda: ended.append(gone.wait(10)))

    asyncio.run(main())
    gone.set()
    worker.close()
    assert ended == [True]


def test_clock_and_runtime() -> None:
    runtime = real_runtime()
    assert runtime.clock.wall_ms() > 1_700_000_000_000
    assert runtime.clock.monotonic_ms() <= runtime.clock.monotonic_ms()


@pytest.mark.process
def test_import_brings_nothing_that_asyncio_does_not() -> None:
    """A node starts in milliseconds; each of these would cost some (docs/design/runtime.md)."""
    code = """
import asyncio, dataclasses, sys
before = set(sys.modules)
import holdfast.runtime.real
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("holdfast")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) <= {"__future__", "fcntl"}
