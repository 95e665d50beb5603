"""Bugs in what is done to clusters that are somebody else's, and in what is replayed on processes.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

CLUSTER = "cluster/elsewhere/elsewhere_cluster.py"
COMMANDS = "cluster/elsewhere/node_commands.py"
FILE = "cluster/elsewhere/nodes_file.py"
RUN = "lab/elsewhere/elsewhere_run.py"
BEFORE = "lab/elsewhere/before.py"
PLAN = "lab/steps/replay_plan.py"
TEST_RUN = "tests/lab/test_lab_elsewhere.py"
TEST_CLI = "tests/cli/test_cli_prove_elsewhere.py"
TEST_COMMANDS = "tests/cluster/test_node_commands.py"
TEST_FILE = "tests/cluster/test_nodes_file.py"
TEST_REPLAY = "tests/lab/test_lab_replay.py"
TOO_LITTLE = f"{TEST_REPLAY}::test_where_too_little_was_done_nothing_is_proven"
REPLAY = "lab/scenarios/networks/replay.py"
TIMETABLE = "lab/scenarios/networks/timetable.py"

ELSEWHERE: tuple[Mutation, ...] = (
    one(
        "elsewhere: a command that fails breaks a promise",
        "who can't be reached is called broken",
        RUN,
        "            raise LabError(str(error)) from error\n",
        "            raise\n",
        tests=(f"{TEST_RUN}::test_a_command_that_fails_breaks_no_promise",),
    ),
    one(
        "elsewhere: a closed terminal keeps brokers from being started again",
        "a broken pipe in a clean-up",
        RUN,
        "        with suppress(OSError):\n            self.say(text)\n",
        "        self.say(text)\n",
        tests=(f"{TEST_RUN}::test_nothing_that_can_not_be_written_keeps_it_from_being_undone",),
    ),
    one(
        "elsewhere: a full disk keeps brokers from being started again",
        "a log that is needed for what is logged",
        COMMANDS,
        "            log = Path(os.devnull)\n",
        "            raise\n",
        tests=(f"{TEST_COMMANDS}::test_a_command_whose_words_can_not_be_kept_is_run",),
    ),
    one(
        "elsewhere: what a command asked for comes behind its undoing",
        "a client that is killed has sent its request",
        CLUSTER,
        "        ended_well = commands.settle()\n",
        "        ended_well = set[int]()\n",
        tests=(f"{TEST_RUN}::test_what_is_interrupted_is_undone",),
    ),
    one(
        "elsewhere: a broker of another cluster is taken for one",
        "the same id at the same address",
        CLUSTER,
        "        if found != own:\n",
        "        if not found:\n",
        tests=(f"{TEST_RUN}::test_a_broker_of_another_cluster_is_not_taken_for_one",),
    ),
    one(
        "elsewhere: others' last replica is hurt",
        "rolling restarts that wait for one topic",
        CLUSTER,
        "                    if set(state.isr) != set(state.replicas)\n",
        "                    if not state.isr\n",
        tests=(f"{TEST_CLI}::test_no_broker_is_hurt_while_others_have_data_on_it_alone",),
    ),
    one(
        "elsewhere: what a control hurts besides is not shown",
        "consent to less than is done",
        BEFORE,
        "        for node in nodes_of(own, elsewhere):\n",
        "        for node in nodes_of(parameters, elsewhere):\n",
        tests=(f"{TEST_RUN}::test_every_broker_that_would_be_hurt_is_shown",),
    ),
    one(
        "elsewhere: two runs break a cluster at once",
        "each takes the other's faults for the cluster's own",
        BEFORE,
        "if name.startswith(PREFIX))",
        "if name == PREFIX)",
        tests=(f"{TEST_CLI}::test_a_cluster_that_another_run_breaks_is_left_alone",),
    ),
    one(
        "elsewhere: a host may be an option of ssh",
        "CVE-2017-1000117",
        FILE,
        'r"[A-Za-z0-9_:][A-Za-z0-9._:-]*"',
        'r"[A-Za-z0-9._:-]+"',
        tests=(f"{TEST_FILE}::test_what_a_cluster_says_is_not_read_by_a_shell",),
    ),
    one(
        "replay: a time may be infinite",
        "a run that never ends",
        PLAN,
        "0 <= event[name] <= LENGTH_MAX_S",
        "event[name] != LENGTH_MAX_S",
        tests=(f"{TEST_REPLAY}::test_nonsense_is_refused_before_a_run_begins",),
    ),
    one(
        "replay: cuts that drop nothing are faults",
        "kept, where nothing was cut off",
        REPLAY,
        "cuts and dropped == 0",
        "cuts and dropped is None",
        tests=(TOO_LITTLE,),
    ),
    one(
        "replay: a tenth of a schedule is enough",
        "kept, where nearly all was passed over",
        TIMETABLE,
        "2 * count < wanted",
        "10 * count < wanted",
        tests=(TOO_LITTLE,),
    ),
    one(
        "replay: any kind of fault stands for all",
        "kept, with every kill passed over",
        REPLAY,
        "own and not any(done.get(kind, 0) for kind in kinds)",
        "own and not any(done.values())",
        tests=(TOO_LITTLE,),
    ),
    one(
        "replay: whoever did too little is not told",
        "kept, where nothing was cut off",
        REPLAY,
        "    refuse_too_little(Counter(",
        "    (lambda *_: None)(Counter(",
        tests=("tests/lab/test_lab_played_steps.py::test_steps_as_they_are_played[replay-main]",),
    ),
)
