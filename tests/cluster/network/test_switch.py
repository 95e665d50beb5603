"""Goal: what the switch of slowed links holds is bounded in all. Method: frames, and no device."""

from __future__ import annotations

import socket
import struct
import tracemalloc

import pytest

from holdfast.cluster.network import delays
from holdfast.cluster.network.links.switch import Switch

ROOM = 1 << 20
LINKS = [f"10.1.0.{number} 10.1.0.200" for number in range(1, 5)]
SLOW = "slow=60000000,0,0,0"  # a minute


def frame(names: str, size: int) -> bytes:
    """Return a frame of a link, with a datagram of so many bytes, which is no other's object."""
    addresses = b"".join(socket.inet_aton(address) for address in names.split())
    return b"".join((bytes(10 + 14 + 12), addresses, bytes(8), struct.pack(">Q", size)[-1:] * size))


@pytest.mark.parametrize("size", [30, 1_400])
def test_what_waits_takes_no_more_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Links share it, and one that is slowed otherwise has none anew.

    Seen to fail: each link had 64 MiB, by its frames' bytes alone, of which a short one takes some
    four times as many; and as many again each time that it was slowed otherwise.
    """
    monkeypatch.setattr(delays, "ALL_WAITING_BYTES_MAX", ROOM, raising=False)
    switch, sent = Switch("0"), 0
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for latency_us in (60_000_000, 59_000_000, 58_000_000):
            texts = dict.fromkeys(LINKS, f"slow={latency_us},0,0,0")
            switch.configure(texts)
            for names in LINKS * 1_000:
                switch.take(frame(names, size), 0)
                sent += 1
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < ROOM * 1.1
    dropped = switch.configure(texts)
    went = 0
    while switch.due(120_000_000) is not None:
        went += 1
    assert went > ROOM // (size + 400), "it is made use of"
    assert dropped + went == sent
    switch.take(frame(LINKS[0], size), 0)
    assert switch.configure(texts) == dropped, "what has left has made room"


def test_a_link_that_is_whole_again_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "ALL_WAITING_BYTES_MAX", 100)
    switch = Switch("0")
    switch.configure({LINKS[0]: SLOW})
    switch.take(frame(LINKS[0], 30), 0)
    assert switch.due(120_000_000) is None
    assert switch.configure({}) == 1
    switch.take(frame(LINKS[0], 30), 0)
    assert switch.due(0) == frame(LINKS[0], 30)
