"""Bugs in how a query's rows get into Redis, each key's by its version.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

_FOLDER = "pipelines/sinks/key_value/"
ADDRESS = f"{_FOLDER}address.py"
SCRIPTS = f"{_FOLDER}scripts.py"
STORE = f"{_FOLDER}store.py"
TASK = f"{_FOLDER}task.py"
VALUES = f"{_FOLDER}values.py"
WINNERS = f"{_FOLDER}winners.py"

_TESTS = "tests/pipelines/test_pipeline_redis_"
VALUES_TESTS = (f"{_TESTS}values.py",)


def _store(test: str) -> tuple[str, ...]:
    return (f"{_TESTS}store.py::test_{test}",)


def _write(test: str) -> tuple[str, ...]:
    return (f"{_TESTS}write.py::test_{test}",)


REDIS: tuple[Mutation, ...] = (
    # -- a row -------------------------------------------------------------------------------------
    one(
        "redis: a task of a former owner writes",
        "a zombie",
        SCRIPTS,
        "if now[1] ~= ARGV[1] then return 'fenced' end\nif now[2] ~= ARGV[2]",
        "if now[2] ~= ARGV[2]",
        tests=_store("a_driver_that_was_replaced_writes_nothing_nor_do_its_tasks"),
    ),
    one(
        "redis: a task that comes after its batch writes",
        "the attempt that Spark did not choose, an hour later",
        SCRIPTS,
        "if now[2] ~= ARGV[2] then return 'over' end\nlocal commit = tonumber",
        "local commit = tonumber",
        tests=_store("a_task_that_comes_after_its_batch_writes_nothing"),
    ),
    one(
        "redis: an older version replaces a newer one",
        "a row that comes late",
        SCRIPTS,
        "  if ARGV[3] ~= '' and is_lower(ARGV[3], version) then return 'older' end\n",
        "",
        tests=_store("the_higher_version_wins_whatever_batch_it_came_in"),
    ),
    one(
        "redis: a version that is as high is lower",
        "the later of two rows of one version",
        SCRIPTS,
        "  return #one < #other\n",
        "  return true\n",
        tests=_store("the_higher_version_wins_whatever_batch_it_came_in"),
    ),
    one(
        "redis: what was deleted comes back with an older row",
        "a marker that nobody reads",
        SCRIPTS,
        " or redis.call('GET', KEYS[3])\n",
        "\n",
        tests=_store("what_is_deleted_does_not_come_back_with_an_older_row"),
    ),
    one(
        "redis: a row that is there again is still marked as deleted",
        "a marker that outlives the key's next row",
        SCRIPTS,
        "redis.call('DEL', KEYS[3])\nreturn 'done'\n",
        "return 'done'\n",
        tests=_store("what_is_deleted_does_not_come_back_with_an_older_row"),
    ),
    one(
        "redis: what a row has no more stays",
        "a column that is null now",
        SCRIPTS,
        "if #ARGV > last then redis.call('HDEL', KEYS[2], unpack(ARGV, last + 1)) end\n",
        "",
        tests=_store("a_row_replaces_all_that_the_query_has_and_no_more"),
    ),
    one(
        "redis: a full server forgets a row and does not mark it",
        "maxmemory in the middle of a script",
        SCRIPTS,
        "  redis.call('SET', KEYS[3], version)\n  redis.call('DEL', KEYS[2])\n",
        "  redis.call('DEL', KEYS[2])\n  redis.pcall('SET', KEYS[3], version)\n",
        tests=_store("a_full_server_changes_nothing_of_a_row"),
    ),
    one(
        "redis: a memory that was lost is not noticed",
        "rows of commits that nobody knows of",
        SCRIPTS,
        "  if not version or tonumber(written) > commit then return 'ahead' end\n",
        "",
        tests=_store("a_memory_that_was_lost_is_noticed"),
    ),
    one(
        "redis: scripts that the server forgot are not told again",
        "a restart of the server",
        SCRIPTS,
        "    for _ in range(2):\n",
        "    for _ in range(0):\n",
        tests=_store("scripts_that_the_server_has_forgotten_are_told_again"),
    ),
    one(
        "redis: a task keeps its last rows to itself",
        "what is sent together is not full",
        TASK,
        "            size += length\n        yield calls\n",
        "            size += length\n",
        tests=_store("many_rows_are_all_sent"),
    ),
    one(
        "redis: a row that deletes is a row",
        "a column of the query, and none of the table",
        TASK,
        'what = "delete" if gone[row] else "put"',
        'what = "put"',
        tests=_store("what_is_deleted_does_not_come_back_with_an_older_row"),
    ),
    # -- the commit --------------------------------------------------------------------------------
    one(
        "redis: a driver that was replaced remembers its batch",
        "a zombie in its last moment",
        SCRIPTS,
        "if now[1] ~= ARGV[1] then return 'fenced' end\nlocal commit = string",
        "local commit = string",
        tests=_store("a_driver_that_is_replaced_in_the_last_moment_remembers_nothing"),
    ),
    one(
        "redis: a commit whose answer was lost is none",
        "a connection that breaks",
        SCRIPTS,
        "if now[2] == commit and now[3] == ARGV[4] then return 'done' end",
        "if now[2] == '' then return 'done' end",
        tests=_store("a_commit_that_was_heard_twice_is_one"),
    ),
    one(
        "redis: rows that were not written are not missed",
        "a batch with a part of its rows",
        STORE,
        "        if rows != keys:\n",
        "        if rows > keys:\n",
        tests=_store("keys_that_were_not_dealt_with_end_the_batch"),
    ),
    one(
        "redis: a batch is remembered whatever became of its rows",
        "a batch with a part of its rows, for good",
        STORE,
        "            self.check_written(staged.keys, (row.asDict() for row in done))\n",
        "            assert done is not None\n",
        tests=_write("a_batch_that_was_not_staged_as_it_is_computed_now_is_not_remembered"),
    ),
    one(
        "redis: what tasks were refused is not looked at",
        "a driver that was replaced goes on",
        STORE,
        '            if each["refused"] is not None:\n',
        '            if each["refused"] is None and each["rows"] < 0:\n',
        tests=_store("a_driver_that_was_replaced_writes_nothing_nor_do_its_tasks"),
    ),
    one(
        "redis: two queries write one table",
        "neither knows of the other's order",
        STORE,
        '    if before["query"] != now["query"]:\n',
        '    if not before["query"]:\n',
        tests=_store("who_is_refused_replaces_nobody"),
    ),
    one(
        "redis: who is refused has taken the query over",
        "a wrong start ends the driver that is right",
        STORE,
        '            seen = self.client.get(table) or b""\n',
        '            seen = self.client.get(table) or b""\n'
        '            self.client.hincrby(self._memory_name, "epoch")\n',
        tests=_store("who_is_refused_replaces_nobody"),
    ),
    # -- the server --------------------------------------------------------------------------------
    one(
        "redis: a log that is not synced while it is written anew will do",
        "no-appendfsync-on-rewrite",
        ADDRESS,
        '    "no-appendfsync-on-rewrite": "no",\n',
        "",
        tests=_store("a_server_that_may_forget_is_refused"),
    ),
    one(
        "redis: a server is looked at once",
        "CONFIG SET in mid-run",
        STORE,
        "        refuse_unsafe(self.client)\n        return",
        "        return",
        tests=_store("a_server_that_may_forget_is_refused"),
    ),
    one(
        "redis: a password may be written out",
        "a secret in plans, event logs and workers",
        ADDRESS,
        "    if password is not None and not is_reference(password):\n",
        "    if password is not None and not password:\n",
        tests=VALUES_TESTS,
    ),
    # -- names, values, versions -------------------------------------------------------------------
    one(
        "redis: two keys have one name",
        "a colon in a part of the key",
        VALUES,
        '.replace(b":", b"%3A")',
        "",
        tests=VALUES_TESTS,
    ),
    one(
        "redis: two keys have one name, after all",
        "a text that looks as if it were escaped",
        VALUES,
        '.replace(b"%", b"%25")',
        "",
        tests=VALUES_TESTS,
    ),
    one(
        "redis: a version below zero is above",
        "numbers as they are in memory",
        VALUES,
        "    turned = bits ^ ((1 << 64) - 1) if bits >> 63 else bits | _MIDDLE\n",
        "    turned = bits\n",
        tests=VALUES_TESTS,
    ),
    # -- who wins ----------------------------------------------------------------------------------
    one(
        "redis: of one partition an earlier row may win",
        "a later offset with an earlier timestamp",
        WINNERS,
        "    return first(latest, keys, order)\n",
        "    return first(rows, keys, order)\n",
        tests=_write("of_each_key_the_row_that_the_rules_name"),
    ),
    one(
        "redis: a replay may choose another row of one record",
        "rows that nothing tells apart",
        WINNERS,
        "    last = f.xxhash64(*map(_column, frame.columns))",
        "    last = f.lit(0)",
        tests=_write("rows_that_are_alike_in_all_that_counts_are_chosen_alike"),
    ),
    one(
        "redis: a stateful query's key may be twice in a batch",
        "one of two rows, by chance",
        WINNERS,
        "    if stateful and target.version is None and",
        "    if stateful and target.version is not None and",
        tests=_write("what_nobody_could_order_is_refused_and_nothing_is_written"),
    ),
    one(
        "redis: a row without a version is taken",
        "it stays for ever",
        WINNERS,
        '    if found["unversioned"] is not None:\n',
        '    if found["unversioned"] == "":\n',
        tests=_write("what_nobody_could_order_is_refused_and_nothing_is_written"),
    ),
)
