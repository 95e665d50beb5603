"""What a scenario is: its settings, the promise that follows from them, its parts.

A scenario has one or more parts, each a run on a cluster of its own. One of them is the control:
the same promise is held against settings that cannot keep it, and it must be seen to break. A
scenario whose control does not fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.plan import Shape
from holdfast.judge.promise import Promise, promise_for
from holdfast.judge.verdict import Anomaly

if TYPE_CHECKING:
    from holdfast.lab.run import Run

TOPIC = "foo"
ELR = "eligible.leader.replicas.version"

# Short sessions show faults quickly; "kafka" leaves Kafka's own defaults (session 9 s, lag 30 s).
PROFILES: Mapping[str, Mapping[str, str]] = {
    "lab": {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.election.timeout.ms": "200",
        "controller.quorum.election.backoff.max.ms": "250",
    },
    "kafka": {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "controller.quorum.fetch.timeout.ms": "2000",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.election.backoff.max.ms": "1000",
    },
}


class LabError(Exception):
    """The run could not be made; the text says why. Says nothing about what the cluster kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Settings of one run, as flags give them. Rates in events a second, times in seconds."""

    acks: str = "all"
    replication_factor: int = 3
    min_isr: int = 2
    brokers: int = 3
    controllers: int | None = None  # None: as many as `holdfast up` starts
    combined: bool = False  # controllers inside the first brokers
    racks: tuple[str, ...] | None = None  # one a broker
    elr: bool = False  # eligible leader replicas (KIP-966)
    partitions: int = 3
    rate: float = 200.0
    duration_s: float = 2.0  # of each steady stretch between faults
    signal: str = "both"  # KILL, TERM or both, one after the other
    kills: int = 5
    count: int = 20  # events of a schedule that counts them
    profile: str = "lab"
    unclean: bool = False
    retries: int | None = None  # None: the client's own; 0 where refusals must be certain
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """LabError: these settings make no sense together."""
        if self.acks not in {"0", "1", "all"}:
            raise LabError(f"--acks {self.acks}: it is 0, 1 or all.")
        if not 1 <= self.replication_factor <= self.brokers:
            raise LabError(
                f"--replication-factor {self.replication_factor}: there are {self.brokers} brokers."
            )
        if not 1 <= self.min_isr <= self.replication_factor:
            raise LabError(
                f"--min-isr {self.min_isr}: it lies between 1 and the replication factor, "
                f"{self.replication_factor}."
            )
        if self.signal not in {"KILL", "TERM", "both"}:
            raise LabError(f"--signal {self.signal}: it is KILL, TERM or both.")
        if self.profile not in PROFILES:
            raise LabError(f"--profile {self.profile}: it is {' or '.join(PROFILES)}.")
        try:
            self._shape()
        except ClusterError as error:
            raise LabError(str(error)) from None
        if self.partitions < 1 or self.kills < 1 or self.count < 1:
            raise LabError("--partitions, --kills and --count are at least 1.")
        if self.rate <= 0 or self.duration_s <= 0:
            raise LabError("--rate and --duration are greater than 0.")

    @property
    def idempotent(self) -> bool:
        """An idempotent producer needs acks=all, and retries."""
        return self.acks == "all" and self.retries is None

    @property
    def retries_effective(self) -> int:
        """Without idempotence the lab's producers never send twice."""
        return 1 if self.idempotent else 0

    @property
    def signals(self) -> tuple[str, ...]:
        return ("TERM", "KILL") if self.signal == "both" else (self.signal,)

    @property
    def node_config(self) -> dict[str, str]:
        return {**PROFILES[self.profile], **self.config}

    @property
    def features(self) -> dict[str, int]:
        return {ELR: int(self.elr)}

    @property
    def session_s(self) -> float:
        """How long a dead broker is thought alive."""
        return int(self.node_config["broker.session.timeout.ms"]) / 1000

    @property
    def quorum_s(self) -> float:
        """How long followers wait for a silent active controller before they want another."""
        return int(self.node_config["controller.quorum.fetch.timeout.ms"]) / 1000

    @property
    def promise(self) -> Promise:
        return promise_for(
            acks=self.acks,
            replication_factor=self.replication_factor,
            min_isr=self.min_isr,
            idempotent=self.idempotent,
            retries=self.retries_effective,
            unclean=self.unclean,
        )

    def assignment(self) -> dict[int, tuple[int, ...]]:
        """Replicas in rings: with three brokers 1:0:2, 2:1:0, 0:2:1 (EXPERIMENTS.md, ground)."""
        return {
            partition: tuple(
                (partition + 1 - place) % self.brokers for place in range(self.replication_factor)
            )
            for partition in range(self.partitions)
        }

    def _shape(self) -> Shape:
        return Shape(
            brokers=self.brokers,
            controllers=self.controllers,
            combined=self.combined,
            racks=self.racks,
        )

    def _controllers_text(self) -> str:
        where = "inside the first brokers" if self.combined else "processes of their own"
        return f"{self._shape().voters}, {where}"

    def shown(self) -> dict[str, str]:
        """For the report's table of settings."""
        return {
            "acks": self.acks,
            "enable.idempotence": str(self.idempotent).lower(),
            "brokers": str(self.brokers),
            "controllers": self._controllers_text(),
            "partitions": str(self.partitions),
            "replication factor": str(self.replication_factor),
            "min.insync.replicas": str(self.min_isr),
            "unclean.leader.election.enable": str(self.unclean).lower(),
            ELR: str(self.features[ELR]),
            "events a second": f"{self.rate:g}",
            **self.node_config,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run on a cluster of its own. `change` is laid over the scenario's parameters.

    Two things make it a control. `breaks_with`: the promise of the *scenario's* parameters is held
    against it, and this anomaly must be among what breaks it. `breaks_check`: the promise is kept,
    and what its steps expect is not: checks whose names hold these words must fail, and no others.
    """

    name: str  # a folder's name
    title: str
    steps: Callable[[Run], None]
    change: Mapping[str, Any] = field(default_factory=dict)
    breaks_with: Anomaly | None = None
    breaks_check: str | None = None

    @property
    def is_control(self) -> bool:
        return self.breaks_with is not None or self.breaks_check is not None

    def parameters(self, base: Parameters) -> Parameters:
        return replace(base, **self.change)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    summary: str  # one sentence
    text: str  # what happens and what must be seen
    defaults: Parameters
    parts: tuple[Part, ...]
    fixed: frozenset[str] = frozenset()  # parameters that the steps rely on

    def with_flags(self, flags: Mapping[str, Any]) -> Parameters:
        """Lay flags over the defaults. LabError: one of them can't be had here."""
        for name, value in flags.items():
            if name in self.fixed and value != getattr(self.defaults, name):
                raise LabError(
                    f"--{name.replace('_', '-')} {value}: {self.name} is made for "
                    f"{getattr(self.defaults, name)}."
                )
        return replace(self.defaults, **flags)

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
    "unclean-election": "unclean_election",
    "replication-factor-one": "replication_factor_one",
    "broker-paused": "broker_paused",
    "rolling-restart": "rolling_restart",
    "rack-loss": "rack_loss",
    "disk-lost": "disk_lost",
    "last-replica-standing": "last_replica_standing",
    "min-isr-law": "min_isr_law",
    "nearest-replica": "nearest_replica",
    "add-broker": "add_broker",
    "raise-replication-factor": "raise_replication_factor",
}


def load_scenario(name: str) -> Scenario:
    """LabError when there is none of this name."""
    module = SCENARIOS.get(name)
    if module is None:
        raise LabError(f"There is no scenario {name!r}. There are: {', '.join(SCENARIOS)}.")
    found = import_module(f"holdfast.lab.scenarios.{module}").SCENARIO
    assert isinstance(found, Scenario)
    return found
