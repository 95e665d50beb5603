"""Goal: compaction's two calls are one in Python and in C, and keep what is to be kept.

Method: hypothesis builds batches, spoils them byte by byte, or makes bytes up; both must say the
same of them, and copy the same bytes, in one go and in any slices. Of whole batches a list of
records says what stays. A table has one spoilt record for each thing that can be wrong. Where no
compiler was, the compiled one is left out.
Seen to fail: with an empty value taken for a tombstone in the C source, with keys whose last byte
is not hashed, with an offset that need not be behind the one before it, with a run of records that
is copied too far, and with a map that two threads may use.
"""

from __future__ import annotations

import os
import threading
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.test_record_walker import SOUND, STAMPS, body_of, spoilt
from tests.wire.test_record_walker import WRONG as WRONG_FOR_BOTH

from holdfast.wire.batch import HEADER_SIZE, Record, build_batch, read_header, read_records
from holdfast.wire.batch_header import HEADER, LENGTH_END
from holdfast.wire.walker import python_compaction
from holdfast.wire.walker.python_compaction import OFFSET_MAX, UNORDERED
from holdfast.wire.walker.python_walker import STEPS_OF_RECORD
from holdfast.wire.walker.record_compaction import (
    COMPACTOR,
    NOT_ENTERED,
    PROBLEMS,
    PYTHON,
    Compactor,
    Entered,
    Kept,
    Numbers,
    enter_on,
    keep_on,
    nothing_kept,
    room_for,
)

compiled: ModuleType | None
try:
    from holdfast.wire.walker import compiled_compaction

    compiled = compiled_compaction
except ImportError:
    compiled = None

MODULES = [pytest.param(python_compaction, id="python")]
if compiled is not None:
    MODULES.append(pytest.param(compiled, id="compiled"))
no_compiler = pytest.mark.skipif(compiled is None, reason="no compiler was here at install time")

SECRET = bytes(range(16))
PLENTY = 1 << 40  # of steps
START = 0, 0, 0, 0, -1
LONGS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.sampled_from([b"", b"a", b"b", b"key", b"k" * 200])
KEYED = st.lists(
    st.builds(
        Record,
        key=st.none() | KEYS,
        value=st.none() | st.binary(max_size=20) | st.just(b"v" * 3_000),
        timestamp=st.integers(-1, 2**42),
        headers=st.lists(st.tuples(st.text(max_size=4), st.none() | KEYS), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


class Case(NamedTuple):
    """What the calls are given beside a body."""

    last_delta: int
    base_offset: int
    base_timestamp: int
    start: int
    bound: int
    drops: int
    shift: int
    known: dict[bytes, int]

    @property
    def keep_numbers(self) -> tuple[int, ...]:
        return (*self[:3], self.bound, self.drops, self.shift)


CASES = st.builds(
    Case,
    last_delta=st.just(11) | st.integers(-1, 12),
    base_offset=st.integers(0, 100),
    base_timestamp=STAMPS,
    start=st.integers(0, 110),
    bound=st.integers(0, 110) | st.just(OFFSET_MAX),
    drops=st.integers(0, 1),
    shift=st.just(0) | LONGS,
    known=st.dictionaries(KEYS, st.integers(0, 110), max_size=4),
)


def map_of(module: ModuleType, known: dict[bytes, int], *, memory: int = 2_400) -> Any:
    key_map = module.KeyMap(memory, SECRET)
    for key, offset in known.items():
        assert key_map.put(key, offset)
    return key_map


def content(key_map: Any) -> tuple[int, list[int]]:
    """Return what a map says of all keys that a test may have entered."""
    return len(key_map), [
        key_map.get(key) for key in (b"", b"a", b"b", b"key", b"k" * 200, b"none")
    ]


def entered_by(module: ModuleType, body: bytes, case: Case, *go: Any, memory: int) -> Any:
    key_map = map_of(module, {}, memory=memory)
    place, most, steps = go
    numbers = case.last_delta, case.base_offset, case.start
    looked = module.enter(body, place, most, steps, numbers, None)
    entered = module.enter(memoryview(body), place, most, steps, numbers, key_map)
    return looked, entered, content(key_map)


def kept_by(module: ModuleType, body: bytes, case: Case, *go: Any) -> Any:
    place, most, steps = go
    room = bytearray(room_for(len(body), 20, shifted=True) + 7)
    key_map = map_of(module, case.known)
    told = module.keep(body, place, most, steps, case.keep_numbers, key_map, room, 7)
    return told, bytes(room[: told[-1]])


@no_compiler
@pytest.mark.slow
@settings(deadline=None)
@given(
    body=spoilt() | KEYED.map(body_of),
    case=CASES,
    most=st.integers(-1, 20),
    steps=st.integers(-1, 60) | st.just(PLENTY),
    memory=st.sampled_from([48, 72, 2_400]),
)
def test_both_say_the_same(body: bytes, case: Case, most: int, steps: int, memory: int) -> None:
    assert compiled is not None
    modules = python_compaction, compiled
    one, other = (entered_by(m, body, case, START, most, steps, memory=memory) for m in modules)
    assert one == other
    _, entered, _ = one
    position, _, inside, headers, previous = entered[1:6]
    for place in (
        START,
        (position, 7, inside, headers, previous),
        (position, 7, len(body) // 2, 3, 2),
    ):
        one, other = (kept_by(m, body, case, place, most, steps) for m in modules)
        assert one == other
        one, other = (entered_by(m, body, case, place, 5, 20, memory=48) for m in modules)
        assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("compactor", [PYTHON, COMPACTOR], ids=["python", "chosen"])
@settings(deadline=None)
@given(
    body=spoilt() | KEYED.map(body_of),
    case=CASES,
    cuts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), max_size=20),
)
def test_slices_are_as_good_as_one_go(
    compactor: Compactor, body: bytes, case: Case, cuts: list[tuple[int, int]]
) -> None:
    numbers = Numbers(*case[:5], bool(case.drops))
    outcomes = []
    for goes in ([*cuts, (10_000, PLENTY)], [(10_000, PLENTY)]):
        whole = compactor.key_map(2_400, SECRET)
        entered, kept = NOT_ENTERED, nothing_kept(7)
        room = bytearray(room_for(len(body), 20, shifted=True) + 7)
        for most, steps in goes:
            if not entered.problem:
                entered = enter_on(compactor, body, entered, numbers, whole, most, steps)
            if not kept.problem:
                known = compactor.key_map(2_400, SECRET)
                for key, offset in case.known.items():
                    assert known.put(key, offset)  # type: ignore[attr-defined]
                kept = keep_on(
                    compactor, body, kept, numbers, known, most, steps, room, shift=case.shift
                )
        outcomes.append(
            (entered._replace(steps=0), kept._replace(steps=0), bytes(room), content(whole))
        )
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
@settings(deadline=None)
@given(records=KEYED, case=CASES)
def test_what_stays_is_what_should(module: ModuleType, records: list[Record], case: Case) -> None:
    """Read with a reader of its own, what was copied is what a list of records says."""
    batch = build_batch(records, base_offset=case.base_offset)
    header, seen = read_header(batch), read_records(batch)
    case = case._replace(last_delta=len(seen) - 1, base_timestamp=header.base_timestamp)
    told, room = kept_by(module, bytes(batch[HEADER_SIZE:]), case, START, 100, PLENTY)
    kept = Kept._make(told)
    staying = [
        record
        for record in seen
        if record.offset >= case.bound
        or (
            record.key is not None
            and record.offset >= case.known.get(record.key, -1)
            and (record.value is not None or not case.drops)
        )
    ]
    assert (kept.records, kept.position, kept.problem) == (len(seen), len(batch) - HEADER_SIZE, 0)
    assert kept.kept == len(staying)
    assert kept.tombstones == sum(record.value is None for record in staying)
    assert kept.keyless == sum(r.key is None and r.offset < case.bound for r in seen)
    assert kept.largest == max((record.timestamp for record in staying), default=-1)
    base_timestamp = wrapped(header.base_timestamp - case.shift)
    copied = bytearray(HEADER_SIZE) + room[7:]
    changed = header._replace(
        batch_length=len(copied) - LENGTH_END,
        base_timestamp=base_timestamp,
        record_count=kept.kept,
    )
    HEADER.pack_into(copied, 0, *changed)
    found = [r._replace(timestamp=wrapped(r.timestamp)) for r in read_records(copied)]
    assert found == staying


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
@settings(deadline=None)
@given(records=KEYED, start=st.integers(0, 20), memory=st.sampled_from([48, 72, 120, 2_400]))
def test_the_map_has_the_last_offset_of_each_key(
    module: ModuleType, records: list[Record], start: int, memory: int
) -> None:
    key_map = module.KeyMap(memory, SECRET)
    numbers = len(records) - 1, 0, start
    told = Entered._make(module.enter(body_of(records), START, 100, PLENTY, numbers, key_map))
    expected: dict[bytes, int] = {}
    for offset, record in enumerate(records):
        if record.key is None or offset < start:
            continue
        if record.key not in expected and len(expected) == key_map.limit:
            assert (told.is_full, told.records) == (1, offset)
            break
        expected[record.key] = offset
    else:
        assert (told.is_full, told.records) == (0, len(records))
    assert len(key_map) == len(expected)
    assert {key: key_map.get(key) for key in expected} == expected


@pytest.mark.parametrize("module", MODULES)
def test_keys_that_differ_in_one_byte_are_two(module: ModuleType) -> None:
    keys = [bytes(size) for size in range(70)]
    keys += [
        bytes(at) + bytes([value]) + bytes(size - at - 1)
        for size in (1, 7, 8, 9, 40)
        for at in range(size)
        for value in (1, 0x80)
    ]
    key_map = module.KeyMap(24 * 1_000, SECRET)
    for offset, key in enumerate(keys):
        assert key_map.put(key, offset)
    assert len(key_map) == len(keys)
    assert [key_map.get(key) for key in keys] == [*range(len(keys))]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("memory", [48, 72, 24 * 10, 24 * 101])
def test_a_full_map_says_so_and_forgets_nothing(module: ModuleType, memory: int) -> None:
    key_map = module.KeyMap(memory, os.urandom(16))
    assert key_map.limit == memory // 24 * 9 // 10
    keys = [number.to_bytes(8, "big") for number in range(key_map.limit)]
    for offset, key in enumerate(keys):
        assert key_map.put(key, offset)
    for number in range(50):
        assert not key_map.put(b"new %d" % number, 7)
        assert key_map.get(b"new %d" % number) == -1
    for offset, key in enumerate(keys):
        assert key_map.get(key) == offset
        assert key_map.put(key, offset + 1_000), "it has its place already"
    assert [key_map.get(key) for key in keys] == [*range(1_000, 1_000 + key_map.limit)]
    assert len(key_map) == key_map.limit
    body = body_of([Record(keys[0], b"v"), Record(b"another", b"v"), Record(keys[0], b"v")])
    entered = Entered._make(module.enter(body, START, 9, PLENTY, (2, 5_000, 0), key_map))
    assert (entered.records, entered.is_full, entered.previous) == (1, 1, 0)
    assert key_map.get(keys[0]) == 5_000


@no_compiler
def test_the_hash_is_siphash() -> None:
    """The first values of the list that its authors published, for 128 bits."""
    assert compiled is not None
    published = [
        "a3817f04ba25a8e66df67214c7550293",
        "da87c1d86b99af44347659119b22fc45",
        "8177228da4a45dc7fca38bdef60affe4",
        "9c70b60c5267a94e5f33b6b02985ed51",
    ]
    for size, expected in enumerate(published):
        low, high = compiled.hash_key(SECRET, bytes(range(size)))
        assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == expected
    with pytest.raises(ValueError, match="secret"):
        compiled.hash_key(b"short", b"")


@pytest.mark.parametrize("module", MODULES)
def test_one_record_may_take_several_goes(module: ModuleType) -> None:
    """A go ends in the middle of a record's headers, and the next one goes on from there."""
    count, steps = 100, 30
    record = Record(b"k" * 640, b"v", 5, tuple(("h", b"x") for _ in range(count)))
    body = body_of([record, record])
    key_map, room = module.KeyMap(2_400, SECRET), bytearray(len(body))
    entered, kept, goes = NOT_ENTERED, nothing_kept(0), 0
    while entered.records < 2:
        place = entered.position, entered.records, entered.inside, entered.headers, entered.previous
        entered = Entered._make(module.enter(body, place, 9, steps, (1, 0, 0), key_map))
        kept = Kept._make(
            module.keep(body, place, 9, steps, (1, 0, 0, 9, 0, 0), key_map, room, kept.filled)
        )
        assert entered[:3] == kept[:3]
        assert 0 < entered.steps < steps + STEPS_OF_RECORD + 10
        goes += 1
        assert goes < len(body), "it does not come on"
    assert goes > 5
    assert bytes(room) == body[kept.filled - len(room) :], "the first may go, or not"
    assert key_map.get(b"k" * 640) == 1


WRONG = [
    *WRONG_FOR_BOTH,
    (SOUND + SOUND, 1, UNORDERED),  # both have the offset delta 0
    (SOUND[:3] + b"\x01" + SOUND[4:], 0, UNORDERED),  # -1
    (SOUND[:3] + b"\x14" + SOUND[4:], 0, UNORDERED),  # 10, and the batch has 9 at most
]


@pytest.mark.parametrize("module", MODULES)
def test_each_thing_that_can_be_wrong(module: ModuleType) -> None:
    numbers = 9, 0, 5, 0, 0, 0
    key_map = module.KeyMap(2_400, SECRET)
    for body, records, problem in WRONG:
        entered: Any = module.enter(body, START, 9, PLENTY, (9, 0, 0), None)
        assert (entered[0], entered[2]) == (records, problem), body
        assert entered[1] == len(SOUND) * records  # where the spoilt one begins
        kept: Any = module.keep(body, START, 9, PLENTY, numbers, key_map, bytearray(99), 0)
        assert (kept[0], kept[2], kept[7]) == (records, problem, records)
    assert {problem for *_, problem in WRONG} == set(range(1, len(PROBLEMS)))


@pytest.mark.parametrize("module", MODULES)
def test_a_mistake_of_ours_is_told(module: ModuleType) -> None:
    size, key_map = len(SOUND), module.KeyMap(2_400, SECRET)
    numbers = 9, 0, 5, 9, 0, 0
    outside = [(-1, 0, 0, 0, -1), (size + 1, 0, 0, 0, -1), (0, 0, -1, 0, -1)]
    outside += [(0, 0, size + 1, 0, -1), (0, 0, 3, -1, -1), (0, 0, 0, 0, -2)]
    for place in outside:
        with pytest.raises(ValueError, match="outside"):
            module.enter(SOUND, place, 9, 9, (9, 0, 0), None)
        with pytest.raises(ValueError, match="outside"):
            module.keep(SOUND, place, 9, 9, numbers, key_map, bytearray(99), 0)
    for offset in (-1, OFFSET_MAX + 1):
        with pytest.raises(ValueError, match="outside"):
            key_map.put(b"", offset)
        with pytest.raises(ValueError, match="outside"):
            module.enter(SOUND, START, 9, 9, (9, offset, 0), None)
    for room, filled in (
        (bytearray(8), 0),
        (bytearray(18), 10),
        (bytearray(9), -1),
        (bytearray(9), 10),
    ):
        with pytest.raises(ValueError, match="room"):
            module.keep(SOUND, START, 9, 99, numbers, key_map, room, filled)
        with pytest.raises(ValueError, match="room"):
            module.keep(SOUND, START, 9, 99, (9, 0, 5, 0, 0, 7), key_map, room, filled)
    for memory, secret in ((47, SECRET), (-1, SECRET), (480, SECRET[1:])):
        with pytest.raises(ValueError, match="map of keys"):
            module.KeyMap(memory, secret)
    with pytest.raises((TypeError, ValueError)):
        module.enter(SOUND, (0, 0), 9, 9, (9, 0, 0), None)
    with pytest.raises((TypeError, ValueError)):
        module.keep(SOUND, START, 9, 9, (9, 0), key_map, bytearray(9), 0)
    with pytest.raises((TypeError, AttributeError)):
        module.enter(SOUND, START, 9, 9, (9, 0, 0), object())
    with pytest.raises((TypeError, BufferError)):
        module.keep(SOUND, START, 9, 9, numbers, key_map, bytes(99), 0)


@no_compiler
@pytest.mark.slow
def test_others_run_while_a_large_body_is_walked_and_may_not_have_its_map() -> None:
    """A thread waits for the map to be in use; that it sees it means that it ran meanwhile."""
    assert compiled is not None
    body = body_of([Record(b"%d" % n, b"v" * 40) for n in range(200_000)])
    key_map = compiled.KeyMap(24 << 20, SECRET)
    refusals: list[str] = []
    is_done = threading.Event()

    def ask() -> None:
        while not is_done.is_set() and not refusals:
            try:
                key_map.get(b"1")
            except RuntimeError as error:
                refusals.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(200):
            compiled.enter(body, START, 1 << 30, PLENTY, (1 << 30, 0, 0), key_map)
            if refusals:
                break
    except RuntimeError:  # the thread had it just then
        refusals.append("the other way round")
    finally:
        is_done.set()
        thread.join()
    assert refusals
    assert key_map.get(b"199999") == 199_999
