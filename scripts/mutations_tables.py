"""Bugs in how a query's rows get into a table of SQLite, PostgreSQL or Parquet, exactly once.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

MERGING = "pipelines/sinks/merging.py"
SQL_STORE = "pipelines/sinks/sql_store.py"
POSTGRESQL = "pipelines/sinks/postgresql_store.py"
COPY = "pipelines/sinks/postgresql_copy.py"
PARQUET = "pipelines/sinks/parquet_store.py"
DATABASE = "pipelines/sinks/database_url.py"

_TESTS = "tests/pipelines/test_pipeline_"
MERGING_TESTS = (f"{_TESTS}merging.py",)
POSTGRESQL_TESTS = (f"{_TESTS}postgresql_store.py",)
PARQUET_TESTS = (f"{_TESTS}parquet_store.py",)

TABLES: tuple[Mutation, ...] = (
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
        "(insert.excluded[self._target.version] >= before)",
        "(insert.excluded[self._target.version] != before)",
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
        "before.is_(None) | ",
        "",
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
        "        self._refuse_other_columns(self._last_manifest())"
        "  # before anybody is fenced for it\n",
        "",
        tests=PARQUET_TESTS,
    ),
    one(
        "tables: what was deleted comes back with an older row",
        "a tombstone leaves no version behind",
        MERGING,
        "            winners &= ~self._is_older(tombstones)\n",
        "",
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
        "tables: what others have staged stays",
        "a staging table that grows for ever",
        POSTGRESQL,
        "        connection.execute(staging.delete())\n",
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
        "        self._fence_others()\n        self._manifest = self._last_manifest()\n",
        "        self._manifest = self._last_manifest()\n        self._fence_others()\n",
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
)
