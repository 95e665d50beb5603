"""Bugs of which the lab has to say, on real processes in a network that is cut, what they break.

The simulator knows them by other names. Owns the list for the scenarios that each names.
"""

from __future__ import annotations

from mutation import Edit, Mutation, one

REPLICATION = "core/replica/replication.py"
TESTS = "tests/lab/test_lab_network_scenarios.py"
SPLIT = (f"{TESTS}::test_a_split_loses_nothing_that_two_have",)
SPLIT_ALONE = (f"{TESTS}::test_a_split_loses_what_only_the_cut_leader_acknowledged",)
CUT_OFF = (f"{TESTS}::test_a_controller_that_is_cut_off_decides_nothing_more",)
ALONE = (f"{TESTS}::test_a_leader_without_followers_refuses",)

SPLITS: tuple[Mutation, ...] = (
    one(
        "acks=all is answered when the leader has it, in a split",
        "split-brain: lost",
        REPLICATION,
        "        if self.high_watermark < required:\n            return None\n",
        "        if self.log_end < required:\n            return None\n",
        tests=SPLIT,
    ),
    one(
        "a leader acts on the ISR that it has only proposed, in a split",
        "split-brain with min ISR 1: lost",
        REPLICATION,
        "        return None if len(kept) == len(self.isr) else "
        "self._propose(Change.SHRINK, kept)\n",
        "        if len(kept) == len(self.isr):\n            return None\n"
        "        proposal = self._propose(Change.SHRINK, kept)\n"
        "        self.isr = kept\n        return proposal\n",
        tests=SPLIT_ALONE,
    ),
    Mutation(
        "min.insync.replicas is ignored, and the leader is alone",
        "followers-cut: acknowledged where NOT_ENOUGH_REPLICAS is due",
        (
            Edit(
                REPLICATION,
                "        if len(self.isr) < self.min_insync:\n            return False\n",
                "",
            ),
            Edit(
                REPLICATION,
                "        return len(self.isr) >= self.min_insync\n",
                "        return True\n",
            ),
            Edit(
                REPLICATION,
                "        if self.maximal_isr_size >= self.min_insync:\n"
                "            return ErrorCode.NONE\n",
                "        if self.maximal_isr_size:\n            return ErrorCode.NONE\n",
            ),
        ),
        ALONE,
    ),
    one(
        "a leader that was cut off follows without saying in which epoch its log ends",
        "split-brain: diverged",
        "node/broker/fetch_lane.py",
        "                last_fetched_epoch=position.last_epoch,\n",
        "                last_fetched_epoch=-1,\n",
        tests=SPLIT,
    ),
    one(
        "an active controller that hears of no majority goes on",
        "controller-isolated: it says that it is active",
        "core/quorum/voter.py",
        "            self._check_quorum(now_ms)\n",
        "            pass\n",
        tests=CUT_OFF,
    ),
)
