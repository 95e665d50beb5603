"""The settings of one run, and the promise that follows from them.

Owns what flags may be given and which of them make sense together. It knows no scenario.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from holdfast.cluster.layout import APACHE, EMBEDDED, ENGINES, OLDER, ClusterError
from holdfast.cluster.plan import LOCAL_PROFILE, Shape
from holdfast.judge.groups.verdict import Commits, GroupPromise, group_promise_for
from holdfast.judge.promise import Promise, promise_for
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

TOPIC = "foo"
ENGINE = "engine"  # what settings call it whose nodes they are
ELSEWHERE = "elsewhere"  # the engine of a cluster that the lab has not made

# As `holdfast up` has it, to see faults soon; "kafka" has Kafka's own defaults (session 9 s,
# lag 30 s).
PROFILES: Mapping[str, Mapping[str, str]] = {
    "lab": LOCAL_PROFILE,
    "kafka": {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "controller.quorum.fetch.timeout.ms": "2000",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.election.backoff.max.ms": "1000",
    },
}

LAG, LAG_MS = "replica.lag.time.max.ms", 30_000  # and Kafka's own
SHORT_LAG: Mapping[str, str] = {LAG: "4000"}  # so that a part ends in under a minute

# With this librdkafka gives up no message. When one times out in flight it takes a new producer
# epoch and sends the rest once more, which doubles them whatever the brokers do
# (docs/design/networks.md). So a run's producer outlasts any outage, and ends when it is told to.
NEVER = "message.timeout.ms=0"
# An idempotent librdkafka takes a new epoch as well when the first of its requests to a leader is
# refused, and the next one comes when that broker leads: it is answered
# OUT_OF_ORDER_SEQUENCE_NUMBER. What another partition's leader has taken, and has not answered yet,
# is sent once more then. With one request in flight no next one is on its way.
ONE_IN_FLIGHT = "max.in.flight.requests.per.connection=1"
PIPELINED = "max.in.flight.requests.per.connection=5"  # as its default is: no leader may change

# Of groups, where a run has some: Kafka's shortest session, and a group that begins at once.
# Kafka's own session is 45 s, and heartbeats of the consumer protocol are 5 s apart.
GROUP_SESSION = "group.consumer.session.timeout.ms"
GROUP_PROFILES: Mapping[str, Mapping[str, str]] = {
    "lab": {
        "group.initial.rebalance.delay.ms": "0",
        GROUP_SESSION: "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
    },
    "kafka": {GROUP_SESSION: "45000"},
}


class LabError(Exception):
    """The run could not be made; the text says why. Says nothing about what the cluster kept."""


class NotInTimeError(LabError):
    """What was waited for has not come within its bound."""


def refuse_if(condition: object, text: str) -> None:
    """End a run in which this is so. LabError: `text`."""
    if condition:
        raise LabError(text)


def words_of(flags: Mapping[str, object]) -> list[str]:
    """Return flags as words of a command. True: the flag alone; a list: the flag for each."""
    words: list[str] = []
    for key, value in flags.items():
        flag = f"--{key.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return words


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
    engine: str = EMBEDDED  # whose nodes: ours, or those of Apache Kafka; or somewhere else
    servers: str | None = None  # of a cluster elsewhere, and its brokers that may be used
    node_ids: tuple[int, ...] = ()
    network: bool = False  # of its own, whose links can be broken; its zones are the racks
    elr: bool = False  # eligible leader replicas (KIP-966)
    partitions: int = 3
    rate: float = 200.0
    duration_s: float = 2.0  # of each steady stretch between faults
    signal: str = "both"  # KILL, TERM or both, one after the other
    kills: int = 5
    count: int = 20  # events of a schedule that counts them
    seed: int | None = None  # of what is drawn; None: a new one
    profile: str = "lab"
    unclean: bool = False
    retries: int | None = None  # None: the client's own; 0 where refusals must be certain
    commits: Commits | None = None  # when members of groups commit; None: there are no groups
    config: Mapping[str, str] = field(default_factory=dict)
    lab_config: Mapping[str, str] = field(default_factory=dict)  # under the lab's profile alone

    def __post_init__(self) -> None:
        """LabError: these settings make no sense together."""
        refuse_if(self.acks not in {"0", "1", "all"}, f"--acks {self.acks}: it is 0, 1 or all.")
        refuse_if(
            not 1 <= self.replication_factor <= self.brokers,
            f"--replication-factor {self.replication_factor}: there are {self.brokers} brokers.",
        )
        refuse_if(
            not 1 <= self.min_isr <= self.replication_factor,
            f"--min-isr {self.min_isr}: it lies between 1 and the replication factor, "
            f"{self.replication_factor}.",
        )
        refuse_if(
            self.signal not in {"KILL", "TERM", "both"},
            f"--signal {self.signal}: it is KILL, TERM or both.",
        )
        refuse_if(
            self.engine not in (ENGINES if self.servers is None else (ELSEWHERE,)),
            f"--engine {self.engine}: it is {EMBEDDED}, {APACHE} or {OLDER}.",
        )
        refuse_if(
            self.engine == OLDER and (self.controllers or self.combined or self.elr),
            f"--engine {OLDER}: one ZooKeeper stands in the controllers' place, so --controllers, "
            "--combined and --elr have no effect.",
        )
        refuse_if(
            self.servers is not None and self.brokers > len(self.node_ids),
            f"--brokers {self.brokers}: of those at {self.servers} {len(self.node_ids)} can be "
            "used.",
        )
        refuse_if(
            self.profile not in PROFILES,
            f"--profile {self.profile}: it is {' or '.join(PROFILES)}.",
        )
        try:
            self._shape()
        except ClusterError as error:
            raise LabError(str(error)) from None
        refuse_if(
            self.partitions < 1 or self.kills < 1 or self.count < 1,
            "--partitions, --kills and --count are at least 1.",
        )
        refuse_if(self.seed is not None and self.seed < 0, f"--seed {self.seed}: it is 0 or more.")
        refuse_if(
            not (0 < self.rate < math.inf and 0 < self.duration_s < math.inf),
            "--rate and --duration are greater than 0, and they end.",
        )

    def as_json(self) -> dict[str, Any]:
        """All of them, for a file that `from_json` reads."""
        dicts = {"config": dict(self.config), "lab_config": dict(self.lab_config)}
        return {**asdict(self), **dicts}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """LabError, TypeError: these are no parameters."""
        racks, commits = values.get("racks"), values.get("commits")
        found = {
            "node_ids": tuple(values.get("node_ids", ())),
            "racks": None if racks is None else tuple(racks),
            "commits": None if commits is None else Commits(commits),
        }
        return cls(**{**values, **found})

    @property
    def start_s(self) -> float:
        """How long nodes may take until they serve."""
        return 30.0 if self.engine == EMBEDDED else 180.0

    @property
    def leave_s(self) -> float:
        """How long a node may take to end by a signal.

        At SIGTERM one of ours asks for a controller for 30 s, one of Apache Kafka for five minutes.
        """
        return 45.0 if self.engine == EMBEDDED else 345.0

    @property
    def early_watermark(self) -> bool:
        """Whether an answer's high watermark may be older than its records.

        And so may be what a coordinator tells to be committed, which is what is below it.
        That is so on Apache Kafka (docs/design/networks.md), and may be elsewhere.
        """
        return self.engine != EMBEDDED

    @property
    def idempotent(self) -> bool:
        """An idempotent producer needs acks=all, and retries."""
        return self.acks == "all" and self.retries is None

    def producer_flags(self, flags: Mapping[str, object]) -> dict[str, object]:
        """Return what a verifiable producer is told: the run's settings, and `flags` over them.

        It gives nothing up as long as it runs, unless `flags` name a time-out. Where it is
        idempotent it has one request in flight, unless `flags` say otherwise.
        """
        told: dict[str, object] = {
            "acks": self.acks,
            "rate": self.rate,
            "keys": max(5, self.partitions),  # every partition gets some
            **({} if self.idempotent else {"no_idempotence": True, "retries": 0}),
            **flags,
        }
        config = flags.get("config", [])
        told["config"] = [
            *([] if "delivery_timeout_ms" in flags else [NEVER]),
            *([] if told.get("no_idempotence") else [ONE_IN_FLIGHT]),
            *(config if isinstance(config, list) else [config]),  # what comes later counts
        ]
        return told

    @property
    def signals(self) -> tuple[str, ...]:
        return ("TERM", "KILL") if self.signal == "both" else (self.signal,)

    @property
    def node_config(self) -> dict[str, str]:
        groups = {} if self.commits is None else GROUP_PROFILES[self.profile]
        hurried = self.lab_config if self.profile == "lab" else {}
        return {**PROFILES[self.profile], **groups, **hurried, **self.config}

    @property
    def features(self) -> dict[str, int]:
        return {} if self.engine == OLDER else {ELIGIBLE_LEADER_REPLICAS: int(self.elr)}

    @property
    def session_s(self) -> float:
        """How long a dead broker is thought alive."""
        return int(self.node_config["broker.session.timeout.ms"]) / 1000

    @property
    def group_session_ms(self) -> int:
        """How long a dead member is thought alive; classic members ask for it by themselves."""
        return int(self.node_config[GROUP_SESSION])

    @property
    def noticed_s(self) -> float:
        """How long until everybody knows that a broker is dead, on a slow machine.

        A JVM that begins anew, or does something for the first time, is slower there than ours.
        """
        return self.session_s + (15 if self.engine == EMBEDDED else 45)

    @property
    def lag_s(self) -> float:
        """How long a replica that lacks something stays in sync."""
        return int(self.node_config.get(LAG, LAG_MS)) / 1000

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
            retries=int(self.idempotent),  # without it the lab's producers never send twice
            unclean=self.unclean,
        )

    @property
    def group_promise(self) -> GroupPromise | None:
        """What groups are promised, beside what their log is; None: there are none."""
        return None if self.commits is None else group_promise_for(self.commits)

    @property
    def promise_text(self) -> str:
        """All that is promised, for people."""
        groups = self.group_promise
        return self.promise.text if groups is None else f"{self.promise.text} {groups.text}"

    def assignment(self) -> dict[int, tuple[int, ...]]:
        """Replicas in rings: with three brokers 1:0:2, 2:1:0, 0:2:1."""
        ids = self.node_ids or range(self.brokers)
        return {
            partition: tuple(
                ids[(partition + 1 - place) % self.brokers]
                for place in range(self.replication_factor)
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

    def shown(self) -> dict[str, str]:
        """For the report's table of settings."""
        return {
            **({ENGINE: "Apache Kafka"} if self.engine in {APACHE, OLDER} else {}),
            **({"cluster": f"elsewhere, {self.servers}"} if self.servers is not None else {}),
            **({"profile": self.profile} if self.servers is None else {}),
            "acks": self.acks,
            "enable.idempotence": str(self.idempotent).lower(),
            "brokers": ", ".join(map(str, self.node_ids[: self.brokers])) or str(self.brokers),
            **self._shown_controllers(),
            "partitions": str(self.partitions),
            "replication factor": str(self.replication_factor),
            "min.insync.replicas": str(self.min_isr),
            "unclean.leader.election.enable": str(self.unclean).lower(),
            "events a second": f"{self.rate:g}",
            **({} if self.commits is None else {"members commit": self.commits.value}),
            **({"network": "of its own"} if self.network else {}),
            **self.node_config,
        }

    def _shown_controllers(self) -> dict[str, str]:
        """What is decided for a cluster of one's own, and not known of one elsewhere."""
        if self.servers is not None:
            return {}
        if self.engine == OLDER:
            return {"coordination": "one ZooKeeper"}
        where = "inside the first brokers" if self.combined else "processes of their own"
        return {
            "controllers": f"{self._shape().voters}, {where}",
            ELIGIBLE_LEADER_REPLICAS: str(self.features[ELIGIBLE_LEADER_REPLICAS]),
        }
