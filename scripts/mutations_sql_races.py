"""Bugs in SQL sinks where others write to the table, or alter it, at the same moment.

The simulator runs no database, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one
from mutations_tables import MERGING, POSTGRESQL, SQL_STORE

CATALOGS = "pipelines/sinks/catalogs.py"
_RACES = "tests/pipelines/test_pipeline_sql_races.py::test_"
_TABLES = "tests/pipelines/test_pipeline_postgresql_tables.py::test_"
_CATALOGS = "tests/pipelines/test_pipeline_catalogs.py::test_"

SQL_RACES: tuple[Mutation, ...] = (
    one(
        "tables: two queries upsert into a table at once",
        "what one has deleted comes back with an older row of the other",
        SQL_STORE,
        "                    self.wait_for_turn(connection, catalog)\n",
        "                    pass\n",
        tests=(f"{_RACES}of_two_queries_none_brings_back_what_the_other_one_deletes",),
    ),
    one(
        "tables: all tables take turns by one lock",
        "two queries into different tables",
        POSTGRESQL,
        "_TURNS | catalog.identity",
        "_TURNS",
        tests=(f"{_RACES}queries_into_different_tables_wait_for_nobody",),
    ),
    one(
        "tables: a row is deleted whatever it has become",
        "a higher version that was committed while its lock was waited for",
        MERGING,
        "            due.append(before.is_(None) | (version >= before))\n",
        "            pass\n",
        tests=(f"{_RACES}a_delete_spares_a_row_that_was_given_a_higher_version",),
    ),
    one(
        "tables: rows that a harmless trigger left out end the query",
        "a batch that comes again",
        MERGING,
        "        if left:\n",
        "        if given:\n",
        tests=(
            f"{_RACES}a_trigger_that_leaves_out_what_changes_nothing_is_harmless",
            f"{_RACES}a_harmless_trigger_and_somebody_else_end_no_query",
        ),
    ),
    one(
        "tables: a commit adds the columns that somebody has dropped",
        "the column is there again, without its values",
        SQL_STORE,
        "            self._fit(connection, replace(self._target, adds_columns=False))\n",
        "            self._fit(connection, self._target)\n",
        tests=(f"{_TABLES}a_commit_adds_no_column_that_somebody_drops",),
    ),
    one(
        "tables: a table that was dropped and made anew is the one before",
        "the rows before are missing",
        SQL_STORE,
        "        if now is None or now.identity != before.identity:\n",
        "        if now is None:\n",
        tests=(f"{_CATALOGS}a_table_that_was_altered_meanwhile_is_looked_at_again",),
    ),
    one(
        "tables: a table may be altered between the look and the rows",
        "it was dropped while a commit waited",
        SQL_STORE,
        "        catalogs.lock(connection, table)\n",
        "",
        tests=(f"{_TABLES}a_table_that_is_dropped_while_a_commit_waits_is_told",),
    ),
    one(
        "tables: partitions' partitions are not looked at",
        "an unlogged one two levels down",
        CATALOGS,
        "JOIN pg_inherits i ON i.inhparent = t.oid\n",
        "JOIN pg_inherits i ON i.inhparent = t.oid AND t.oid = to_regclass(:name)\n",
        tests=(f"{_TABLES}what_a_partition_s_partition_has_become_is_found",),
    ),
    one(
        "tables: what becomes of a partition is not noticed",
        "a trigger, or UNLOGGED, on one of them",
        CATALOGS,
        "        CASE c.relkind WHEN 'p' THEN ({_TREE}",
        "        CASE c.relkind WHEN 'x' THEN ({_TREE}",
        tests=(f"{_TABLES}what_a_partition_has_become_is_found",),
    ),
    one(
        "tables: what a policy hides is not asked",
        "rows that are neither found nor deleted",
        CATALOGS,
        "    if hidden:\n",
        "    if not catalog:\n",
        tests=(f"{_TABLES}rows_that_a_policy_hides_are_told_at_the_start",),
    ),
)
