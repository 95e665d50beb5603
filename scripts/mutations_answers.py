"""Bugs in what is answered as by Apache Kafka, and in what its settings promise.

Owns the list for the tests that each names: topics by their ids, which producers are remembered,
what has settings, when a log is forced to disk.
"""

from __future__ import annotations

from mutation import Mutation, one

PRODUCE = "node/api/produce.py"
TEST_BY_ID = "tests/node/test_produce_by_id.py"

ANSWERS: tuple[Mutation, ...] = (
    # -- topics by their ids ---------------------------------------------------------------------
    one(
        "an id of nothing is refused for the acks that come with it",
        "UNKNOWN_TOPIC_ID, KIP-516",
        PRODUCE,
        "    if not name and context.version >= FIRST_VERSION_WITH_IDS:\n",
        "    if not name and request.acks in {-1, 0, 1}:\n",
        tests=(f"{TEST_BY_ID}::test_an_id_that_stands_for_nothing_is_unknown_whatever_the_acks",),
    ),
    one(
        "who comes to the wrong broker by an id is not told the right one",
        "KIP-951",
        PRODUCE,
        "name=name, topic_id=topic.topic_id, partition_responses=answers",
        "name=topic.name, topic_id=topic.topic_id, partition_responses=answers",
        tests=(f"{TEST_BY_ID}::test_who_comes_to_another_broker_is_told_the_leader",),
    ),
    one(
        "a topic's id is taken for its name where a large request is looked through",
        "so many parts of a produce request",
        "node/door/request_bounds.py",
        "            walk.offset += 16\n",
        "            walk.skip(2)\n",
        tests=("tests/node/test_bounds.py::test_a_produce_request_has_so_many_parts",),
    ),
)
