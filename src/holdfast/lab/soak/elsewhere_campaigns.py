"""Scenarios on a cluster that is there, for `make soak`: one of ours plays somebody else's.

The lab is told its addresses and commands, nothing more, and must leave it as it was.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.group_descriptions import group_names
from holdfast.cluster import LocalCluster, own_code
from holdfast.cluster.layout import WaitError
from holdfast.cluster.processes import State, wait_until
from holdfast.lab.background import ELSEWHERE_SCENARIOS
from holdfast.lab.elsewhere.before import look, look_with, parameters_for, refuse_unable
from holdfast.lab.elsewhere.elsewhere_run import PREFIX, ElsewhereRun
from holdfast.lab.parameters import GROUP_PROFILES
from holdfast.lab.prove import prove
from holdfast.lab.scenario import NETWORKS, load_scenario
from holdfast.lab.soak.campaign import Campaign
from holdfast.lab.soak.exercised import by_commands
from holdfast.wire.administration import AdminError

RUNS = 3
GONE_S = 10.0
WITH_COMMANDS = (
    "one-broker-down",
    "leader-election",
    "broker-paused",
    "write-anomaly",
    "rolling-restart",
    "broker-isolated",
)
WITHOUT = ("commit-rules", "rolling-clients", "consumer-replaced", "standby-group")
# A command takes its time: followers that stand still must not be out of their session by then.
SETTINGS = {**GROUP_PROFILES["lab"], "broker.session.timeout.ms": "12000"}
COMMANDS = {
    "start": "start {id}",
    "terminate": "kill {id} --signal TERM",
    "kill": "kill {id} --signal KILL",
    "pause": "kill {id} --signal STOP",
    "resume": "kill {id} --signal CONT",
}
OF_COMMANDS = by_commands("nodes", "links")
# Of a cluster in a network of its own.
LINKS = {"cut": "isolate {id}", "heal": "heal {id}"}


def our_command() -> str:
    """Return how a shell runs the command of this very code."""
    code = [f"{name}={value}" for name, value in own_code.environment().items()]
    return shlex.join(["env", *code, sys.executable, "-P", "-m", "holdfast.cli"])


def write_nodes_file(path: Path, cluster: LocalCluster) -> None:
    """Write how a cluster of ours is broken by commands, as its user would."""
    way = our_command()
    at = shlex.join(["--data-dir", str(cluster.directory)])
    lines = [f'bootstrap-server = "{cluster.bootstrap_servers}"', "[commands]"]
    commands = COMMANDS | (LINKS if cluster.record.network else {})
    lines += [f'{name} = """{way} {words} {at}"""' for name, words in commands.items()]
    path.write_text("\n".join(lines) + "\n")


def proof_elsewhere(name: str, *, with_commands: bool) -> Callable[[Path], dict[str, Any]]:
    """Return what proves one scenario on a cluster that is there, and stays as it was."""

    def run(directory: Path) -> dict[str, Any]:
        directory.mkdir(parents=True, exist_ok=True)
        theirs, path = directory / "theirs", directory / "nodes.toml"
        network = name in NETWORKS
        with LocalCluster.create(theirs, port=0, config=SETTINGS, network=network) as cluster:
            cluster.start()
            write_nodes_file(path, cluster)
            there = look_with(path) if with_commands else look(cluster.bootstrap_servers)
            scenario = load_scenario(name)
            parameters = parameters_for(scenario, {}, there)
            refuse_unable(scenario, parameters, there, control=True)
            begin = partial(ElsewhereRun, there.found, there.file)
            outcome = prove(
                scenario, parameters, directory / "run", command=f"elsewhere {name}", begin=begin
            )
            left = list(changed(cluster))
        failed = [c.name for result in outcome.results for c in result.checks if not c.kept]
        kept = False if left else outcome.exit.kept
        return {"kept": kept, "verdict": outcome.verdict, "failed": failed, "left": left}

    return run


def changed(cluster: LocalCluster) -> Iterable[str]:
    """Yield what is not as it was: nodes that don't run, and what the lab has made."""
    for node in cluster.nodes:
        state = cluster.state(node.id)
        if state is not State.RUNNING:
            yield f"node {node.id} is {state}"
    with suppress(WaitError):  # a broker hears of a topic's end a moment later
        wait_until(lambda: made(cluster) == [], timeout_s=GONE_S, what="topics to be gone")
    yield from made(cluster)


def made(cluster: LocalCluster) -> list[str]:
    """Return the topics and groups that the lab has made and not removed."""
    topics = cluster.topic_names()
    if topics is None:
        return ["nobody says which topics there are"]
    try:
        with Driver(cluster.bootstrap_servers, "soak") as driver:
            groups = group_names(driver)
    except (AdminError, DriverError) as error:
        return [f"nobody says which groups there are: {error}"]
    names = [*(f"topic {topic}" for topic in topics), *(f"group {name}" for name in sorted(groups))]
    return [name for name in names if name.partition(" ")[2].startswith(PREFIX)]


CAMPAIGNS = tuple(
    Campaign(
        name=f"elsewhere-{name}",
        text=f"{name} on a cluster that is there, "
        + ("broken by commands of its owner." if name in WITH_COMMANDS else "only looked at."),
        runs=RUNS,
        run=proof_elsewhere(name, with_commands=name in WITH_COMMANDS),
        in_namespaces=name in NETWORKS,
        exercises=(*ELSEWHERE_SCENARIOS, *(OF_COMMANDS if name in WITH_COMMANDS else ())),
    )
    for name in (*WITH_COMMANDS, *WITHOUT)
)
