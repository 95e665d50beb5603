"""Bugs in how a follower fetches: in sessions, and with one bad partition beside many good ones.

Owns the list for the tests that each names. A text that is not found exactly once fails the run.
"""

from __future__ import annotations

from mutation import Mutation, one

FETCHER = "node/broker/leader_fetcher.py"
SESSION = "core/replica/fetch_session.py"

FOLLOWING: tuple[Mutation, ...] = (
    one(
        "a follower's session is at one epoch for ever",
        "KIP-227: each request is refused, and names everything again",
        SESSION,
        "            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1\n",
        "            pass\n",
        tests=(
            "tests/core/test_fetch_session.py::test_a_session_begins_with_everything_and_then_names_what_moved",
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
        "one partition stops all that is followed from a broker",
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
)
