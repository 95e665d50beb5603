"""Scenarios on a cluster that is not the lab's own.

Goal: what was done there is undone, and nothing is left, however a run ends; what can't be had is
said before it begins; what can't be seen passes for nothing. Method: a broker of ours as somebody
else's, which the lab knows only by its address and by commands that stop, kill and start it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.elsewhere.elsewhere_cluster import ElsewhereCluster, Found
from holdfast.cluster.elsewhere.nodes_file import NAMES, NodesFile
from holdfast.cluster.processes import State, wait_until
from holdfast.judge.history import Acknowledged, Note
from holdfast.judge.timeline import CUT, HEAL
from holdfast.lab import scenarios
from holdfast.lab.elsewhere.before import (
    Elsewhere,
    look,
    parameters_for,
    refuse_unable,
    settings_told,
    would_be_done,
)
from holdfast.lab.elsewhere.elsewhere_run import NOT_SEEN, PREFIX, ElsewhereRun
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.prove import judge_again, prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import BY_SIGNAL, SCENARIOS, Control, Part, Scenario, load_scenario
from holdfast.lab.soak.elsewhere_campaigns import WITH_COMMANDS, WITHOUT, changed
from holdfast.lab.steps.starvation import SECONDS_MAX
from holdfast.lab.steps.usual import start_exact
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import ConfigEntry, delete_topic

FOLDER = Path(scenarios.__file__).parent
ONE = Parameters(brokers=1, replication_factor=1, min_isr=1, partitions=1, retries=0)
BOUND_S = 60.0
CLI = (sys.executable, "-m", "holdfast.cli")

# -- what can be had, without any process ----------------------------------------------------------

COMMANDS = {name: ("run", name) for name in NAMES}
NOTHING: Mapping[str, str] = {}


def elsewhere(
    *lacking: str,
    brokers: int = 3,
    file: bool = True,
    session_ms: str = "9000",
    group: Mapping[str, str] = NOTHING,
) -> Elsewhere:
    """A cluster that nobody runs; its file `lacks` these commands."""
    told = {name: words for name, words in COMMANDS.items() if name not in lacking}
    return Elsewhere(
        found=Found(
            servers="kafka:9092",
            cluster_id="x",
            brokers={n: ("kafka", 9092 + n) for n in range(1, brokers + 1)},
        ),
        file=nodes_file(told) if file else None,
        settings={
            "broker.session.timeout.ms": session_ms,
            **{f"group.consumer.{key}.ms": value for key, value in group.items()},
        },
    )


def nodes_file(
    commands: Mapping[str, tuple[str, ...]],
    timeout_s: float = BOUND_S,
    start_timeout_s: float = BOUND_S,
) -> NodesFile:
    return NodesFile(
        path=Path("nodes.toml"),
        servers="kafka:9092",
        timeout_s=timeout_s,
        start_timeout_s=start_timeout_s,
        commands=commands,
        nodes={},
    )


def refusal(name: str, there: Elsewhere, *, control: bool = True, **flags: object) -> str:
    """Why a scenario can't be run there; nothing: it can."""
    scenario = load_scenario(name)
    try:
        parameters = parameters_for(scenario, flags, there)
        refuse_unable(scenario, parameters, there, control=control)
    except LabError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_what_a_scenario_takes_is_said_before_it_begins() -> None:
    assert not refusal("one-broker-down", elsewhere())
    lacking = elsewhere("terminate", "pause")
    said = refusal("one-broker-down", lacking)
    assert "One broker down: nodes.toml has no command `terminate` for 1, 2, 3" in said
    assert "nodes.toml has no command `pause` for 1, 2, 3" in said
    assert "nodes.toml has no command" not in refusal(
        "one-broker-down", lacking, control=False, signal="KILL"
    )
    assert refusal("write-anomaly", elsewhere(session_ms="3000")).count(
        "it takes broker.session.timeout.ms=6000 or more, and the cluster has 3000"
    ) == 2  # fmt: skip
    short = elsewhere(session_ms="3000")
    assert refusal("one-broker-down", short).endswith("--no-control leaves the control out.")
    assert "`pause`" in refusal("broker-paused", elsewhere("pause"))
    assert "its steps go beyond what clients and brokers' commands do" in refusal(
        "disk-lost", elsewhere()
    )
    assert "its steps go beyond what clients and brokers' commands do" in refusal(
        "storm", elsewhere()
    )
    assert "--brokers 4: of those at kafka:9092 3 can be used" in refusal(
        "one-broker-down", elsewhere(), brokers=4
    )
    assert "rolling-restart is made for 3" in refusal("rolling-restart", elsewhere(brokers=2))


def shown(name: str, *, control: bool, **flags: object) -> str:
    """What would be done by it."""
    scenario, there = load_scenario(name), elsewhere()
    assert there.file is not None
    parameters = parameters_for(scenario, flags, there)
    return "\n".join(would_be_done(scenario, parameters, there, there.file, control=control))


def test_without_commands_only_what_breaks_nothing_can_be_run() -> None:
    there = elsewhere(file=False)
    said = refusal("one-broker-down", there)
    assert "it hurts brokers (start, kill, terminate), and --bootstrap-server is for what" in said
    assert (
        "There can: payload-curve, throughput, commit-rules, rolling-clients, consumer-replaced, "
        "standby-group." in refusal("disk-lost", there)
    )
    assert not refusal("commit-rules", there)


def test_figures_are_taken_where_nobody_is_hurt() -> None:
    """Goal: what measures runs on a cluster elsewhere, if its groups are patient enough there.

    Seen to fail: they were refused, as if their steps touched disks, links or controllers.
    """
    assert not refusal("payload-curve", elsewhere(file=False))
    kafkas = {"session.timeout": "45000", "heartbeat.interval": "5000"}
    assert not refusal("throughput", elsewhere(file=False, group=kafkas))
    longer = {"session.timeout": "60000", "heartbeat.interval": "6000"}
    assert not refusal("throughput", elsewhere(file=False, group=longer))
    short = {**kafkas, "session.timeout": "6000"}
    said = refusal("throughput", elsewhere(file=False, group=short))
    assert "it takes group.consumer.session.timeout.ms=45000 or more, and the cluster has" in said
    assert "the cluster does not say what it has" in refusal("throughput", elsewhere(file=False))
    assert "--replication-factor 3: there are 2 brokers" in refusal(
        "payload-curve", elsewhere(file=False, brokers=2)
    )
    said = refusal("replication-price", elsewhere(brokers=5))
    assert "its steps go beyond what clients and brokers' commands do" in said
    assert "replicas in places of their own" in said


def test_every_broker_that_would_be_hurt_is_shown() -> None:
    """Method: a control takes more brokers than were asked for, and a scenario hurts none."""
    assert "hurt brokers 1, 2 by" in shown("one-broker-down", control=False, brokers=2)
    said = shown("one-broker-down", control=True, brokers=2)
    assert "hurt brokers 1, 2, 3 by" in said
    assert [line.split()[1:3] for line in said.splitlines() if "pause" in line] == [
        [number, "pause"] for number in "123"
    ]
    assert shown("commit-rules", control=True).endswith("and hurt nobody.")
    assert refusal("one-broker-down", elsewhere(brokers=2)).endswith(
        "of those at kafka:9092 2 can be used. --no-control leaves the control out."
    )


def test_where_topics_stay_nothing_is_begun() -> None:
    entry = ConfigEntry(
        name="delete.topic.enable",
        value="false",
        source="STATIC_BROKER_CONFIG",
        read_only=True,
        sensitive=False,
        synonyms=[],
    )
    with pytest.raises(LabError, match="the topic of a run would stay there"):
        settings_told([entry])
    assert settings_told([replace(entry, value="true")]) == {}


def test_brokers_are_those_that_are_there() -> None:
    there = elsewhere(brokers=5)
    parameters = parameters_for(load_scenario("one-broker-down"), {"partitions": 4}, there)
    assert parameters.assignment() == {0: (2, 1), 1: (3, 2), 2: (1, 3), 3: (2, 1)}
    assert parameters.session_s == 9.0
    again = Parameters.from_json(parameters.as_json())
    assert again == parameters
    shown = parameters.shown()
    assert shown["cluster"] == "elsewhere, kafka:9092"
    assert not {"controllers", "eligible.leader.replicas.version"} & shown.keys()


# What steps do to, or ask of, a cluster of their own alone; and what hurts a broker.
OWN = re.compile(
    r"cluster\.(node|record|status|links|network|quorum|controller)\b|Sides\(|dead_disks|mounts"
    r"|small_disks|replica_directory|end_of|log_directories|stored_|expect_running|expect_begins"
    r"|make_topic\(\{|racks=|network=|controllers=|combined="
)
HURTS = re.compile(r"CutOff\(|run\.fault\(|run\.start_node\(|bring_back\(|_run\.fault\(")


MEASURED = ("payload-curve", "throughput")  # whose figures are no proof
ABLE = (*WITH_COMMANDS, *WITHOUT, *MEASURED)


@pytest.mark.slow
def test_all_that_run_elsewhere_are_proven_there() -> None:
    parts = {name: load_scenario(name).parts for name in SCENARIOS}
    able = [name for name in parts if any(part.hurts is not None for part in parts[name])]
    assert sorted(able) == sorted(ABLE)


@pytest.mark.parametrize("name", ABLE)
def test_what_steps_do_is_what_their_scenario_says(name: str) -> None:
    """Goal: a part that says that it runs elsewhere does. Method: its steps' own text."""
    parts = load_scenario(name).parts
    module = SCENARIOS[name].split(".")
    text = FOLDER.joinpath(*module).with_suffix(".py").read_text()
    # The links of a cluster of its own; elsewhere `CutOff` has commands cut.
    text = text.replace("defaults=Parameters(network=True)", "")
    assert not OWN.search(text)
    assert bool(HURTS.search(text)) == any(part.hurts for part in parts)
    sent = set(re.findall(r"run\.fault\(\"(\w+)\"", text)) | (
        {BY_SIGNAL} if "parameters.signals" in text else set()
    )
    said = {signal for part in parts for signal in part.hurts or ()}
    assert sent <= said


# -- on a broker that is there ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("theirs")
    with LocalCluster.create(directory, brokers=1, combined=True, port=0) as cluster:
        cluster.start()
        yield cluster


def by_hand(cluster: LocalCluster, *words: str) -> tuple[str, ...]:
    return (*CLI, *words, "--data-dir", str(cluster.directory))


def usual(cluster: LocalCluster) -> dict[str, tuple[str, ...]]:
    """Commands as a user would give them; they name the process as it is now."""
    pid = str(cluster.node(0).pid)
    return {
        "start": by_hand(cluster, "start", "{id}"),
        "kill": by_hand(cluster, "kill", "{id}"),
        "pause": ("sh", "-c", f"kill -STOP {pid}"),
        "resume": ("sh", "-c", f"kill -CONT {pid}"),
    }


def begun(
    cluster: LocalCluster,
    directory: Path,
    timeout_s: float = BOUND_S,
    say: Callable[[str], None] = lambda _line: None,
    start_timeout_s: float = BOUND_S,
    **other: tuple[str, ...],
) -> ElsewhereRun:
    """A run on it by its usual commands, with these in their place."""
    there = look(cluster.bootstrap_servers)
    file = nodes_file(usual(cluster) | other, timeout_s, start_timeout_s)
    parameters = parameters_for(made_up(one_paused), {}, there)
    return ElsewhereRun(there.found, file, parameters, directory / "run", say)


def one_paused(run: Run) -> None:
    """Stop the broker with an event on its way, and let it go on."""
    client, _ = start_exact(run, events=5)
    run.fault("STOP", 0)
    posted = client.post(0)
    run.fault("CONT", 0)
    assert posted is None
    taken = client.take()
    seen = type(taken).__name__
    run.check("sent meanwhile", "acknowledged", seen, kept=isinstance(taken, Acknowledged))


def made_up(steps: object, hurts: frozenset[str] = frozenset({"STOP", "CONT"})) -> Scenario:
    """A scenario for one broker; its control is there to be left out."""
    return Scenario(
        name="one-broker-down",  # whose name `check` looks up
        summary="Made up.",
        text="Made up.",
        defaults=ONE,
        parts=(
            Part(name="main", title="Main", steps=steps, hurts=hurts),  # type: ignore[arg-type]
            Control(title="Control", steps=one_paused, hurts=hurts),
        ),
    )


def pause(run: Run) -> None:
    run.make_topic()
    run.fault("STOP", 0)


def whole(cluster: LocalCluster) -> bool:
    """Whether the broker runs and serves, and nothing of the lab is left in it."""
    cluster.wait_serving(0)
    return not list(changed(cluster))


def notes(directory: Path) -> str:
    events = events_of(history_files(directory))
    return "\n".join(event.text for event in events if isinstance(event, Note))


@pytest.mark.slow
@pytest.mark.serial
def test_a_broker_of_another_cluster_is_not_taken_for_one(
    theirs: LocalCluster, tmp_path: Path
) -> None:
    """Method: a broker with the id that is wanted answers at its address, of another cluster."""
    found = replace(look(theirs.bootstrap_servers).found, cluster_id="another")
    with pytest.raises(ClusterError, match=f"of the cluster {theirs.cluster_id}, and not of anoth"):
        ElsewhereCluster(found.record([0]), None, tmp_path, {}).start()


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_a_run_leaves_its_cluster_as_it_was(theirs: LocalCluster, tmp_path: Path) -> None:
    """Goal: a verdict as on a cluster of one's own, which says what it does not rest on."""
    said: list[str] = []
    outcome = proved(theirs, tmp_path, made_up(one_paused), said.append)
    assert outcome.exit is Exit.KEPT, "\n".join(said)
    expect_told(outcome)
    assert whole(theirs)
    expect_told(judge_again(tmp_path / "run"))


def proved(
    cluster: LocalCluster,
    directory: Path,
    scenario: Scenario,
    say: Callable[[str], None],
    *,
    start_timeout_s: float = BOUND_S,
    **other: tuple[str, ...],
) -> Outcome:
    """Prove a scenario on it, without its control, as `begun` begins a run."""
    there = look(cluster.bootstrap_servers)
    file = nodes_file(usual(cluster) | other, start_timeout_s=start_timeout_s)
    return prove(
        scenario,
        parameters_for(scenario, {}, there),
        directory / "run",
        command="x",
        control=False,
        say=say,
        begin=partial(ElsewhereRun, there.found, file),
    )


def expect_told(outcome: Outcome) -> None:
    """What could not be looked at is in the verdict and in the report."""
    assert outcome.exit is Exit.KEPT
    assert "Replicas were not compared" in outcome.verdict
    (part,) = outcome.results
    assert [[*row] for row in part.tables[0].rows] == [*NOT_SEEN]
    assert not [check for check in part.checks if "replica" in check.name.lower()]
    assert outcome.report is not None
    text = outcome.report.read_text()
    assert "What the lab does not see of this cluster" in text
    assert NOT_SEEN[0][1] in text


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 7", r"failed with exit status 7\. It said nothing"),
        ("kill -STOP {pid}; echo half >&2; exit 1", r"exit status 1\. It said: half"),
        ("kill -STOP {pid}; sleep 60", r"has not ended after 4 s, and was killed"),
        ("true", r"ended well, and node 0 still answers"),
    ],
)
def test_a_pause_that_goes_wrong_ends_the_run_and_is_undone(
    theirs: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    """Method: a command fails, does and fails, does and hangs, and ends well with nothing done."""
    monkeypatch.setattr(Parameters, "leave_s", 1.0)
    command = script.format(pid=theirs.node(0).pid)
    run = begun(theirs, tmp_path, timeout_s=4.0, pause=("sh", "-c", command))
    with run, pytest.raises(LabError, match=words):
        pause(run)
    run.journal.close()
    assert not run.left
    assert not run.checks
    assert whole(theirs)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("heal", ["kill -CONT {pid}", "true"])
def test_a_cut_is_seen_and_healed(theirs: LocalCluster, tmp_path: Path, heal: str) -> None:
    """Method: nobody reaches a process that stands still; once the command that heals does nothing.

    By its usual command it goes on behind the run, which had cut it off and not healed it.
    """
    pid = theirs.node(0).pid
    run = begun(
        theirs,
        tmp_path,
        start_timeout_s=2.0,
        cut=("sh", "-c", f"kill -STOP {pid}"),
        heal=("sh", "-c", heal.format(pid=pid)),
    )
    with run:
        run.make_topic()
        run.fault(CUT, 0)
        assert run.cluster.state(0) is State.STOPPED
        with nullcontext() if "CONT" in heal else pytest.raises(ClusterError, match="not serve"):
            run.fault(HEAL, 0)
            assert run.cluster.state(0) is State.RUNNING
    run.journal.close()
    assert bool(run.left) == ("CONT" not in heal)
    theirs.kill(0, "CONT")
    theirs.wait_serving(0)
    assert len(removed(theirs)) == len(run.left[:1])


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("script", ["exit 7", "true"])
def test_a_command_that_fails_breaks_no_promise(
    theirs: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Goal: not made, never broken. Method: a kill that fails, and one that does nothing."""
    monkeypatch.setattr(Parameters, "leave_s", 1.0)
    said: list[str] = []
    scenario = made_up(killed, frozenset({"KILL"}))
    outcome = proved(theirs, tmp_path, scenario, said.append, kill=("sh", "-c", script))
    assert outcome.exit is Exit.NOT_MADE, "\n".join(said)
    assert "The run could not be made: `sh -c " in outcome.verdict
    assert whole(theirs)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_what_is_interrupted_is_undone(theirs: LocalCluster, tmp_path: Path) -> None:
    """Goal: what was asked for before is undone behind it, wherever it is done.

    Method: Ctrl-C, which the command itself sends to the lab before it has the broker stopped, in
    another session: as on another machine, it would be stopped though the command were killed.
    """
    done = tmp_path / "done"
    late = f"sleep 1; kill -STOP {theirs.node(0).pid}; touch {done}"
    script = f"setsid sh -c '{late}' & sleep 0.5; kill -INT $PPID; wait; exit 1"
    run = begun(theirs, tmp_path, pause=("sh", "-c", script))
    with pytest.raises(KeyboardInterrupt), run:
        pause(run)
    run.journal.close()
    assert run.left == []
    assert "undone: resume of node 0" in notes(run.history)
    wait_until(done.exists, timeout_s=BOUND_S, what="the pause")
    assert whole(theirs)


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_nothing_that_can_not_be_written_keeps_it_from_being_undone(
    theirs: LocalCluster, tmp_path: Path
) -> None:
    """Goal: a closed terminal and a full disk leave no broker hurt.

    Method: once the broker is paused nobody takes a line, and the commands' log has no room.
    """
    log = tmp_path / "run" / "commands" / "node-0.log"

    def say(_line: str) -> None:
        if log.exists():
            raise BrokenPipeError

    run = begun(theirs, tmp_path, say=say)
    with pytest.raises(BrokenPipeError), run:
        pause_and_fill(run, log)
    run.journal.close()
    assert run.left == []
    assert whole(theirs)


def pause_and_fill(run: Run, log: Path) -> None:
    run.create_topic(run.topic, 1, None, assignment={0: [0]})
    run.cluster.kill(0, "STOP")
    log.unlink()
    log.symlink_to("/dev/full")
    run.note("the terminal is closed")


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
def test_a_broker_that_does_not_come_back_is_listed(theirs: LocalCluster, tmp_path: Path) -> None:
    """Goal: the run is not made, and its user knows what is left to do. Method: a start that lies.

    It is killed in truth, and started by the test.
    """
    said: list[str] = []
    scenario = made_up(killed, frozenset({"KILL"}))
    outcome = proved(theirs, tmp_path, scenario, said.append, start_timeout_s=2.0, start=("true",))
    assert outcome.exit is Exit.NOT_MADE
    assert "node 0 does not serve at" in outcome.verdict
    assert "what was done to the cluster is not all undone: node 0 (kill)" in outcome.verdict
    assert any("NOT UNDONE: node 0 (kill)" in line for line in said)
    theirs.start_node(0)
    (left,) = removed(theirs)  # nobody was there to do it
    assert any(f"NOT UNDONE: topic {left} is still there" in line for line in said)
    assert f"topic {left} is still there" in outcome.verdict


def removed(cluster: LocalCluster) -> list[str]:
    """Remove the topics that runs have left in it; their names."""
    left = [name for name in cluster.topic_names() or () if name.startswith(PREFIX)]
    with Driver(cluster.bootstrap_servers, "test") as driver:
        for name in left:
            driver.perform(delete_topic(name), node="controller")
    return left


def killed(run: Run) -> None:
    run.make_topic()
    run.fault("KILL", 0)
    run.start_node(0)


# -- the lab's own way there -----------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("is_by_lab", [False, True])
def test_what_comes_too_late_proves_nothing_where_the_lab_reached_nobody(
    theirs: LocalCluster, tmp_path: Path, *, is_by_lab: bool
) -> None:
    """Goal: a way that was cut for a while breaks no promise; a broker that the lab hurt is no way.

    Method: the only broker stands still, by nobody's command or by the lab's, and so nothing flows.
    """
    said: list[str] = []

    def steps(run: Run) -> None:
        run.make_topic()
        producer = run.start_producer()
        run.must_flow(producer)
        if is_by_lab:
            run.fault("STOP", 0)
        else:
            theirs.kill(0, "STOP")
        run.wait("nothing to be acknowledged", lambda: quiet(producer), BOUND_S)
        try:
            run.expect_flow(producer, "events flow", 2 * SECONDS_MAX)
        finally:
            theirs.kill(0, "CONT")

    outcome = proved(theirs, tmp_path, made_up(steps), said.append)
    told = "\n".join(said)
    assert outcome.exit is (Exit.BROKEN if is_by_lab else Exit.NOT_MADE), told
    assert ("did not reach the cluster from" in outcome.verdict) == (not is_by_lab), told
    assert judge_again(tmp_path / "run").exit is outcome.exit
    assert whole(theirs)


def quiet(producer: Worker) -> bool:
    """Whether nothing was acknowledged in the second up to now."""
    latest_ms = max(producer.tail.poll().acknowledged_ms.values())
    return time.monotonic() * 1000 - latest_ms > 1000
