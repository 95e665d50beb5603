"""Bugs in what a consumer group is told of how far a query is.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

GROUP = "pipelines/progress/group.py"
ENDS = "pipelines/progress/ends.py"
COMMITS = "pipelines/progress/commits.py"
FOLLOW = "pipelines/progress/follow.py"
TABLE_SINK = "pipelines/sinks/table_sink.py"
SOURCE = "pipelines/source.py"
PLANNER = "pipelines/planner.py"
PLANNED = "pipelines/planned.py"
OPTIONS = "pipelines/options.py"

_TESTS = "tests/pipelines/test_pipeline_"
PROGRESS_TESTS = (f"{_TESTS}progress.py",)
OPTIONS_TESTS = (f"{_TESTS}options.py",)
PLANNED_TESTS = (f"{_TESTS}planned.py",)
TABLE_TESTS = (
    f"{_TESTS}lag.py::test_so_with_parquet",
    f"{_TESTS}lag.py::test_a_query_that_begins_again_never_takes_the_group_back",
)
FOLLOW_TESTS = (f"{_TESTS}lag.py::test_of_another_sink_what_spark_has_done_is_told",)

LAG: tuple[Mutation, ...] = (
    one(
        "lag: a checkpoint may name a library to load",
        "OpenSSL runs it while a connection is opened",
        "pipelines/intake/client_options.py",
        '    "ssl.providers": f"{_CODE};',
        '    "ssl.provider.of.nobody": f"{_CODE};',
        tests=PROGRESS_TESTS,
    ),
    # -- what is written down ----------------------------------------------------------------------
    one(
        "lag: a batch's entry names no group",
        "no lag but that of batch 0",
        SOURCE,
        "Position(end, named, planner.options.progress, epochs)",
        "Position(end, named, None, epochs)",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: a checkpoint may name a program to run",
        "who may write it becomes the driver's user",
        GROUP,
        "    if name.startswith(_RUN_BY_A_SHELL):\n        return False\n",
        "",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: settings of a checkpoint are not looked at again",
        "a library that a checkpoint names is loaded",
        COMMITS,
        "open_admin(tuple(sorted(translate(dict(client)).items())))",
        "open_admin(client)",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: Kerberos is taken, and nothing is ever told",
        "an option without effect",
        OPTIONS,
        "    if uses_kerberos(client):\n",
        '    if client.get("sasl.mechanism") == "KERBEROS":\n',
        tests=OPTIONS_TESTS,
    ),
    # -- how far a table is ------------------------------------------------------------------------
    one(
        "lag: the group goes back when a checkpoint was removed",
        "an alarm about nothing",
        ENDS,
        "planned.end if stored is None else max(planned.end, stored.next_offset)",
        "planned.end",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: a topic made anew is told what its namesake had",
        "no lag, for as long as the new one is shorter",
        ENDS,
        "before = work.kept(memory.offsets)",
        "before = memory.offsets",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: of two sources that read a partition the faster one is told",
        "the slower one's lag is hidden",
        ENDS,
        "min(offset, found.get(partition, offset))",
        "max(offset, found.get(partition, offset))",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: a long name leaves no room",
        "OFFSET_METADATA_TOO_LARGE with each commit",
        ENDS,
        "{query[:METADATA_NAME_MAX]}",
        "{query}",
        tests=PROGRESS_TESTS,
    ),
    # -- groups with members -----------------------------------------------------------------------
    one(
        "lag: a batch that is run again asks for no members",
        "a batch goes by before the query is refused",
        SOURCE,
        "        self._planner.refuse_members()\n        others",
        "        others",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: members are asked for at each trigger",
        "who joins later ends the query",
        PLANNER,
        "            self._group_seen = True\n",
        "",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: what is refused of a partition is taken for done",
        "the group stands still, and nobody says so",
        COMMITS,
        "(place.error for place in places if place.error is not None)",
        "(place.error for place in places if place.error is None)",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: each batch warns of the same",
        "a log full of it",
        COMMITS,
        "if refused.text not in said and len(said) < SAID_MAX:",
        "if len(said) < SAID_MAX:",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: who joins once more is not warned of",
        "a group that stands still",
        COMMITS,
        "        del _said[group]\n",
        "",
        tests=PROGRESS_TESTS,
    ),
    one(
        "lag: each batch waits at length for a coordinator that is away",
        "a monitoring option halves the throughput",
        COMMITS,
        "AILING_S if ailing else PATIENCE_S",
        "PATIENCE_S",
        tests=PROGRESS_TESTS,
    ),
    # -- who tells, and when -----------------------------------------------------------------------
    one(
        "lag: a replay is not told",
        "killed between the table's commit and the group's",
        TABLE_SINK,
        "        commit(of_table(batch, memory, work)",
        "        if not work.replay:\n            commit(of_table(batch, memory, work)",
        tests=TABLE_TESTS,
    ),
    one(
        "lag: the group is told before the table has it",
        "no lag, and no rows",
        TABLE_SINK,
        "        self._write(frame, batch, work)\n",
        "        commit(of_table(batch, memory, work), metadata(self._store.query, number))\n"
        "        self._write(frame, batch, work)\n",
        tests=TABLE_TESTS,
    ),
    one(
        "lag: the last batch of another sink is not told",
        "Spark's own commit(end)",
        FOLLOW,
        "        followed.finish()\n",
        "        pass\n",
        tests=FOLLOW_TESTS,
    ),
    one(
        "lag: a query of another sink is told of when it has ended",
        "those that go on for months",
        FOLLOW,
        "            followed.look()\n",
        "            pass\n",
        tests=(f"{_TESTS}lag.py::test_of_a_query_that_goes_on_its_batches_are_told",),
    ),
    one(
        "lag: of another sink, what was in vain is not told again",
        "a group that had members as the query ended",
        FOLLOW,
        "        self._told = None\n        self._commit()\n",
        "        self._commit()\n",
        tests=(f"{_TESTS}lag.py::test_what_was_in_vain_is_told_at_the_end",),
    ),
    one(
        "lag: of batches 9 and 10 the former is the last",
        "names compared as words",
        PLANNED,
        'max((int(name) for name in self._names("commits") if name.isdigit()), default=None)',
        'int(max((n for n in self._names("commits") if n.isdigit()), default="-1")) or None',
        tests=PLANNED_TESTS,
    ),
)
