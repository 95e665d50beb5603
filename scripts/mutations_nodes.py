"""Bugs in what a node decides and writes: each is one that a Kafka-like system could have.

Owns the list for the simulator. A text that is not found exactly once fails the run, so that no
mutation is quietly lost when the code changes.
"""

from __future__ import annotations

from mutation import Edit, Mutation, one

REPLICATION = "core/replica/replication.py"
ELECTIONS = "core/controller/elections.py"
PARTITION = "node/broker/replica.py"
LEADING = "node/broker/leading_replica.py"
FETCHER = "node/broker/leader_fetcher.py"
READERS = "node/api/fetch_readers.py"
RECOVERY = "log/recovery.py"
LOG = "log/log.py"
QUORUM = "core/quorum/voter.py"

NODES: tuple[Mutation, ...] = (
    # -- a leader, and what it counts -----------------------------------------------------------
    one(
        "a new leader does not enter its epoch",
        "KIP-279, KAFKA-6361",
        LEADING,
        "        log.start_epoch(decided.leader_epoch)\n",
        "",
    ),
    one(
        "the high watermark advances under min ISR",
        "KIP-966, Jepsen 2013",
        REPLICATION,
        "        if len(self.isr) < self.min_insync:\n"
        "            return False\n"
        "        candidate = self.log_end\n",
        "        candidate = self.log_end\n",
    ),
    one(
        "the high watermark waits for replicas that are dead",
        "acks=all, KIP-966: the ISR decides, not the replicas",
        REPLICATION,
        "            if follower.log_end < candidate and (\n"
        "                self.is_counted(node)\n"
        "                or (follower.may_count and now_ms - follower.last_caught_up_ms <="
        " self.lag_ms_max)\n"
        "            ):\n",
        "            if follower.log_end < candidate:\n",
    ),
    Mutation(
        "a leader that was chosen uncleanly acknowledges what it does not write",
        "records that are in no log",
        (
            Edit(
                LEADING,
                '"_surroundings", "_waiting", "key",',
                '"_surroundings", "_waiting", "drop", "key",',
            ),
            Edit(
                LEADING,
                "        self.key = held.key\n",
                "        self.key = held.key\n"
                "        recovering = decided.recovery_state is image.RecoveryState.RECOVERING\n"
                "        self.drop = 3 if recovering else 0\n",
            ),
            Edit(
                LEADING,
                "        try:\n"
                "            base_offset = log.append_as_leader(batch, leader.epoch)\n",
                "        if acks == -1 and self.drop:\n"
                "            self.drop -= 1\n"
                "            return Appended(ErrorCode.NONE, log.end, -1, log.end)\n"
                "        try:\n"
                "            base_offset = log.append_as_leader(batch, leader.epoch)\n",
            ),
        ),
        # An unclean election, and acks=all: one full plan in seven or so.
        scale="full",
    ),
    one(
        "whoever is about to be removed counts no more",
        "KIP-497",
        REPLICATION,
        "        return node in self.isr or (self.pending is not None and node in"
        " self.pending.isr)\n",
        "        return node in (self.isr if self.pending is None else self.pending.isr)\n",
    ),
    one(
        "an answer counts as an acknowledgement",
        "the fetch at N is the acknowledgement",
        REPLICATION,
        "        follower.log_end = offset\n",
        "        follower.log_end = self.log_end\n",
    ),
    one(
        "a follower joins wherever it is",
        "KAFKA-7128",
        REPLICATION,
        "        if follower.log_end < max(self.high_watermark, self.epoch_start):\n"
        "            return False\n",
        "",
    ),
    one(
        "acks=all is answered by the leader alone",
        "acks",
        REPLICATION,
        "        if self.high_watermark < required:\n",
        "        if self.log_end < required:\n",
    ),
    Mutation(
        "a fenced replica may be in the ISR",
        "KIP-841",
        (
            Edit(
                REPLICATION,
                "        return self.eligible and (\n"
                "            self.broker_epoch in (UNKNOWN_BROKER_EPOCH, self.registered_epoch)\n"
                "        )\n",
                "        return self.broker_epoch in (-1, self.registered_epoch)\n",
            ),
            Edit(
                "core/controller/isr_changes.py",
                "    if broker is None or not state.may_lead(partition, member.broker_id):\n",
                "    if broker is None:\n",
            ),
        ),
    ),
    one(
        "a leader that was voted out still acknowledges",
        "KAFKA-20634, rules: produce.md#acknowledgement",
        PARTITION,
        "            return ErrorCode.NOT_LEADER_OR_FOLLOWER\n"
        "        return self.leading.state.acknowledgement(required)\n",
        "            return ErrorCode.NONE\n"
        "        return self.leading.state.acknowledgement(required)\n",
    ),
    one(
        "a duplicate is acknowledged before it is committed",
        "Redpanda 3039",
        LEADING,
        "Appended(ErrorCode.NONE, first, stamp, first + last_offset_delta + 1)\n",
        "Appended(ErrorCode.NONE, first, stamp, last_offset_delta * 0)\n",
    ),
    # -- readers ----------------------------------------------------------------------------------
    one(
        "consumers see what is not committed",
        "rules: fetch.md#readable-end",
        READERS,
        "Seen(log, log.high_watermark, ",
        "Seen(log, log.end, ",
    ),
    one(
        "a consumer's session refuses every other partition for ever",
        "an error that all clients bear with",
        "node/api/fetch.py",
        "            asked: look(asked.found, asked.wanted)\n"
        "            if isinstance(asked.found, Partition)\n",
        "            asked: Refused(ErrorCode.KAFKA_STORAGE_ERROR)\n"
        "            if self._session.session_id\n"
        "            and type(self._reader).__name__ == 'ConsumerReader'\n"
        "            and asked.wanted.partition % 2\n"
        "            else look(asked.found, asked.wanted)\n"
        "            if isinstance(asked.found, Partition)\n",
    ),
    # -- a follower -------------------------------------------------------------------------------
    one(
        "followers truncate to their high watermark",
        "KIP-101, KAFKA-1211",
        PARTITION,
        "        return self.following\n",
        "            self.following.truncate_to(self.log.high_watermark)\n"
        "        return self.following\n",
    ),
    one(
        "a new leader cuts its log at its high watermark",
        "KIP-101, by the one who was elected: it trails what it has acknowledged as a follower",
        LEADING,
        "        log.start_epoch(decided.leader_epoch)\n",
        "        log.truncate_to(log.high_watermark)\n"
        "        log.start_epoch(decided.leader_epoch)\n",
    ),
    one(
        "the rest of a diverging answer is taken in",
        "KAFKA-14704",
        FETCHER,
        "            replica.truncate_for(diverging.epoch, diverging.end_offset)\n",
        '            replica.append_fetched(memoryview(b""), data.high_watermark, 0)\n'
        "            replica.truncate_for(diverging.epoch, diverging.end_offset)\n",
    ),
    one(
        "a fetch does not say its last epoch",
        "KAFKA-15510",
        "node/broker/fetch_lane.py",
        "                last_fetched_epoch=position.last_epoch,\n",
        "                last_fetched_epoch=-1,\n",
    ),
    one(
        "stale answers are applied",
        "rules: replication.md#stale-answers",
        FETCHER,
        "        if following.replica.log.end != asked_at:\n",
        "        if following.replica.log.end < 0:\n",
        tests=("tests/node/test_fetcher.py::test_an_answer_to_another_offset_is_not_applied",),
    ),
    one(
        "followers truncate one record too far",
        "KIP-101",
        PARTITION,
        "            target = min(own.end, end)\n",
        "            target = max(0, min(own.end, end) - 1)\n",
    ),
    one(
        "followers take the leader's end for their own epoch's",
        "KIP-279",
        PARTITION,
        "            target = own.end  # an epoch that the leader lacks: ask again from there\n",
        "            target = end\n",
    ),
    one(
        "a follower's high watermark is its log end",
        "rules: replication.md#what-an-answer-brings",
        PARTITION,
        "        committed = min(leader_high_watermark, log.end)\n",
        "        committed = log.end\n",
    ),
    # -- the log ----------------------------------------------------------------------------------
    one(
        "indexes and ends are trusted after a crash",
        "rules: log.md#recovery",
        RECOVERY,
        "            trusted = remembered.clean or (\n"
        "                following is not None and following <= remembered.recovery_point\n"
        "            )\n",
        "            trusted = True\n",
    ),
    one(
        "segments are not synced",
        "fsync",
        "log/flusher.py",
        "        for path in self.logs if sync else ():\n            sync_file(files, path)\n",
        "",
    ),
    one(
        "batches are not checked after a crash",
        "rules: log.md#recovery",
        RECOVERY,
        "        if not _crc_is_right(files, segment.log_path, position, header, data, at):\n",
        "        if header.size < 0:\n",
    ),
    one(
        "all that a restart finds counts as committed",
        "rules: log.md#high-watermark-after-a-start",
        RECOVERY,
        "            high_watermark=min(max(remembered.high_watermark, start), end),\n",
        "            high_watermark=end,\n",
    ),
    Mutation(
        "epochs stay when a log is cut",
        "KAFKA-15608, rules: log.md#cutting-the-end",
        (
            Edit(
                LOG,
                "        self._epochs.truncate_from_end(offset)\n        self._snapshots.forget(",
                "        self._snapshots.forget(",
            ),
            Edit(
                LOG,
                "            # An epoch may have begun here in which nothing was written.\n"
                "            self._epochs.truncate_from_end(offset)\n",
                "",
            ),
        ),
    ),
    one(
        "producers stay when a log is cut",
        "rules: producers.md#producer-state",
        LOG,
        "        if not self._producers.truncate(offset):\n",
        "        if self.end < 0:\n",
    ),
    one(
        "producers are forgotten by a restart",
        "rules: producers.md#producer-state",
        RECOVERY,
        "        replay_producers(self._runtime, self._directory, segments, snapshots, producers,"
        " end)\n",
        "",
    ),
    one(
        "duplicates are taken for news",
        "Redpanda 3039",
        "log/producers.py",
        "            if batch.last_sequence == last and batch.first_sequence == first:\n"
        "                base = batch.last_offset - batch.offset_delta\n"
        "                return ProducerCheck(ErrorCode.NONE, base, batch.timestamp)\n",
        "            if batch.last_sequence == last and batch.first_sequence == first:\n"
        "                return ACCEPTED\n",
    ),
    one(
        "a producer's gaps are accepted",
        "rules: producers.md#sequences",
        "log/producers.py",
        "        return ACCEPTED if first == expected else _OUT_OF_ORDER\n\n    def update",
        "        return ACCEPTED if expected >= 0 else _OUT_OF_ORDER\n\n    def update",
    ),
    # -- the controller ---------------------------------------------------------------------------
    one(
        "unclean elections, though they are disabled",
        "Jepsen 2013",
        ELECTIONS,
        "    if unclean_allowed or election is Election.UNCLEAN:\n",
        "    if unclean_allowed or election is not Election.PREFERRED:\n",
    ),
    one(
        "an unclean shutdown is taken for a clean one",
        "KIP-966, last replica standing",
        "core/controller/broker_sessions.py",
        "lost=state.elr_enabled and not clean",
        "lost=state.elr_enabled and not clean and epoch < 0",
    ),
    one(
        "who was eligible stays so for ever",
        "KIP-966",
        ELECTIONS,
        "        if min_insync is None or len(isr) >= min(min_insync, len(members.replicas)):\n",
        "        if min_insync is None:\n",
    ),
    one(
        "an old ISR replaces a newer one",
        "rules: replication.md#refusing-an-isr",
        "core/controller/isr_changes.py",
        "    if wanted.partition_epoch < partition.partition_epoch:\n"
        "        return ErrorCode.INVALID_UPDATE_VERSION\n",
        "",
    ),
    one(
        "a broker is fenced and stays in its ISRs",
        "KIP-841",
        "core/controller/broker_sessions.py",
        "            records.extend(leave_all(state, broker_id, changes_max=CHANGES_MAX))\n",
        "",
    ),
    # -- the quorum -------------------------------------------------------------------------------
    one(
        "a vote is answered before it is saved",
        "rules: quorum.md#saved-before-said",
        QUORUM,
        "        if self._durable_version < self._version:\n            self._held",
        "        if self._durable_version < -1:\n            self._held",
    ),
    one(
        "votes are forgotten by a restart",
        "rules: quorum.md#saved-before-said",
        QUORUM,
        "            self.leader_id, self.voted = saved.leader_id, saved.voted\n",
        "            self.leader_id = saved.leader_id\n",
    ),
    one(
        "a controller counts what it has not synced",
        "durable metadata",
        QUORUM,
        "            self.durable_end if voter.is_replica(self.key)",
        "            self.log_end.offset if voter.is_replica(self.key)",
    ),
    one(
        "older epochs are committed without a record of the new one",
        "Raft, figure 8",
        QUORUM,
        "            if offset > self.epoch_start:\n",
        "            if offset >= 0:\n",
    ),
    Mutation(
        "votes go to whoever asks first",
        "Raft, 5.4.1",
        (
            Edit(
                QUORUM,
                "            return self.voted == candidate\n"
                "        # A log that is behind ours may lack what is committed.\n"
                "        return log_end >= self.log_end\n",
                "            return self.voted == candidate\n        return True\n",
            ),
            Edit(
                QUORUM,
                "            return False\n"
                "        # A log that is behind ours may lack what is committed.\n"
                "        return log_end >= self.log_end\n",
                "            return False\n        return True\n",
            ),
        ),
    ),
    one(
        "a vote is given twice",
        "Raft, 5.2",
        QUORUM,
        "            return self.voted == candidate\n",
        "            return log_end >= self.log_end\n",
    ),
    # -- where a log begins ---------------------------------------------------------------------
    one(
        "an empty replica begins at the leader's high watermark",
        "the loss of a log's beginning",
        PARTITION,
        "        if len(records):\n            self._make_room_for(records)\n",
        "        if not log.end and leader_high_watermark:\n"
        "            log.reset_to(leader_high_watermark)\n"
        "            records = records[:0]\n"
        "        if len(records):\n            self._make_room_for(records)\n",
    ),
    one(
        "who is behind the leader's log begins at its end",
        "auto.offset.reset",
        "node/broker/apart_fetcher.py",
        "                replica.reset_to(start)\n",
        "                replica.reset_to(end)\n",
    ),
    one(
        "an empty voter begins at the leader's high watermark",
        "the loss of a log's beginning",
        "node/quorum/voter_fetcher.py",
        "        elif found.records:\n",
        "        elif not log.end and found.high_watermark > 0:\n"
        "            log.restart_at(found.high_watermark)\n"
        "            follower.log_changed()\n"
        "        elif found.records:\n",
    ),
    one(
        "a header's largest timestamp is believed",
        "records without timestamps are from 1970",
        "node/broker/append_validation.py",
        "    largest = largest_timestamp(base_timestamp, max_timestamp)\n",
        "    largest = max_timestamp\n",
    ),
    one(
        "what has no timestamp is as old as it can be",
        "records without timestamps are from 1970",
        "log/retention.py",
        "        if newest < 0:\n",
        "        if newest < -1:\n",
    ),
    one(
        "retention counts from the first timestamp",
        "retention.ms",
        "log/retention.py",
        "segment.max_timestamp[0], ",
        "segment.first_timestamp, ",
    ),
    one(
        "retention by size takes one segment too many",
        "retention.bytes",
        "log/retention.py",
        "    left = extent.size - segment.size\n",
        "    left = extent.size\n",
    ),
    one(
        "DeleteRecords takes all of the batch",
        "KIP-107",
        LEADING,
        "            log.advance_start(wanted, for_good=True)\n",
        "            log.advance_start(wanted + 3, for_good=True)\n",
    ),
    # -- too rare for random faults; each has a test of its own -----------------------------------
    Mutation(
        "the high watermark waits for nobody outside of the known ISR",
        "KIP-497",
        (
            Edit(
                REPLICATION,
                "                self.is_counted(node)\n"
                "                or (follower.may_count and now_ms - follower.last_caught_up_ms <="
                " self.lag_ms_max)\n",
                "                node in self.isr\n",
            ),
        ),
        tests=("tests/replication/test_leader.py::test_a_replica_that_may_join_is_not_overtaken",),
    ),
    Mutation(
        "a follower joins at the high watermark",
        "KAFKA-7128",
        (
            Edit(
                REPLICATION,
                "        if follower.log_end < max(self.high_watermark, self.epoch_start):\n",
                "        if follower.log_end < self.high_watermark:\n",
            ),
        ),
        tests=(
            "tests/simulation/test_sim_more_traps.py::test_a_follower_below_the_new_epoch_s_start_does_not_join",
        ),
    ),
    Mutation(
        "an old broker epoch is as good as the new one",
        "KIP-903, KAFKA-14139",
        (
            Edit(
                REPLICATION,
                "        return self.eligible and (\n"
                "            self.broker_epoch in (UNKNOWN_BROKER_EPOCH, self.registered_epoch)\n"
                "        )\n",
                "        return self.eligible\n",
            ),
            Edit(
                "core/controller/isr_changes.py",
                "    return member.broker_epoch in (UNCHECKED_EPOCH, broker.epoch)\n",
                "    return True\n",
            ),
            Edit(
                READERS,
                "            broker_epoch != -1 and registered is not None and broker_epoch <"
                " registered.epoch\n",
                "            registered is None and broker_epoch < -1\n",
            ),
        ),
        tests=(
            "tests/simulation/test_sim_more_traps.py::test_a_fetch_from_before_the_restart_counts_for_nothing",
        ),
    ),
)
