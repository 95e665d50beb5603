"""Bugs in what a reader believes: whose log it is, what of it is gone, whose connection it has.

The simulator runs none of it, so each names the tests that have to find it.
"""

from __future__ import annotations

from mutation import Mutation, one

SOURCE = "pipelines/source.py"
OFFSETS = "pipelines/offsets.py"
PLANNER = "pipelines/planner.py"
HISTORY = "pipelines/reading/history.py"
CLIENT = "pipelines/reading/wire_client.py"
RANGE = "pipelines/reading/wire_range.py"
READ = "pipelines/read_range.py"
FENCE = "pipelines/fence.py"
LISTING = "pipelines/listing.py"
LEADERS = "pipelines/reading/leaders.py"

_TESTS = "tests/pipelines/test_pipeline_"
EPOCH_TESTS = (f"{_TESTS}epochs.py",)
SOURCE_TESTS = (f"{_TESTS}source.py",)

READING: tuple[Mutation, ...] = (
    # -- whose log it is ---------------------------------------------------------------------------
    one(
        "reading: whoever leads now may say that a log is shorter",
        "a leader that was cut off",
        HISTORY,
        "        return epoch > self._plan.end_epoch >= 0\n",
        "        return epoch >= self._plan.end_epoch\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: over librdkafka whoever leads now may say that a log is shorter",
        "a leader that was cut off",
        READ,
        "        if not latest.epoch > self.plan.end_epoch >= 0:\n",
        "        if latest.epoch < self.plan.end_epoch:\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: metadata come from the first broker that answers",
        "it was cut off with its leader",
        CLIENT,
        "            found = self._newest(told, topic, number, found)\n",
        "            pass\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a time is believed of a leader by the epoch of the record",
        "after an election no time is found; and who was cut off says that nothing is so late",
        LISTING,
        "            leader = leading.get(partition, answer)\n",
        "            leader = answer._replace(why='')\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: brokers are always asked in one order",
        "the first ones say nothing, and take all the time each time",
        LEADERS,
        "    random.shuffle(drawn)\n",
        "",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: each broker is asked who leads, however long that takes",
        "thirty that say nothing cost a task more than its patience",
        LEADERS,
        "        if time.monotonic() < until_s:\n",
        "        if until_s:\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a leader that stumbles has said that its log is whole",
        "it is never asked again",
        LEADERS,
        "if code not in PASSING}",
        "if code not in PASSING - {-1}}",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a leader of an epoch of before is asked all the same",
        "it was cut off",
        CLIENT,
        "    return 0 <= found.epoch < least_epoch\n",
        "    return False\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a new leader's log is not held against what was read",
        "rows of two histories",
        HISTORY,
        "        if cut is not None:\n            raise self.parted(position, cut)\n",
        "",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a new leader's log is not held against the plan",
        "a log that was cut and has grown",
        HISTORY,
        "        return end if end is not None and end < offset else None\n",
        "        return end if end is not None and end < offset and epoch < 0 else None\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: epochs of batches may go back",
        "rows of two histories",
        HISTORY,
        "            if 0 <= epoch < self.last_epoch:\n",
        "            if False:\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: over librdkafka a cut log is asked again as if nothing was",
        "rows of two histories",
        READ,
        "            self._was_cut(error.str())\n",
        "            self._assign(is_held=False)\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: the planner takes a leader of before at its word",
        "the query ends",
        OFFSETS,
        "        and (partition not in epochs or latest",
        "        and (True or latest",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: the planner's client keeps a leader of before",
        "offsets of another history",
        LISTING,
        "            elif 0 <= leader.epoch < known.get(partition, -1):\n",
        "            elif False:\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: an offset that stands gets the epoch of now",
        "each election is a batch",
        OFFSETS,
        "epochs if start.get(p) == offset else told for p",
        "told for p",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: a log that was cut between two batches is taken for the old one",
        "no gap tells of it",
        LISTING,
        "            cuts |= parted(read, ends)\n",
        "",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a planner goes on while a new leader does not say what it has",
        "a cut that nobody tells",
        LISTING,
        "        return ends, fresh.keys() - told.keys()\n",
        "        return ends, set()\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: an election is asked about at each trigger",
        "requests without end",
        LISTING,
        "        self._whole |= {p: (read.offsets[p], fresh[p]) for p in told if p not in cuts}\n",
        "",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a cut is told at each trigger",
        "a batch without rows for each",
        SOURCE,
        "        epochs |= {p: told[p] for p in cuts}\n",
        "",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: a batch of an earlier life is not held against the log",
        "its own rows are told as lacking",
        SOURCE,
        "        if end != self._planned:\n",
        "        if False:\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: what was found when tasks were made is not written down",
        "the next life finds it again, wider",
        SOURCE,
        "        known = begin.epochs | held\n",
        "        known = begin.epochs\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: a sink tells no cuts",
        "rows of a log that is no more, and nothing says so",
        "pipelines/due.py",
        "            *planned.cuts,\n",
        "",
        tests=(f"{_TESTS}due.py",),
    ),
    one(
        "reading: whoever is asked first is believed about latest",
        "a leader that was cut off",
        PLANNER,
        "        newest = self.listing.newest(last)",
        "        newest = {}",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a batch's limit knows no turns",
        "partitions that wait for good",
        "pipelines/offsets.py",
        "        turn = sum(start.values()) % len(waiting)\n",
        "        turn = 0\n",
        tests=(f"{_TESTS}limit.py",),
    ),
    one(
        "reading: epochs of a topic that is no more count",
        "the new one has no leader",
        LEADERS,
        "            if len({topic.topic_id for topic in each}) == 1:\n",
        "            if True:\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: what was fetched by name is certain",
        "rows of a topic that was made anew",
        CLIENT,
        "        return version > _LAST_BY_NAME\n",
        "        return True\n",
        tests=EPOCH_TESTS,
    ),
    # -- what is gone ------------------------------------------------------------------------------
    one(
        "reading: librdkafka waits for a topic that was deleted",
        "the query ends at each start",
        READ,
        "                self._look_for_topic()\n",
        "                pass\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: over librdkafka aborted records are silence",
        "a range that ends in the middle",
        READ,
        "            if records or self._has_come_on():\n",
        "            if records:\n",
        tests=(f"{_TESTS}ways.py",),
    ),
    one(
        "reading: a leader that is away is not asked where its log begins",
        "a gap in a task's log alone",
        PLANNER,
        "must, all_of_them=True, within_s=within_s)",
        "must, within_s=within_s)",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: gaps are kept for ever",
        "a disk that fills",
        FENCE,
        "        if last_to_go is not None:\n",
        "        if False:\n",
        tests=(f"{_TESTS}fence.py",),
    ),
    one(
        "reading: a topic that one broker does not know is gone",
        "a broker that lags",
        CLIENT,
        "        return bool(told.brokers) and all(\n",
        "        return bool(answers) and any(\n",
        tests=EPOCH_TESTS,
    ),
    one(
        "reading: a replay decides anew what is gone",
        "a batch has other rows than it had",
        OFFSETS,
        "                begin[partition] = max(begin[partition], behind)\n",
        "                pass\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: what went after a batch was planned is told by nobody",
        "a gap that is in no entry",
        SOURCE,
        "        self._late = moves.gaps_before(starts, earliest, after.offsets)\n",
        "",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: a gap is told once more while nothing moves",
        "a batch without rows for each trigger",
        SOURCE,
        "            return begin\n        return replace(position, gaps",
        "            pass\n        return replace(position, gaps",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: reset goes back behind what was read",
        "rows twice",
        PLANNER,
        '            if self.options.gone.of(p.topic) == "reset"\n        ]\n',
        "            if False\n        ]\n",
        tests=SOURCE_TESTS,
    ),
    one(
        "reading: gaps are not told beside the table",
        "who reads it does not know what it lacks",
        FENCE,
        "        self._tell_gaps(connection, batch, work)\n",
        "",
        tests=(f"{_TESTS}fence.py",),
    ),
    one(
        "reading: a batch query's tasks take any topic of the name",
        "a topic made anew between plan and read",
        SOURCE,
        "moves.ranges(start, end.offsets), earliest, ids, ({}, end.epochs))",
        "moves.ranges(start, end.offsets), earliest, {}, ({}, end.epochs))",
        tests=SOURCE_TESTS,
    ),
    # -- whose connection it is, and who reads -----------------------------------------------------
    one(
        "reading: a child keeps its parent's connections",
        "two that read each other's answers",
        "pipelines/intake/forked.py",
        "    os.register_at_fork(after_in_child=forget)\n",
        "",
        tests=(f"{_TESTS}forked.py",),
    ),
    one(
        "reading: a child destroys its parent's clients of librdkafka",
        "it hangs",
        "pipelines/intake/forked.py",
        "    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))\n",
        "    del client\n",
        tests=(f"{_TESTS}forked.py",),
    ),
    one(
        "reading: an old broker is asked until the time is over",
        "nothing is read of Kafka before 0.11",
        RANGE,
        "                raise self._not_ours(str(failure)) from failure\n",
        "                pass\n",
        tests=EPOCH_TESTS,
    ),
)
