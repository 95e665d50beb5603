"""A run of the lab on Apache Kafka, for scenarios that hurt nobody but clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from holdfast.cluster import LocalCluster
from holdfast.cluster.probe import PartitionState, ask
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import WORK_S, Run
from holdfast.lab.steps.closing import final_read


class OtherCluster:
    """One broker that somebody else has started, as far as such scenarios ask for it."""

    nodes = ()
    broker_ids = (0,)
    controller_ids = ()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap_servers = bootstrap
        self.environment: Mapping[str, str] = {}
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)

    def start(self) -> None:
        """It runs."""

    def down(self, *, timeout_s: float = 0) -> None:
        """It runs on."""

    def partitions(self, topic: str) -> dict[int, PartitionState] | None:
        found = ask(self._address, [topic])
        return None if found is None else found.topics.get(topic, {})

    def refuse_broken_network(self) -> None: ...


class ApacheRun(Run):
    """A run on that broker, with a topic of its own."""

    def __init__(
        self,
        bootstrap: str,
        parameters: Parameters,
        directory: Path,
        topic: str,
        say: Callable[[str], None],
    ) -> None:
        self._bootstrap = bootstrap
        super().__init__(parameters, directory, say)
        self.topic = topic

    def make_cluster(self, directory: Path) -> LocalCluster:
        del directory
        return cast("LocalCluster", OtherCluster(self._bootstrap))

    def make_topic(
        self,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        del assignment
        count = self.parameters.partitions
        placed: dict[str, Any] = {"partitions": count, "replication_factor": 1}
        self.create_topic(self.topic, count, configs, **placed)
        self.placement[self.topic] = dict.fromkeys(range(count), (0,))
        self.wait("the topic", lambda: len(self.cluster.partitions(self.topic) or ()) == count,
                  WORK_S)  # fmt: skip

    def conclude(self) -> None:
        """Read all back; the files of the one replica are its own business."""
        self.stop_workers()
        final_read(self, self.topic, {})
