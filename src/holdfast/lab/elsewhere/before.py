"""What can be had of a cluster elsewhere, found out before anything is done to it.

Owns looking at it, which of its brokers and settings a scenario is given, and the refusal of what
it can't give. It changes nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.clients.administration import configs_of
from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.elsewhere.elsewhere_cluster import COMMAND_OF, Found, find
from holdfast.cluster.elsewhere.nodes_file import (
    NAMES,
    UNDONE_BY,
    NodesFile,
    listed,
    read_nodes_file,
)
from holdfast.cluster.layout import NodeRecord
from holdfast.lab.elsewhere.elsewhere_run import PREFIX, how_to_remove
from holdfast.lab.parameters import (
    ELSEWHERE,
    GROUP_PROFILES,
    GROUP_SESSION,
    PROFILES,
    LabError,
    Parameters,
    refuse_if,
)
from holdfast.lab.scenario import SCENARIOS, Part, Scenario, load_scenario
from holdfast.lab.steps.mishaps import asking
from holdfast.wire.administration import ConfigEntry
from holdfast.wire.structs import ResourceType

ASK_S: Final = 10.0
BEYOND: Final = (
    "its steps go beyond what clients and brokers' commands do (disks, links, settings, "
    "controllers, replicas in places of their own, brokers of certain ids), so it takes a cluster "
    "of its own"
)
# Settings that bounds of the lab follow from, whatever they are; and what topics inherit.
_BOUNDS: Final = frozenset(
    key for profiles in (PROFILES, GROUP_PROFILES) for each in profiles.values() for key in each
)
_INHERITED: Final = ("log.retention.", "log.cleanup.policy", "log.message.timestamp.type")
_DELETABLE: Final = "delete.topic.enable"
# Where a longer time than a part asks for does as well.
_AT_LEAST: Final = frozenset(
    {"broker.session.timeout.ms", GROUP_SESSION, "group.consumer.heartbeat.interval.ms"}
)
# Parameters that decide what a cluster is made like, and what they would have to be.
_OWN: Final[Mapping[str, Any]] = {
    "network": False,
    "racks": None,
    "combined": False,
    "controllers": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A cluster that is there: its brokers, its settings, and how it is hurt."""

    found: Found
    file: NodesFile | None
    settings: Mapping[str, str]

    @property
    def usable(self) -> tuple[int, ...]:
        """The brokers that a run may use, and hurt if its scenario does."""
        ids = tuple(self.found.brokers)
        return ids if self.file is None else tuple(n for n in ids if self.file.may_hurt(n))


def possible(elsewhere: Elsewhere) -> Iterator[str]:
    """Yield the scenarios that need no more than there is; what they need in full is said later."""
    for name in SCENARIOS:
        hurts = [part.hurts for part in load_scenario(name).parts]
        if None not in hurts and (elsewhere.file is not None or not any(hurts)):
            yield name


def look(servers: str) -> Elsewhere:
    """Look at a cluster that nothing may be done to. ClusterError, LabError: it can't be used."""
    return _look(find(servers), None)


def look_with(path: Path) -> Elsewhere:
    """Look at the cluster that a nodes' file is of. ClusterError, LabError: it can't be used."""
    file = read_nodes_file(path)
    found = find(file.servers, option=f"--nodes {path}: bootstrap-server")
    unknown = sorted(file.nodes.keys() - found.brokers.keys())
    shown = ", ".join(map(str, found.brokers))
    refuse_if(
        unknown,
        f"--nodes {path}: nodes.{unknown[0] if unknown else ''}: the cluster at {file.servers} "
        f"shows no such broker; it shows {shown}. Each of them must run before it begins.",
    )
    left = sorted(name for name in _topics(found) if name.startswith(PREFIX))
    refuse_if(
        left,
        f"the cluster at {file.servers} has the topic {', '.join(left)}: another run breaks it "
        "just now, or one was killed, and has left it, and perhaps a broker that it had hurt. "
        f"{how_to_remove(file.servers, left)}.",
    )
    return _look(found, file)


def _topics(found: Found) -> list[str]:
    """Ask for the names of all topics. LabError: nobody says."""
    with asking("nobody says which topics there are"), _driver(found) as driver:
        return [topic.name or "" for topic in driver.metadata().topics]


def _driver(found: Found) -> Driver:
    return Driver(found.servers, "lab", timeout_s=ASK_S)


def _look(found: Found, file: NodesFile | None) -> Elsewhere:
    return Elsewhere(found=found, file=file, settings=settings_of(found))


def settings_of(found: Found) -> dict[str, str]:
    """Ask a broker for the settings that matter to a run. LabError: it does not say."""
    node = str(next(iter(found.brokers)))
    with asking(f"broker {node} does not say what its settings are"), _driver(found) as driver:
        told = configs_of(driver, ResourceType.BROKER, [node])[node]
    return settings_told(told)


def settings_told(told: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return of a broker's settings those that matter. LabError: nothing could be removed there."""
    refuse_if(
        any(each.name == _DELETABLE and each.value == "false" for each in told),
        f"{_DELETABLE} is false in this cluster, so the topic of a run would stay there.",
    )
    return {
        each.name: each.value
        for each in told
        if each.value is not None
        and (each.name in _BOUNDS or (each.name.startswith(_INHERITED) and not each.is_default))
    }


def parameters_for(
    scenario: Scenario, flags: Mapping[str, Any], elsewhere: Elsewhere
) -> Parameters:
    """Return a scenario's parameters there: its own number of brokers, if so many are there.

    LabError: they can't be had.
    """
    refuse_if(
        all(part.hurts is None for part in scenario.parts),
        f"{scenario.name} can't be run on the cluster at {elsewhere.found.servers}: {BEYOND}. "
        f"There can: {', '.join(possible(elsewhere))}.",
    )
    usable = elsewhere.usable
    brokers = flags.get("brokers", min(len(usable), scenario.defaults.brokers))
    told = {
        "engine": ELSEWHERE,
        "servers": elsewhere.found.servers,
        "node_ids": usable,
        "config": dict(elsewhere.settings),
        "profile": "kafka",  # where the cluster does not say
        "network": False,  # where links are cut, its owner's commands do it
    }
    return scenario.with_flags({**flags, "brokers": brokers, **told})


def refuse_unable(
    scenario: Scenario, parameters: Parameters, elsewhere: Elsewhere, *, control: bool
) -> None:
    """LabError: a part takes what this cluster can't give; nothing has been done by then."""
    wrong = [
        (part, why)
        for part in scenario.parts
        if control or not part.is_control
        for why in _unable(scenario, part, parameters, elsewhere)
    ]
    if not wrong:
        return
    only_controls = all(part.is_control for part, _ in wrong)
    reasons = [f"{part.title}: {why}" for part, why in wrong]
    advice = " --no-control leaves the control out." if only_controls else ""
    raise LabError(
        f"{scenario.name} can't be run on the cluster at {elsewhere.found.servers}. "
        f"{'; '.join(reasons)}.{advice}"
    )


def _unable(
    scenario: Scenario, part: Part, base: Parameters, elsewhere: Elsewhere
) -> Iterator[str]:
    """Yield what one part takes, and this cluster can't give."""
    if part.hurts is None:
        yield BEYOND
        return
    try:
        parameters = part.parameters(base)
    except LabError as error:  # it takes more brokers than there are, say
        yield str(error).removesuffix(".")
        return
    for name, usual in _OWN.items():
        if getattr(parameters, name) != usual:
            yield f"it takes a cluster with {name} of its own"
    wanted = {**scenario.defaults.config, **part.change.get("config", {})}
    yield from _settings_missing(wanted, elsewhere.settings)
    names = commands_of(part, parameters)
    if names and elsewhere.file is None:
        yield (
            f"it hurts brokers ({', '.join(names)}), and --bootstrap-server is for what breaks "
            "nothing: --nodes FILE.toml says how these are hurt"
        )
    elif elsewhere.file is not None:
        file, nodes = elsewhere.file, nodes_of(parameters, elsewhere)
        for name in names:
            lacking = [str(node.id) for node in nodes if file.words(name, node) is None]
            if lacking:
                yield f"{file.path} has no command `{name}` for {', '.join(lacking)}"


def _settings_missing(wanted: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[str]:
    for key, value in wanted.items():
        told = settings.get(key)
        if told is None:
            yield f"it takes {key}={value}, and the cluster does not say what it has"
        elif key in _AT_LEAST:
            if int(told) < int(value):
                yield f"it takes {key}={value} or more, and the cluster has {told}"
        elif told != value:
            yield f"it takes {key}={value}, and the cluster has {told}"


def commands_of(part: Part, parameters: Parameters) -> list[str]:
    """Return the commands that a part's steps run, with those that undo them."""
    hurting = {COMMAND_OF[signal] for signal in part.signals(parameters)}
    return [n for n in NAMES if n in hurting | {UNDONE_BY[h] for h in hurting & UNDONE_BY.keys()}]


def nodes_of(parameters: Parameters, elsewhere: Elsewhere) -> Sequence[NodeRecord]:
    """Return the brokers that a run uses."""
    return elsewhere.found.record(parameters.node_ids[: parameters.brokers]).nodes


def would_be_done(
    scenario: Scenario,
    parameters: Parameters,
    elsewhere: Elsewhere,
    file: NodesFile,
    *,
    control: bool,
) -> Iterator[str]:
    """Yield, line by line, what a run would do to this cluster by the file's commands."""
    nodes: dict[int, NodeRecord] = {}
    names: dict[int, set[str]] = {}
    for part in scenario.parts:
        if part.is_control and not control:
            continue
        own = part.parameters(parameters)  # a control may take more brokers
        for node in nodes_of(own, elsewhere):
            nodes[node.id] = node
            names.setdefault(node.id, set()).update(commands_of(part, own))
    hurt = [number for number in names if names[number]]
    who = f"hurt brokers {', '.join(map(str, hurt))} by these commands:" if hurt else "hurt nobody."
    yield (
        f"{scenario.name} would make a topic in the cluster {elsewhere.found.cluster_id} at "
        f"{elsewhere.found.servers}, write to it, and {who}"
    )
    for number in hurt:
        yield from listed(file, [nodes[number]], [name for name in NAMES if name in names[number]])
