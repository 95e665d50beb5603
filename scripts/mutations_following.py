"""Bugs in fetch sessions, on both sides, in a follower with one bad partition, and of bad disks.

Owns the list for the tests that each names. A text that is not found exactly once fails the run.
"""

from __future__ import annotations

from mutation import Mutation, one

REPLICATION = "core/replica/replication.py"
FETCHER = "node/broker/leader_fetcher.py"
SESSION = "core/replica/follower_session.py"

FOLLOWING: tuple[Mutation, ...] = (
    one(
        "what a session leaves out says nothing of its follower",
        "a quiet partition's follower is thrown out by the next append",
        REPLICATION,
        "            return max(self.caught_up_ms, self.session.at_ms)\n",
        "            return self.caught_up_ms\n",
        tests=(
            "tests/replication/test_leader.py::test_a_session_that_leaves_out_what_is_the_same_says_what_naming_it_says",
        ),
    ),
    one(
        "a session says of a partition that it has forgotten that it is fetched",
        "a follower that has set it aside stays in the ISR for ever",
        REPLICATION,
        "            follower.settle()\n            follower.session = NO_SESSION\n",
        "            follower.settle()\n",
        tests=(
            "tests/replication/test_leader.py::test_a_partition_that_a_session_has_set_aside_is_not_kept_in_sync_by_it",
        ),
    ),
    one(
        "a session is not told of a change between two requests",
        "a reader that is never woken",
        "node/api/fetch_session.py",
        "        self._changed[asked] = None\n        self.stirred[asked] = None\n"
        "        if self.parked is not None:\n",
        "        if self.parked is not None:\n"
        "            self._changed[asked] = self.stirred[asked] = None\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_session_is_told_of_what_has_changed_alone",
        ),
    ),
    one(
        "a follower's session is at one epoch for ever",
        "KIP-227: each request is refused, and names everything again",
        SESSION,
        "            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1\n",
        "            pass\n",
        tests=(
            "tests/core/test_follower_session.py::test_a_session_begins_with_everything_and_then_names_what_moved",
        ),
    ),
    one(
        "a follower does not have its leader forget what it fetches no longer",
        "KIP-227: records of a partition that is fetched from another one",
        SESSION,
        "        forgotten = list(self._leaving)\n"
        "        for key in forgotten:\n"
        "            del self._told[key]\n",
        "        for key in self._leaving:\n"
        "            del self._told[key]\n"
        "        forgotten: list[PartitionKey] = []\n",
        tests=(
            "tests/node/test_rounds.py::test_what_is_removed_is_forgotten_and_nothing_of_it_is_applied",
        ),
    ),
    one(
        "what a follower did not take in is only named again",
        "a leader never says the same high watermark twice",
        SESSION,
        "        self.forget(key)\n        self._news[key] = None\n",
        "        self._news[key] = None\n",
        tests=(
            "tests/node/test_rounds.py::test_a_high_watermark_that_was_not_taken_in_is_told_again",
        ),
    ),
    one(
        "a damaged batch is asked for along with the rest",
        "finding 1: one partition stops all that is followed from a broker",
        FETCHER,
        "                self._leave(replica.key)\n"
        "                self._apart.set_aside(\n"
        '                    following, f"what the leader sent can\'t be appended ({error.name})"\n'
        "                )\n"
        "                return False\n",
        "                return True\n",
        tests=(
            "tests/node/test_apart.py::test_one_bad_partition_costs_the_others_nothing_and_comes_back",
        ),
    ),
    one(
        "what was said of an earlier epoch holds for a newcomer of this one",
        "a partition that is never followed again",
        "node/broker/leader_fetcher.py",
        "                if position.leader_epoch == following.replica.leader_epoch:\n",
        "                if position is not None:\n",
        tests=(
            "tests/node/test_rounds.py::test_an_answer_of_an_earlier_epoch_is_not_applied_to_a_newcomer_of_this_one",
        ),
    ),
    one(
        "on a full disk what was deleted is removed behind what a start writes",
        "a full disk that no start gives room",
        "log/directory.py",
        "        if gone and self.runtime.disk.space(self.path).free_bytes < _ROOM_BYTES:\n",
        "        if gone and self.runtime.disk.space(self.path).free_bytes < 0:\n",
        tests=("tests/log/test_log_disk_failure.py::test_what_was_deleted_makes_room_for_a_start",),
    ),
    one(
        "a start for which there is no room removes nothing, where bytes are free",
        "a file system out of files, or a quota: no start ever succeeds",
        "log/directory.py",
        "            if error.errno not in FULL or not gone:\n",
        "            if gone or not gone:\n",
        tests=("tests/log/test_log_disk_failure.py::test_a_start_makes_room_where_bytes_are_free",),
    ),
    one(
        "a directory that is full keeps what was deleted",
        "a file system out of files, or a quota: no start ever succeeds",
        "log/directory.py",
        "            if not self._is_full:  # a removal",
        "            if self.failure:  # a removal",
        tests=(
            "tests/log/test_log_disk_failure.py::test_a_full_disk_does_not_keep_what_was_deleted",
        ),
    ),
    one(
        "a copy in a directory that has failed already is counted",
        "a node that does not start, for a copy that is out of reach",
        "log/copies.py",
        "            if not copy.directory.online:\n                continue",
        "            if False:\n                continue",
        tests=(
            "tests/log/test_log_copies.py::test_copies_in_a_directory_that_has_failed_already_stop_nobody",
        ),
    ),
    one(
        "what is noted of a batch is not looked for before the write",
        "a batch in the file and not in the log, for a disk that fails",
        "log/log.py",
        "            self._segments.active.make_ready()\n",
        "",
        tests=(
            "tests/log/test_log_disk_failure.py::test_an_active_segment_that_cannot_say_its_newest_timestamp_refuses_appends",
        ),
    ),
    one(
        "a file that does not close keeps its directory from going offline",
        "nobody is told, and who waits for a flush waits for ever",
        "log/directory.py",
        "            with suppress(OSError):  # it is offline already\n",
        "            if True:\n",
        tests=(
            "tests/log/test_log_disk_failure.py::test_files_that_do_not_close_keep_nobody_from_going_offline",
        ),
    ),
    one(
        "what was loaded in part is marked as closed properly",
        "the checkpoints of its other replicas are lost",
        "log/directories.py",
        "directory.online and directory.is_loaded:",
        "directory.online:",
        tests=(
            "tests/log/test_log_directories.py::test_a_load_that_fails_costs_no_other_directory_its_mark",
        ),
    ),
    one(
        "what has moved is named in several requests",
        "2,000 partitions of one leader that move in each round",
        "core/replica/follower_session.py",
        "        wanted = list(self._moved)\n        self._moved.clear()\n",
        "        wanted = list(self._moved)[: self._named_max]\n"
        "        for moved in wanted:\n            del self._moved[moved]\n",
        tests=(
            "tests/core/test_follower_session.py::test_what_has_moved_is_named_however_much_it_is",
        ),
    ),
    one(
        "what is named and forgotten in one request stays",
        "an Apache Kafka broker that follows",
        "node/api/fetch.py",
        "    for forgotten in request.forgotten_topics_data if session.session_id else ():\n",
        "    for forgotten in ():\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_what_is_named_and_forgotten_in_one_request_is_forgotten",
        ),
    ),
)
