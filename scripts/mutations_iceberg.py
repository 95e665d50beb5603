"""Bugs in how a query's rows get into an Iceberg table, exactly once.

The simulator runs none of it, so each names the tests that have to find it. What Iceberg and Delta
have in common is in `mutations_tables`.
"""

from __future__ import annotations

from mutation import Mutation, one

_FOLDER = "pipelines/sinks/iceberg/"
CATALOG = f"{_FOLDER}catalog.py"
STORE = f"{_FOLDER}store.py"
SYNCED = f"{_FOLDER}synced_files.py"
TABLE = f"{_FOLDER}table.py"
TURNS = "pipelines/sinks/turns.py"

_STORE_TESTS = "tests/pipelines/test_pipeline_iceberg_store.py"


def _store(*tests: str) -> tuple[str, ...]:
    return tuple(f"{_STORE_TESTS}::test_{test}" for test in tests)


ICEBERG: tuple[Mutation, ...] = (
    one(
        "iceberg: two tables in one folder have one area",
        "another catalog's owner sweeps what this one has staged and committed",
        STORE,
        "return self.folder / AREA / self._table_id / super()._area.name",
        "return super()._area",
        tests=_store("tables_that_share_a_folder_leave_each_others_files_alone"),
    ),
    one(
        "iceberg: a folder with another table's files is taken",
        "a second catalog in one warehouse",
        STORE,
        "            if data or (others and AREA not in others):",
        "            if others and AREA not in others:",
        tests=_store("another_catalog_is_refused_the_folder_of_a_table"),
    ),
    one(
        "iceberg: how sources are told apart is forgotten by a restart",
        "a query of several sources ends for good",
        TURNS,
        '    "by_place": True, "offsets": [],',
        '    "offsets": [],',
        tests=_store("a_restart_changes_nothing_of_what_is_remembered"),
    ),
    one(
        "iceberg: pyiceberg tries a commit again",
        "a former owner's rows, behind its successor's",
        CATALOG,
        "            raise ConflictError(f\"{'.'.join(table.name())}: {error}\") from error\n",
        "            raise\n",
        tests=_store("of_two_handles_that_read_the_same_one_commits"),
    ),
    one(
        "iceberg: a commit asks for snapshots alone",
        "who has only taken over is not seen",
        CATALOG,
        "(as_read, *requirements)",
        "requirements",
        tests=_store("of_two_handles_that_read_the_same_one_commits"),
    ),
    one(
        "iceberg: the last turn is not looked at before a commit",
        "a former owner reads the table and writes after its successor",
        TURNS,
        '        if turn != self._told["turn"]:\n            raise FencedError(',
        "        if not turn:\n            raise FencedError(",
        tests=_store("other_columns_are_refused_before_anybody_is_fenced"),
    ),
    one(
        "iceberg: rows and memory are two commits",
        "a death between them doubles rows",
        STORE,
        "            kept = {key: told[key] for key in _KEPT if key in told}\n",
        "            transaction.commit_transaction()\n"
        "            transaction = self._load().transaction()\n"
        "            kept = {key: told[key] for key in _KEPT if key in told}\n",
        tests=("tests/pipelines/test_pipeline_iceberg_deaths.py",),
    ),
    one(
        "iceberg: no answer means that nothing was committed",
        "a table that names files that are not there",
        STORE,
        "        self._in_doubt = isinstance(error, SQLAlchemyError)\n",
        "        self._in_doubt = False\n",
        tests=_store("a_commit_without_an_answer_may_come_until_the_query_is_taken_over"),
    ),
    one(
        "iceberg: a commit whose answer is lost has failed",
        "a query that ends, though its batch is there",
        TURNS,
        '        if self._trying and turn == self._trying["turn"]:\n',
        "        if not self._trying:\n",
        tests=_store("a_commit_without_an_answer_that_was_made_counts"),
    ),
    one(
        "iceberg: what failed leaves its files",
        "a disk that is full stays full",
        STORE,
        "        if not self._in_doubt:\n",
        "        if self._in_doubt:\n",
        tests=_store("a_table_that_changes_while_a_query_runs_is_seen_before_a_commit"),
    ),
    one(
        "iceberg: a conflict leaves its metadata",
        "files that nobody asks for",
        STORE,
        '                if path.parent.name != "data":\n',
        '                if path.parent.name == "":\n',
        tests=_store("a_commit_of_somebody_else_in_between_is_waited_out"),
    ),
    one(
        "iceberg: what former owners moved in and did not commit stays",
        "files that nobody asks for",
        STORE,
        "            if number >= oldest and journal.name not in committed:\n",
        "            if number < 0:\n",
        tests=_store("a_commit_without_an_answer_may_come_until_the_query_is_taken_over"),
    ),
    one(
        "iceberg: the sweep takes the files of a turn that was committed",
        "rows that are lost",
        STORE,
        '        committed = {*self._told["known"], self._told["turn"]}\n',
        '        committed = {self._told["turn"]}\n',
        tests=("tests/pipelines/test_pipeline_iceberg_deaths.py",),
    ),
    one(
        "iceberg: metadata are not synced",
        "a power cut takes what the catalog names",
        SYNCED,
        "            os.fsync(self.fileno())\n",
        "",
        tests=_store("all_is_on_disk_before_the_catalog_names_it"),
    ),
    one(
        "iceberg: the names of metadata are not synced",
        "a power cut takes what the catalog names",
        SYNCED,
        "        sync(self._path.parent)\n",
        "",
        tests=_store("all_is_on_disk_before_the_catalog_names_it"),
    ),
    one(
        "iceberg: a table that is refused gets folders of ours",
        "a wrong start is seen in somebody else's table",
        STORE,
        "        self._missing(table)  # before anybody is fenced\n",
        "",
        tests=_store("a_table_that_does_not_fit_is_refused"),
    ),
    one(
        "iceberg: how a table changes while a query runs is not looked at",
        "rows with the ids of a column that is over",
        STORE,
        "        if not self._columns.arrow(table).equals(self._arrow, check_metadata=True):\n",
        "        if not self._columns.arrow(table).equals(self._arrow):\n",
        tests=_store("a_table_that_changes_while_a_query_runs_is_seen_before_a_commit"),
    ),
    one(
        "iceberg: what a table asks of a writer is passed over",
        "partitions whose rows no reader finds",
        TABLE,
        "    _refuse_rules(table)\n",
        "",
        tests=_store("a_table_that_does_not_fit_is_refused"),
    ),
    one(
        "iceberg: a column that must not be null is not looked at",
        "an error in the middle of a batch",
        TABLE,
        "        elif columns.may_be_null[wanted] and found.required:\n",
        "        elif not columns.types:\n",
        tests=_store("a_table_that_does_not_fit_is_refused"),
    ),
    one(
        "iceberg: a catalog in SQLite is written from a cluster",
        "a driver that starts elsewhere begins another one",
        STORE,
        " and not is_one_machine(master):\n",
        " and not master:\n",
        tests=_store("sqlite_is_refused_on_a_cluster_and_a_password_stays_a_reference"),
    ),
)
