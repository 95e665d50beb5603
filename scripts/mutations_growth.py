"""Bugs that show only where there is much: work that grows with what exists, not with what changed.

Owns the list. Nothing is decided otherwise than it should be, and the answers are the same. Plans
with hundreds of partitions, in which calls take time, have to find them: by a broker that nothing
was done to and that lost its session, or by what does not become well in time. What no plan has
(the collector, Metadata of everything, what a request leaves in memory) the tests named here find.
"""

from __future__ import annotations

from mutation import Edit, Mutation, one

GARBAGE = "runtime/garbage.py"
ANSWER = "node/api/metadata_answer.py"
PIECES = "node/broker/topic_pieces.py"

TEST_GARBAGE = "tests/runtime/test_garbage.py"
TEST_PIECES = "tests/node/test_metadata_pieces.py"
TEST_LOST = "tests/node/test_lost_connections.py"

GROWTH: tuple[Mutation, ...] = (
    Mutation(
        "a parked fetch looks at all it asks for, for each partition that is touched",
        "KIP-227",
        (
            Edit(
                "node/api/fetch.py",
                "        self._fresh[asked] = None\n        assert asked.watched",
                "        self._fresh[asked] = None\n"
                "        self._look(dict.fromkeys(self._session._asked.values()))\n"
                "        assert asked.watched",
            ),
        ),
        scale="wide",
    ),
    Mutation(
        "all replicas are told of brokers at once, and each counts all",
        "rules: brokers.md#fencing",
        (
            Edit(
                "node/broker/replicas.py",
                "SLICE_TOLD = 200  #",
                "SLICE_TOLD = 20_000  #",
            ),
            Edit(
                "node/broker/replicas.py",
                "                partition.leading.brokers_changed(brokers)\n",
                "                partition.leading.brokers_changed(brokers)\n"
                "                assert sum(each is partition for each in self) == 1\n",
            ),
        ),
        scale="wide",
    ),
    one(
        "what was set aside and has died since stays for ever",
        "gc.freeze",
        GARBAGE,
        "            self.set_everything_aside()\n\n    def _collected",
        "            pass\n\n    def _collected",
        tests=(f"{TEST_GARBAGE}::test_what_dies_behind_it_is_collected_once_enough_has_come",),
    ),
    one(
        "what came and died by itself is a reason to look at everything",
        "gc.freeze",
        GARBAGE,
        "            self._came = gc.get_freeze_count() - self._stayed\n",
        "            pass\n",
        tests=(
            f"{TEST_GARBAGE}::test_what_came_and_died_by_itself_is_no_reason_to_look_at_everything",
        ),
    ),
    one(
        "a collection looks at all that has come since the start",
        "gc.freeze",
        GARBAGE,
        "        self._came += len(gc.get_objects(generation=_OLD))\n        gc.freeze()\n",
        "        self._came += len(gc.get_objects(generation=_OLD))\n",
        tests=(f"{TEST_GARBAGE}::test_what_has_outlived_a_look_is_not_looked_at_again",),
    ),
    one(
        "a wait that is over keeps who has waited",
        "a circle that the collector has set aside",
        "node/door/waiting_room.py",
        "        del self.wait\n",
        "",
        tests=(f"{TEST_LOST}::test_who_was_answered_is_not_remembered",),
    ),
    one(
        "a promise that was lost keeps who would have put it away",
        "a circle that the collector has set aside",
        "node/door/request_context.py",
        "        put_away, self._put_away = self._put_away, _nothing\n        return put_away\n",
        "        return self._put_away\n",
        tests=(f"{TEST_LOST}::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "an acks=all that is over keeps its connection until its partition is swept",
        "what a client leaves behind",
        "node/api/produce.py",
        "            del self._deferred  # a partition that stands still lets go of this a while"
        " later\n",
        "",
        tests=(f"{TEST_LOST}::test_who_was_answered_is_not_remembered",),
    ),
    one(
        "pieces are made of what a snapshot has replaced",
        "Metadata that is stale for good",
        ANSWER,
        "                if self._find(topic.topic_id) is not topic:\n                    break\n",
        "",
        tests=(
            f"{TEST_PIECES}::test_a_snapshot_that_is_loaded_meanwhile_leaves_nothing_old",
            f"{TEST_PIECES}::test_who_is_deleted_meanwhile_is_unknown",
        ),
    ),
    one(
        "many versions at once take each other's pieces away",
        "all of Metadata in one go",
        PIECES,
        "        found = self._used.get(key)\n",
        "        found = self._views.get(key)\n",
        tests=(f"{TEST_PIECES}::test_no_answer_is_made_anew_in_one_go",),
    ),
    one(
        "all of Metadata is made in one turn",
        "10,000 topics for 200 clients",
        "node/api/metadata.py",
        "                yield REST\n                made, at_once = 0, False\n",
        "                made = 0\n",
        tests=(f"{TEST_PIECES}::test_many_who_ask_at_once_are_answered_one_by_one",),
    ),
    one(
        "pieces of Metadata rest like what a stranger asks",
        "Metadata of all two seconds after a start of ten thousand partitions",
        "runtime/sliced_work.py",
        "            self._free_from = ended + pause * self._rests\n",
        "            self._free_from = ended + pause\n",
        tests=("tests/runtime/test_sliced_work.py::test_work_that_is_for_all_does_not_rest",),
    ),
    one(
        "all logs of a deleted topic go in one turn",
        "ten thousand partitions are deleted",
        "node/broker/replicas.py",
        "        for name in list(islice(self._gone, SLICE)):\n",
        "        for name in list(self._gone):\n",
        tests=("tests/node/test_take_up.py::test_logs_of_a_deleted_topic_go_in_turns",),
    ),
    one(
        "a namesake finds the log of the deleted topic",
        "a topic is made anew while logs of the old one wait to be deleted",
        "node/broker/replicas.py",
        "            if self._gone and key not in self.held:\n",
        "            if not key:\n",
        tests=("tests/node/test_take_up.py::test_logs_of_a_deleted_topic_go_in_turns",),
    ),
    one(
        "what was deleted is kept when a broker stops",
        "replicas that nobody ever removes",
        "node/broker/replicas.py",
        "        while self._gone:  # the next",
        "        while False:  # the next",
        tests=("tests/node/test_take_up.py::test_logs_of_a_deleted_topic_go_in_turns",),
    ),
    one(
        "what was deleted is served until its log's turn has come",
        "acknowledged by name to a topic made anew, and in the log of the old one",
        "node/broker/replicas.py",
        "                was_held = self._let_go(gone)\n",
        "                was_held = False\n",
        tests=("tests/node/test_take_up.py::test_logs_of_a_deleted_topic_go_in_turns",),
    ),
    # -- what one request costs the controller ----------------------------------------------------
    one(
        "topics that are refused are worked out first",
        "17 KB that name 1,200 topics of 9,999 partitions",
        "core/controller/topic_changes.py",
        "        if records > self.left:\n            return False\n        self.left -= records\n",
        "        if records > self.left:\n            return False\n",
        tests=("tests/core/test_control_topics.py::test_what_is_refused_is_not_worked_out",),
    ),
)
