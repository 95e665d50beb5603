"""What a scenario is: its parts, and the parameters that they begin with.

A scenario has one or more parts, each a run on a cluster of its own. One of them is the control:
the same promise is held against settings that cannot keep it, and it must be seen to break. A
scenario whose control does not fail proves nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.cluster.layout import OLDER
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.verdict import Anomaly
from holdfast.lab.parameters import LabError, Parameters, refuse_if

if TYPE_CHECKING:
    from holdfast.lab.run import Run


BY_SIGNAL = "--signal"  # in `Part.hurts`: the signals that this option names
NOBODY: frozenset[str] = frozenset()
# The process of a run's producer (`Run.start_producer`). Raw clients, which never send twice, and
# producers that are to be told apart have other names.
LIBRDKAFKA = frozenset({"producer"})
SEED_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run on a cluster of its own. `change` is laid over the scenario's parameters.

    Behind its steps every run is concluded in the same way (`lab.steps.closing`).

    Three things make it a control. `breaks_with`, `breaks_group`: the promise of the *scenario's*
    parameters is held against it, and this anomaly, of the log or of a group, must be among what
    breaks it. `breaks_check`: the promise is kept, and what its steps expect is not: checks whose
    names hold these words must fail, and no others.

    `met`: a workload of this name must have been answered with this error. A part in whose history
    that does not stand has not tried what it is about, and proves nothing.

    `hurts`: the signals that its steps send to brokers; none of them: it hurts clients at most.
    Such a part runs on a cluster elsewhere, too (`lab.elsewhere`), for it does nothing else: it
    looks into no files, touches no disk, link or controller, and names brokers by what it has been
    given. None, for all others: it takes a cluster of its own.

    `counted`: of what the promise forbids, what clients do here by themselves, whatever the cluster
    does. It breaks nothing, and `because` says why: of records of those alone whose processes are
    `counted_of`, and where there is `met`, of what they had not been answered yet when they were
    told of that error (`outcome.excused_by`).
    """

    name: str  # a folder's name
    title: str
    steps: Callable[[Run], None]
    change: Mapping[str, Any] = field(default_factory=dict)
    breaks_with: Anomaly | None = None
    breaks_group: GroupAnomaly | None = None
    breaks_check: str | None = None
    met: tuple[str, str] | None = None
    hurts: frozenset[str] | None = None
    counted: frozenset[Anomaly] = frozenset()
    counted_of: frozenset[str] = LIBRDKAFKA
    because: str = ""

    def __post_init__(self) -> None:
        assert bool(self.counted) == bool(self.because), "what is only counted has a reason"

    @property
    def is_control(self) -> bool:
        kinds = (self.breaks_with, self.breaks_group, self.breaks_check)
        return any(each is not None for each in kinds)

    def parameters(self, base: Parameters) -> Parameters:
        change = dict(self.change)
        if base.servers is not None:  # a cluster elsewhere has the settings that it has
            change.pop("config", None)
        return replace(base, **change)

    def signals(self, parameters: Parameters) -> frozenset[str]:
        """Return the signals that its steps send to brokers, with these parameters."""
        hurts = self.hurts or NOBODY
        return hurts - {BY_SIGNAL} | (set(parameters.signals) if BY_SIGNAL in hurts else set())


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(Part):
    """What most controls are: settings under which the scenario's promise loses events."""

    name: str = "control"
    breaks_with: Anomaly | None = Anomaly.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    summary: str  # one sentence
    text: str  # what happens and what must be seen
    parts: tuple[Part, ...]
    defaults: Parameters = field(default_factory=Parameters)
    fixed: frozenset[str] = frozenset()  # parameters that the steps rely on
    least: Mapping[str, int] = field(default_factory=dict)  # of others, what they can't do without
    draws: bool = False  # whether a seed says what is done

    def with_flags(self, flags: Mapping[str, Any]) -> Parameters:
        """Lay flags over the defaults. LabError: one of them can't be had here."""
        for name, value in flags.items():
            refuse_if(
                name == "engine" and value == OLDER and self.name not in WITH_ZOOKEEPER,
                f"--engine {OLDER} is for {', '.join(sorted(WITH_ZOOKEEPER))}: of ZooKeeper only "
                "what becomes of a cluster without it is shown.",
            )
            refuse_if(
                self.name in IDLE.get(name, ()),
                f"--{name.removesuffix('_s')} has no effect in {self.name}: its steps have no "
                "use for it.",
            )
            refuse_if(
                name in self.fixed and value != getattr(self.defaults, name),
                f"--{name.replace('_', '-')} {value}: {self.name} is made for "
                f"{getattr(self.defaults, name)}.",
            )
            if name in self.least and value < self.least[name]:
                option = name.removesuffix("_s").replace("_", "-")
                raise LabError(
                    f"--{option} {value:g}: {self.name} takes {self.least[name]} or more."
                )
        return replace(self.defaults, **flags)

    def seeded(self, parameters: Parameters, command: str) -> tuple[Parameters, str]:
        """Return these with a seed, drawn where none is named; the command then does the same."""
        if not self.draws or parameters.seed is not None:
            return parameters, command
        seed = secrets.randbelow(SEED_MAX)
        return replace(parameters, seed=seed), f"{command} --seed {seed}"

    def __post_init__(self) -> None:
        assert any(part.is_control for part in self.parts), "a scenario has a control"
        assert not all(part.is_control for part in self.parts), "and something to prove"


# name -> module under holdfast.lab.scenarios, which holds SCENARIO
SCENARIOS: Mapping[str, str] = {
    "one-broker-down": "one_broker_down",
    "two-brokers-down": "two_brokers_down",
    "controller-down": "controller_down",
    "controller-election": "controller_election",
    "min-insync-replicas": "min_insync_replicas",
    "leader-election": "leader_election",
    "write-anomaly": "write_anomaly",
    "read-anomaly": "read_anomaly",
    "unclean-election": "unclean_election",
    "replication-factor-one": "replication_factor_one",
    "broker-paused": "broker_paused",
    "rolling-restart": "rolling_restart",
    "rack-loss": "rack_loss",
    "disk-lost": "disk_lost",
    "disk-full": "disk_full",
    "last-replica-standing": "last_replica_standing",
    "min-isr-law": "min_isr_law",
    "nearest-replica": "nearest_replica",
    "five-brokers": "five_brokers",
    "add-broker": "add_broker",
    "raise-replication-factor": "raise_replication_factor",
    "arrival-times": "arrival_times",
    "payload-curve": "payload_curve",
    "busy-topic": "busy_topic",
    "replication-price": "replication_price",
    "throughput": "throughput",
    "retention": "retention",
    "compacted-topic": "compacted_topic",
    "commit-rules": "commit_rules",
    "rolling-clients": "rolling_clients",
    "consumer-replaced": "consumer_replaced",
    "standby-group": "standby_group",
    "clients-cut-off": "clients_cut_off",
    "rebalance-price": "rebalance_price",
    "coordinator-lost": "coordinator_lost",
    "split-brain": "networks.split_brain",
    "followers-cut": "networks.followers_cut",
    "controllers-cut": "networks.controllers_cut",
    "controller-isolated": "networks.controller_isolated",
    "three-zones": "networks.three_zones",
    "lost-acknowledgement": "networks.lost_acknowledgement",
    "slow-follower": "networks.slow_follower",
    "broker-isolated": "networks.broker_isolated",
    "client-links-cut": "networks.client_links_cut",
    "partial-bootstrap": "networks.partial_bootstrap",
    "replication-network": "networks.replication_network",
    "storm": "networks.storm",
    "pipeline-driver-killed": "pipelines.driver_killed",
    "pipeline-executor-killed": "pipelines.executor_killed",
    "pipeline-broker-killed": "pipelines.broker_killed",
    "pipeline-rebalanced": "pipelines.rebalanced",
    "pipeline-database-down": "pipelines.database_down",
    "pipeline-data-gone": "pipelines.data_gone",
    "pipeline-topic-recreated": "pipelines.topic_recreated",
    "pipeline-zombie": "pipelines.zombie",
}
# Whose steps follow a schedule that a command of their own draws: `prove --all` and `make soak`,
# which know no schedule, make them not.
DRAWN: Mapping[str, str] = {"replay": "networks.replay"}

# Schedules that are sent event by event: no producer with a rate, no steady stretch.
_EXACT = {
    "last-replica-standing",
    "min-isr-law",
    "read-anomaly",
    "unclean-election",
    "write-anomaly",
}
# What they count are members of groups, each by its own number.
_GROUPS = {
    "clients-cut-off",
    "commit-rules",
    "consumer-replaced",
    "coordinator-lost",
    "rebalance-price",
    "rolling-clients",
    "standby-group",
    "throughput",
}
# Spark queries: those that write a number of events, and those under which something dies.
_WRITTEN = {"pipeline-data-gone", "pipeline-rebalanced", "pipeline-topic-recreated"}
NETWORKS = {name for name, module in SCENARIOS.items() if module.startswith("networks.")}
PIPELINES = {name for name in SCENARIOS if name.startswith("pipeline-")}
_PIPELINES_KILLED = {
    "pipeline-broker-killed",
    "pipeline-database-down",
    "pipeline-driver-killed",
    "pipeline-executor-killed",
}
# Networks that break: what is counted there is what clients have sent meanwhile.
_SPLITS = NETWORKS - {"followers-cut", "lost-acknowledgement"}
# What a cluster with ZooKeeper is there for.
WITH_ZOOKEEPER = frozenset({"controller-down"})

# Parameters that some scenarios' steps have no use for: there a flag would be ignored.
IDLE: Mapping[str, frozenset[str]] = {
    "kills": frozenset(SCENARIOS)
    - {"compacted-topic", "consumer-replaced", "controller-election", "leader-election"}
    - _PIPELINES_KILLED,
    "count": frozenset(
        _GROUPS
        | _SPLITS
        | {"add-broker", "arrival-times", "compacted-topic", "five-brokers"}
        | {"busy-topic", "nearest-replica", "payload-curve", "replication-price"}
        | (PIPELINES - _WRITTEN)
    ),
    "seed": frozenset(SCENARIOS) - {"storm"},
    "rate": frozenset(_EXACT | _WRITTEN | {"followers-cut", "payload-curve", "throughput"}),
    "duration_s": frozenset(
        _EXACT
        | {"busy-topic", "followers-cut", "lost-acknowledgement", "rebalance-price"}
        | {"retention", "throughput"}
        | PIPELINES
    )
    - {"pipeline-database-down"},
}


def load_scenario(name: str) -> Scenario:
    """LabError when there is none of this name."""
    known = {**SCENARIOS, **DRAWN}
    module = known.get(name)
    if module is None:
        near = get_close_matches(name, known)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise LabError(f"There is no scenario {name!r}.{meant} There are: {', '.join(known)}.")
    found = import_module(f"holdfast.lab.scenarios.{module}").SCENARIO
    assert isinstance(found, Scenario)
    return found
