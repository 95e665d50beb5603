"""Bugs of compaction (docs/design/compaction.md): each loses a record, or brings one back."""

from __future__ import annotations

from mutation import Mutation, one

ROUND = "log/compaction/compaction_round.py"
REWRITE = "log/compaction/batch_rewrite.py"
STEPS = "log/compaction/compaction_steps.py"
REPLACEMENT = "log/compaction/replacement.py"
SWAPS = "log/compaction/half_done_swaps.py"
SEGMENT = "log/compaction/cleaned_segment.py"
READER = "log/compaction/batch_reader.py"
SEEN = "log/compaction/seen_transactions.py"
DUE = "log/compaction/compaction_due.py"
GROUPS = "log/compaction/segment_groups.py"
LOG = "log/log.py"
HOST = "log/compaction/log_compaction.py"
RECOVERY = "log/recovery.py"
PRODUCERS = "log/producers.py"
WALKER = "wire/walker/python_compaction.py"

TEST_ROUND = "tests/log/test_compaction_round.py"
TEST_POWER = "tests/log/test_compaction_power.py"
TEST_TRANSACTIONS = "tests/log/test_compaction_transactions.py"
TEST_PRODUCERS = "tests/log/test_log_producers.py"
TEST_RECOVERY = "tests/log/test_log_recovery.py"
TEST_DUE = "tests/log/test_compaction_due.py"
TEST_FILES = "tests/log/test_compaction_files.py"
CLEANER = "log/compaction/cleaner.py"
TEST_CLEANER = "tests/log/test_cleaner.py"
TEST_LIVES = "tests/log/test_compaction_lives.py"
LIVES = f"{TEST_LIVES}::test_each_keys_last_value_stays_through_all_lives"
TEST_WALKER = "tests/wire/test_record_compaction.py"
MODEL = f"{TEST_ROUND}::test_rounds_leave_what_a_model_says"
UNREADABLE = f"{TEST_ROUND}::test_what_nobody_can_read_stays_whole"
DIES = f"{TEST_POWER}::test_who_dies_in_a_round_loses_nothing"
DIES_AGAIN = f"{TEST_POWER}::test_who_dies_in_recovery_loses_nothing"
CUT = f"{TEST_POWER}::test_what_is_cut_in_the_middle_of_a_round_never_comes_back"
DELETED = f"{TEST_POWER}::test_a_round_of_a_log_that_was_deleted_touches_nothing_of_the_next_one"

COMPACTION: tuple[Mutation, ...] = (
    # -- which records stay -----------------------------------------------------------------------
    one(
        "a tombstone goes at its first round",
        "a deleted key that consumers do not hear of",
        REWRITE,
        "self.drops and has_horizon(header) and header.base_timestamp <= self.now_ms",
        "self.drops and (not has_horizon(header) or header.base_timestamp <= self.now_ms)",
        tests=(MODEL,),
    ),
    one(
        "the last record of a key goes",
        "an acknowledged record that is lost",
        WALKER,
        "stays = offset >= key_map.get(",
        "stays = offset > key_map.get(",
        tests=(MODEL, TEST_WALKER),
    ),
    one(
        "the map claims the record before which it was full",
        "an acknowledged record that is lost",
        ROUND,
        "self._rules.bound = max(full_at, self._rules.bound)",
        "self._rules.bound = max(full_at + 1, self._rules.bound)",
        tests=(MODEL,),
    ),
    one(
        "keys count of a batch that nobody can read to its end",
        "an older record that goes for one that nobody can read",
        REWRITE,
        "for key_map in (None, rules.key_map):",
        "for key_map in (rules.key_map, None):",
        tests=(UNREADABLE,),
    ),
    one(
        "keys count of a batch whose CRC is wrong",
        "an older record that goes for one that nobody can read",
        ROUND,
        "            if found.data is None or not crc_matches(found.data):\n",
        "            if found.data is None:\n",
        tests=(UNREADABLE,),
    ),
    one(
        "a tombstone goes behind a batch that nobody can read",
        "a deleted key that comes back",
        ROUND,
        "self._rules.drops = False",
        "self._rules.drops = True",
        tests=(UNREADABLE,),
    ),
    one(
        "records are taken in any order of their offsets",
        "a record that goes for one that is no later",
        WALKER,
        "            problem = UNORDERED\n            break\n        offset =",
        "            pass\n        offset =",
        tests=(TEST_WALKER,),
    ),
    one(
        "a batch may claim offsets of the next segment",
        "a segment that recovery takes for a replaced one",
        READER,
        "or not expected <= header.base_offset <= header.last_offset < self._end",
        "or False",
        tests=(f"{TEST_ROUND}::test_a_batch_that_claims_offsets_of_others_ends_a_round",),
    ),
    # -- what stays without records ---------------------------------------------------------------
    one(
        "the last batch of a group goes",
        "a hole between segments",
        ROUND,
        "keeps = (is_last and found.position + header.size == facts.size) or (",
        "keeps = (not is_last and found.position + header.size == facts.size) or (",
        tests=(MODEL, f"{TEST_ROUND}::test_the_last_batch_of_a_producer_and_of_a_group_stay_empty"),
    ),
    one(
        "the last batch of a producer goes",
        "a duplicate that a new leader takes for new",
        ROUND,
        "return header.last_offset == last.offset",
        "return False",
        tests=(f"{TEST_ROUND}::test_the_last_batch_of_a_producer_and_of_a_group_stay_empty",),
    ),
    one(
        "a largest timestamp of records that went",
        "look-ups by time and retention go by it",
        REWRITE,
        "        header = header._replace(max_timestamp=kept.largest)\n",
        "        pass\n",
        tests=(f"{TEST_ROUND}::test_the_largest_timestamp_is_of_what_stays",),
    ),
    one(
        "the time index is not finished",
        "look-ups by time stop too soon",
        SEGMENT,
        "        segment.seal()\n",
        "",
        tests=(MODEL,),
    ),
    # -- transactions -----------------------------------------------------------------------------
    one(
        "aborted keys count",
        "a committed record that goes for an aborted one",
        ROUND,
        "            elif not is_aborted and header.last_offset >=",
        "            elif header.last_offset >=",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "a marker goes at once",
        "a transaction that never ends for who reads it now",
        ROUND,
        "        if not has_horizon(header):\n            return (yield from stamp_marker",
        "        if not has_horizon(header):\n            return emptied(header)\n"
        "        if not has_horizon(header):\n            return (yield from stamp_marker",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "a marker goes while an emptied batch of its transaction is there",
        "a transaction that never ends",
        SEEN,
        "        found.is_seen = True\n",
        "        found.is_seen = bool(header.record_count)\n",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "an aborted transaction has no end but its marker",
        "committed records that are taken for aborted ones",
        SEEN,
        "        if found is None or header.base_offset > found.transaction.last_offset:\n",
        "        if found is None:\n",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "nothing is said of an aborted batch that can't be read",
        "aborted records that readers of committed ones see",
        ROUND,
        "        is_aborted = not header.is_control and self._seen.is_aborted(header)\n"
        "        if data is None:\n",
        "        is_aborted = (\n            data is not None and not header.is_control\n"
        "            and self._seen.is_aborted(header)\n        )\n        if data is None:\n",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "aborted is what the index of a touched segment says alone",
        "committed records that go for aborted ones",
        HOST,
        "        for segment in self._segments.all:\n",
        "        for segment in self._segments.all[: bisect_left(self._segments.bases, bound)]:\n",
        tests=(TEST_TRANSACTIONS,),
    ),
    one(
        "a marker decides before it is committed",
        "committed records that go for what is aborted later",
        PRODUCERS,
        "            self._note_end(begun, header.last_offset)\n",
        "            self._note_end(_NONE, header.last_offset)\n",
        tests=(TEST_TRANSACTIONS, TEST_PRODUCERS),
    ),
    one(
        "a transaction stays ended whose marker is cut off",
        "committed records that go for what is aborted later",
        PRODUCERS,
        "        exact = self._last_marker < offset\n",
        "        exact = True\n",
        tests=(TEST_TRANSACTIONS, TEST_PRODUCERS),
    ),
    one(
        "a hole that a cleaner left is a loss",
        "all that lies behind a segment whose index is missing",
        RECOVERY,
        " and (cleaned_to is None or base > cleaned_to)",
        "",
        tests=(TEST_RECOVERY,),
    ),
    # -- files ------------------------------------------------------------------------------------
    one(
        "a copy that was done as its log was deleted is looked for by name",
        "a log directory that goes offline, or a file of the next replica with that name",
        STEPS,
        "                if work.is_over:\n                    break  #",
        "                if False:\n                    break  #",
        tests=(DELETED,),
    ),
    one(
        "a segment's batches are not synced",
        "acknowledged records that the power takes",
        SEGMENT,
        "        self.sync()\n        writes",
        "        writes",
        tests=(DIES,),
    ),
    one(
        "`.swap` is not durable before the old segments go",
        "acknowledged records that the power takes",
        REPLACEMENT,
        "            self._offer()\n            yield self._sync\n",
        "            self._offer()\n",
        tests=(DIES,),
    ),
    one(
        "a name is given before the old ones are gone for good",
        "an old segment beside the new one",
        REPLACEMENT,
        "            self._serve()\n            yield self._sync\n",
        "            self._serve()\n",
        tests=(DIES,),
    ),
    one(
        "half a `.swap` goes behind what tells that it is half",
        "a segment that was made of what is no more",
        SWAPS,
        "    if found.half_swaps or found.swaps:\n",
        "    if found.swaps:\n",
        tests=(f"{TEST_FILES}::test_what_was_half_done_never_looks_whole",),
    ),
    one(
        "recovery believes a `.swap` that is not durable",
        "acknowledged records that the power takes",
        SWAPS,
        "    if found.half_swaps or found.swaps:\n",
        "    if found.half_swaps:\n",
        tests=(DIES_AGAIN,),
    ),
    one(
        "recovery keeps what a `.swap` covers",
        "offsets that go back",
        SWAPS,
        "        _remove(disk, directory, names, covered(names, offset_of(swap), last))\n",
        "        covered(names, offset_of(swap), last)\n",
        tests=(DIES, TEST_FILES),
    ),
    one(
        "recovery names a segment before what it covers is gone for good",
        "an old segment beside the new one",
        SWAPS,
        "    if found.swaps:\n        disk.sync_directory(directory)  # else",
        "    if not names:\n        disk.sync_directory(directory)  # else",
        tests=(DIES_AGAIN,),
    ),
    one(
        "a cut leaves a round as it is",
        "records that were cut come back",
        STEPS,
        "        if self._replacement is not None:\n            self._replacement.settle()\n",
        "",
        tests=(CUT,),
    ),
    one(
        "a `.swap` is withdrawn, and the power brings it back",
        "records that were cut come back",
        REPLACEMENT,
        "            self._withdraw(SWAP_SUFFIX)\n            self._disk.sync_directory",
        "            self._withdraw(SWAP_SUFFIX)\n            self._disk.exists",
        tests=(CUT,),
    ),
    one(
        "a round leaves its `.cleaned` behind",
        "a `.swap` behind it that recovery throws away",
        STEPS,
        "        self._remove_leftovers()\n        return None",
        "        return None",
        tests=(CUT,),
    ),
    one(
        "a round of a deleted log tidies the next one",
        "files of another replica that go",
        STEPS,
        "        if not self._is_gone:\n",
        "        if self._round:\n",
        tests=(DELETED,),
    ),
    one(
        "a round of a deleted log goes on in the next one",
        "files in another replica",
        ROUND,
        "                self._check()\n                work(files)",
        "                work(files)",
        tests=(DELETED, CUT),
    ),
    one(
        "an index is looked for by a name that it does not have yet",
        "a log directory that goes offline",
        REPLACEMENT,
        "        segment.offsets.path = segment.prefix + OFFSET_INDEX_SUFFIX + ending\n",
        "",
        tests=(f"{TEST_POWER}::test_reads_go_on_while_the_new_segment_has_no_name_yet",),
    ),
    # -- when, and how fast -----------------------------------------------------------------------
    one(
        "a round is due when its share is just what it may be",
        "rounds that Apache Kafka does not take",
        DUE,
        "self.ratio > settings",
        "self.ratio >= settings",
        tests=(TEST_DUE,),
    ),
    one(
        "the segment with the first unstable offset is touched",
        "what is not committed yet",
        DUE,
        "        if end <= limit:\n",
        "        if end <= limit + 5:\n",
        tests=(TEST_DUE,),
    ),
    one(
        "offsets of a group are one too many",
        "an index that can't count them",
        GROUPS,
        "end - 1 - groups[-1][0].base <= RELATIVE_MAX",
        "end - 2 - groups[-1][0].base <= RELATIVE_MAX",
        tests=(TEST_DUE,),
    ),
    one(
        "a throttle of a tenth more",
        "log.cleaner.io.max.bytes.per.second",
        STEPS,
        "* 1000 / self._bytes_a_second",
        "* 900 / self._bytes_a_second",
        tests=(TEST_FILES,),
    ),
    # -- the log that is compacted ----------------------------------------------------------------
    one(
        "a cut does not end the round",
        "what was cut off comes back by a `.swap`",
        LOG,
        "        if offset < self._segments.active.base:\n            self.compaction.end()\n",
        "",
        tests=(CUT, LIVES),
    ),
    one(
        "a log that begins anew goes on with its round",
        "old records in a log that has none",
        LOG,
        "        self.compaction.end()\n        self._cursors.clear()\n",
        "        self._cursors.clear()\n",
        tests=(CUT, LIVES),
    ),
    one(
        "the cleaner checkpoint is lowered behind the cut",
        "an older record of a deleted key that stays",
        LOG,
        "        if self.cleaned_to is not None and self.cleaned_to > offset:\n",
        "        if self.cleaned_to is None and offset < 0:\n",
        tests=(TEST_LIVES,),
    ),
    one(
        "the cleaner checkpoint outlives a log that begins anew",
        "an older record of a deleted key that stays",
        LOG,
        "        self.cleaned_to = None\n",
        "",
        tests=(TEST_LIVES,),
    ),
    one(
        "a cleaner checkpoint beyond the log's end is believed",
        "an older record of a deleted key that stays",
        RECOVERY,
        "        if cleaned_to is not None and cleaned_to > end:\n",
        "        if cleaned_to is not None and end < 0:\n",
        tests=(TEST_LIVES,),
    ),
    one(
        "a log that is cut in a hole ends in it",
        "a follower that never catches up",
        "log/segment.py",
        "        return position, end\n",
        "        return position, offset\n",
        tests=(LIVES,),
    ),
    one(
        "a hole between segments is taken for compaction's",
        "what the power took, and nobody misses",
        RECOVERY,
        "        return base <= end + RELATIVE_MAX and (cleaned_to is None or base > cleaned_to)\n",
        "        return base < cleaned_to < 0\n",
        tests=("tests/log/test_log_recovery.py::test_a_segment_that_is_missing_ends_the_log",),
    ),
    # -- the cleaner's turns -----------------------------------------------------------------------
    one(
        "a log is compacted before its topic's settings are known",
        "a topic that is not compacted and loses records at each start",
        CLEANER,
        "        log.is_configured\n        and ",
        "        ",
        tests=(f"{TEST_CLEANER}::test_a_log_whose_topic_is_not_known_yet_is_left_alone",),
    ),
    one(
        "the metadata log is compacted",
        "a controller that forgets",
        CLEANER,
        "        and log.topic != METADATA_TOPIC\n",
        "",
        tests=(f"{TEST_CLEANER}::test_the_metadata_log_is_never_compacted",),
    ),
    one(
        "a round that is given up stays half done",
        "what was cut off comes back by a `.swap`",
        CLEANER,
        "                log.compaction.end()\n        log.compaction.done(checkpoint)",
        "                assert log\n        log.compaction.done(checkpoint)",
        tests=(
            f"{TEST_CLEANER}::test_a_round_that_is_given_up_is_put_right_at_once_and_tried_again",
        ),
    ),
    one(
        "a topic that is not compacted any more goes on with its round",
        "records that go although they are to stay",
        LOG,
        '        if "compact" not in settings.cleanup_policy:\n',
        "        if not settings.segment_bytes:\n",
        tests=(f"{TEST_CLEANER}::test_a_round_that_is_disturbed_leaves_a_whole_log",),
    ),
    one(
        "retention ends each round",
        "a log that is never compacted",
        "log/directories.py",
        "        if not is_kept and not log.compaction.is_under_way:\n",
        "        if not is_kept:\n",
        tests=(f"{TEST_CLEANER}::test_retention_waits_for_the_round_and_comes_behind_it",),
    ),
    one(
        "retention goes by the file's settings until the topic's are known",
        "records that were to stay, gone at a start without a controller",
        "log/directories.py",
        "        is_kept = log.topic == METADATA_TOPIC or not log.is_configured\n",
        "        is_kept = log.topic == METADATA_TOPIC\n",
        tests=("tests/log/test_log_retention.py::test_nothing_goes_before_its_topic_is_known",),
    ),
    one(
        "a log that was not committed far enough is forgotten",
        "a log that grows for ever",
        "log/compaction/cleaner_queue.py",
        "            self._behind[log] = offset\n",
        "            assert offset >= 0\n",
        tests=(f"{TEST_CLEANER}::test_what_is_not_committed_or_not_synced_waits",),
    ),
    one(
        "an emptied batch hides the largest timestamp",
        "a consumer that begins at the wrong place",
        "log/search.py",
        "        if header.record_count:\n",
        "        if header.magic:\n",
        tests=(f"{TEST_CLEANER}::test_an_emptied_batch_is_not_the_youngest",),
    ),
    one(
        "a compacted topic takes records without a key",
        "records that the next round drops",
        "node/broker/append_validation.py",
        '        or "compact" in settings.cleanup_policy  # each record must have a key\n',
        "",
        tests=("tests/node/test_record_validation.py::test_records_that_the_topic_does_not_take",),
    ),
    # -- found by the simulator -------------------------------------------------------------------
    one(
        "deleted keys are forgotten at once",
        "a deleted key that consumers do not hear of",
        REWRITE,
        "self.drops and has_horizon(header) and header.base_timestamp <= self.now_ms",
        "self.drops",
    ),
    one(
        "a deleted key is remembered until the next round",
        "a consumer that was away does not hear of it",
        REWRITE,
        "        self.horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)\n",
        "        self.horizon_ms = min(now_ms, INT64_MAX)\n",
    ),
    one(
        "what is not committed replaces what is",
        "an acknowledged record that is lost when its successor is cut off",
        HOST,
        "        settled = min(log.high_watermark, log.recovery_point)\n",
        "        settled = log.end\n",
    ),
    one(
        "a round calls all of the log clean",
        "an older record of a deleted key that comes back",
        HOST,
        "            self._log.cleaned_to = checkpoint\n",
        "            self._log.cleaned_to = self._log.end\n",
    ),
    one(
        "a kill in a round leaves old segments beside the new one",
        "offsets that go back",
        SWAPS,
        "        _remove(disk, directory, names, covered(names, offset_of(swap), last))\n",
        "        covered(names, offset_of(swap), last)\n",
    ),
)
