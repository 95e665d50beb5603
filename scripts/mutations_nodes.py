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
                "        self.high_watermark = min(self.high_watermark, offset)\n"
                "        self._epochs.truncate_from_end(offset)\n",
                "        self.high_watermark = min(self.high_watermark, offset)\n",
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
    # -- what a client is told ------------------------------------------------------------------
    one(
        "latest is told before the new epoch's start is committed",
        "finding 10: OFFSET_NOT_AVAILABLE, KIP-207",
        "node/api/list_offsets.py",
        "    unsure = not asking.follower and log.high_watermark < leader.epoch_start\n",
        "    unsure = False\n",
        tests=(
            "tests/node/test_list_offsets.py::test_the_end_is_unknown_until_the_epoch_s_start_is_committed",
        ),
    ),
    one(
        "a look-up by timestamp never lets others have their turn",
        "finding 2: a lying largest timestamp over 30 KB of tiny batches",
        "runtime/sliced_work.py",
        "        return self.spent >= 1\n",
        "        return False\n",
        tests=(
            "tests/log/test_log_lying_headers.py::test_a_slice_opens_few_batches",
            "tests/node/test_list_offsets.py::test_a_long_look_up_is_a_promise",
        ),
    ),
    one(
        "a batch that nobody can read is the disk's damage",
        "finding 7: KAFKA_STORAGE_ERROR for as long as it is kept",
        "log/search.py",
        "    except WireError:\n        return None\n",
        '    except WireError as error:\n        raise OSError("damage") from error\n',
        tests=("tests/log/test_log_lying_headers.py::test_what_nobody_can_read_is_passed_over",),
    ),
    one(
        "what a client sent behind a batch that is looked at overtakes it",
        "a request that waits before its effect mutes its connection",
        "node/door/connection.py",
        "            if answer.is_before_effect:\n"
        "                self.mute()\n"
        "                answer.proceed = self.unmute\n",
        "",
        tests=("tests/node/test_deep_produce.py::test_nothing_overtakes_it",),
    ),
    one(
        "deep validation looks at no record",
        "garbage in a log that promised to have none",
        "node/broker/append_validation.py",
        '    if wanted != codec or settings.record_validation == "deep":\n',
        "    if wanted != codec:\n",
    ),
    one(
        "deep validation believes the header's largest timestamp",
        "finding 7: a largest timestamp that no record has",
        "node/broker/record_validation.py",
        "    if walked.largest != header.max_timestamp:\n",
        "    if walked.largest > header.max_timestamp:\n",
        tests=("tests/node/test_record_validation.py::test_the_largest_timestamp_is_the_records",),
    ),
    one(
        "a second batch for one partition is answered with the first one's offset",
        "finding 10: another's record under an acknowledged offset",
        "node/api/produce.py",
        "                elif part is not None:\n                    parts.append(part)\n",
        "                elif part is not None:\n"
        "                    for earlier in parts:\n"
        "                        if earlier[0] is part[0]:\n"
        "                            answer.base_offset = earlier[2].base_offset\n"
        "                    parts.append(part)\n",
        tests=(
            "tests/node/test_named_twice.py::test_each_append_to_one_partition_is_answered_with_its_own_offset",
        ),
    ),
    one(
        "a follower beyond the log's end counts as caught up when it names no epoch",
        "finding 10: an acknowledgement of what is not there",
        READERS,
        "    is_beyond = diverging is None and offset > log.end\n",
        "    is_beyond = diverging is None and offset > log.end and"
        " wanted.last_fetched_epoch >= 0\n",
        tests=(
            "tests/node/test_fetch_waits.py::test_a_follower_beyond_the_log_s_end_acknowledges_nothing",
        ),
    ),
    one(
        "what waits for its turn behind another answer is nobody's debt",
        "finding 4: unread answers of many connections",
        "node/door/connection.py",
        "        size = self._ready_bytes + self._unsent\n",
        "        size = self._unsent\n",
        tests=(
            "tests/node/test_connection.py::test_who_takes_nothing_is_closed_on_when_the_node_holds_too_much",
        ),
    ),
    one(
        "what is written to who takes nothing is counted up to the first pause",
        "finding 4: many connections, each of which asks and never reads",
        "node/door/connection.py",
        "            if self._clogged:\n                self._owe()\n",
        "",
        tests=("tests/node/test_connection.py::test_who_is_silent_is_closed_on",),
    ),
    one(
        "each byte of a request counts as a sign of life",
        "a byte every few minutes keeps a connection and its buffer for ever",
        "node/door/connection.py",
        "        if not self._filled:  # of a frame that never ends, no byte but the first counts\n"
        "            self.active_at",
        "        if True:\n            self.active_at",
        tests=(
            "tests/node/test_connection.py::test_a_request_that_never_ends_is_as_good_as_silence",
        ),
    ),
    one(
        "what is received of large requests is nobody's debt",
        "finding 4: many connections, each of which sends most of 100 MB",
        "node/door/connection.py",
        "        if size > LIGHT_BYTES or before > LIGHT_BYTES:\n",
        "        if before > size:\n",
        tests=(
            "tests/node/test_connection.py::test_who_leaves_the_largest_request_unfinished_is_closed_on_when_all_are_too_large",
        ),
    ),
    one(
        "a place that was left is taken for ever",
        "finding 5: nobody gets in after as many as the limit have gone",
        "node/door/admission.py",
        "            self._by_address[guest.host] -= 1\n",
        "",
        tests=("tests/node/test_admission.py::test_an_address_has_as_many_as_it_may",),
    ),
)
