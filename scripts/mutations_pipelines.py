"""Bugs in the way from a log to a table: the sink, its fence, the source, and what they ask.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Edit, Mutation, one

SINK = "pipelines/sink.py"
TABLE_SINK = "pipelines/sinks/table_sink.py"
FENCE = "pipelines/fence.py"
SPOOL = "pipelines/sinks/spool.py"
DUE = "pipelines/due.py"
PLANNED = "pipelines/planned.py"
SOURCES = "pipelines/progress/sources.py"
SOURCE = "pipelines/source.py"
READ = "pipelines/read_range.py"

_TESTS = "tests/pipelines/test_pipeline_"
SINK_TESTS = (f"{_TESTS}sink.py",)
FENCE_TESTS = (f"{_TESTS}fence.py",)
DUE_TESTS = (f"{_TESTS}due.py",)
SEVERAL_TESTS = (f"{_TESTS}several_sources.py",)
PLANNED_TESTS = (f"{_TESTS}planned.py",)
SOURCE_TESTS = (f"{_TESTS}source.py",)
READ_TESTS = (f"{_TESTS}read_range.py",)
DRIVER_TESTS = (f"{_TESTS}driver.py",)
STATEFUL_TESTS = (f"{_TESTS}stateful.py",)

PIPELINES: tuple[Mutation, ...] = (
    # -- the sink: what must be one transaction ---------------------------------------------------
    one(
        "pipelines: offsets are committed in a transaction of their own, before the rows",
        "SPARK-20565",
        SINK,
        "            self.ownership.commit_batch(connection, batch, work)\n",
        "            self.ownership.commit_batch(connection, batch, work)\n"
        "        with self.ownership.transaction() as connection:\n",
        tests=SINK_TESTS,
    ),
    Mutation(
        "pipelines: offsets are committed in a transaction of their own, after the rows",
        "the usual foreachBatch recipe",
        (
            Edit(SINK, "            self.ownership.commit_batch(connection, batch, work)\n", ""),
            Edit(
                SINK,
                "                    self._recipe.write(connection, chunk)\n\n    def close",
                "                    self._recipe.write(connection, chunk)\n"
                "        with self.ownership.transaction() as connection:\n"
                "            self.ownership.commit_batch(connection, batch, work)\n"
                "\n    def close",
            ),
        ),
        SINK_TESTS,
    ),
    one(
        "pipelines: what the log lacked is told beside SQL tables alone",
        "a hole in a table of files that nobody would look for",
        "pipelines/sinks/remembered.py",
        "        for gap in gaps_of(batch, work)\n",
        "        for gap in gaps_of(batch, work)[:0]\n",
        tests=(f"{_TESTS}parquet_store.py",),
    ),
    one(
        "pipelines: what a batch without rows lacked is in no snapshot of Iceberg's",
        "it adds no file, and only a snapshot shows what the log lacked",
        "pipelines/sinks/iceberg/store.py",
        'if adds or told["gaps"]:',
        "if adds:",
        tests=(f"{_TESTS}iceberg_store.py",),
    ),
    one(
        "pipelines: that SQLite's disk is full is told as an error of the disk",
        "nobody would think of making room",
        "pipelines/sinks/store.py",
        "    return _ANY_TROUBLE in said and",
        "    return False and",
        tests=("tests/pipelines/test_pipeline_full_disk.py",),
    ),
    Mutation(
        "pipelines: rows are computed while the transaction is open",
        "PostgreSQL ends a session that waits for Spark",
        (
            Edit(
                SPOOL,
                "            for chunk in chunks:\n                self._keep(chunk)\n",
                "            self._rest = chunks\n",
            ),
            Edit(
                SPOOL,
                "        while left:\n",
                "        yield from self._rest\n        while left:\n",
            ),
        ),
        SINK_TESTS,
    ),
    one(
        "pipelines: rows that wait are counted, and not weighed",
        "5,000 rows of 5 MB are held in memory",
        SPOOL,
        " or size + length > most_bytes",
        "",
        tests=(f"{_TESTS}spool.py",),
    ),
    one(
        "pipelines: a batch without new offsets is passed over",
        "0 of 2 windows",
        TABLE_SINK,
        "        if work.rows is Rows.NONE:\n",
        "        if work.rows is Rows.NONE or not work.moves:\n",
        tests=(f"{_TESTS}sink.py::test_rows_of_a_batch_that_was_planned_empty_are_refused",),
    ),
    one(
        "pipelines: the driver keeps what it is told to begin anew",
        "a switch without effect",
        "pipelines/driver.py",
        "        begin_anew=options.begin_anew,\n",
        "",
        tests=DRIVER_TESTS,
    ),
    one(
        "pipelines: a replay leaves its frame alone",
        "a stateful query's state is not committed",
        TABLE_SINK,
        "            _consume(frame)\n",
        "",
        tests=(f"{_TESTS}sink.py::test_what_is_there_is_computed_and_not_written_again",),
    ),
    one(
        "pipelines: a replay is written again",
        "at least once",
        DUE,
        "        return Work(rows=Rows.NONE, replay=True)\n",
        "        return Work(rows=Rows.ALL, replay=True)\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: a later chunk's rows are dropped",
        "only the first chunk is written",
        SINK,
        "                for chunk in staged.chunks():\n",
        "                for chunk in list(staged.chunks())[:1]:\n",
        tests=SINK_TESTS,
    ),
    one(
        "pipelines: a batch that was planned empty may have rows",
        "another source's offsets",
        TABLE_SINK,
        "    if rows and not batch.stateful and",
        "    if False and not batch.stateful and",
        tests=(f"{_TESTS}sink.py::test_rows_of_a_batch_that_was_planned_empty_are_refused",),
    ),
    one(
        "pipelines: what broke a batch is forgotten",
        "the driver says nothing of its reason",
        TABLE_SINK,
        "            self._process(frame, number)\n"
        "        except BaseException as error:\n"
        "            self.failure = error\n",
        "            self._process(frame, number)\n        except BaseException:\n",
        tests=SINK_TESTS,
    ),
    one(
        "pipelines: of a partition that is half there all rows are taken",
        "doubles rows after a lost checkpoint",
        TABLE_SINK,
        "begins = {move.reader: move.begin for move in moves}\n    spans",
        "begins = {move.reader: move.start for move in moves}\n    spans",
        tests=(
            f"{_TESTS}sink.py::test_of_a_lost_checkpoints_batches_only_what_is_missing_is_written",
        ),
    ),
    one(
        "pipelines: partitions that are wholly there are not left out",
        "doubles rows after a lost checkpoint",
        DUE,
        "    if not there and not partial:\n",
        "    if not partial:\n",
        tests=DUE_TESTS,
    ),
    # -- the fence --------------------------------------------------------------------------------
    one(
        "pipelines: a next offset is set when it is no higher than was thought",
        "compare and set with <=",
        FENCE,
        'offsets.c.next_offset == sql.bindparam("expected")',
        'offsets.c.next_offset <= sql.bindparam("expected")',
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: an offset that somebody changed is passed over",
        "a lost update",
        FENCE,
        "        if changed.rowcount != len(known):\n",
        "        if False:\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: whoever was replaced may still commit",
        "a zombie",
        FENCE,
        "                .where(queries.c.query == self.query, queries.c.epoch == self.epoch)\n",
        "                .where(queries.c.query == self.query)\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: two that take a query over get one epoch",
        "a race at the start",
        FENCE,
        "                .where(queries.c.query == query, queries.c.epoch == seen)\n",
        "                .where(queries.c.query == query)\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: an epoch follows on the one before",
        "an owner that a backup does not know of writes again",
        FENCE,
        "    return epoch + 1 + secrets.randbelow(EPOCH_STEP_MAX)\n",
        "    return epoch + 1\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: a recipe may end the transaction",
        "offsets of rows that never came",
        FENCE,
        "        connection.invalidate()  # closed, it can't be committed: what is refused may be "
        "tried again\n",
        "        return\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: a broken transaction is committed",
        "PostgreSQL rolls back and says nothing",
        FENCE,
        '        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")\n',
        "        pass\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: the tables don't note the batch",
        "windows are written twice",
        FENCE,
        "                batch=batch.number,\n",
        "",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: the batch of every query is noted",
        "two queries of one database",
        FENCE,
        "            queries.update()\n"
        "            .where(queries.c.query == self.query)\n"
        "            .values(\n",
        "            queries.update()\n            .values(\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: an older version's offsets are lost on the way into the new table",
        "a migration",
        FENCE,
        "    connection.execute(offsets.insert().from_select(list(_KEPT), kept))\n",
        "    del kept\n",
        tests=FENCE_TESTS,
    ),
    one(
        "pipelines: the second source of a partition shares the offset of the first",
        "a self-join",
        FENCE,
        "        return (self.query, *reader.partition, reader.source)\n",
        "        return (self.query, *reader.partition, 0)\n",
        tests=FENCE_TESTS,
    ),
    # -- what is due ------------------------------------------------------------------------------
    one(
        "pipelines: a gap that two batches have in common is told of the later one alone",
        "the most usual way in which retention overtakes a query",
        DUE,
        "        yield max(first, had.get(planned.reader, first)), min(behind, planned.start)\n",
        "        if behind <= planned.start:\n"
        "            yield max(first, had.get(planned.reader, first)), behind\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: rows that the table had when retention took them are told as lacking",
        "a driver that dies after the table's commit and stays away",
        TABLE_SINK,
        "        self._had = had_before(batch, work)\n",
        "",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: a replay is taken for a batch of which the table had nothing",
        "the same",
        DUE,
        "begins.get(each.reader, each.end)",
        "begins.get(each.reader, each.start)",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: what stays gone is said at each trigger",
        "a log that fills the disk",
        "pipelines/planner.py",
        "        self._said |= texts\n",
        "",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a topic that was deleted ends each run of a query that may skip it",
        "AvailableNow asks for the ends of all, first of all",
        SOURCE,
        "planner.still_there()",
        "planner.partitions()",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a fresh checkpoint goes on in a stateful query's tables",
        "windows come again",
        DUE,
        "    raise PlanError(_other_checkpoint(batch, last, query))\n",
        "    return Standing.FOLLOWS\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: an older copy of a checkpoint goes on",
        "a restored backup",
        DUE,
        "        if last.batch is None or batch.number != last.batch + 1:\n",
        "        if last.batch is None or batch.number > last.batch + 1:\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: any plan under the last batch's number is a replay",
        "a copied checkpoint",
        DUE,
        "    if (last.checkpoint, last.batch, last.plan) == (batch.checkpoint, batch.number, "
        "batch.plan):\n",
        "    if (last.checkpoint, last.batch) == (batch.checkpoint, batch.number):\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: a table that was removed is begun in the middle",
        "all rows of before are missing",
        DUE,
        "        if batch.number:\n",
        "        if batch.number < 0:\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: a gap between table and query is passed over",
        "rows are missing",
        DUE,
        "        if expected is not None and expected < plan.start:\n",
        "        if expected is not None and expected < plan.start and plan.start < plan.end:\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: a topic made anew is a replay",
        "0 of 50 records",
        DUE,
        "        if old is None or planned.topic_id is None or old == planned.topic_id:\n",
        "        if old is None or planned.topic_id is None or old:\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: the old topic's other partitions are remembered",
        "the new topic grows",
        DUE,
        "            if reader.partition.topic == topic\n",
        "            if reader == planned.reader\n",
        tests=DUE_TESTS,
    ),
    one(
        "pipelines: rows of two sources are told apart by their offsets",
        "a self-join after a lost checkpoint",
        DUE,
        "    _refuse_twins(busy)\n",
        "",
        tests=DUE_TESTS,
    ),
    # -- the plan ---------------------------------------------------------------------------------
    one(
        "pipelines: the sink does not tell which query is running",
        "another query's checkpoint",
        TABLE_SINK,
        ".batch(number, _running(frame))",
        ".batch(number)",
        tests=(f"{_TESTS}sink.py::test_another_querys_checkpoint_is_refused",),
    ),
    one(
        "pipelines: a plan is its offsets",
        "another watermark closes other windows",
        PLANNED,
        "            plan=hashlib.sha256(text.encode()).hexdigest(),\n",
        "            plan=hashlib.sha256(text.splitlines()[-1].encode()).hexdigest(),\n",
        tests=PLANNED_TESTS,
    ),
    one(
        "pipelines: state is never seen",
        "a stateful query without its rules",
        PLANNED,
        "            stateful=self._stateful,\n",
        "            stateful=False,\n",
        tests=STATEFUL_TESTS,
    ),
    # -- the source -------------------------------------------------------------------------------
    one(
        "pipelines: batch 0 reads",
        "SPARK: initialOffset is asked again on replay",
        SOURCE,
        "        if not self._pinned and begin == self._initial:\n",
        "        if self._pinned and begin == self._initial:\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a batch planned in an earlier life is read whatever its topic is now",
        "a topic made anew between two lives",
        SOURCE,
        "        others = self._planner.made_anew(after.ids, ids)\n",
        "        others: set[str] = set()\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: the source does not look at the topic's id",
        "0 of 50 records",
        SOURCE,
        "        others = planner.made_anew(begin.ids, ids)\n",
        "        others: set[str] = set()\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: an id that is not told just now is forgotten",
        "a topic made anew while a broker was away",
        SOURCE,
        "(begin.ids | ids).items() if t not in gone",
        "ids.items() if t not in gone",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a beginning past the end reads nothing",
        "a typing error",
        SOURCE,
        "            planner.lost(moves.out_of_log(start, end.offsets))\n",
        "            pass\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a new partition enters with its records",
        "they are lost when batch N runs again",
        "pipelines/offsets.py",
        "        if begin.get(partition, offset) < offset\n",
        "        if begin.get(partition, 0) < offset\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "pipelines: a leader that does not answer has an empty log",
        "librdkafka's offset -1001",
        "pipelines/reading/told_offsets.py",
        '"" if found.offset >= 0 else NO_ANSWER)',
        '"")',
        tests=READ_TESTS,
    ),
    one(
        "pipelines: whoever has read does not ask what it was",
        "a topic made anew between plan and read",
        SOURCE,
        "        if task.topic_id is not None:\n",
        "        if task.topic_id is None:\n",
        tests=READ_TESTS,
    ),
    one(
        "pipelines: ids are kept as the client spells them",
        "another base64",
        "pipelines/topic_ids.py",
        "spelt(str(future.result().topic_id))",
        "str(future.result().topic_id)",
        tests=READ_TESTS,
    ),
    one(
        "pipelines: a gap is told again while its source stands",
        "rows that are missing once are missing with each batch",
        PLANNED,
        "() if old == new else told.get(partition, ()) for told in",
        "told.get(partition, ()) for told in",
        tests=PLANNED_TESTS,
    ),
    one(
        "pipelines: a gap that was told ends a batch that tells it again",
        "an older copy of a checkpoint",
        FENCE,
        "(gaps).on_conflict_do_nothing()",
        "(gaps)",
        tests=FENCE_TESTS,
    ),
    # -- several sources ---------------------------------------------------------------------------
    one(
        "pipelines: a source is its number among those that know the partition",
        "an earlier one learns of it later",
        PLANNED,
        "Reader(partition, place)",
        "Reader(partition, sum(r.reader.partition == partition for r in planned))",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: tables of before are taken to remember places",
        "the version before counted",
        SOURCES,
        "named = {r for r in remembered if of_this_checkpoint and by_place and r.source >= 0}",
        "named = {r for r in remembered if of_this_checkpoint and r.source >= 0}",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: a source that learns of a partition now is one of those that knew it",
        "tables of before",
        SOURCES,
        "places = {**places, **before}",
        "places = {**before, **places}",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: another number of sources is matched as far as it goes",
        "rows of one are taken for those of another",
        SOURCES,
        "if another or len(others) != len(candidates):\n"
        "                raise PlanError(_cannot_tell(partition))\n"
        "            sure |= zip(others, candidates, strict=True)\n",
        "if another:\n"
        "                raise PlanError(_cannot_tell(partition))\n"
        "            sure |= zip(others, candidates, strict=False)\n",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: a topic that another of the sources reads now begins anew",
        "its rows come again",
        SOURCES,
        "            if another or len(others)",
        "            if len(others)",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: places hold in another checkpoint",
        "a query that names its topics in another order",
        DUE,
        "of_this_checkpoint=memory.last.checkpoint == batch.checkpoint,",
        "of_this_checkpoint=True,",
        tests=SEVERAL_TESTS,
    ),
    one(
        "pipelines: a topic that one source found made anew is forgotten for all",
        "another source of the query has not come to it",
        DUE,
        "and (sources[reader] == planned.reader.source or sources[reader] < 0)",
        "",
        tests=SEVERAL_TESTS,
    ),
    # -- a range ----------------------------------------------------------------------------------
    one(
        "pipelines: the end of a partition does not move the position",
        "a hole at a range's end: markers, compaction",
        READ,
        "                self.position = max(self.position, message.offset())\n",
        "",
        tests=READ_TESTS,
    ),
    one(
        "pipelines: records past the range's end are taken",
        "a record in two batches",
        READ,
        "                if message.offset() < self.end:\n",
        "                if message.offset() <= self.end:\n",
        tests=READ_TESTS,
    ),
    one(
        "pipelines: a log that is shorter than the range is whole",
        "truncation",
        READ,
        "        self.access.lost(self.partition, "
        'f"the log ends at {latest.offset}, before {self.end}")\n',
        "",
        tests=READ_TESTS,
    ),
)
