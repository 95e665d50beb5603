"""Bugs in what a coordinator of groups decides, writes and answers: the simulator has to find them.

Each is one that a coordinator could have; known as what it would break.
"""

from __future__ import annotations

from dataclasses import replace

from mutation import Mutation, one

LED = "node/coordinator/led_shard.py"
COORDINATOR = "node/coordinator/coordinator.py"
HELD = "node/coordinator/held_answers.py"
CONSUMER = "core/group/consumer/consumer_group.py"
RECORDS = "wire/records/offset_records.py"
RECONCILE = "core/group/consumer/consumer_reconcile.py"
HEARTBEAT = "core/group/consumer/consumer_heartbeat.py"
CONSUMER_MEMBER = "core/group/consumer/consumer_member.py"
EPOCHS = "core/group/consumer/consumer_epochs.py"
OFFSETS = "core/group/offsets/offset_requests.py"
TEST_EPOCHS = "tests/group/test_consumer_epochs.py"
ANOTHER_S = "test_what_was_another_s_in_between_is_not_committed_in_an_epoch_before"
REQUESTS = "core/group/classic/classic_requests.py"
REBALANCE = "core/group/classic/classic_rebalance.py"
STATE = "core/group/classic/classic_state.py"
SCALE = "groups"

_FOUND_BY_SEEDS: tuple[Mutation, ...] = (
    # -- the room: what is answered when -------------------------------------------------------
    one(
        "answers leave before what they tell is committed",
        "a commit that is acknowledged and lost",
        LED,
        "        if self.is_current and self.partition.acknowledgement(self._end) is not None:\n",
        "        if self.is_current:\n",
    ),
    one(
        "a shard answers while it is loaded",
        "consumers that start over from the beginning",
        LED,
        "ErrorCode.NONE if self.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "ErrorCode.NONE",
    ),
    one(
        "an append that was refused is applied",
        "too few in sync: told as committed all the same",
        LED,
        "        self._settle(decisions,"
        " self._append_batch(records) if records else ErrorCode.NONE)\n",
        "        if records:\n            self._append_batch(records)\n"
        "        self._settle(decisions, ErrorCode.NONE)\n",
    ),
    one(
        "who waits when a shard ends is told that all is well",
        "a commit that is acknowledged and lost",
        LED,
        "        return ErrorCode.NONE if self.is_current else ErrorCode.NOT_COORDINATOR\n\n"
        "    # -- time",
        "        return ErrorCode.NONE\n\n    # -- time",
    ),
    one(
        "answers that were held for too long are sent as they are",
        "a commit that is acknowledged and lost",
        HELD,
        "        self._let_go(self)\n        self.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)\n",
        "        self._let_go(self)\n        self._calls.send(self._finish())\n",
    ),
    one(
        "a shard that is loaded again keeps nothing of its offsets",
        "KAFKA-9543: consumers that start over after a coordinator has moved",
        COORDINATOR,
        "        load = Load(log, log.end, led.shard, lambda: led.is_current)\n",
        "        load = Load(log, min(log.end, log.high_watermark // 2), led.shard,"
        " lambda: led.is_current)\n",
    ),
    one(
        "a shard goes on in an epoch that is over",
        "groups without a coordinator, for ever",
        COORDINATOR,
        "        if known is not None and known.leading is partition.leading:\n",
        "        if known is not None:\n",
    ),
    one(
        "nobody tells groups of topics that come and go",
        "partitions that nobody reads",
        COORDINATOR,
        "        if created or deleted or changed:\n",
        "        if created and deleted and changed:\n",
    ),
    one(
        "a namesake of a deleted topic has its offsets, and loses them with it",
        "KAFKA-14690: offsets are kept with their topic's id",
        RECORDS,
        "        return self.topic_id == topic_id or NULL_UUID in (self.topic_id, topic_id)\n",
        "        return bool(topic_id)\n",
    ),
    # -- KIP-848 ---------------------------------------------------------------------------------
    one(
        "a member commits with an older epoch than its own",
        "KIP-848: STALE_MEMBER_EPOCH",
        CONSUMER,
        "    if epoch == member.epoch:\n        return ErrorCode.NONE\n    if member.classic",
        "    if epoch <= member.epoch:\n        return ErrorCode.NONE\n    if member.classic",
    ),
    one(
        "what a member gets it has had for ever",
        "KIP-1251: a late commit moves back what another one has committed since",
        EPOCHS,
        "known[each] if each in kept else epoch for each in numbers",
        "known[each] if each in kept else 1 for each in numbers",
    ),
    one(
        "nobody who loads a member knows since when it has what",
        "KIP-1251: assignment epochs",
        CONSUMER_MEMBER,
        "            assignment_epochs=[since[topic_id][each] for each in partitions[topic_id]],\n",
        "            assignment_epochs=None if since else [],\n",
    ),
    one(
        "a partition is given away that another one has",
        "KIP-848: UNRELEASED_PARTITIONS",
        RECONCILE,
        "        free = tuple(p for p in missing if p in own or not aim.taken(topic_id, p))\n",
        "        free = tuple(p for p in missing if p in own or aim.epoch)\n",
    ),
    one(
        "nobody has to say that it gave a partition up",
        "KIP-848: UNREVOKED_PARTITIONS",
        RECONCILE,
        "    if revoke and _still_owns(aim, revoke):\n",
        "    if revoke and not aim.epoch:\n",
    ),
    one(
        "a heartbeat does not keep a member's session",
        "a group that throws out who is well",
        HEARTBEAT,
        "    decision.once_applied(lambda: core.keep_alive(step.after, now_ms))\n",
        "    if request.member_epoch == JOIN_EPOCH:\n"
        "        decision.once_applied(lambda: core.keep_alive(step.after, now_ms))\n",
    ),
    one(
        "who is loaded has no session",
        "KIP-848: dead members keep what they have, once their coordinator has moved",
        CONSUMER,
        "            self.core.keep_alive(member, now_ms)\n            if member.classic",
        "            if member.classic",
    ),
    one(
        "who leaves is a member all the same",
        "partitions that nobody reads until a session ends",
        HEARTBEAT,
        "    if request.instance_id is None or request.member_epoch == LEAVE_EPOCH:\n"
        "        return member\n",
        "    if request.instance_id is None or request.member_epoch == LEAVE_EPOCH:\n"
        "        return None\n",
    ),
    # -- the classic protocol --------------------------------------------------------------------
    one(
        "a member commits in a generation that has passed",
        "ILLEGAL_GENERATION",
        REQUESTS,
        "    code = _check_member(group, committer.member_id, committer.instance_id,"
        " committer.generation)\n",
        "    code = _check_member(group, committer.member_id, committer.instance_id,"
        " group.generation)\n",
    ),
    one(
        "a rebalance waits for nobody",
        "partitions that are another's while their owner reads them",
        REBALANCE,
        "    if group.roster.all_joined:\n        complete(group, decision, now_ms)\n",
        "    if group.roster.joined:\n        complete(group, decision, now_ms)\n",
    ),
    one(
        "a generation has the number of the one before",
        "fencing by generation",
        STATE,
        "        self.generation += 1\n",
        "        self.generation = max(self.generation, 1)\n",
    ),
    one(
        "a member of a generation that has passed is told its part of this one",
        "ILLEGAL_GENERATION",
        REQUESTS,
        "    if code is ErrorCode.NONE and generation != group.generation:\n",
        "    if code is ErrorCode.NONE and generation > group.generation:\n",
    ),
    one(
        "who has died stays a member",
        "a group whose partitions nobody reads",
        REBALANCE,
        "    if member.is_excused:\n",
        "    if member.session_timeout_ms:\n",
    ),
)

_FOUND_BY_TESTS: tuple[Mutation, ...] = (
    one(
        "what a member has it may commit in each older epoch",
        "KIP-1251: a commit of before that comes late, when another one has had it since",
        CONSUMER_MEMBER,
        "        return since is not None and since <= epoch\n",
        "        return since is not None and since > NO_EPOCH\n",
        tests=(f"{TEST_EPOCHS}::{ANOTHER_S}",),
    ),
    one(
        "what a member has given up and gets again it has had all the time",
        "KIP-1251: since it got it anew",
        EPOCHS,
        "known[each] if each in kept else epoch for each in numbers",
        "known.get(each, epoch) for each in numbers",
        tests=("tests/group/test_consumer_reconcile.py",),
    ),
    one(
        "one partition of its own is enough for a commit in an older epoch",
        "KIP-1251: all of them or none",
        CONSUMER,
        "epoch < member.epoch and all(member.had_since",
        "epoch < member.epoch and any(member.had_since",
        tests=(f"{TEST_EPOCHS}::test_one_partition_that_is_not_its_own_refuses_them_all",),
    ),
    one(
        "a partition that is refused anyway is looked into",
        "KIP-1251: OFFSET_METADATA_TOO_LARGE",
        OFFSETS,
        '            if _check_metadata(asked.committed_metadata or "", settings)'
        " is ErrorCode.NONE:\n",
        "            if request.topics:\n",
        tests=(
            f"{TEST_EPOCHS}::test_a_partition_that_is_refused_for_something_else_is_not_looked_into",
        ),
    ),
    one(
        "a struct that is null in a tag is written as anywhere else",
        "members of a group that Apache Kafka wrote can't be read, and ours are classic ones there",
        "wire/compiling.py",
        "    return 0 if field.is_tagged(version) else -1\n",
        "    return -1\n",
        tests=("tests/wire/test_group_records.py",),
    ),
    one(
        "a member of whom nothing says that it is a classic one is one",
        "a record of a broker that left out what is null",
        CONSUMER_MEMBER,
        "None if classic is None or not classic.supported_protocols else classic",
        "classic",
        tests=(
            "tests/group/test_consumer_shard.py::test_a_member_without_protocols_is_no_classic",
        ),
    ),
)

GROUPS = (*(replace(each, scale=SCALE) for each in _FOUND_BY_SEEDS), *_FOUND_BY_TESTS)
