"""Bugs in how a query's rows get into a table, exactly once: SQLite, PostgreSQL, Parquet, Delta.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

MERGING = "pipelines/sinks/merging.py"
SQL_STORE = "pipelines/sinks/sql_store.py"
POSTGRESQL = "pipelines/sinks/postgresql_store.py"
COPY = "pipelines/sinks/postgresql_copy.py"
PARQUET = "pipelines/sinks/parquet/store.py"
PARQUET_RULES = "pipelines/sinks/parquet/columns.py"
DELTA = "pipelines/sinks/delta_store.py"
DELTA_TABLE = "pipelines/sinks/delta_table.py"
TURNS = "pipelines/sinks/turns.py"
PARQUET_TASK = "pipelines/sinks/parquet/task.py"
WRITTEN_FILES = "pipelines/sinks/written_files.py"
DATABASE = "pipelines/sinks/database_url.py"
TABLE_SINK = "pipelines/sinks/table_sink.py"
WRITING = "pipelines/sinks/writing.py"
TARGET = "pipelines/sinks/target.py"
COLUMN_FIT = "pipelines/sinks/column_fit.py"

_TESTS = "tests/pipelines/test_pipeline_"
MERGING_TESTS = (f"{_TESTS}merging.py",)
CATALOG_TESTS = (f"{_TESTS}catalogs.py",)
SESSION_TESTS = (f"{_TESTS}postgresql_sessions.py",)
ARGUMENTS = (f"{_TESTS}write_arguments.py",)
SQL_TESTS = (f"{_TESTS}sql_store.py",)
POSTGRESQL_TESTS = (f"{_TESTS}postgresql_store.py",)
_SHARED = "test_queries_that_share_a_folder_have_one_type_of_a_name"
PARQUET_TESTS = (f"{_TESTS}parquet_store.py",)
PARQUET_COLUMNS = (
    f"{_TESTS}parquet_store.py::test_other_columns_are_refused_unless_files_may_differ",
)
DELTA_TESTS = (f"{_TESTS}delta_store.py",)
POWER_TESTS = (f"{_TESTS}power.py",)
SQL_DEATHS = (f"{_TESTS}sql_deaths.py",)
DELTA_DEATHS = f"{_TESTS}delta_deaths.py::test_"

TABLES: tuple[Mutation, ...] = (
    # -- one transaction ---------------------------------------------------------------------------
    one(
        "tables: what is remembered of a batch is committed before its rows",
        "a driver that dies between the two",
        SQL_STORE,
        "            self.ownership.commit_batch(connection, batch, work, self._target.table)\n",
        "            self.ownership.commit_batch(connection, batch, work, self._target.table)\n"
        "        with self.ownership.transaction() as connection:\n",
        tests=SQL_DEATHS,
    ),
    one(
        "tables: texts are passed on as they are",
        "a database that refuses a batch without a word of the column",
        "pipelines/sinks/readable_texts.py",
        "column.validate(full=True)",
        "column.validate()",
        tests=(f"{_TESTS}readable_texts.py",),
    ),
    # -- what a call may say -----------------------------------------------------------------------
    one(
        "tables: an output mode in another case is passed on to Spark",
        "it takes Complete, and each batch appends all rows of the result again",
        WRITING,
        "    if output_mode not in _OUTPUT_MODES:",
        "    if output_mode.lower() not in _OUTPUT_MODES:",
        tests=ARGUMENTS,
    ),
    one(
        "tables: one id that is over counts as its letters",
        "the error that told the id comes again, whatever is given",
        TABLE_SINK,
        "[begin_anew] if isinstance(begin_anew, str) else begin_anew",
        "begin_anew",
        tests=ARGUMENTS,
    ),
    one(
        "tables: a target that is no URL is shown",
        "libpq's other form of an address has the password in it",
        WRITING,
        'if _SCHEME.fullmatch(scheme) and ":" in url else "it"',
        "",
        tests=ARGUMENTS,
    ),
    one(
        "tables: a table may be in memory",
        "it is gone with its process, and Spark's checkpoint is not",
        SQL_STORE,
        "        refuse_no_file(url)\n",
        "",
        tests=ARGUMENTS,
    ),
    one(
        "tables: what stands behind a folder's ? or # is cut off",
        "rows go to another folder than the one that was named",
        "pipelines/sinks/written_files.py",
        "    if parts.query or parts.fragment:\n",
        "    if parts.query and parts.fragment:\n",
        tests=ARGUMENTS,
    ),
    one(
        "tables: a database's password is read once",
        "a token that is changed every hour: tasks have the new one, and the driver the old one",
        DATABASE,
        "            arguments.update(connection_arguments(url))\n",
        "            pass\n",
        tests=(f"{_TESTS}database_url.py",),
    ),
    # -- which row of a key ------------------------------------------------------------------------
    one(
        "tables: of one partition an earlier row may win",
        "a later offset with an earlier timestamp",
        MERGING,
        "self._first(staging.c[PLACE].in_(latest), keys, order)",
        "self._first(chosen, keys, order)",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: an older version replaces a newer one",
        "a row that comes late",
        MERGING,
        "(version >= self._ordered(before))",
        "(version != self._ordered(before))",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: a row without a version is taken",
        "it stays for ever",
        MERGING,
        "        self._refuse_unversioned(connection, chosen)\n",
        "",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: a row of the table that has no version is never replaced",
        "a column that was added later",
        MERGING,
        "before.is_(None) | (version >= self._ordered(before))",
        "version >= self._ordered(before)",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: who is refused has taken the query over",
        "a wrong start ends the driver that is right",
        SQL_STORE,
        "        self._prepare_table(self._engine)\n"
        "        self._ownership = Ownership.take(self._engine, self._query)\n",
        "        self._ownership = Ownership.take(self._engine, self._query)\n"
        "        self._prepare_table(self._engine)\n",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: drivers that begin together are in each other's way",
        "a unique violation in the catalogue",
        SQL_STORE,
        "sql.exc.OperationalError):\n            self._try_to_prepare(engine)\n",
        "sql.exc.OperationalError):\n            raise\n",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: Parquet: who is refused has taken the query over",
        "a wrong start ends the driver that is right",
        PARQUET,
        "        self._refuse_other_columns(last)  # before anybody is fenced for it\n",
        "",
        tests=PARQUET_TESTS,
    ),
    one(
        "tables: what was deleted comes back with an older row",
        "a tombstone leaves no version behind",
        MERGING,
        "            winners &= ~self._is_older(tombstones)\n",
        "            pass\n",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: a deleted key stays deleted",
        "a marker that outlives the key's next row",
        MERGING,
        "                self._keys(tombstones).in_(self._keys_of(winners, sql.not_(gone)))\n",
        "                sql.false()\n",
        tests=MERGING_TESTS,
    ),
    one(
        "tables: a stateful query's key may be twice in a batch",
        "one of two rows, by chance",
        MERGING,
        "        if stateful and self._target.version is None:\n",
        "        if stateful and self._target.version is not None:\n",
        tests=MERGING_TESTS,
    ),
    # -- staged, and taken in ----------------------------------------------------------------------
    one(
        "tables: all that is staged is taken in",
        "an attempt that Spark did not choose: duplicates",
        POSTGRESQL,
        "        chosen = staging.c[ATTEMPT].in_(staged.attempts)\n",
        "        chosen = staging.c[ATTEMPT] > 0\n",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: rows that are not staged any more are not missed",
        "a batch with a part of its rows",
        SQL_STORE,
        "        if found != rows:\n",
        "        if found > rows:\n",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: a session speaks what its database says",
        "texts that are other texts",
        DATABASE,
        '    return {**told, "client_encoding": "UTF8"}\n',
        "    return told\n",
        tests=SESSION_TESTS,
    ),
    one(
        "tables: nobody looks whether a table was altered",
        "a column that rounds",
        SQL_STORE,
        "        if stamp is not None and stamp == self._stamp:\n",
        "        if stamp is not None:\n",
        tests=CATALOG_TESTS,
    ),
    one(
        "tables: texts are ordered by a language",
        "a before B",
        MERGING,
        "        if isinstance(version.type, sql.String):\n",
        "        if version is None:\n",
        tests=CATALOG_TESTS,
    ),
    one(
        "tables: what others have staged stays",
        "a staging table that grows for ever",
        POSTGRESQL,
        "        _empty(connection, staging)\n",
        "        connection.execute(staging.delete().where(chosen))\n",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: who takes over waits for the tasks of who was there",
        "a stopped executor keeps the next driver out",
        POSTGRESQL,
        " IN ACCESS EXCLUSIVE MODE NOWAIT",
        " IN ACCESS EXCLUSIVE MODE",
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: an empty text is null",
        "a column of texts",
        COPY,
        'quoting_style="needed"',
        'quoting_style="none"',
        tests=POSTGRESQL_TESTS,
    ),
    one(
        "tables: a password may be written out",
        "a secret in plans, event logs and workers",
        DATABASE,
        "    if parsed.password and not is_reference(str(parsed.password)):\n",
        "    if parsed.password is None and parsed.username == url:\n",
        tests=POSTGRESQL_TESTS,
    ),
    # -- Parquet -----------------------------------------------------------------------------------
    one(
        "tables: a former owner of a folder keeps its staging area",
        "two drivers of one query both commit",
        PARQUET,
        "            if path != fenced:\n",
        "            if not path.is_dir():\n",
        tests=PARQUET_TESTS,
    ),
    one(
        "tables: how far a folder is, is looked at before the others are fenced",
        "a batch that a former owner commits in between comes twice",
        PARQUET,
        "        self._fence_others()\n        self._manifest = last_manifest(self._table)\n",
        "        self._manifest = last_manifest(self._table)\n        self._fence_others()\n",
        tests=PARQUET_TESTS,
    ),
    one(
        "tables: a folder is published without some of its files",
        "a batch with a part of its rows",
        PARQUET,
        "        for name in staged.names:\n            (staged.folder",
        "        for name in staged.names[:1]:\n            (staged.folder",
        tests=PARQUET_TESTS,
    ),
    # -- Delta -------------------------------------------------------------------------------------
    one(
        "tables: Delta: the last turn is not looked at before a commit",
        "a former owner reads the table and writes after its successor",
        TURNS,
        '        if turn != self._told["turn"]:\n            raise FencedError(',
        '        if turn < self._told["turn"]:\n            raise FencedError(',
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: who takes a query over leaves its turn as it is",
        "two drivers of one query both commit",
        TURNS,
        "            failure = self._commit(table, told, [])\n"
        '            if self._turn_of(self._load()) == told["turn"]:\n',
        "            failure = None\n            if told:\n",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: an error means that nothing was committed",
        "the checkpoint after the commit finds no room",
        TURNS,
        "                if failure is not None:\n                    logger.warning(",
        "                if failure is not None:\n                    raise failure\n"
        "                    logger.warning(",
        tests=(f"{DELTA_DEATHS}an_error_that_comes_after_a_commit_does_not_undo_it",),
    ),
    one(
        "tables: Delta: what failed after its commit is taken back",
        "a log that names files that are not there",
        TURNS,
        '            if self._told["turn"] != told["turn"]:\n',
        "            if self._told:\n",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: a commit that failed leaves its files",
        "a disk that is full stays full",
        TURNS,
        "                self._withdraw(told)\n                raise\n",
        "                raise\n",
        tests=(f"{DELTA_DEATHS}a_disk_that_takes_no_commit_ends_the_batch_and_leaves_nothing",),
    ),
    one(
        "tables: Delta: what former owners moved in and did not commit stays",
        "files that nobody asks for",
        DELTA,
        '            if turn > before["before"] and turn not in committed:\n',
        "            if turn < 0:\n",
        tests=(
            f"{DELTA_DEATHS}a_writer_that_dies_at_any_step_leaves_each_batch_whole_or_not_at_all",
        ),
    ),
    one(
        "tables: Delta: the sweep takes the files of a turn that was committed",
        "rows that are lost",
        DELTA,
        " and turn not in committed:\n",
        ":\n",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: who is refused has taken the query over",
        "a wrong start ends the driver that is right",
        DELTA,
        "        fit(self._root, self._columns, adds=self._target.adds_columns)"
        "  # before anybody is fenced\n",
        "",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: how a table changes while a query runs is not looked at",
        "rows that break a constraint",
        DELTA,
        "        refuse_misfit(table, self._columns)\n",
        "        del table\n",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: a memory that is gone is none",
        "a copy of a table gets its rows again",
        DELTA,
        "            if self._turn_of(self._load()) != turn:\n                return None\n",
        "            return dict(NOTHING)\n",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: app transactions may be forgotten",
        "a query that rested is thought to be new",
        DELTA_TABLE,
        '        ("delta.setTransactionRetentionDuration", None),\n',
        "",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: moments are in a file in the session's time zone",
        "a reader that knows the table's type alone",
        PARQUET_TASK,
        "        self._schema = schema\n",
        "        self._schema = None\n",
        tests=DELTA_TESTS,
    ),
    # -- what a table may be, and what it is told ------------------------------------------------
    one(
        "tables: half a batch is told by what columns are called",
        "a column of the user's own that is called offset",
        TABLE_SINK,
        "if field.metadata.get(RECORD) == wanted\n",
        "if field.name == wanted\n",
        tests=(
            f"{_TESTS}sink.py::test_half_a_batch_is_told_by_what_columns_are_and_not_by_their_names",
        ),
    ),
    one(
        "tables: rows outside of a half-written batch are left out",
        "a union takes what a column is from its first part",
        TABLE_SINK,
        ".otherwise(refused)",
        ".otherwise(False)",
        tests=(f"{_TESTS}sink.py::test_a_row_outside_of_the_batch_ends_one_that_is_half_there",),
    ),
    one(
        "tables: of two columns that are the record's the first one decides",
        "one came from a file that another query wrote",
        TABLE_SINK,
        "f.when(alike & due, True).when(alike & planned, False)",
        "f.when(due, True).when(planned, False)",
        tests=(f"{_TESTS}sink.py::test_a_row_outside_of_the_batch_ends_one_that_is_half_there",),
    ),
    one(
        "tables: a table that was dropped is made anew for a query that goes on",
        "the rows before are missing",
        SQL_STORE,
        "            self._refuse_without_rows(connection)\n",
        "",
        tests=SQL_TESTS,
    ),
    one(
        "tables: which table has the rows is not remembered",
        "table= is changed",
        SQL_STORE,
        "batch, work, self._target.table)",
        "batch, work)",
        tests=SQL_TESTS,
    ),
    one(
        "tables: decimals are compared as SQLite has them",
        "9.00 is above 10.00",
        MERGING,
        "            return sql.collate(sql.type_coerce(version, sql.Text), DECIMAL_ORDER)\n",
        "            return version\n",
        tests=SQL_TESTS,
    ),
    one(
        "tables: a null is a key",
        "a new row each time",
        MERGING,
        "        self._refuse_without_key(connection, chosen)\n",
        "",
        tests=SQL_TESTS,
    ),
    one(
        "tables: a text may be cut",
        "spaces at its end",
        SQL_STORE,
        "        self._refuse_too_long(connection, staging, chosen)\n",
        "",
        tests=SQL_TESTS,
    ),
    one(
        "tables: a time zone is what the server's is",
        "moments are shifted",
        COLUMN_FIT,
        'if getattr(ours, "timezone", False) != getattr(there, "timezone", False):',
        "if False:",
        tests=(f"{_TESTS}target.py",),
    ),
    one(
        "tables: a decimal is rounded to what a column has",
        "NUMERIC(10, 2) for DECIMAL(12, 4)",
        COLUMN_FIT,
        "    if fraction > scale:\n",
        "    if fraction > precision:\n",
        tests=(f"{_TESTS}target.py",),
    ),
    one(
        "tables: a secret behind the question mark is taken",
        "plans and logs show it",
        DATABASE,
        "if not (isinstance(value, str) and is_reference(value)):",
        "if not isinstance(value, str):",
        tests=(f"{_TESTS}database_url.py",),
    ),
    one(
        "tables: Parquet: a name that readers pass over is taken",
        "a table without rows",
        PARQUET,
        'if name.startswith(("_", ".")):',
        'if name.startswith("_."):',
        tests=(f"{_TESTS}parquet_store.py::test_a_name_that_readers_pass_over_is_refused",),
    ),
    one(
        "tables: what is no number is a null",
        "SQLite says nothing",
        TARGET,
        "if value is not None and math.isnan(value):",
        "if value is None and not math.isnan(value or 0.0):",
        tests=SQL_TESTS,
    ),
    one(
        "tables: Parquet: a column may have two types",
        'schema_changes="add"',
        PARQUET_RULES,
        "before.get(name, kind) != kind:",
        "name not in before and kind is None:",
        tests=PARQUET_COLUMNS,
    ),
    one(
        "tables: Parquet: the columns of earlier files are forgotten",
        "a column that comes again with another type",
        PARQUET,
        '"columns": {**columns_of_files(self._manifest), **self._columns},',
        '"columns": self._columns,',
        tests=PARQUET_COLUMNS,
    ),
    one(
        "tables: Parquet: a query looks at others before it puts down what it writes",
        "two that begin at once see nothing of each other, and it is no other query's business",
        PARQUET_RULES,
        "    write_whole(own, json.dumps(columns).encode())\n    try:",
        "    try:",
        tests=(f"{_TESTS}parquet_store.py::{_SHARED}",),
    ),
    one(
        "tables: Parquet: who is refused keeps others from the columns that it wanted",
        "the query that is right can't begin",
        PARQUET_RULES,
        "            own.unlink(missing_ok=True)\n",
        "            pass\n",
        tests=(f"{_TESTS}parquet_store.py::{_SHARED}",),
    ),
    one(
        "tables: Parquet: a type within a type is not looked at",
        "a list of nulls, which readers differ about",
        PARQUET_RULES,
        'for key in ("elementType", "keyType", "valueType"):',
        'for key in ("keyType", "valueType"):',
        tests=(f"{_TESTS}parquet_store.py",),
    ),
    one(
        "tables: what is never null in a structure is so where that is null",
        "a row with a null structure ends the query",
        PARQUET_TASK,
        "self._schema or optional(first.schema)",
        "self._schema or first.schema",
        tests=(f"{_TESTS}nested_nulls.py",),
    ),
    one(
        "tables: files tell limits of floating numbers",
        "who filters passes over rows with NaN",
        PARQUET_TASK,
        "write_statistics=limits",
        "write_statistics=True",
        tests=(f"{_TESTS}not_a_number.py",),
    ),
    one(
        "tables: what says which columns a query writes is not synced",
        "after a power cut it is empty",
        WRITTEN_FILES,
        "        os.fsync(opened.fileno())\n",
        "",
        tests=POWER_TESTS,
    ),
    one(
        "tables: the name of a table's folder is not synced",
        "after a power cut there is no table",
        WRITTEN_FILES,
        "            sync(above)\n",
        "            pass\n",
        tests=POWER_TESTS,
    ),
    one(
        "tables: Delta: a log that was restored is read on from where it was",
        "a former owner commits behind a hole in the log",
        DELTA_TABLE,
        " or self._entry != self._seen(known.version()):",
        ":",
        tests=DELTA_TESTS,
    ),
    one(
        "tables: Delta: a checkpoint is not synced",
        "after a power cut it is torn, and hides the table",
        DELTA_TABLE,
        "            sync(folder / LOG / name)\n",
        "            pass\n",
        tests=DELTA_TESTS,
    ),
)
