"""A small language for stories of a cluster, and how their outcome is written down.

A transcript is a text of blocks: commands, a line of dashes, what happened, an empty line. Lines
that begin with # tell the reader what is going on. The commands are the methods of `Story`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.core.control_kit import Cluster, identity
from tests.transcripts import retold

from holdfast.core.controller.asked_elections import elect_leaders
from holdfast.core.controller.broker_sessions import unregister_broker
from holdfast.core.controller.config_changes import incremental_alter_configs
from holdfast.core.controller.decisions import Decision
from holdfast.core.controller.elections import Election, balance, elect_leaderless
from holdfast.core.controller.feature_updates import update_features
from holdfast.core.controller.reassignment import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from holdfast.core.controller.replica_directories import assign_replicas
from holdfast.core.metadata.image import Broker, Partition
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpgradeType,
)

KINDS = {"topic": 2, "broker": 4, "cluster": 4}


def run(text: str) -> str:
    """Run a transcript; return it with what really happened."""
    return retold(text, Story().command)


class Story:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.disks: dict[int, int] = {}
        self.seen = 0

    def command(self, words: list[str]) -> list[str]:
        name, *arguments = words
        method = getattr(self, "do_" + name)
        said: str | None = method(*arguments)
        return ([said] if said else []) + self._changes()

    # -- commands ------------------------------------------------------------------------------

    def do_elr(self, min_insync: str) -> None:
        """First of all: the cluster keeps eligible leader replicas, with this min.insync.replicas.

        From then on restarts are unclean unless they say otherwise.
        """
        self.cluster = Cluster(elr=True, min_insync_replicas=int(min_insync))

    def do_start(self, *nodes: str) -> None:
        self.cluster.start(*map(int, nodes))

    def do_topic(self, name: str, *replicas: str) -> None:
        """`topic t 0,1,2 1,2,0`: the replicas of each partition."""
        self.cluster.create(name, *(list(map(int, each.split(","))) for each in replicas))

    def do_kill(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.die(int(node))

    def do_advance(self, milliseconds: str) -> None:
        self.cluster.advance(int(milliseconds))

    def do_restart(self, node: str, kind: str = "") -> str:
        """A new start registers; it stays fenced until it beats (`beat`).

        `clean`: it can prove that it was shut down in good order, as the registered incarnation;
        `old`: that an earlier one was; `disk`: with an empty disk in the place of its own.
        """
        number = int(node)
        lies: dict[str, Any] = {}
        if kind == "two":  # it has a second log directory beside its own
            lies["log_dirs"] = [identity(number, 0xD0), identity(number, 0xD1)]
        if kind == "disk":
            self.disks[number] = self.disks.get(number, 0xD0) + 1
        if number in self.disks:
            lies["log_dirs"] = [identity(number, self.disks[number])]
        if kind in ("clean", "old"):
            lies["previous_broker_epoch"] = self.cluster.epoch(number) - (kind == "old")
        self.cluster.incarnations[number] += 1
        code = error_code(self.cluster.register(number, **lies).error_code)
        if code is ErrorCode.NONE:
            self.cluster.alive[number] = None
        return f"register {node}: {code.name}"

    def do_beat(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.beat(int(node))

    def do_leave(self, node: str) -> str:
        answer = self.cluster.beat(int(node), want_shut_down=True)
        if answer.should_shut_down:
            self.cluster.alive.pop(int(node), None)
        return f"leave {node}: {'may go' if answer.should_shut_down else 'wait'}"

    def do_alter(self, node: str, partition: str, isr: str, *recovered: str) -> str:
        name, _, index = partition.rpartition("-")
        state = {"leader_recovery_state": 0} if recovered else {}
        members = list(map(int, isr.split(",")))
        response = self.cluster.alter(int(node), name, int(index), members, **state)
        code = response.error_code or response.topics[0].partitions[0].error_code
        return f"alter {partition}: {error_code(code).name}"

    def do_elect(self, kind: str, *partitions: str) -> str:
        asked = None
        if partitions != ("all",):
            asked = [
                TopicPartitions(topic=name, partitions=[int(index)])
                for name, _, index in (each.rpartition("-") for each in partitions)
            ]
        request = ElectLeadersRequest(
            election_type=int(Election[kind.upper()]), topic_partitions=asked
        )
        response = self.cluster.decide(elect_leaders, request)
        results = [
            f"{each.topic}-{one.partition_id} {error_code(one.error_code).name}"
            for each in response.replica_election_results
            for one in each.partition_result
        ]
        return f"elect {kind}: {', '.join(results) or 'nothing'}"

    def do_reassign(self, partition: str, *replicas: str) -> str:
        """`reassign t-0 3,4` moves it there, `reassign t-0` gives the move up."""
        name, _, index = partition.rpartition("-")
        wanted = ReassignablePartition(
            partition_index=int(index),
            replicas=list(map(int, replicas[0].split(","))) if replicas else None,
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[wanted])]
        )
        response = self.cluster.decide(alter_partition_reassignments, request)
        answer = response.responses[0].partitions[0]
        why = f": {answer.error_message}" if answer.error_message else ""
        return f"reassign {partition}: {error_code(answer.error_code).name}{why}"

    def do_moves(self) -> str:
        request = ListPartitionReassignmentsRequest(topics=None)
        response = self.cluster.decide(list_partition_reassignments, request)
        moves = [
            f"{topic.name}-{each.partition_index} on {_set(each.replicas)}"
            f" adding {_set(each.adding_replicas)} removing {_set(each.removing_replicas)}"
            for topic in response.topics
            for each in topic.partitions
        ]
        return f"moves: {', '.join(moves) or 'none'}"

    def do_balance(self) -> None:
        self.cluster.apply(Decision(None, list(balance(self.cluster.state))))

    def do_unregister(self, node: str) -> str:
        request = UnregisterBrokerRequest(broker_id=int(node))
        response = self.cluster.decide(unregister_broker, request)
        why = f": {response.error_message}" if response.error_message else ""
        return f"unregister {node}: {error_code(response.error_code).name}{why}"

    def do_feature(self, setting: str, kind: str = "UPGRADE") -> str:
        """`feature name=level`, and `SAFE_DOWNGRADE` behind it on the way down."""
        name, _, level = setting.partition("=")
        update = FeatureUpdateKey(
            feature=name, max_version_level=int(level), upgrade_type=int(UpgradeType[kind])
        )
        response = self.cluster.decide(
            update_features, UpdateFeaturesRequest(feature_updates=[update])
        )
        why = f": {response.error_message}" if response.error_message else ""
        return f"feature {setting}: {error_code(response.error_code).name}{why}"

    def do_offline(self, node: str, *disks: str) -> None:
        """A beat that names log directories that are gone."""
        lost = [identity(int(node), int(disk, 16)) for disk in disks]
        self.cluster.beat(int(node), offline_log_dirs=lost)

    def do_assign(self, node: str, partition: str, disk: str) -> str:
        """The broker says in which directory it has a replica."""
        name, _, index = partition.rpartition("-")
        topic = AssignedTopic(
            topic_id=self.cluster.partition(name, int(index)).topic_id,
            partitions=[AssignedPartition(partition_index=int(index))],
        )
        request = AssignReplicasToDirsRequest(
            broker_id=int(node),
            broker_epoch=self.cluster.epoch(int(node)),
            directories=[AssignedDirectory(id=identity(int(node), int(disk, 16)), topics=[topic])],
        )
        response = self.cluster.decide(assign_replicas, request)
        code = response.directories[0].topics[0].partitions[0].error_code
        return f"assign {partition} to {disk}: {error_code(code).name}"

    def do_sweep(self) -> None:
        self.cluster.apply(Decision(None, list(elect_leaderless(self.cluster.state))))

    def do_config(self, kind: str, name: str, setting: str) -> str:
        """`config topic t key=value`; without a value the key goes back to its default."""
        key, _, value = setting.partition("=")
        change = AlterableConfig(name=key, config_operation=0 if value else 1, value=value or None)
        resource = AlterConfigsResource(
            resource_type=KINDS[kind],
            resource_name="" if kind == "cluster" else name,
            configs=[change],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = self.cluster.decide(incremental_alter_configs, request)
        return f"config {setting}: {error_code(response.responses[0].error_code).name}"

    # -- what happened -------------------------------------------------------------------------

    def _changes(self) -> list[str]:
        """Every change since the last look, batch by batch, in the order of the log."""
        lines: list[str] = []
        image = self.cluster.state.image
        for delta in self.cluster.deltas[self.seen :]:
            for node, was in delta.brokers_changed.items():
                lines += _broker(node, was, image.brokers.get(node))
            for topic in delta.topics_created:
                lines += [_created(partition) for partition in topic.partitions]
            for (topic_id, index), before in delta.partitions_changed.items():
                now = image.partition_by_id(topic_id, index)
                if before is not None and now is not None:
                    lines.append(_changed(before, now))
        self.seen = len(self.cluster.deltas)
        return list(dict.fromkeys(lines))


def _broker(node: int, was: Broker | None, now: Broker | None) -> list[str]:
    if now is None:
        return [f"broker {node}: unregistered"]
    state = "leaving" if now.in_controlled_shutdown else "active"
    state = "fenced" if now.fenced else state
    return [f"broker {node}: {'registered, ' if was is None else ''}{state}"]


def _created(partition: Partition) -> str:
    return (
        f"{partition.topic}-{partition.index}: leader {partition.leader}, isr {_set(partition.isr)}"
    )


def _changed(was: Partition, now: Partition) -> str:
    moves = (
        ("leader", str(was.leader), str(now.leader)),
        ("epoch", str(was.leader_epoch), str(now.leader_epoch)),
        ("isr", _set(was.isr), _set(now.isr)),
        ("replicas", _set(was.replicas), _set(now.replicas)),
    )
    parts = [f"{name} {before} -> {after}" for name, before, after in moves if before != after]
    sets = (
        ("adding", was.adding, now.adding),
        ("removing", was.removing, now.removing),
        ("elr", was.elr, now.elr),
        ("led last", was.last_known_elr, now.last_known_elr),
    )
    parts += [f"{name} {_set(after)}" for name, before, after in sets if before != after]
    if was.directories != now.directories and was.replicas == now.replicas:
        parts.append("on " + ",".join(each[:1].hex() for each in now.directories))
    if was.recovery_state != now.recovery_state:
        parts.append(now.recovery_state.name.lower())
    return f"{now.topic}-{now.index}: {', '.join(parts) or 'as it was'}"


def _set(nodes: Iterable[int]) -> str:
    return "{" + ",".join(map(str, nodes)) + "}"
