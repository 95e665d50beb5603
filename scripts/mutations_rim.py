"""Findings 1 to 5 about the rim (docs/design/rim.md): each fix alone is taken back, by clauses.

Owns the list for the tests that each names. `known_as` says which finding it is. 6 to 9 are in
`mutations_rim_logs`; fetch sessions, budgets and waits have more in `mutations_sessions` and
`mutations_bounds`, and some, with finding 10, are in `mutations_following` and `mutations_nodes`.
"""

from __future__ import annotations

from mutation import Edit, Mutation, one

VALIDATION = "node/broker/append_validation.py"
RECORDS = "node/broker/record_validation.py"
COMPRESSION = "wire/compression.py"
LANE = "node/broker/fetch_lane.py"
APART = "node/broker/apart_fetcher.py"
FETCHER = "node/broker/leader_fetcher.py"
SLICED = "runtime/sliced_work.py"
SEARCH = "log/search.py"
REAL = "runtime/real.py"
ADMISSION = "node/door/admission.py"
CONNECTION = "node/door/connection.py"
REPLICAS = "node/broker/replicas.py"
SESSIONS = "core/controller/broker_sessions.py"

TEST_VALIDATION = "tests/node/test_validation.py"
TEST_APART = "tests/node/test_apart.py"
TEST_LYING = "tests/log/test_log_lying_headers.py"
TEST_DUE = "tests/node/test_due_work.py"
TEST_ADMISSION = "tests/node/test_admission.py"
TEST_DOOR = "tests/node/test_connection.py"

RIM: tuple[Mutation, ...] = (
    # -- 1: one produce request ends replication ------------------------------------------------
    one(
        "what a batch inflates to has no bound of its topic",
        "finding 1: 122 KB became 126 MB",
        RECORDS,
        "inflated(header.codec, body, size_max, effort)",
        "inflated(header.codec, body, 1 << 28, effort)",
        tests=(f"{TEST_VALIDATION}::test_a_bomb_is_not_inflated_to_its_end",),
    ),
    one(
        "gzip, lz4 and zstd are inflated as far as they go",
        "finding 1: 122 KB became 126 MB",
        COMPRESSION,
        "            if size == size_max:\n                raise _too_large(size_max) from error\n",
        "            if size == 1 << 40:\n                raise _too_large(size_max) from error\n"
        "            size_max *= 4\n",
        tests=("tests/wire/test_batch.py::test_inflating_is_bounded",),
    ),
    one(
        "a snappy block's own word for its size is believed",
        "finding 1: 122 KB became 126 MB",
        COMPRESSION,
        "    if size > size_max:\n        raise _too_large(size_max)\n    if size > len(block)",
        "    if size > len(block)",
        tests=(
            "tests/wire/test_batch.py::test_a_snappy_block_s_word_for_its_size_is_enough_to_refuse_it",
        ),
    ),
    one(
        "a batch that is built again may have any size",
        "finding 1: sizes checked after rebuilding",
        RECORDS,
        "        return refused or _rebuilt(",
        "        del refused\n        return _rebuilt(",
        tests=("tests/node/test_validation.py::test_a_segment_s_size_bounds_it_too",),
    ),
    one(
        "a batch that is built again is held against segment.bytes alone",
        "finding 1: sizes checked after rebuilding",
        VALIDATION,
        '        (ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", settings.max_message_bytes),\n',
        "",
        tests=(
            "tests/node/test_validation.py::test_what_is_built_again_is_held_against_the_bounds_again",
        ),
    ),
    one(
        "a batch has any number of records",
        "finding 1: a few bytes are a billion records",
        VALIDATION,
        "    if last_delta >= RECORDS_MAX:\n",
        "    if last_delta < 0:\n",
        tests=("tests/node/test_validation.py::test_a_batch_has_a_million_records_at_most",),
    ),
    one(
        "an answer between brokers has 100 MiB at most, whatever the settings say",
        "finding 1: limits between brokers from the settings",
        LANE,
        "    return min(ANY_FRAME_BYTES, records_max + _HEAD_BYTES +"
        " partitions * _PARTITION_BYTES)\n",
        "    return min(100 << 20, records_max + _HEAD_BYTES + partitions * _PARTITION_BYTES)\n",
        tests=("tests/node/test_apart.py::test_an_answer_may_be_as_large_as_the_settings_say",),
    ),
    one(
        "an answer between brokers has what was asked for at most, though one batch comes whole",
        "finding 1: limits between brokers from the settings",
        LANE,
        "    return max(0, settings.replica_fetch_response_max_bytes) + batch_bytes\n",
        "    return max(0, settings.replica_fetch_response_max_bytes)\n",
        tests=(
            "tests/node/test_apart.py::test_a_batch_over_the_limit_is_fetched_alone_and_those_like_it_along_with_the_rest",
        ),
    ),
    one(
        "a partition that is asked for alone may have no larger batch than all others",
        "finding 1: limits between brokers from the settings",
        APART,
        "            ANY_FRAME_BYTES if alone else frame_bytes_max(records_max, len(asked))\n",
        "            frame_bytes_max(records_max, len(asked)) if alone else ANY_FRAME_BYTES\n",
        tests=(
            "tests/node/test_apart.py::test_a_batch_over_the_limit_is_fetched_alone_and_those_like_it_along_with_the_rest",
        ),
    ),
    Mutation(
        "an answer that can't be read is asked for again, with all that was in it",
        "finding 1: a follower sets one bad partition aside",
        (
            Edit(
                FETCHER,
                "        if is_unreadable or self._failures >= FAILURES_MAX:\n",
                "        if self._failures < 0:\n",
            ),
            Edit(
                FETCHER,
                "        if not is_unreadable:\n            await self._pause(error)\n",
                "        await self._pause(error)\n",
            ),
        ),
        tests=(f"{TEST_APART}::test_one_bad_partition_costs_the_others_nothing_and_comes_back",),
    ),
    one(
        "who is set aside never comes back",
        "finding 1: a follower sets one bad partition aside, retried apart",
        APART,
        "        self._pauses.add(following, pause_ms)\n        self._wake()\n",
        "        self._wake()\n",
        tests=(f"{TEST_APART}::test_one_bad_partition_costs_the_others_nothing_and_comes_back",),
    ),
    one(
        "nobody is told who is set aside",
        "finding 1: a follower sets one bad partition aside, marked and told",
        APART,
        "        self._aside[following] = None\n",
        "",
        tests=(f"{TEST_APART}::test_one_bad_partition_costs_the_others_nothing_and_comes_back",),
    ),
    # -- 2: look-ups by timestamp ---------------------------------------------------------------
    one(
        "opening a batch is no effort",
        "finding 2: bounds on batches opened per call",
        SEARCH,
        "            effort.spent += OPENING_EFFORT\n",
        "",
        tests=("tests/log/test_log_lying_headers.py::test_a_slice_opens_few_batches",),
    ),
    one(
        "passing over a header is no effort",
        "finding 2: bounds on batches looked at per call",
        SEARCH,
        "            effort.spent += HEADER_EFFORT\n",
        "",
        tests=(f"{TEST_LYING}::test_headers_that_are_only_passed_count_too",),
    ),
    one(
        "bombs are inflated on the loop",
        "finding 2: off the loop",
        SLICED,
        "    inline = min(_INLINE_BYTES_MAX, size_max)\n"
        "    is_small = _INLINE_RATIO * size <= _INLINE_BYTES_MAX\n",
        "    inline, is_small = min(BYTES_A_SLICE // 2, size_max), True\n",
        tests=(f"{TEST_LYING}::test_bombs_are_inflated_in_the_worker",),
    ),
    one(
        "what inflates to nothing costs nothing",
        "a thousand empty members in each of a hundred thousand batches",
        SLICED,
        "max(len(body), _INLINE_RATIO * size) / BYTES_A_SLICE",
        "len(body) / BYTES_A_SLICE",
        tests=(
            "tests/node/test_record_validation.py::test_what_inflates_to_nothing_takes_its_part_of_a_slice",
        ),
    ),
    one(
        "a look-up inflates whatever a batch inflates to",
        "finding 2: bounds on bytes opened per call",
        "log/log.py",
        "        inflated_max = inflated_bytes_max(self.settings.max_message_bytes)\n",
        "        inflated_max = inflated_bytes_max(1 << 28)\n",
        tests=(f"{TEST_LYING}::test_bombs_are_inflated_in_the_worker",),
    ),
    one(
        "one batch's records are looked through in one go",
        "finding 2: streaming",
        SEARCH,
        "        effort.spent += sought.steps / STEPS_A_SLICE\n",
        "",
        tests=(f"{TEST_LYING}::test_records_are_looked_through_in_slices",),
    ),
    one(
        "each of many look-ups has a whole slice at once",
        "finding 2: a hundred look-ups in one packet",
        SLICED,
        "        effort.spent = min(self.pieces / _CROWD, 1 - 1 / _CROWD)\n",
        "",
        tests=(
            "tests/node/test_list_offsets.py::test_many_long_look_ups_at_once_do_little_at_once",
        ),
    ),
    one(
        "a look-up goes on though nobody waits for it",
        "finding 2: what outlives its connection",
        "node/api/list_offsets.py",
        "    deferred.lost = broker.sliced_work.begin(\n",
        "    broker.sliced_work.begin(\n",
        tests=("tests/node/test_list_offsets.py::test_a_long_look_up_is_a_promise",),
    ),
    # -- 3: parked fetches, and ten thousand partitions -----------------------------------------
    one(
        "what a fetch names twice is looked at twice",
        "finding 3: one partition named 100,000 times",
        "node/api/fetch_session.py",
        "        asked = self._asked.get(key)\n",
        "        asked = None\n",
        tests=(
            "tests/node/test_named_twice.py::test_a_fetch_looks_at_a_partition_once_and_from_the_offset_last_named",
        ),
    ),
    one(
        "what waits outlives its connection",
        "finding 3: four closed connections kept 113 MB",
        CONNECTION,
        "        for answer in slots:\n            answer.lost()\n",
        "",
        tests=(f"{TEST_DOOR}::test_what_waits_is_put_away_with_its_connection",),
    ),
    one(
        "a parked fetch outlives its connection",
        "finding 3: four closed connections kept 113 MB",
        "node/api/fetch.py",
        "        self._deferred.lost = self._leave\n",
        "",
        tests=("tests/node/test_lost_connections.py::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "a produce that waits for its followers outlives its connection",
        "finding 3: waits outlive their connection",
        "node/api/produce.py",
        "            self._deferred.lost = self._give_up\n",
        "            pass\n",
        tests=("tests/node/test_lost_connections.py::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "a deletion outlives its connection",
        "finding 3: waits outlive their connection",
        "node/api/delete_records.py",
        "        self.deferred.lost = self._end\n",
        "",
        tests=("tests/node/test_lost_connections.py::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "a wait is asked once for each key that was woken",
        "finding 3: O(n^2) with 10,000 partitions",
        "node/door/waiting_room.py",
        "            if watcher.touched(key):  # one may leave by it\n"
        "                self._due[watcher] = None\n",
        "            if watcher.touched(key):\n                watcher.ask()\n",
        tests=(
            "tests/node/test_waiting.py::test_a_wait_is_asked_once_however_many_of_its_keys_are_woken",
        ),
    ),
    one(
        "a fetch that waits looks at all of its partitions for each that changed",
        "finding 3: O(n^2) with 10,000 partitions",
        "node/api/fetch.py",
        "        look = self._look(fresh)\n",
        "        look = self._look(self._session.stirred | fresh)\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_partition_that_was_touched_is_looked_at_alone",
        ),
    ),
    one(
        "a request of a session looks at all of its partitions",
        "finding 3: three idle brokers burn a core",
        "node/api/fetch_session.py",
        "            del self.stirred[asked]\n",
        "            pass\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_partition_that_was_touched_is_looked_at_alone",
        ),
    ),
    one(
        "a follower's round names all that was answered",
        "finding 3: an acks=all round trip takes 191 ms",
        "core/replica/follower_session.py",
        "        if self._told.get(key) != position:\n",
        "        if position is not None:\n",
        tests=(
            "tests/core/test_follower_session.py::test_a_session_begins_with_everything_and_then_names_what_moved",
        ),
    ),
    one(
        "all that a dead broker led is decided on in one go",
        "finding 3: healthy brokers lose their sessions",
        SESSIONS,
        "            records.extend(leave_all(state, broker_id, changes_max=CHANGES_MAX))\n"
        "            if len(records) < CHANGES_MAX:\n",
        "            records.extend(leave_all(state, broker_id))\n"
        "            if records is not None:\n",
        tests=(
            "tests/core/test_control_shares.py::test_a_dead_broker_is_put_out_share_by_share_and_fenced_last",
        ),
    ),
    one(
        "all ISR changes go out in one request",
        "finding 3: nothing is acknowledged for 60 s",
        "node/broker/isr_changes.py",
        "            first = list(islice(self._waiting, ASKED_MAX))\n",
        "            first = list(islice(self._waiting, None))\n",
        tests=("tests/node/test_isr_shares.py::test_proposals_go_out_in_shares_in_their_order",),
    ),
    one(
        "a sweep looks at all leaders in one turn",
        "finding 3: work grows with what exists",
        REPLICAS,
        "        for partition in islice(left, SLICE_TOLD):\n",
        "        for partition in islice(left, None):\n",
        tests=(f"{TEST_DUE}::test_a_turn_looks_at_a_few_leaders",),
    ),
    one(
        "all leaders are told of a broker in one turn",
        "finding 3: work grows with what exists",
        REPLICAS,
        "        for partition in islice(self._told_of_brokers, SLICE_TOLD):\n",
        "        for partition in islice(self._told_of_brokers, None):\n",
        tests=(f"{TEST_DUE}::test_a_turn_looks_at_a_few_leaders",),
    ),
    one(
        "all partitions are taken up in one turn",
        "finding 3: full ISR not within 45 s of a restart",
        REPLICAS,
        "        while len(done) < SLICE and clock",
        "        while clock",
        tests=(
            "tests/control/test_control_many_partitions.py::test_partitions_are_taken_up_a_few_at_a_time",
        ),
    ),
    one(
        "what is to be led waits for its turn",
        "finding 3: full ISR not within 45 s of a restart",
        REPLICAS,
        "        due = self._due_to_lead if leader == self._node else self._due\n",
        "        due = self._due\n",
        tests=("tests/node/test_take_up.py::test_what_a_broker_leads_is_taken_up_first",),
    ),
    # -- 5: a flood of connections --------------------------------------------------------------
    one(
        "no descriptor is kept back for files",
        "finding 5: EMFILE counts as a dead disk",
        REAL,
        "            if error.errno not in _NO_DESCRIPTORS or not self._spare:\n",
        "            if error.errno:\n",
        tests=(
            "tests/node/test_file_limit.py::test_files_are_opened_when_connections_have_taken_every_descriptor",
        ),
    ),
    one(
        "who can't be accepted waits for ever",
        "finding 5: EMFILE closes a client",
        REAL,
        "            _descriptors.turn_away(listening)\n            return True\n",
        "            return True\n",
        tests=("tests/runtime/test_real.py::test_who_can_not_be_accepted_is_turned_away",),
    ),
    one(
        "max.connections has no effect",
        "finding 5: max.connections",
        ADMISSION,
        "        most = self._limits.node\n",
        "        most = UNLIMITED\n",
        tests=("tests/node/test_admission.py::test_a_node_has_as_many_as_it_may",),
    ),
    one(
        "there may be more connections than descriptors",
        "finding 5: max.connections defaults to what descriptors allow",
        ADMISSION,
        "        if len(self) >= self._descriptors:\n",
        "        if len(self) >= self._limits.node:\n",
        tests=(f"{TEST_ADMISSION}::test_a_newcomer_takes_the_place_of_who_is_missed_least",),
    ),
    one(
        "max.connections.per.ip has no effect",
        "finding 5: max.connections.per.ip",
        ADMISSION,
        "        if held < allowed:\n",
        "        if allowed >= 0:\n",
        tests=(f"{TEST_ADMISSION}::test_an_address_has_as_many_as_it_may",),
    ),
    one(
        "an address may have one connection more than it may",
        "finding 5: max.connections.per.ip",
        ADMISSION,
        "        if held < allowed:\n",
        "        if held <= allowed:\n",
        tests=(f"{TEST_ADMISSION}::test_an_address_has_as_many_as_it_may",),
    ),
    one(
        "who is not admitted is served all the same",
        "finding 5: max.connections.per.ip",
        CONNECTION,
        "        if self.group.admission.admit(self):\n            self.group.open[self] = None\n"
        "        else:\n            self.abort()\n",
        "        self.group.admission.admit(self)\n        self.group.open[self] = None\n",
        tests=("tests/node/test_connection.py::test_a_place_is_taken_by_who_is_there_alone",),
    ),
    one(
        "a node knows nothing of its limits on connections",
        "finding 5: max.connections, max.connections.per.ip",
        ADMISSION,
        "        limits = Limits.of(settings)\n        self._controller",
        "        limits = Limits()\n        self._controller",
        tests=(f"{TEST_ADMISSION}::test_a_controllers_connections_are_counted_apart",),
    ),
    one(
        "a node hears of no new limits on connections",
        "finding 5: max.connections",
        "node/broker/broker.py",
        "            self._admissions.brokers.limits = Limits.of(self.settings)\n",
        "",
        tests=(f"{TEST_ADMISSION}::test_a_node_knows_its_limits_and_hears_of_new_ones",),
    ),
    one(
        "a connection begins with 64 KB",
        "finding 5: memory of an idle connection",
        CONNECTION,
        "            self._resize(BUFFER_BYTES)\n",
        "            self._resize(BUFFER_FULL_BYTES)\n",
        tests=("tests/node/test_connection.py::test_a_connection_has_a_buffer_while_it_speaks",),
    ),
    one(
        "a connection has a buffer before it says anything",
        "finding 5: memory of an idle connection",
        CONNECTION,
        "        if self.group.admission.admit(self):\n            self.group.open[self] = None\n",
        "        if self.group.admission.admit(self):\n            self.group.open[self] = None\n"
        "            self.get_buffer(-1)\n",
        tests=("tests/node/test_connection.py::test_a_connection_has_a_buffer_while_it_speaks",),
    ),
    one(
        "who is silent keeps its buffer",
        "finding 5: memory of an idle connection",
        CONNECTION,
        "            if connection.active_at < before:\n               "
        " connection.give_buffer_back()\n",
        "            if connection.active_at < before - 1e9:\n"
        "                connection.give_buffer_back()\n",
        tests=("tests/node/test_connection.py::test_a_connection_has_a_buffer_while_it_speaks",),
    ),
)
