"""Goal: the two record walkers are one, and see what is there.

Method: hypothesis builds batches (ours, kafka-python's), spoils them byte by byte, cuts them, or
makes bytes up; both walkers must say the same of them in one go and in any slices, and of whole
batches what `read_records` says. A table has one spoilt record for each thing that can be wrong.
Where no compiler was, the compiled walker is left out.
Seen to fail: with one comparison turned in the C source, with the offset delta left unread, and
with a record's headers all walked in one go.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from holdfast.wire.batch import HEADER_SIZE, Record, build_batch, read_header, read_records
from holdfast.wire.walker import python_walker, record_walker
from holdfast.wire.walker.python_walker import STEPS_OF_RECORD
from holdfast.wire.walker.record_walker import NOTHING, NOWHERE, PROBLEMS, seek_on, walk_on

compiled: ModuleType | None
try:
    from holdfast.wire.walker import compiled_walker

    compiled = compiled_walker
except ImportError:
    compiled = None

WALKERS = [pytest.param(python_walker, id="python")]
if compiled is not None:
    WALKERS.append(pytest.param(compiled, id="compiled"))

PLENTY = 100_000  # of steps
START = 0, 0, 0, 0
LONGS = st.integers(-(2**63), 2**63 - 1)
STAMPS = st.one_of(st.integers(-1, 2**41), st.just(-1), LONGS)
SMALL = st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | SMALL,
        value=st.none() | SMALL | st.binary(min_size=100, max_size=200),
        timestamp=st.integers(-1, 2**42),
        headers=st.lists(st.tuples(st.text(max_size=4), st.none() | SMALL), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)
# What breaks varints: their most bits, one more, bytes without an end.
GIANTS = st.sampled_from(
    [
        *(b"\xff" * 4 + bytes([last]) for last in (0x0F, 0x10)),
        *(b"\xff" * 9 + bytes([last]) for last in (0x01, 0x02)),
        *(b"\x80" * 10, b"\x01", b"\x00", b"\x03", b"\xfe\xff\xff\xff\x0f"),
    ]
)


def body_of(records: list[Record]) -> bytes:
    return bytes(build_batch(records))[HEADER_SIZE:]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Return a batch's records with some bytes changed, put in or cut off, or just bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=60))
    body = bytearray(body_of(draw(RECORDS)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            body[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == 1:
            body[at : at + 1] = draw(GIANTS)
        elif kind == 2:
            body[at:at] = draw(GIANTS)
        else:
            del body[at:]
    return bytes(body)


@pytest.mark.skipif(compiled is None, reason="no compiler was here at install time")
@pytest.mark.slow
@settings(deadline=None)
@given(
    body=spoilt(),
    base=STAMPS,
    most=st.integers(-1, 20),
    steps=st.integers(-1, 40) | st.just(PLENTY),
    wanted=st.tuples(LONGS, st.integers(0, 5), st.just(8)),
)
def test_both_say_the_same(
    body: bytes, base: int, most: int, steps: int, wanted: tuple[int, int, int]
) -> None:
    assert compiled is not None
    for index in (0, 3):
        start = 0, index, 0, 0
        walked = python_walker.walk(body, start, most, steps, base)
        assert compiled.walk(memoryview(body), start, most, steps, base) == walked
    position, inside, headers = walked[1], walked[9], walked[10]
    for place in ((position, 7, inside, headers), (position, 7, len(body) // 2, 3)):
        assert compiled.walk(body, place, 5, steps, base) == python_walker.walk(
            bytearray(body), place, 5, steps, base
        )
        for since in (wanted[0], base):
            sought = python_walker.seek(body, place, most, steps, base, (since, *wanted[1:]))
            assert compiled.seek(body, place, most, steps, base, (since, *wanted[1:])) == sought


@pytest.mark.slow
@settings(deadline=None)
@given(
    body=spoilt(),
    base=STAMPS,
    cuts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), max_size=20),
    since=LONGS,
)
def test_slices_are_as_good_as_one_go(
    body: bytes, base: int, cuts: list[tuple[int, int]], since: int
) -> None:
    wanted = since, 0, 10_000
    sliced, sought = NOTHING, NOWHERE
    for most, steps in [*cuts, (10_000, PLENTY)]:
        sliced = walk_on(body, sliced, base, most, steps)
        if sought.offset_delta < 0 and not sought.problem:
            sought = seek_on(body, sought, base, wanted, most, steps)
    whole = walk_on(body, NOTHING, base, 10_000, PLENTY)
    assert sliced._replace(steps=0) == whole._replace(steps=0)
    whole_sought = seek_on(body, NOWHERE, base, wanted, 10_000, PLENTY)
    assert sought._replace(steps=0) == whole_sought._replace(steps=0)


@pytest.mark.parametrize("walker", WALKERS)
def test_one_record_may_take_several_goes(walker: ModuleType) -> None:
    """A go ends in the middle of a record's headers, and the next one goes on from there."""
    count, steps = 100, 30
    record = Record(None, b"v", 5, tuple(("h", b"x") for _ in range(count)))
    body = body_of([record, record])
    place, goes, size = (0, 0, 0, 0), [], len(body)
    while place[0] < size:
        walked = record_walker.Walked._make(walker.walk(body, place, 9, steps, 0))
        sought = record_walker.Sought._make(walker.seek(body, place, 9, steps, 0, (2**60, 0, 9)))
        assert walked.problem == sought.problem == 0
        place = walked.position, walked.records, walked.inside, walked.headers
        assert place == (sought.position, sought.records, sought.inside, sought.headers)
        goes.append(walked.steps)
        assert len(goes) < size, "it does not come on"
    assert walked.records == 2
    assert max(goes) < steps + STEPS_OF_RECORD
    assert sum(goes) == 2 * (STEPS_OF_RECORD + count)


@pytest.mark.slow
@pytest.mark.parametrize("walker", WALKERS)
@settings(deadline=None)
@given(records=RECORDS, first=st.integers(0, 5), since=st.integers(-1, 2**42))
def test_what_is_there_is_seen(
    walker: ModuleType, records: list[Record], first: int, since: int
) -> None:
    batch = bytes(build_batch(records))
    header, seen = read_header(batch), read_records(batch)
    walked = record_walker.Walked._make(
        walker.walk(batch[HEADER_SIZE:], START, 100, PLENTY, header.base_timestamp)
    )
    stamps = [record.timestamp for record in seen]
    assert (walked.records, walked.problem, walked.uncounted_at) == (len(seen), 0, -1)
    assert walked.position == len(batch) - HEADER_SIZE
    assert walked.largest == max(stamps)
    if walked.largest >= 0:
        assert walked.largest_at == stamps.index(max(stamps))
        least = min(stamp for stamp in stamps if stamp >= 0)
        assert (walked.least, walked.least_at) == (least, stamps.index(least))
    keyless = [record.key is None for record in seen]
    assert walked.keyless_at == (keyless.index(True) if any(keyless) else -1)
    found = [r for r in seen if r.timestamp >= since and r.offset >= first]
    wanted = since, first, len(seen)
    sought = walker.seek(batch[HEADER_SIZE:], START, 100, PLENTY, header.base_timestamp, wanted)
    assert sought[2] == (found[0].offset if found else -1)
    assert sought[3] == (found[0].timestamp if found else -1)


@pytest.mark.parametrize("walker", WALKERS)
def test_what_another_client_builds_is_sound(walker: ModuleType) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(300):
        key = b"k" if number != 7 else None
        builder.append(number, 1_000 + number % 200, key, b"v" * number, [("h", b"x"), ("", None)])
    batch = bytes(builder.build())
    walked = record_walker.Walked._make(
        walker.walk(batch[HEADER_SIZE:], START, 1_000, PLENTY, read_header(batch).base_timestamp)
    )
    assert walked._replace(position=0)[:9] == (300, 0, 1_000, 0, 1_199, 199, -1, 7, 0)


SOUND = bytes([16, 0, 0, 0, 2, 65, 2, 66, 0])  # one record, a key and a value of one byte each
assert read_records(build_batch([Record(b"A", b"B", 5)]))[0].key == b"A"
WRONG: list[tuple[bytes, int, int]] = [
    (b"\x80", 0, python_walker.CUT_LENGTH),
    (b"\xff\xff\xff\xff\x10", 0, python_walker.LONG_NUMBER),
    (b"\x01", 0, python_walker.WRONG_LENGTH),
    (b"\x04\x00", 0, python_walker.WRONG_LENGTH),
    (b"\x00", 0, python_walker.CUT_FIELD),
    (bytes([2, 0]), 0, python_walker.CUT_FIELD),
    (bytes([22, 0]) + b"\xff" * 9 + b"\x02", 0, python_walker.LONG_NUMBER),
    (SOUND[:4] + b"\x14" + SOUND[5:], 0, python_walker.LONG_BYTES),
    (SOUND[:-1] + b"\x02", 0, python_walker.HEADER_COUNT),
    (SOUND[:-1] + b"\x01", 0, python_walker.HEADER_COUNT),
    (b"\x12" + SOUND[1:-1] + b"\x02\x01", 0, python_walker.HEADER_KEY),
    (b"\x12" + SOUND[1:-1] + b"\x02\x08", 0, python_walker.LONG_BYTES),
    (b"\x12" + SOUND[1:-1] + b"\x02\x00", 0, python_walker.CUT_FIELD),
    (b"\x12" + SOUND[1:] + b"\x00", 0, python_walker.LEFT_OVER),
    (SOUND + b"\x80", 1, python_walker.CUT_LENGTH),
]


@pytest.mark.parametrize("walker", WALKERS)
def test_each_thing_that_can_be_wrong(walker: ModuleType) -> None:
    assert walker.walk(SOUND, START, 9, PLENTY, 5)[0::8] == (1, 0)
    for body, records, problem in WRONG:
        walked: Any = walker.walk(body, START, 9, PLENTY, 5)
        assert (walked[0], walked[8]) == (records, problem), body
        assert walked[1] == len(SOUND) * records  # where the spoilt one begins
        assert walker.seek(body, START, 9, PLENTY, 5, (2**60, 0, 9))[4] == problem
    assert {problem for *_, problem in WRONG} == set(range(1, len(PROBLEMS)))
    # A Java client's sum of timestamps wraps, and so does ours.
    (stamped,) = walker.walk(b"\x10\x00\x02" + SOUND[3:], START, 9, 9, 2**63 - 1)[2:3]
    assert stamped == -(2**63)


@pytest.mark.parametrize("walker", WALKERS)
def test_a_mistake_of_ours_is_told(walker: ModuleType) -> None:
    size = len(SOUND)
    outside = [
        (-1, 0, 0, 0),
        (size + 1, 0, 0, 0),
        (0, 0, -1, 0),
        (0, 0, size + 1, 0),
        (0, 0, 3, -1),
    ]
    for place in outside:
        with pytest.raises(ValueError, match="outside"):
            walker.walk(SOUND, place, 9, 9, 5)
        with pytest.raises(ValueError, match="outside"):
            walker.seek(SOUND, place, 9, 9, 5, (0, 0, 9))
    with pytest.raises(TypeError):
        walker.walk(SOUND)
    with pytest.raises(TypeError):
        walker.seek(SOUND, START, 9, 9, 5)
    with pytest.raises((TypeError, ValueError)):
        walker.seek(SOUND, START, 9, 9, 5, (0,))
    with pytest.raises((TypeError, ValueError)):
        walker.walk(SOUND, (0, 0), 9, 9, 5)


@pytest.mark.process
def test_the_python_one_can_be_asked_for() -> None:
    code = "from holdfast.wire.walker import record_walker as r; print(r.WALKER)"
    told = {}
    for wanted in ("python", ""):
        environment = {**os.environ, record_walker.FORCED_BY: wanted}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told[wanted] = ran.stdout.strip()
    assert told == {"python": "python", "": "python" if compiled is None else "compiled"}
