"""Records: appended, fetched, looked up, deleted; producers' ids and sequences."""

from __future__ import annotations

from typing import Any, Final

from compare.asking import BASE_MS, NAMED_BY_ID_SINCE, Side, made_batch
from holdfast.wire.batch import Codec
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.messages.produce import ProduceRequest

ONE: Final = ((b"k", b"v"),)
NOBODY: Final = 1 << 40  # an id that no producer was given
_PRODUCE_SINCE: Final = 3
_ATTRIBUTES_AT: Final = 21
_CRC_FROM: Final = 21


def steps(side: Side) -> None:
    """Put them."""
    _appended(side)
    _refused(side)
    _sequences(side)
    _remembered(side)
    _fetched(side)
    _sessions(side)
    _looked_up(side)
    _epochs(side)
    _removed(side)


def _appended(side: Side) -> None:
    side.create("appended", 2)
    side.ask_in_each(
        "append",
        lambda version: side.produce_request(
            "appended", made_batch(*ONE), version=max(version, _PRODUCE_SINCE)
        ),
        since=_PRODUCE_SINCE,
    )
    for codec in Codec:
        batch = made_batch((None, b"x" * 500), (b"", b""), (b"k", None), codec=codec)
        side.ask(f"append {codec.name.lower()}", side.produce_request("appended", batch))
    for acks in (-2, 2, 1, -1):
        request = side.produce_request("appended", made_batch(*ONE), acks=acks)
        side.ask(f"append with acks={acks}", request)
    side.create("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    side.ask("append to LogAppendTime", side.produce_request("stamped", made_batch(*ONE)))
    side.create("compacted", configs={"cleanup.policy": "compact"})
    side.ask("append with a key to compact", side.produce_request("compacted", made_batch(*ONE)))
    keyless = made_batch((b"k", b"v"), (None, b"v"))
    side.ask("append without a key to compact", side.produce_request("compacted", keyless))
    side.create("small", configs={"max.message.bytes": "200"})
    large = made_batch((b"k", b"v" * 300))
    side.ask("append what is too large", side.produce_request("small", large))
    side.create("strict", configs={"min.insync.replicas": "2"})
    for acks in (1, -1):
        request = side.produce_request("strict", made_batch(*ONE), acks=acks)
        side.ask(f"append with too few in sync, acks={acks}", request)
    side.create(
        "dated",
        configs={"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1"},
    )
    side.ask("append what is too old", side.produce_request("dated", made_batch(*ONE)))


def _refused(side: Side) -> None:
    side.create("refused")

    def put(
        step: str, batch: bytes | bytearray | None, topic: str = "refused", **where: Any
    ) -> None:
        side.ask(step, side.produce_request(topic, batch, **where))

    put("append to an unknown topic", made_batch(*ONE), "absent")
    put("append to an unknown partition", made_batch(*ONE), partition=9)
    put("append to a negative partition", made_batch(*ONE), partition=-1)
    put("append nothing", None)
    put("append no bytes", b"")
    put("append half a header", made_batch(*ONE)[:30])
    put("append half a batch", made_batch(*ONE)[:-3])
    put("append two batches", made_batch(*ONE) + made_batch(*ONE))
    crc = made_batch(*ONE)
    crc[-1] ^= 1
    put("append with a wrong CRC", crc)
    magic = made_batch(*ONE)
    magic[16] = 1
    put("append with an old magic", magic)
    magic[16] = 9
    put("append with an unknown magic", magic)
    put("append a control batch", made_batch(*ONE, control=True))
    transactional = made_batch(
        *ONE, transactional=True, producer_id=NOBODY, producer_epoch=0, base_sequence=0
    )
    put("append in a transaction that is none", transactional)
    put("append a transactional batch without a producer", made_batch(*ONE, transactional=True))
    put("append with a base offset", made_batch(*ONE, base_offset=77))
    put("append with an epoch", made_batch(*ONE, leader_epoch=5))
    side.ask("append nothing to no topic", ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[]))
    named = side.produce_request("refused", made_batch(*ONE))
    named.transactional_id = "t"
    side.ask("append under a transactional id", named)
    topic_id = side.driver.topic_id("refused")
    for step, named_id, partition, acks in (
        ("to an unknown id", b"x" * 16, 0, -1),
        ("to an unknown id, acks=2", b"x" * 16, 0, 2),
        ("without an id", bytes(16), 0, -1),
        ("by id, acks=2", topic_id, 0, 2),
        ("by id to an unknown partition", topic_id, 9, -1),
    ):
        by_id = side.produce_request(
            "refused", made_batch(*ONE), partition=partition, acks=acks, version=NAMED_BY_ID_SINCE
        )
        by_id.topic_data[0].topic_id = named_id
        side.ask(f"append {step}", by_id, version=NAMED_BY_ID_SINCE)


def _sequences(side: Side) -> None:
    side.create("sequenced")
    side.ask_in_each("init a producer", InitProducerIdRequest(transactional_id=None))
    for producer, epoch in ((-1, 5), (5, -1), (NOBODY, 3)):
        request = InitProducerIdRequest(
            transactional_id=None, producer_id=producer, producer_epoch=epoch
        )
        side.ask(f"init with producer {producer} epoch {epoch}", request)
    side.ask("init without words", InitProducerIdRequest(transactional_id=""))
    given = side.ask("init to append", InitProducerIdRequest(transactional_id=None))
    for step, epoch, sequence, count in (
        ("first", 0, 0, 2),
        ("again", 0, 0, 2),
        ("again with fewer", 0, 0, 1),
        ("next", 0, 2, 1),
        ("after a gap", 0, 9, 1),
        ("older than five", 0, 1, 1),
        ("a newer epoch that begins late", 1, 4, 1),
        ("a newer epoch", 1, 0, 1),
        ("an old epoch", 0, 3, 1),
        ("without a sequence", 1, -1, 1),
        ("without an epoch", -1, 0, 1),
    ):
        batch = made_batch(
            *ONE * count,
            producer_id=given.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        side.ask(f"sequence: {step}", side.produce_request("sequenced", batch))
    stranger = made_batch(*ONE, producer_id=NOBODY, producer_epoch=0, base_sequence=5)
    side.ask("sequence: a stranger's fifth", side.produce_request("sequenced", stranger))
    for step, epoch, sequence in (
        ("without an epoch", -1, 0),
        ("below every epoch", -5, 0),
        ("without either", -1, -1),
    ):
        stranger = made_batch(
            *ONE, producer_id=NOBODY + 1, producer_epoch=epoch, base_sequence=sequence
        )
        side.ask(f"sequence: a stranger {step}", side.produce_request("sequenced", stranger))


def _remembered(side: Side) -> None:
    side.create("remembering", 2)
    given = side.ask("init to be remembered", InitProducerIdRequest(transactional_id=None))
    side.produce(
        "remembering",
        *ONE * 3,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
    )

    def ask(step: str, *topics: tuple[str, tuple[int, ...]]) -> None:
        asked = [
            DescribeProducersTopicRequest(name=name, partition_indexes=list(indexes))
            for name, indexes in topics
        ]
        side.ask(f"producers {step}", DescribeProducersRequest(topics=asked))

    ask("of a topic", ("remembering", (0, 1)))
    ask("of no partition", ("remembering", ()))
    ask("of nothing")
    ask("of unknown partitions", ("remembering", (9, -1)))
    ask("of an unknown topic", ("absent", (0, 1)))
    ask("of a bad name", ("a b", (0,)), ("", (0,)), ("y" * 250, (0,)))
    ask("of a partition twice", ("remembering", (1, 1)))
    ask("of a topic twice", ("remembering", (0,)), ("remembering", (0,)))


def fetch(topic: str, topic_id: bytes, version: int, offset: int = 0, **more: Any) -> FetchRequest:
    """Return a fetch of one partition, as its version names it."""
    partition = FetchPartition(
        partition=more.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=more.pop("current_leader_epoch", -1),
        last_fetched_epoch=more.pop("last_fetched_epoch", -1),
    )
    by_id = version >= 13
    named = FetchTopic(topic="" if by_id else topic, topic_id=topic_id, partitions=[partition])
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[named], **more)


def _fetched(side: Side) -> None:
    topic_id = side.create("fetched")
    for number in range(3):
        batch = made_batch((b"a", b"x" * 100), (b"b", b"y" * number))
        side.ask(f"append to fetch {number}", side.produce_request("fetched", batch))

    def ask(step: str, version: int = 17, **more: Any) -> None:
        side.ask(step, fetch("fetched", topic_id, version, **more), version=version)

    side.ask_in_each("fetch", lambda version: fetch("fetched", topic_id, version))
    for offset in (1, 5, 6, 7, -1, 1 << 40):
        ask(f"fetch from {offset}", offset=offset)
    ask("fetch one byte", partition_max_bytes=1)
    ask("fetch no bytes", partition_max_bytes=0)
    ask("fetch with a bound of one byte", max_bytes=1)
    ask("fetch with no bound", max_bytes=0)
    ask("fetch committed", isolation_level=1)
    ask("fetch in an unknown isolation", isolation_level=7)
    ask("fetch an unknown partition", partition=9)
    ask("fetch an unknown partition by name", version=12, partition=9)
    ask("fetch under an old epoch", current_leader_epoch=0)
    ask("fetch under a later epoch", current_leader_epoch=9)
    ask("fetch after a later epoch", last_fetched_epoch=9, offset=2)
    ask("fetch after its epoch", last_fetched_epoch=0, offset=2)
    ask("fetch from a rack", rack_id="r")
    side.ask("fetch an unknown id", fetch("", b"x" * 16, 17), version=17)
    side.ask("fetch an unknown name", fetch("absent", bytes(16), 12), version=12)
    side.ask("fetch without an id", fetch("", bytes(16), 17), version=17)
    side.ask(
        "fetch as an unknown replica", fetch("fetched", topic_id, 14, replica_id=77), version=14
    )
    stranger = ReplicaState(replica_id=77, replica_epoch=1)
    ask("fetch as an unknown replica with an epoch", replica_state=stranger)
    ask("fetch as the debugging consumer", version=12, replica_id=-2)
    ask("fetch of another cluster", cluster_id="another")


def _sessions(side: Side) -> None:
    topic_id = side.create("in-session")

    def ask(step: str, session: int, epoch: int, *, empty: bool = False) -> Any:
        request = fetch("in-session", topic_id, 17, session_id=session, session_epoch=epoch)
        if empty:
            request.topics = []
        return side.ask(f"session: {step}", request, version=17)

    begun = ask("begins", 0, 0)
    ask("goes on with nothing new", begun.session_id, 1, empty=True)
    side.produce("in-session", *ONE)
    ask("goes on with something new", begun.session_id, 2, empty=True)
    ask("the wrong epoch", begun.session_id, 9, empty=True)
    ask("one that is not", 12345, 1, empty=True)
    ask("one without an epoch", 12345, 0)
    ask("ends", begun.session_id, -1)
    ask("after its end", begun.session_id, 3, empty=True)
    ask("none", 0, -1)


def _looked_up(side: Side) -> None:
    side.create("looked-up", 2)
    batch = made_batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    side.ask("append to look up", side.produce_request("looked-up", batch))

    def ask(timestamp: int, **more: Any) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            isolation_level=more.pop("isolation_level", 0),
            replica_id=more.pop("replica_id", -1),
            timeout_ms=5000,
            topics=[
                ListOffsetsTopic(
                    name=more.pop("topic", "looked-up"),
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=more.pop("partition", 0), timestamp=timestamp, **more
                        )
                    ],
                )
            ],
        )

    for timestamp in range(-9, 1):
        side.ask_in_each(
            f"look up {timestamp}",
            ask(timestamp),
            since=1 if timestamp in (-1, -2, 0) else 7,
        )
    for delta in (-1, 0, 1, 2, 3):
        side.ask(f"look up {delta} ms behind the first", ask(BASE_MS + delta))
    for timestamp in (-1, -2, -3, -4, -5, -6, BASE_MS):
        side.ask(f"look up {timestamp} where nothing is", ask(timestamp, partition=1))
    side.ask("look up what is committed", ask(-1, isolation_level=1))
    side.ask("look up an unknown partition", ask(-1, partition=9))
    side.ask("look up an unknown topic", ask(-1, topic="absent"))
    side.ask("look up under a later epoch", ask(-1, current_leader_epoch=9))
    side.ask("look up as the debugging consumer", ask(-1, replica_id=-2))
    side.ask("look up as a replica", ask(-1, replica_id=77))
    twice = ask(-1)
    twice.topics[0].partitions *= 2
    side.ask("look up a partition twice", twice)


def _epochs(side: Side) -> None:
    side.create("epochs")
    side.produce("epochs", *ONE)

    def ask(epoch: int, **more: Any) -> OffsetForLeaderEpochRequest:
        partition = OffsetForLeaderPartition(
            partition=more.pop("partition", 0),
            leader_epoch=epoch,
            current_leader_epoch=more.pop("current_leader_epoch", -1),
        )
        topic = OffsetForLeaderTopic(topic=more.pop("topic", "epochs"), partitions=[partition])
        return OffsetForLeaderEpochRequest(topics=[topic], **more)

    side.ask_in_each("end of an epoch", ask(0))
    for epoch in (-1, 1, 9, -7):
        side.ask(f"end of epoch {epoch}", ask(epoch))
    side.ask("end of an epoch of an unknown topic", ask(0, topic="absent"))
    side.ask("end of an epoch of an unknown partition", ask(0, partition=9))
    side.ask("end of an epoch under a later one", ask(0, current_leader_epoch=9))


def _removed(side: Side) -> None:
    side.create("removed", 2)
    side.produce("removed", *ONE * 5)

    def remove(offset: int, topic: str = "removed", partition: int = 0) -> DeleteRecordsRequest:
        one = DeleteRecordsPartition(partition_index=partition, offset=offset)
        named = DeleteRecordsTopic(name=topic, partitions=[one])
        return DeleteRecordsRequest(topics=[named], timeout_ms=5000)

    side.ask_in_each("remove records", remove(2))
    for offset in (1, 0, -2, 6, 1 << 40, 3, -1):
        side.ask(f"remove records before {offset}", remove(offset))
    side.ask("remove from an unknown topic", remove(0, "absent"))
    side.ask("remove from an unknown partition", remove(0, partition=9))
    side.create("kept", configs={"cleanup.policy": "compact"})
    side.ask("remove from a compacted topic", remove(0, "kept"))
