"""Bugs in what clients may owe, and in what waits, as a sceptic would put them.

Owns the list for the tests that each names: boundaries, what is not given back, a wait that is over
and still registered.
"""

from __future__ import annotations

from mutation import Mutation, one

FETCH = "node/api/fetch.py"
CONNECTION = "node/door/connection.py"
READERS = "node/api/fetch_readers.py"
LEDGER = "node/door/ledger.py"
BUDGET = "node/door/budget.py"
ROOM = "node/door/waiting_room.py"
PRODUCE = "node/api/produce.py"
SLICED = "runtime/sliced_work.py"


BOUNDS: tuple[Mutation, ...] = (
    # -- budgets --------------------------------------------------------------------------------
    one(
        "one request more than may be unanswered",
        "holdfast.connection.requests.max",
        CONNECTION,
        "            and len(self.slots) < bounds.requests\n",
        "            and len(self.slots) <= bounds.requests\n",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_at_the_bound_of_unanswered_requests",
        ),
    ),
    one(
        "answers that wait for an earlier one are not held against the connection",
        "finding 4: sixty answers of 20 MB behind one that waits",
        CONNECTION,
        "        self._held_bytes += size\n        self._ready_bytes += size\n",
        "        self._ready_bytes += size\n",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_at_the_bound_of_answers_that_wait_for_an_earlier_one",
        ),
    ),
    one(
        "what was answered is held against the connection for ever",
        "a connection that is read no more",
        CONNECTION,
        "        self._held_bytes -= answer.reserved\n",
        "",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_large_answers_are_promised",
        ),
    ),
    one(
        "an answer that may become large is counted once it is",
        "finding 4: 500 woken waits on one connection",
        CONNECTION,
        "            self._held_bytes += answer.reserved\n",
        "            answer.reserved = 0\n",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_large_answers_are_promised",
        ),
    ),
    one(
        "a fetch that waits says nothing of how large its answer may be",
        "finding 4: 500 woken waits on one connection",
        FETCH,
        "            max(0, min(session.bytes_max, most)), 0 if"
        " session.session_id else session.size\n",
        "            0, 0 if session.session_id else session.size\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_fetch_that_waits_says_how_large_it_may_become",
        ),
    ),
    one(
        "a fetch that waits says nothing of how many partitions it waits for",
        "holdfast.connection.partitions.max",
        FETCH,
        "            max(0, min(session.bytes_max, most)), 0 if"
        " session.session_id else session.size\n",
        "            max(0, min(session.bytes_max, most)), 0\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_fetch_that_waits_says_how_large_it_may_become",
        ),
    ),
    one(
        "any number of partitions is waited for on a connection",
        "holdfast.connection.partitions.max",
        CONNECTION,
        "            and self._held_partitions <= bounds.partitions\n",
        "",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_very_many_partitions_are_waited_for",
        ),
    ),
    one(
        "partitions that were waited for count for ever",
        "a connection that is read no more",
        CONNECTION,
        "            slots.popleft()\n            self._held_partitions -= answer.partitions\n",
        "            slots.popleft()\n",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_very_many_partitions_are_waited_for",
        ),
    ),
    one(
        "what a connection owed is owed when it is gone",
        "a ledger that is not given back",
        CONNECTION,
        "        self._ready_bytes = self._kept_bytes = 0\n        self._owe()\n",
        "        self._kept_bytes = 0\n",
        tests=(
            "tests/node/test_connection.py::test_who_takes_nothing_is_closed_on_when_the_node_holds_too_much",
        ),
    ),
    one(
        "what was received of a request is counted when its connection is gone",
        "a ledger that is not given back",
        CONNECTION,
        "        self.group.budget.requests.note(self, 0)\n",
        "",
        tests=(
            "tests/node/test_connection.py::test_who_leaves_the_largest_request_unfinished_is_closed_on_when_all_are_too_large",
        ),
    ),
    one(
        "a connection that is gone has its place still",
        "the count of an address is not given back",
        CONNECTION,
        "        self.group.admission.leave(self)\n",
        "",
        tests=("tests/node/test_connection.py::test_a_place_is_taken_by_who_is_there_alone",),
    ),
    one(
        "who owes much is read on",
        "finding 4: unread answers",
        CONNECTION,
        "            and not ((self._clogged or self._is_debtor) and self._owes_too_much)\n",
        "",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_the_node_holds_much_for_those_who_owe_much",
        ),
    ),
    one(
        "who owes nothing is not read while others owe much",
        "one client's debt holds all others up",
        CONNECTION,
        "            and not ((self._clogged or self._is_debtor) and self._owes_too_much)\n",
        "            and not self._owes_too_much\n",
        tests=(
            "tests/node/test_connection.py::test_reading_stops_while_the_node_holds_much_for_those_who_owe_much",
        ),
    ),
    one(
        "a reader is given much while the node holds much",
        "finding 4: unread answers",
        "node/api/fetch_readers.py",
        "        return self._broker.budgets.of(client.listener).answers.room(client.host)\n",
        "        return UNLIMITED if client.host else 0\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_an_answer_is_one_batch_where_the_node_holds_much",
        ),
    ),
    one(
        "who holds the least is closed on",
        "the one with the least pays for the one with the most",
        LEDGER,
        "worst = max((each",
        "worst = min((each",
        tests=("tests/node/test_budget.py::test_who_holds_the_most_is_closed_on",),
    ),
    one(
        "the address that holds the least is closed on",
        "one address's connections pay for another's",
        LEDGER,
        "greediest = max(self._by_address",
        "greediest = min(self._by_address",
        tests=("tests/node/test_budget.py::test_who_holds_the_most_is_closed_on",),
    ),
    one(
        "an address has no bound of its own",
        "holdfast.address.answer.bytes.max",
        LEDGER,
        "        while self._by_address.get(host, 0) > self._address_most:\n",
        "        while self._by_address.get(host, 0) > UNLIMITED:\n",
        tests=("tests/node/test_budget.py::test_who_holds_the_most_is_closed_on",),
    ),
    one(
        "a node closes on who has just as much as all may have",
        "a boundary",
        LEDGER,
        "        while self.held > self._most:\n",
        "        while self.held >= self._most:\n",
        tests=("tests/node/test_budget.py::test_who_holds_the_most_is_closed_on",),
    ),
    one(
        "an address is closed on at its bound",
        "a boundary",
        LEDGER,
        "        while self._by_address.get(host, 0) > self._address_most:\n",
        "        while self._by_address.get(host, 0) >= self._address_most:\n",
        tests=(
            "tests/node/test_budget.py::test_an_address_that_holds_much_leaves_others_their_room",
        ),
    ),
    one(
        "one address's room is everybody's",
        "what one address left unread made all answers short",
        LEDGER,
        "        return max(0, min(self._most // 2 - self.held, of_address))\n",
        "        return max(0, self._address_most // 2 - self.held)\n",
        tests=(
            "tests/node/test_budget.py::test_an_address_that_holds_much_leaves_others_their_room",
        ),
    ),
    one(
        "the cluster's own listeners share the clients' budget",
        "what clients leave unread holds replication up",
        BUDGET,
        "        return self._own.get(listener, self._clients)\n",
        "        return self._clients if listener else self._own[listener]\n",
        tests=(
            "tests/node/test_budget.py::test_what_clients_hold_stops_neither_replication_nor_a_quorum",
        ),
    ),
    one(
        "the largest request has no room where the bound is smaller",
        "holdfast.request.bytes.max",
        BUDGET,
        "                max(largest, settings.holdfast_request_bytes_max),\n",
        "                settings.holdfast_request_bytes_max,\n",
        tests=(
            "tests/node/test_budget.py::test_what_clients_hold_stops_neither_replication_nor_a_quorum",
        ),
    ),
    one(
        "two bounds of a connection have each other's keys",
        "holdfast.connection.partitions.max",
        BUDGET,
        "                settings.holdfast_connection_requests_max,\n"
        "                settings.holdfast_connection_partitions_max,\n",
        "                settings.holdfast_connection_partitions_max,\n"
        "                settings.holdfast_connection_requests_max,\n",
        tests=("tests/node/test_budget.py::test_a_connection_has_the_bounds_of_its_keys",),
    ),
    one(
        "any number of pieces of work is in the middle of something",
        "memory of many long look-ups",
        SLICED,
        "        if self._waiting and self._holding < HOLDING_MAX:\n            self._active",
        "        if self._waiting:\n            self._active",
        tests=("tests/runtime/test_sliced_work.py::test_few_are_in_the_middle_of_something",),
    ),
    one(
        "a piece that rests keeps its place",
        "four look-ups that rest stop all others",
        SLICED,
        "        elif piece.wanted is REST:\n            self._holding -= 1\n",
        "        elif piece.wanted is REST:\n",
        tests=(
            "tests/runtime/test_sliced_work.py::test_slices_take_turns_and_the_loop_gets_back_between_them",
        ),
    ),
    one(
        "long work goes on as soon as the loop is free",
        "others have a third of the loop",
        SLICED,
        "            pause = max(PAUSE_S, _PAUSE_FACTOR * self._own_time.took(began, ended))\n",
        "            pause = PAUSE_S\n",
        tests=("tests/runtime/test_sliced_work.py::test_others_have_the_loop_for_twice_as_long",),
    ),
    one(
        "long work rests for as long as the process stood still",
        "a minute of SIGSTOP costs two more",
        SLICED,
        "_PAUSE_FACTOR * self._own_time.took(began, ended))\n",
        "_PAUSE_FACTOR * (ended - began))\n",
        tests=(
            "tests/runtime/test_sliced_work.py::test_a_slice_in_which_the_process_stood_still_costs_no_such_rest",
        ),
    ),
    one(
        "who asked while the node stood still rests for as long",
        "members are out, and their late commits take effect",
        CONNECTION,
        "        took = self.group.own_time.took(began, now)\n",
        "        took = now - began\n",
        tests=(
            "tests/node/test_connection.py::test_who_asked_while_the_process_stood_still_does_not_wait_for_so_long",
        ),
    ),
    one(
        "who asks many things at once goes on at once",
        "attack small-requests: a flood of them has the loop",
        CONNECTION,
        "                self.group.many.rest_after(took)\n",
        "                pass\n",
        tests=(
            "tests/node/test_connection.py::test_who_asks_many_things_at_once_rests_between_them",
        ),
    ),
    one(
        "a short rest ends a long one",
        "a small dear request behind each large one",
        "node/door/line.py",
        "        self._rests_until = max(self._rests_until, until)\n",
        "        self._rests_until = until\n",
        tests=("tests/node/test_line.py::test_a_short_rest_does_not_end_a_long_one",),
    ),
    one(
        "who moves records rests, too",
        "a producer that fills its connection has a third of its throughput",
        CONNECTION,
        "        if key in HOT and not is_flood:\n",
        "        if key is None:\n",
        tests=(
            "tests/node/test_connection.py::test_who_asks_many_things_at_once_rests_between_them",
        ),
    ),
    one(
        "whoever fetches never rests",
        "attack small-fetches: a flood of them has the loop",
        CONNECTION,
        "        if key in HOT and not is_flood:\n",
        "        if key in HOT:\n",
        tests=(
            "tests/node/test_connection.py::test_who_asks_many_things_at_once_rests_between_them",
        ),
    ),
    one(
        "who produces by a request for each partition rests",
        "librdkafka with 200 partitions: a tenth of its throughput",
        CONNECTION,
        "        is_flood = key != PRODUCE and self",
        "        is_flood = self",
        tests=(
            "tests/node/test_connection.py::test_who_asks_many_things_at_once_rests_between_them",
        ),
    ),
    one(
        "each byte of a request is read by itself",
        "attack slow-writer: bytes one at a time on a hundred connections",
        CONNECTION,
        "            self._count_piece()\n",
        "            pass\n",
        tests=(
            "tests/node/test_connection.py::test_a_frame_that_comes_byte_by_byte_is_read_now_and_then",
        ),
    ),
    one(
        "pieces of all frames are counted together",
        "a connection slows down the longer it lives",
        CONNECTION,
        "            self._pieces = 0\n            if rest:\n",
        "            if rest:\n",
        tests=(
            "tests/node/test_connection.py::test_a_frame_that_comes_byte_by_byte_is_read_now_and_then",
        ),
    ),
    one(
        "who has begun the next request is silent",
        "a busy producer is closed on as idle",
        CONNECTION,
        "            if rest:\n"
        "                self.active_at = self._loop.time()  # another frame has begun\n",
        "",
        tests=(
            "tests/node/test_connection.py::test_who_never_stops_between_two_frames_is_not_silent",
        ),
    ),
    one(
        "what a failed job held is given back on the loop",
        "attack gzip-bomb: 16 MB for each",
        "runtime/tasks.py",
        "        traceback.clear_frames(error.__traceback__)\n",
        "",
        tests=(
            "tests/runtime/test_real.py::test_what_a_job_held_that_fails_is_given_back_where_it_ran",
        ),
    ),
    one(
        "any number of tagged fields in a header",
        "a request of 100 MB that is nothing but those",
        "wire/primitives.py",
        "    if count > TAGS_MAX:\n",
        "    if count < 0:\n",
        tests=("tests/wire/test_hostile.py::test_a_header_has_few_tagged_fields",),
    ),
    one(
        "tagged fields are not counted over a request",
        "a request of 100,000 elements with a thousand each",
        "wire/decoder.py",
        "            self.counted(count)\n",
        "",
        tests=("tests/wire/test_hostile.py::test_tagged_fields_are_counted_over_a_whole_request",),
    ),
    one(
        "tagged fields of partitions are no parts of a produce request",
        "a request of 100 MB that is nothing but those",
        "node/door/request_bounds.py",
        "            self.count(tags)\n",
        "",
        tests=(
            "tests/node/test_bounds.py::test_tagged_fields_of_a_produce_request_count_as_parts",
        ),
    ),
    # -- what a client is told ------------------------------------------------------------------
    one(
        "latest is told before the new epoch's start is committed",
        "finding 10: OFFSET_NOT_AVAILABLE, KIP-207",
        "node/api/list_offsets.py",
        "        and log.high_watermark < held.state.epoch_start\n",
        "        and False\n",
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
        "            if answer.is_before_effect and not answer.is_answered:\n"
        "                self.mute()\n"
        "                answer.proceed = self.unmute\n",
        "",
        tests=("tests/node/test_deep_produce.py::test_nothing_overtakes_it",),
    ),
    one(
        "deep validation looks at no record",
        "garbage in a log that promised to have none",
        "node/broker/append_validation.py",
        '        or settings.record_validation == "deep"\n',
        "",
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
)
