"""Bugs in what is answered as by Apache Kafka, and in what its settings promise.

Owns the list for the tests that each names: topics by their ids, which producers are remembered,
what has settings, when a log is forced to disk.
"""

from __future__ import annotations

from mutation import Mutation, one

PRODUCE = "node/api/produce.py"
PRODUCERS = "node/api/describe_producers.py"
RESOURCES = "node/api/list_config_resources.py"
LOG = "log/log.py"
FLUSHER = "log/flusher.py"
TURNS = "runtime/timed_turns.py"
TEST_COORDINATOR = "tests/coordinator/test_coordinator.py"
TEST_BY_ID = "tests/node/test_produce_by_id.py"
TEST_PRODUCERS = "tests/node/test_describe_producers.py"
TEST_TURNS = "tests/runtime/test_timed_turns.py"
TEST_FLUSH = "tests/log/test_log_flush.py"
TEST_RESOURCES = "tests/node/test_list_config_resources.py"

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
    # -- which producers are remembered ----------------------------------------------------------
    one(
        "a leader alone tells which producers it remembers",
        "KIP-664: of each replica",
        PRODUCERS,
        "    found = broker.partitions.find(topic, index)\n",
        "    found = broker.partitions.find(topic, index)\n"
        "    if isinstance(found, Partition) and found.leading is None:\n"
        "        return ErrorCode.NOT_LEADER_OR_FOLLOWER\n",
        tests=(f"{TEST_PRODUCERS}::test_every_replica_tells_what_it_remembers",),
    ),
    one(
        "each partition may have as many producers as an answer",
        "a small request for a large answer",
        PRODUCERS,
        "            left -= len(answer.active_producers)\n",
        "",
        tests=(f"{TEST_PRODUCERS}::test_an_answer_has_so_many_producers_and_is_made_in_slices",),
    ),
    one(
        "a partition's producers are told as often as it is named",
        "what is named twice",
        PRODUCERS,
        "            answered.add((topic.name, index))\n",
        "",
        tests=(f"{TEST_PRODUCERS}::test_what_is_named_twice_is_answered_once",),
    ),
    one(
        "all of a partition's producers are told in one go",
        "what holds the loop",
        PRODUCERS,
        "        effort.spent += _PRODUCER_EFFORT\n",
        "",
        tests=(f"{TEST_PRODUCERS}::test_an_answer_has_so_many_producers_and_is_made_in_slices",),
    ),
    # -- what has a configuration ----------------------------------------------------------------
    one(
        "who asks in the first version is told of all that has settings",
        "KIP-1142: metrics of clients alone",
        RESOURCES,
        "    if context.version == 0:\n",
        "    if context.version == 9:\n",
        tests=(f"{TEST_RESOURCES}::test_what_is_there",),
    ),
    one(
        "a kind that nobody knows is passed over",
        "UNSUPPORTED_VERSION",
        RESOURCES,
        "    if not kinds <= NAMES.keys():\n",
        "    if not kinds & NAMES.keys():\n",
        tests=(f"{TEST_RESOURCES}::test_a_kind_that_nobody_knows_is_none_of_this_version",),
    ),
    # -- when a log is forced to disk ------------------------------------------------------------
    one(
        "a follower's records are never forced to disk",
        "flush.messages",
        LOG,
        "        self.end = last + 1\n"
        "        if self.settings.flush_messages < LONG_MAX"
        " or self.settings.flush_ms < LONG_MAX:\n",
        "        self.end = last + 1\n        if self.settings.flush_messages < 1:\n",
        tests=(f"{TEST_FLUSH}::test_so_many_records_are_forced_to_disk",),
    ),
    one(
        "what was cut while a job ran counts as on its way to the disk",
        "flush.messages, a truncation",
        FLUSHER,
        "max(self.recovery_point, min(self._running.up_to, self._limit))",
        "max(self.recovery_point, self._running.up_to)",
        tests=(f"{TEST_FLUSH}::test_a_cut_takes_back_what_was_on_its_way_to_the_disk",),
    ),
    one(
        "what comes while a job runs waits for the next append",
        "flush.messages, a slow disk",
        FLUSHER,
        "        if self._wanted or self._all_wanted or self._waiting:\n",
        "        if self._wanted or self._waiting:\n",
        tests=(f"{TEST_FLUSH}::test_one_job_at_a_time_however_many_appends_there_are",),
    ),
    one(
        "each append begins its flush itself",
        "flush.messages: a follower's fetch of thousands of partitions",
        LOG,
        "            self.home.due_flushes.now(self)\n",
        "            self._flusher.everything()\n",
        tests=(f"{TEST_FLUSH}::test_one_job_at_a_time_however_many_appends_there_are",),
    ),
    one(
        "a flush for which there was no room is not tried again",
        "flush.ms, a full worker",
        LOG,
        "            self.home.due_flushes.add(self, _FLUSH_AGAIN_MS)\n",
        "            pass\n",
        tests=(f"{TEST_FLUSH}::test_what_a_full_worker_refuses_is_flushed_later",),
    ),
    one(
        "a shorter time waits for the longer one that was said before",
        "flush.ms, changed",
        LOG,
        "        self.settings = settings\n        self.home.due_flushes.forget(self)\n",
        "        self.settings = settings\n",
        tests=(f"{TEST_FLUSH}::test_settings_count_from_when_they_are_heard_of",),
    ),
    one(
        "a deleted replica is kept until it would be flushed",
        "flush.ms: a year, and topics that come and go",
        LOG,
        "        self.home.due_flushes.forget(self)\n        self._flusher.abandon()\n",
        "        self._flusher.abandon()\n",
        tests=(f"{TEST_FLUSH}::test_nothing_is_left_of_who_is_gone",),
    ),
    one(
        "all that are due together are flushed in one turn",
        "flush.ms: thousands of replicas",
        TURNS,
        "[*islice(self._due, self._in_a_turn)]",
        "[*islice(self._due, 10 * self._in_a_turn)]",
        tests=(f"{TEST_TURNS}::test_those_that_are_due_together_go_a_few_in_each_turn",),
    ),
    # -- what may be done ------------------------------------------------------------------------
    one(
        "nobody may describe the settings of a group",
        "KIP-430, of groups",
        "node/door/request_context.py",
        "DELETE,\n        Operation.DESCRIBE,\n        Operation.DESCRIBE_CONFIGS,\n",
        "DELETE,\n        Operation.DESCRIBE,\n",
        tests=(f"{TEST_COORDINATOR}::test_who_asks_is_told_what_may_be_done_to_a_group",),
    ),
)
