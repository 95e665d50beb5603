"""Bugs on the way from fetched batches to columns: each loses rows, doubles them, or makes them up.

What is in the decoder is put into its twin in Python; the tests hold the compiled one against it.
"""

from __future__ import annotations

from mutation import Mutation, one

DECODER = "wire/walker/python_columns.py"
COLUMNS_OF = "wire/walker/record_columns.py"
BATCHES = "pipelines/reading/fetched_batches.py"
ROWS = "pipelines/reading/range_rows.py"
SESSION = "pipelines/reading/fetch_session.py"
RANGE = "pipelines/reading/wire_range.py"

TEST_DECODER = ("tests/wire/test_record_columns.py",)
TEST_WAYS = ("tests/pipelines/test_pipeline_ways.py",)
TEST_RANGE = ("tests/pipelines/test_pipeline_wire_range.py",)

COLUMNS: tuple[Mutation, ...] = (
    one(
        "columns: aborted batches are not held against their checksums",
        "a header that is damaged decides where the range goes on",
        ROWS,
        "        elif is_aborted:\n",
        "        elif False:\n",
        tests=TEST_WAYS,
    ),
    # -- records into columns ---------------------------------------------------------------------
    one(
        "columns: a window's first record is left out",
        "a record that is lost at each batch's beginning",
        DECODER,
        "            if offset >= start:\n",
        "            if offset > start:\n",
        tests=TEST_DECODER,
    ),
    one(
        "columns: offsets may come twice in a batch",
        "a batch that somebody made by hand",
        DECODER,
        "if not previous < delta <= last_delta:",
        "if not previous <= delta <= last_delta:",
        tests=TEST_DECODER,
    ),
    one(
        "columns: fewer records than a batch says are enough",
        "a damaged batch that loses records",
        DECODER,
        "    if not problem and not stopped and (index != count or position != size):\n",
        "    if not problem and not stopped and position != size:\n",
        tests=TEST_DECODER,
    ),
    one(
        "columns: a record without headers has no place among the lists",
        "headers of one record at another",
        DECODER,
        "        if self._with_headers:\n            self._add_headers(headers)\n",
        "        if self._with_headers and headers:\n            self._add_headers(headers)\n",
        tests=TEST_DECODER,
    ),
    one(
        "columns: columns that were taken are written to again",
        "rows that change after they were handed on",
        COLUMNS_OF,
        "        self._rooms, self._views, self._filled = [], (), Filled()\n",
        "        self._filled = Filled()\n",
        tests=TEST_DECODER,
    ),
    one(
        "columns: a run's next batch may have the last one's offset again",
        "a record in two batches",
        DECODER,
        "        start = max(start, of_batch[2] + of_batch[1] + 1)\n",
        "        start = max(start, of_batch[2] + of_batch[1])\n",
        tests=TEST_DECODER,
    ),
    # -- which batches give rows ------------------------------------------------------------------
    one(
        "columns: all that a producer writes is aborted, once something was",
        "a later transaction that is lost",
        BATCHES,
        "            self._producers.discard(header.producer_id)\n",
        "            pass\n",
        tests=TEST_WAYS,
    ),
    one(
        "columns: a transaction is aborted from the answer's beginning on",
        "an earlier transaction that is lost",
        BATCHES,
        "        while self._coming and self._coming[-1].first_offset <= header.last_offset:\n",
        "        while self._coming:\n",
        tests=TEST_WAYS,
    ),
    one(
        "columns: nobody looks at a batch's checksum",
        "damage that becomes rows",
        BATCHES,
        "    if crc32c(data[at + CRC_START : end]) != fields[4]:\n",
        "    if crc32c(data[at + CRC_START : end]) == -1:\n",
        tests=TEST_WAYS,
    ),
    one(
        "columns: an old format is a batch that is cut off",
        "a range that never ends",
        BATCHES,
        "        is_old = data[at + _MAGIC_AT] < MAGIC\n        if not is_old:\n",
        "        if data[at + _MAGIC_AT] > MAGIC:\n",
        tests=TEST_WAYS,
    ),
    # -- where a range stands ---------------------------------------------------------------------
    one(
        "columns: the position is a batch's last record",
        "a record in two answers",
        ROWS,
        "base_offset + last_delta + 1), self.end)",
        "base_offset + last_delta), self.end)",
        tests=TEST_WAYS,
    ),
    one(
        "columns: a batch gives the records before a range's start",
        "a record in two batches",
        ROWS,
        "            self.position, self.end,\n        )  # fmt: skip\n",
        "            base_offset, self.end,\n        )  # fmt: skip\n",
        tests=TEST_WAYS,
    ),
    one(
        "columns: rows of both kinds of timestamps are one kind",
        "a topic whose setting has changed",
        ROWS,
        "            yield from self.rest()\n            self._stamped = stamped\n",
        "            self._stamped = stamped\n",
        tests=TEST_WAYS,
    ),
    one(
        "columns: batches of both kinds of timestamps are one run",
        "a topic whose setting has changed",
        ROWS,
        "            if run is not None and run.attributes != attributes:\n",
        "            if False:\n",
        tests=TEST_WAYS,
    ),
    # -- sessions, and what brokers do ------------------------------------------------------------
    one(
        "columns: a session that was lost is gone on with",
        "refused for ever",
        SESSION,
        "        if response.error_code:\n            self.reset()\n",
        "        if response.error_code:\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: a session forgets no partition",
        "a range's partition comes with each later one's answers",
        SESSION,
        "        gone = [asked for asked in self._known if asked not in wanted]\n",
        "        gone: list[Asked] = []\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: the next fetch waits until an answer is decoded",
        "a broker that is idle meanwhile",
        RANGE,
        "            self._ask_ahead(following)\n",
        "            pass\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: the leader that was asked stays the leader",
        "a range that waits for ever",
        RANGE,
        "        self._trouble = trouble\n        self._is_stale = True\n",
        "        self._trouble = trouble\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: who does not have an offset is asked for it again",
        "a follower that is behind",
        RANGE,
        "        self._replica = None\n        time.sleep(PAUSE_S)\n",
        "        time.sleep(PAUSE_S)\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: a topic made anew goes on where the old one was",
        "records of two topics in one range",
        RANGE,
        "        if not is_meant(lead.topic_id, self._meant_id):\n",
        "        if False:\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: a client is kept with an answer outstanding",
        "the next range reads the last one's answer",
        RANGE,
        "        is_kept = is_whole and not client.is_asking and access.client not in _idle\n",
        "        is_kept = access.client not in _idle\n",
        tests=TEST_RANGE,
    ),
    one(
        "columns: a log that is shorter than the range is waited for",
        "truncation",
        RANGE,
        "        if bounds is None or bounds.end > self._rows.position:\n",
        "        if bounds is None or bounds.end >= 0:\n",
        tests=("tests/pipelines/test_pipeline_epochs.py",),
    ),
)
