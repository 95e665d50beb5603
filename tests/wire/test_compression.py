"""Goal: what is large is inflated and compressed without holding up the other threads of a node.

A thread that makes or copies megabytes of Python's own memory lets no other one run meanwhile, the
loop neither. Method: the most that Python's allocator had at any moment, as tracemalloc counts it;
pages that the system gives, and what native libraries have, are not in it. Then, that the formats
are what others read.
Seen to fail: with a bytearray to inflate into, with the pieces joined at the end, with a bytes made
of what a library returned.
"""

from __future__ import annotations

import gzip
import tracemalloc
from random import Random

import cramjam
import pytest

from holdfast.wire.compression import compress, decompress
from holdfast.wire.errors import WireError

CODECS = [1, 2, 3, 4]
SIZE = 3_000_000
HELD_MAX = 1_500_000
PLAIN = b"the same again and again " * (SIZE // 25)
NOISE = Random(7).randbytes(SIZE)  # grows by a little


def held(run: object) -> int:
    assert callable(run)
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [PLAIN, NOISE], ids=["plain", "noise"])
@pytest.mark.parametrize("codec", CODECS)
def test_neither_way_makes_much_of_pythons_memory(codec: int, data: bytes) -> None:
    packed = bytes(compress(codec, data))
    assert decompress(codec, packed) == data
    assert held(lambda: compress(codec, data)) < HELD_MAX
    assert held(lambda: decompress(codec, packed)) < HELD_MAX


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 300_000, 1_100_000])
def test_every_size_comes_back(codec: int, size: int) -> None:
    for data in (bytes(size), NOISE[:size]):
        packed = bytes(compress(codec, data))
        assert decompress(codec, packed, max(size, 1)) == data
        assert compress(codec, memoryview(data)) == packed, "any buffer may be compressed"


def test_gzip_members_behind_each_other_are_one_body() -> None:
    for size in (10, 65_536, 200_000):
        first, second = bytes(compress(1, NOISE[:size])), gzip.compress(PLAIN[:size])
        assert decompress(1, first + second) == NOISE[:size] + PLAIN[:size]


@pytest.mark.parametrize("damage", [b"", b"xyz", -3, 30], ids=["nothing", "more", "end", "middle"])
def test_gzip_that_is_damaged_is_refused(damage: bytes | int) -> None:
    packed = gzip.compress(NOISE[:200])
    damaged = packed[:damage] if isinstance(damage, int) else damage and packed + damage
    with pytest.raises(WireError, match="does not inflate"):
        decompress(1, damaged)


def test_gzip_is_what_others_read() -> None:
    assert gzip.decompress(compress(1, PLAIN)) == PLAIN


def test_lz4_is_a_frame_that_others_read() -> None:
    """Independent blocks, as Kafka's Java reader wants them; stored ones where nothing is won."""
    data = PLAIN[:100_000] + NOISE[:200_000] + PLAIN[:1_000]
    packed = bytes(compress(3, data))
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == data
