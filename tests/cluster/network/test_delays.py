"""Goal: a slowed link's packets leave when they should, and from one seed always then.

Method: packets at made-up moments, and what the schedule says of each.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.network.delays import (
    BACKLOG_BYTES_MIN,
    PACKET_BYTES,
    WAITING_BYTES_MAX,
    Room,
    Sharer,
    SlowLink,
)
from holdfast.cluster.network.link_table import Slow

PACKETS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(60, 65_000)), max_size=50)


def leave(
    link: SlowLink, packets: list[tuple[int, int]], *, leaving: bool = False
) -> list[tuple[int, int, int | None]]:
    """Return of packets (microseconds after the one before, size): came, size, leaves.

    `leaving`: the link is told at once that they have left, so that there is always room.
    """
    now_us, found = 0, []
    for gap_us, size in packets:
        now_us += gap_us
        found.append((now_us, size, link.admit(now_us, size)))
        if leaving:
            link.left(size)
    return found


@given(PACKETS, st.integers(0, 5_000), st.integers(0, 60_000_000))
def test_latency_and_jitter_keep_the_order(
    packets: list[tuple[int, int]], jitter_us: int, silent_us: int
) -> None:
    """Each packet is within its bounds: none is held up so that it stays behind another.

    Method: some packets, silence of any length, and the same packets again.
    """
    how = Slow(latency_us=5_000, jitter_us=jitter_us)
    last = 0
    for came, _, leaves in leave(SlowLink(how, "1"), [*packets, (silent_us, 100), *packets]):
        assert leaves is not None
        assert leaves >= last, "a packet that overtakes another"
        assert leaves in range(came + 5_000 - jitter_us, came + 5_001 + jitter_us)
        last = leaves


@pytest.mark.parametrize("gap_us", [1_000, 10_000, 200_000])
def test_jitter_is_give_or_take_however_close_packets_are(gap_us: int) -> None:
    """On average packets take what was asked for, and they come near both bounds."""
    link = SlowLink(Slow(latency_us=200_000, jitter_us=50_000), "1")
    packets = [(gap_us, 60)] * (40_000_000 // gap_us)
    took = []
    for came, _, leaves in leave(link, packets, leaving=True):
        assert leaves is not None
        took.append(leaves - came)
    assert abs(sum(took) / len(took) - 200_000) < 5_000
    assert min(took) < 160_000
    assert max(took) > 240_000


@given(PACKETS, st.integers(10_000, 10_000_000))
def test_a_rate_is_never_exceeded(packets: list[tuple[int, int]], rate: int) -> None:
    """Behind any packet that had to wait for nothing, so many bytes take so long."""
    passed, begun, free = 0, 0, 0
    for came, size, leaves in leave(SlowLink(Slow(rate=rate), "1"), packets):
        if leaves is None:
            continue
        if came > free:
            passed, begun = 0, came
        passed, free = passed + size, leaves
        assert leaves == begun + passed * 1_000_000 // rate


@pytest.mark.parametrize("size", [60, 90, 1_538, 65_000])
@pytest.mark.parametrize("rate", [60_000_000, 100_000_000, 400_000_000])
def test_a_rate_is_what_was_asked_for_whatever_size_packets_have(rate: int, size: int) -> None:
    """Method: each packet comes when the one before has left, so that none is dropped."""
    link, now_us, count = SlowLink(Slow(rate=rate), "1"), 0, 1_000
    for _ in range(count):
        leaves = link.admit(now_us, size)
        assert leaves is not None
        link.left(size)
        now_us = leaves
    assert now_us == count * size * 1_000_000 // rate


def test_some_don_t_wait() -> None:
    link = SlowLink(Slow(latency_us=1_000_000, reorder=2_500), "1")
    found = [link.admit(number, 100) == number for number in range(1000)]
    assert 150 < sum(found) < 350


@given(PACKETS)
def test_one_seed_is_one_schedule(packets: list[tuple[int, int]]) -> None:
    how = Slow(latency_us=5_000, jitter_us=5_000, rate=1_000_000, reorder=1_000)
    assert leave(SlowLink(how, "7"), packets) == leave(SlowLink(how, "7"), packets)


def test_seeds_differ() -> None:
    how = Slow(latency_us=5_000, jitter_us=5_000)
    packets = [(20_000, 100)] * 20
    assert leave(SlowLink(how, "7"), packets) != leave(SlowLink(how, "8"), packets)


def test_what_waits_is_bounded() -> None:
    """A rate's backlog is a second, or a few of the largest packets; all else in bytes."""
    link = SlowLink(Slow(rate=1_000), "1")
    took = sum(link.admit(0, 1_000) is not None for _ in range(1_000))
    assert took == BACKLOG_BYTES_MIN // 1_000 + 1
    assert link.dropped == 1_000 - took
    link = SlowLink(Slow(latency_us=1_000_000), "1")
    size = 64_000
    fits = WAITING_BYTES_MAX // (size + PACKET_BYTES)
    assert [link.admit(0, size) is None for _ in range(fits + 1)] == [False] * fits + [True]
    link.left(size)
    assert link.admit(0, size) is not None


def test_what_has_left_gives_back_all_that_it_took() -> None:
    """Method: datagrams that take more beside their own bytes than those, of two links."""
    room = Room()
    whole = room.left_bytes
    links = [SlowLink(Slow(latency_us=1_000_000), "1", room) for _ in range(2)]
    for link in links:
        assert link.admit(0, 30) is not None
    assert room.left_bytes == whole - 2 * (30 + PACKET_BYTES)
    for link in links:
        link.left(30)
    assert room.left_bytes == whole


def test_no_link_has_more_than_is_left_for_all_others() -> None:
    """So what nobody takes of some of them does not hold up the rest."""
    room = Room()
    links = [SlowLink(Slow(latency_us=1_000_000), "1", room) for _ in range(8)]
    took = []
    for link in links:
        count = 0
        while link.admit(0, 1 << 20) is not None:
            count += 1
        took.append(count)
    assert all(took), f"each has some room: {took}"
    assert took == sorted(took, reverse=True)
    assert 240 < sum(took) < 256, "and all of it together is made use of"


def test_no_sharer_of_a_link_has_more_than_is_left_for_its_others() -> None:
    """Goal: who takes nothing leaves something to each who comes behind, however many they are.

    Method: many that take in all they get, one behind the other, of two links of one room.
    """
    room, size = Room(), 64 << 10
    whole = room.left_bytes
    for how in (Slow(latency_us=1_000_000), Slow(latency_us=2_000_000)):
        link, sharers = SlowLink(how, "1", room), [Sharer() for _ in range(40)]
        for sharer in sharers:
            while link.admit(0, size, sharer) is not None:
                pass
        took = [sharer.waiting_bytes // (size + PACKET_BYTES) for sharer in sharers]
        assert took == sorted(took, reverse=True)
        assert took[0] >= 2 * took[1] - 1 >= 3 * took[2], "each leaves as much as it has"
        assert took[-1] == 1, "a packet, whatever is left"
        assert link.admit(0, size, Sharer()) is not None
        link.left(size, sharers[-1])
        assert link.admit(0, size, sharers[-2]) is None, "not for who has one waiting"
        assert link.admit(0, size, sharers[-1]) is not None
        assert room.left_bytes > whole // 4
