"""Findings 6 to 9 about the rim (docs/design/rim.md): their fixes are taken back, each alone.

Owns the list for the tests that each names, as `mutations_rim` does for the others.
"""

from __future__ import annotations

from mutation import Mutation, one

VALIDATION = "node/broker/append_validation.py"
RECORDS = "node/broker/record_validation.py"
HEADER = "wire/batch_header.py"
REAL = "runtime/real.py"
KEEPER = "log/start_keeper.py"
OBSERVER = "node/broker/metadata_observer.py"
FORWARDING = "node/broker/forwarding.py"

TEST_VALIDATION = "tests/node/test_validation.py"
TEST_RECORDS = "tests/node/test_record_validation.py"
TEST_DUE = "tests/node/test_due_work.py"
TEST_DELETION = "tests/log/test_log_deletion.py"
TEST_DELETE_RECORDS = "tests/replication/test_sim_delete_records.py"
TEST_UNREADABLE = "tests/control/test_control_unreadable.py"
TEST_DISK = "tests/log/test_log_disk_failure.py"
TEST_COPIES = "tests/log/test_log_copies.py"
TEST_DIRECTORIES = "tests/control/test_control_directories.py"
TEST_FIGURES = "tests/node/test_figures.py"

RIM_LOGS: tuple[Mutation, ...] = (
    # -- 6: a job of a deleted replica ----------------------------------------------------------
    one(
        "a queued job does not ask whether its replica is deleted",
        "finding 6: an acknowledged batch that was never written",
        "log/flusher.py",
        "                if self._closed:\n                    return\n                plan.run",
        "                plan.run",
        tests=(
            f"{TEST_DELETION}::test_a_job_that_waited_too_long_writes_nothing_into_the_next_of_that_name",
        ),
    ),
    one(
        "a job writes to where its name leads it",
        "finding 6: an acknowledged batch that was never written",
        REAL,
        "            yield RealFiles(path, descriptor)\n",
        "            yield RealFiles()\n",
        tests=("tests/log/test_log_deletion.py::test_a_job_in_its_middle_goes_on_where_it_began",),
    ),
    one(
        "a queued job of a deleted replica takes its disk for a dead one",
        "finding 6: a queued job of a deleted replica",
        KEEPER,
        "        except FileNotFoundError:\n            if not log.closed:\n  "
        "              raise\n",
        "        except FileNotFoundError:\n            raise\n",
        tests=("tests/log/test_log_kept_starts.py", f"{TEST_DELETE_RECORDS}"),
    ),
    # -- 7: batches that no consumer can parse --------------------------------------------------
    one(
        "fewer records than the header counts",
        "finding 7: a wrong number of records",
        RECORDS,
        "    elif walked.records < count:\n",
        "    elif walked.records < 0:\n",
        tests=(f"{TEST_RECORDS}::test_records_that_are_not_what_the_header_says",),
    ),
    one(
        "more records than the header counts",
        "finding 7: a wrong number of records",
        RECORDS,
        "    elif walked.position < len(body):\n",
        "    elif walked.position < 0:\n",
        tests=(f"{TEST_RECORDS}::test_records_that_are_not_what_the_header_says",),
    ),
    one(
        "a header whose two counts differ",
        "finding 7: a wrong number of records",
        HEADER,
        "    if count <= 0 or last_offset_delta != count - 1:\n",
        "    if count <= 0:\n",
        tests=("tests/wire/test_batch.py::test_what_a_producer_may_not_send",),
    ),
    one(
        "garbage under a right CRC",
        "finding 7: garbage",
        RECORDS,
        "    if walked.problem:\n",
        "    if walked.problem < 0:\n",
        tests=(f"{TEST_RECORDS}::test_records_that_are_not_what_the_header_says",),
    ),
    one(
        "offsets that do not count up",
        "finding 7: garbage",
        RECORDS,
        "    elif walked.uncounted_at >= 0:\n",
        "    elif walked.uncounted_at < -1:\n",
        tests=(f"{TEST_RECORDS}::test_records_that_are_not_what_the_header_says",),
    ),
    one(
        "a client says when the broker has appended",
        "finding 7: the LogAppendTime bit",
        HEADER,
        "_PRODUCED: Final = CODEC_MASK | TRANSACTIONAL\n",
        "_PRODUCED: Final = CODEC_MASK | TRANSACTIONAL | LOG_APPEND_TIME\n",
        tests=(f"{TEST_VALIDATION}::test_a_batch_s_attributes_and_producer_are_a_producer_s",),
    ),
    one(
        "attributes that nobody has defined",
        "finding 7: unknown attribute bits",
        HEADER,
        "    if attributes & ~_PRODUCED:\n",
        "    if attributes & ~_PRODUCED & 0xFF:\n",
        tests=(f"{TEST_VALIDATION}::test_a_batch_s_attributes_and_producer_are_a_producer_s",),
    ),
    one(
        "a codec that does not exist",
        "finding 7: unknown attribute bits",
        HEADER,
        "    if codec > Codec.ZSTD:\n        return ErrorCode.INVALID_RECORD\n",
        "",
        tests=("tests/wire/test_batch.py::test_what_a_producer_may_not_send",),
    ),
    one(
        "a base timestamp below none, by the header alone",
        "finding 7: wild base timestamps",
        VALIDATION,
        "    if base_timestamp < NO_TIMESTAMP:\n",
        "    if base_timestamp < -(2**63):\n",
        tests=(f"{TEST_VALIDATION}::test_a_timestamp_below_none_is_wild",),
    ),
    one(
        "a record's timestamp from before all bounds",
        "finding 7: wild base timestamps",
        RECORDS,
        "        if walked.least_at >= 0 and walked.least < earliest:\n",
        "        if walked.least_at > walked.largest_at:\n",
        tests=("tests/node/test_validation.py::test_the_settings_of_the_topic_hold",),
    ),
    one(
        "a producer id without an epoch",
        "finding 7: a producer id without an epoch",
        HEADER,
        "    if producer_id >= 0 and epoch < 0:\n",
        "    if producer_id >= 0 and epoch < -1:\n",
        tests=(f"{TEST_VALIDATION}::test_a_batch_s_attributes_and_producer_are_a_producer_s",),
    ),
    one(
        "a producer id without a sequence",
        "finding 7: a producer id without an epoch or the reverse",
        HEADER,
        "    if producer_id >= 0 and base_sequence < 0:\n",
        "    if producer_id >= 0 and base_sequence < -1:\n",
        tests=(f"{TEST_VALIDATION}::test_a_batch_s_attributes_and_producer_are_a_producer_s",),
    ),
    # -- 8: DeleteRecords -----------------------------------------------------------------------
    one(
        "names of logs are synced on the loop",
        "finding 8: 1,000 partitions took 1.6 to 3 s",
        KEEPER,
        "        job = self._home.submit(partial(_sync_names, self._home.runtime.disk,"
        " unnamed[:SLICE]))\n",
        "        _sync_names(self._home.runtime.disk, unnamed[:SLICE])\n"
        "        job = self._home.submit(lambda: None)\n",
        tests=(f"{TEST_DELETE_RECORDS}::test_nothing_of_it_is_synced_on_the_loop",),
    ),
    one(
        "one job syncs the names of all logs",
        "finding 8: a flush waits behind it",
        KEEPER,
        "unnamed[:SLICE]))\n",
        "unnamed))\n",
        tests=("tests/node/test_due_work.py::test_a_turn_begins_few_deletions",),
    ),
    one(
        "a deletion is begun in one turn, whatever it names",
        "finding 8: 1,000 partitions took 1.6 to 3 s",
        "node/api/delete_records.py",
        "        some = list(islice(self._asked, SLICE))\n",
        "        some = list(islice(self._asked, None))\n",
        tests=("tests/node/test_due_work.py::test_a_turn_begins_few_deletions",),
    ),
    one(
        "starts are written once for each partition",
        "finding 8: per partition",
        KEEPER,
        "        due, self._due = list(self._due), {}\n",
        "        due = list(self._due)[:1]\n        for log in due:\n         "
        "   del self._due[log]\n",
        tests=(
            "tests/replication/test_sim_delete_records.py::test_the_log_starts_are_written_together_for_all_that_a_request_names",
        ),
    ),
    # -- 9 --------------------------------------------------------------------------------------
    one(
        "a broker's producer ids wait behind what clients ask of the controller",
        "finding 9: one connection with clients' forwarded requests",
        "node/broker/broker.py",
        "ProducerIds(self.channel, ",
        "ProducerIds(self.forwarding.channel, ",
        tests=(
            f"{TEST_UNREADABLE}::test_a_brokers_own_requests_do_not_wait_behind_those_of_clients",
        ),
    ),
    one(
        "a broker's ISR changes wait behind what clients ask of the controller",
        "finding 9: one connection with clients' forwarded requests",
        "node/broker/broker.py",
        "IsrChanges(self.channel, ",
        "IsrChanges(self.forwarding.channel, ",
        tests=(f"{TEST_UNREADABLE}::test_an_isr_shrinks_while_clients_wait_for_the_controller",),
    ),
    one(
        "any number of clients' requests is on its way to the controller",
        "finding 9: a flood of administration",
        FORWARDING,
        "        if part * (requests + 1) > REQUESTS_MAX or part * (held + size) > BYTES_MAX:\n"
        '            whose = f"of {host} "\n'
        "        elif self._requests >= REQUESTS_MAX or self._bytes + size > BYTES_MAX:\n",
        "        if part * (held + size) > BYTES_MAX:\n"
        '            whose = f"of {host} "\n'
        "        elif self._bytes + size > BYTES_MAX:\n",
        tests=(f"{TEST_UNREADABLE}::test_what_is_forwarded_is_bounded",),
    ),
    one(
        "any number of bytes is on its way to the controller",
        "finding 9: a flood of administration",
        FORWARDING,
        "        if part * (requests + 1) > REQUESTS_MAX or part * (held + size) > BYTES_MAX:\n"
        '            whose = f"of {host} "\n'
        "        elif self._requests >= REQUESTS_MAX or self._bytes + size > BYTES_MAX:\n",
        "        if part * (requests + 1) > REQUESTS_MAX:\n"
        '            whose = f"of {host} "\n'
        "        elif self._requests >= REQUESTS_MAX:\n",
        tests=(f"{TEST_UNREADABLE}::test_what_is_forwarded_is_bounded",),
    ),
    one(
        "what was answered counts as on its way for ever",
        "finding 9: a flood of administration, and nothing more after it",
        FORWARDING,
        "        answer.add_done_callback(lambda _: self._count(host, -1, -size))\n",
        "        answer.add_done_callback(lambda _: self._count(host, 0, -size))\n",
        tests=(f"{TEST_UNREADABLE}::test_what_is_forwarded_is_bounded",),
    ),
    one(
        "one address may have all places of clients' requests",
        "finding 9: a flood of administration keeps everybody else out",
        FORWARDING,
        "        if part * (requests + 1) > REQUESTS_MAX or part * (held + size) > BYTES_MAX:\n",
        "        if False:\n",
        tests=(f"{TEST_UNREADABLE}::test_who_sends_many_together_takes_no_others_share",),
    ),
    one(
        "how long producers are kept is as it was at the start",
        "finding 9: producer.id.expiration.ms",
        "node/broker/broker.py",
        "            self.directories.configure(self.settings)\n",
        "",
        tests=(f"{TEST_DUE}::test_how_long_producers_are_kept_may_change_while_a_broker_runs",),
    ),
    one(
        "a broker that can't read the metadata log goes on",
        "finding 9: unfenced with a frozen image",
        OBSERVER,
        "        if self._unread >= UNREAD_MAX:\n",
        "        if self._unread < 0:\n",
        tests=(f"{TEST_UNREADABLE}::test_a_broker_that_does_not_understand_the_log_ends",),
    ),
    one(
        "one damaged answer after the other ends a broker, though all were read in the end",
        "finding 9: unreadable metadata",
        OBSERVER,
        "        self._unread = 0\n        self.high_watermark",
        "        self.high_watermark",
        tests=(f"{TEST_UNREADABLE}::test_what_can_be_read_at_last_ends_nobody",),
    ),
    one(
        "nobody is told how long the loop was held",
        "finding 9: loop_lag_ms_max is missing",
        "node/node.py",
        "        self.figures.tell(LOOP_LAG_MS_MAX, self._loop_lag.worst_ms)\n",
        "",
        tests=(f"{TEST_FIGURES}::test_brokers_and_controllers_tell_it_to_who_names_it",),
    ),
    one(
        "the last lag of the loop counts, not the worst",
        "finding 9: loop_lag_ms_max",
        "runtime/loop_lag.py",
        "            while worst and worst[-1][1] <= late_ms:\n",
        "            while worst:\n",
        tests=(f"{TEST_FIGURES}::test_the_worst_of_the_last_minute_counts",),
    ),
    one(
        "status does not show the loop's lag",
        "finding 9: loop_lag_ms_max",
        "cli/local/status_table.py",
        '        "LOOP LAG": "" if loop_lag is None else f"{loop_lag} ms",\n',
        "",
        tests=("tests/cli/test_cli_status_table.py::test_what_a_narrow_terminal_leaves_out",),
    ),
    one(
        "a full disk is a failing one",
        "finding 9: a full disk",
        "log/offline.py",
        "FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})\n",
        "FULL: Final = frozenset({errno.EMEDIUMTYPE})\n",
        tests=(f"{TEST_DISK}::test_a_full_disk_is_told_from_a_failing_one_and_once",),
    ),
    one(
        "what is told of a disk is told by no node",
        "finding 9: a full disk",
        "node/node.py",
        '        self.figures.tell(LOG_DIRS_OFFLINE, lambda: ";'
        ' ".join(self.directories.failures))\n',
        "",
        tests=(f"{TEST_FIGURES}::test_a_node_tells_which_of_its_disks_is_full",),
    ),
    one(
        "a new replica goes to a full directory alone",
        "finding 9: a full disk, which directory suffers",
        "log/directories.py",
        "                if directory.online:  # a file in it is damaged:"
        " nothing of it is left alone\n"
        "                    raise\n",
        "                raise\n",
        tests=(f"{TEST_DISK}::test_a_new_replica_goes_where_there_is_room",),
    ),
    # -- making replicas -------------------------------------------------------------------------
    one(
        "the file of a topic's id is shared after it is another topic's",
        "a replica takes what a deleted topic of the same name left",
        "log/topic_ids.py",
        '/{PARTITION_METADATA}":\n            del self._files[home, topic_id]\n',
        '/{PARTITION_METADATA}":\n            pass\n',
        tests=(
            "tests/log/test_log_directories.py::test_a_namesake_of_who_had_the_file_first_changes_no_ids",
        ),
    ),
    one(
        "a disk that fails at a shared file is not noticed",
        "a disk that fails, taken for one that can not share",
        "log/topic_ids.py",
        "                if error.errno not in _NOT_SHARED:\n                    raise\n",
        "",
        tests=(
            "tests/log/test_log_directories.py::test_a_disk_that_fails_at_a_shared_file_goes_offline",
        ),
    ),
    one(
        "new names are synced all the time",
        "what makes files waits for the journal",
        "log/directories.py",
        "                    _SYNC_PAUSE_S, self",
        "                    0, self",
        tests=(
            "tests/log/test_log_directories.py::test_many_new_names_are_made_durable_by_few_syncs",
        ),
    ),
    one(
        "a replica with an id and no file for records was in use",
        "found by seed 942507824278",
        "log/copies.py",
        "name == KNOWN_DIRECTORIES or name.endswith(LOG_SUFFIX)",
        'name == "partition.metadata" or name.endswith(LOG_SUFFIX)',
        tests=(
            f"{TEST_COPIES}::test_one_without_a_file_for_records_is_none_though_it_has_its_topics_id",
        ),
    ),
    one(
        "while no broker is up, Metadata names none",
        "found by make fuzz: librdkafka asks nobody any more",
        "node/api/metadata.py",
        "    return found or list(reachable([broker.lifecycle.described], listener))\n",
        "    return found\n",
        tests=(
            f"{TEST_DIRECTORIES}::test_the_only_broker_that_is_unregistered_still_says_where_it_is",
        ),
    ),
)
