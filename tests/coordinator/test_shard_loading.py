"""A shard is what its log says, read a slice at a time.

Goal: everything that can be read is there after a load, whatever its codec, batch and version;
what is damaged is named and passed over, what a newer broker wrote is passed over in silence; no
slice is long, and a load that nobody wants any more ends. Method: real logs in memory, with records
as coordinators write them and with bytes that nobody should.
Rules: group-records.md#unknown-types, group-records.md#frame.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from random import Random
from typing import Any

import pytest
from tests.coordinator.room_kit import Room, play
from tests.log.log_kit import memory_disk

from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.node.coordinator.shard_loading import (
    GROUPS_A_SLICE,
    NAMED_MAX,
    READ_BYTES,
    RECORDS_A_SLICE,
    Load,
    LoadError,
)
from holdfast.testing.ground.disk import DiskFault
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.records.group_records import (
    KEY_CLASSES,
    VALUE_CLASSES,
    encode_key,
    encode_value,
)
from holdfast.wire.records.group_tables import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from random_messages import make_struct


def offset(group: str, value: int, *, version: int = 4, metadata: str = "") -> Record:
    return Record(
        encode_key(OffsetCommitKey(group=group, topic="t", partition=0)),
        encode_value(OffsetCommitValue(offset=value, metadata=metadata), version),
        0,
    )


def gone(group: str) -> Record:
    return Record(encode_key(OffsetCommitKey(group=group, topic="t", partition=0)), None, 0)


def offsets(room: Room, *groups: str) -> list[int]:
    return [room.offset_of(room.fetch(group)) for group in groups]


def load_again(room: Room) -> None:
    room.led.resign()
    room.led = room.load()


# -- what is there -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_everything_is_there_again(codec: Codec) -> None:
    async def story(room: Room) -> None:
        member = await room.member("classic")
        records = [offset(f"g{number}", number, version=number % 5) for number in range(20)]
        for start in range(0, 20, 7):
            batch = build_batch(records[start : start + 7], codec=codec)
            assert room.leading.append(memoryview(batch), -1).error is ErrorCode.NONE
        room.append(offset("g3", 33), gone("g4"), offset("long", 5, metadata="m" * 1000))
        load_again(room)
        assert offsets(room, "g0", "g3", "g4", "g19", "long") == [0, 33, -1, 19, 5]
        call = room.beat("classic", member, 1)
        assert room.answers[call].error_code == ErrorCode.NONE

    play(story)


def test_the_oldest_layout_of_a_key_is_read() -> None:
    async def story(room: Room) -> None:
        key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
        room.append(Record(encode_key(key), encode_value(LegacyOffsetCommitValue(offset=7)), 0))
        load_again(room)
        assert offsets(room, "g") == [7]

    play(story)


def test_what_lies_below_the_log_s_start_is_not_read() -> None:
    """DeleteRecords counts records: the log may begin in the middle of a batch."""

    async def story(room: Room) -> None:
        room.append(offset("a", 1), offset("b", 2))
        room.append(offset("c", 3))
        room.log.advance_start(1)
        load_again(room)
        assert offsets(room, "b", "c") == [2, 3]

    play(story)


# -- what can't be read --------------------------------------------------------------------------


def test_a_damaged_record_is_named_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def story(room: Room) -> None:
        key = offset("b", 0).key
        room.append(
            offset("a", 1),
            Record(key, b"\0\4\0", 0),  # cut
            Record(key, b"\0\x63" + bytes(30), 0),  # of version 99
            Record(b"\0\1\0\5g", b"", 0),
            Record(None, b"value", 0),
            Record(b"", b"value", 0),
            offset("c", 3),
        )
        load_again(room)
        assert offsets(room, "a", "b", "c") == [1, -1, 3]

    with caplog.at_level(logging.ERROR):
        play(story)
    named = [record.getMessage() for record in caplog.records]
    assert len(named) == 5
    for number, message in enumerate(named, 1):
        assert "__consumer_offsets-0" in message
        assert f"the record at offset {number} is damaged and passed over" in message


def test_an_older_value_stays_where_a_newer_one_is_damaged() -> None:
    async def story(room: Room) -> None:
        room.append(offset("a", 1), Record(offset("a", 0).key, b"\0\4", 0))
        load_again(room)
        assert offsets(room, "a") == [1]

    play(story)


def test_damage_without_an_end_is_named_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    async def story(room: Room) -> None:
        room.append(*[Record(None, b"", 0)] * (10 * NAMED_MAX))
        load_again(room)

    with caplog.at_level(logging.ERROR):
        play(story)
    assert len(caplog.records) == NAMED_MAX


def test_types_that_are_not_known_here_are_passed_over_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(room: Room) -> None:
        room.append(
            Record(b"\0\x11\0\1s", b"\0\0" + bytes(9), 0),  # a streams group
            Record(b"\0\x7f", None, 0),
            offset("a", 1),
        )
        load_again(room)
        assert offsets(room, "a") == [1]

    with caplog.at_level(logging.INFO):
        play(story)
    assert not caplog.records


def test_a_batch_with_other_bytes_than_were_written_is_passed_over_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A wrong offset is worse than none: a group would skip records, or read them again."""

    async def story(room: Room) -> None:
        room.append(offset("a", 1))
        spoilt = build_batch([offset("b", 2), offset("c", 3)])
        spoilt[-20] ^= 1
        assert room.leading.append(memoryview(spoilt), -1).error is ErrorCode.NONE
        room.append(offset("d", 4))
        load_again(room)
        assert offsets(room, *"abcd") == [1, -1, -1, 4]

    with caplog.at_level(logging.ERROR):
        play(story)
    (named,) = [record.getMessage() for record in caplog.records]
    assert "what is at offset 1 and behind it is damaged" in named


def test_records_that_no_coordinator_writes_stop_no_load() -> None:
    """They are read well, and make no sense: a group is what is left."""

    async def story(room: Room) -> None:
        def member(member_id: str, instance: str | None = None) -> GroupMetadataMember:
            return GroupMetadataMember(
                member_id=member_id,
                group_instance_id=instance,
                client_id="c",
                client_host="/h",
                session_timeout=-5,
                subscription=b"\xff",
                assignment=b"",
            )

        def group(**more: Any) -> Record:
            named = {"protocol_type": "consumer", "protocol": "range", "leader": None}
            value = GroupMetadataValue(**{**named, **more})
            return Record(encode_key(GroupMetadataKey(group="g")), encode_value(value), 0)

        room.append(
            group(members=[member("a"), member("a")]),
            group(members=[member("a", "i"), member("b", "i")]),
            group(members=[member("a")], leader="nobody", generation=-7),
            group(members=[member("a")], protocol=None, leader="a"),
            group(members=[], protocol="range", leader="a"),
            group(members=[member("")], leader=""),
            offset("a", -(2**63)),
            Record(
                encode_key(OffsetCommitKey(group="", topic="", partition=-1)),
                encode_value(OffsetCommitValue(offset=1, commit_timestamp=-(2**63))),
                0,
            ),
        )
        load_again(room)
        found = room.led.shard._groups.get("g")
        assert isinstance(found, ClassicGroup)
        commit = room.commit("h", 1)
        await room.turns()
        assert room.code_of(commit) is ErrorCode.NONE

    play(story)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_records_in_any_order_with_anything_in_them_stop_no_load(seed: int) -> None:
    """Method: every type, with fields drawn at random over few names, and time that passes."""
    draw = Random(seed)

    async def story(room: Room) -> None:
        for _ in range(60):
            room.append(*[_drawn(draw) for _ in range(50)])
        load_again(room)
        await _use(room)
        await asyncio.sleep(4_000)  # sessions, expiry
        await _use(room)
        assert not room.broken
        load_again(room)

    play(story)


async def _use(room: Room) -> None:
    """Ask for all that a group is asked for; what is answered is nobody's matter."""
    for group in _FEW:
        room.fetch(group)
        room.beat(group, "g", 1)
        room.join(group)
        room.join(group, "h")
        room.join(group, group_instance_id="topic-1")
        room.ask(lambda shard, caller, now_ms: shard.describe_group(caller, "g", now_ms))
        room.ask(lambda shard, caller, now_ms: shard.describe_consumer_group(caller, "g", now_ms))
        room.ask(lambda shard, caller, now_ms: shard.list_groups(caller, [], [], now_ms))
        room.leave(group, "g")
    commit = room.commit("apart", 1)
    await room.turns()
    assert room.code_of(commit) is ErrorCode.NONE


_PAIRS = [(KEY_CLASSES[kind], VALUE_CLASSES[kind]) for kind in KEY_CLASSES]
_FEW = ("g", "h", "")


def _drawn(draw: Random) -> Record:
    key_class, value_class = draw.choice(_PAIRS)
    key = make_struct(draw, key_class, 0)
    for name in ("group", "group_id", "member_id"):
        if hasattr(key, name):
            setattr(key, name, draw.choice(_FEW))
    if draw.random() < 0.2:
        return Record(encode_key(key), None, 0)
    version = draw.randint(value_class.MIN_VERSION, value_class.MAX_VERSION)
    value = make_struct(draw, value_class, version)
    return Record(encode_key(key), encode_value(value, version), 0)


# -- slices, and loads that nobody wants ---------------------------------------------------------


def test_a_load_leaves_the_loop_to_others() -> None:
    async def story(room: Room) -> None:
        for start in range(0, 5000, 500):
            room.append(*[offset(f"g{start + number}", number) for number in range(500)])
        led = room.unloaded()
        load = Load(room.log, room.log.end, led.shard, lambda: led.is_current)
        slices = sum(1 for _ in load.steps(led.time))
        least = 5000 // RECORDS_A_SLICE + 5000 // GROUPS_A_SLICE
        assert least <= slices <= 2 * least
        assert load.records == 5000

    play(story)


def test_a_load_that_nobody_wants_any_more_ends() -> None:
    async def story(room: Room) -> None:
        for start in range(0, 5000, 500):
            room.append(*[offset(f"g{start + number}", number) for number in range(500)])
        led = room.unloaded()
        load = Load(room.log, room.log.end, led.shard, lambda: led.is_current)
        steps = load.steps(led.time)
        next(steps)
        seen = load.records
        room.elect()
        assert len(list(steps)) <= 1
        assert load.records == seen

    play(story)


def test_a_log_of_many_segments_and_large_batches_is_read_to_its_end() -> None:
    async def story(room: Room) -> None:
        large = "m" * 30_000
        for number in range(40):
            room.append(
                *[offset(f"g{number}-{each}", number, metadata=large) for each in range(20)]
            )
        assert room.log.end == 800
        load_again(room)
        assert offsets(room, "g0-0", "g39-19") == [0, 39]
        assert 20 * len(large) > READ_BYTES

    play(story)


def test_a_disk_that_can_not_be_read_is_told_by_the_load() -> None:
    async def story(room: Room) -> None:
        room.append(offset("a", 1))
        led = room.unloaded()
        load = Load(room.log, room.log.end, led.shard, lambda: True)
        memory_disk(room.runtime).inject(DiskFault(operations=["read"], code=errno.EIO))
        with pytest.raises(LoadError):
            list(load.steps(led.time))

    play(story)
