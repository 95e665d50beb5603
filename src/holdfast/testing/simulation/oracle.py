"""The oracle: hears of every append, truncation and watermark as it happens, and judges at once.

Owns one truth for each partition and one for the metadata. It costs some arithmetic a batch and
walks a log only when a process opens it. It must never change what it watches: the first broken
invariant is kept, and whoever runs the simulation looks for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.config.topic import NO_CONFIGS
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.node.metadata.metadata_log import decode_batches
from holdfast.testing.simulation.allowances import Election
from holdfast.testing.simulation.chain import Entry, Name
from holdfast.testing.simulation.compacted_truth import CompactedTruth
from holdfast.testing.simulation.deletions import Policy
from holdfast.testing.simulation.disk_faults import DiskFaults
from holdfast.testing.simulation.groups.group_oracle import GroupOracle
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import Key, Metadata
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.truth import DISK_FAULT, WIPED, PartitionTruth
from holdfast.testing.simulation.voting import Voters
from holdfast.wire.uuids import METADATA_TOPIC_ID

METADATA_KEY: Key = (METADATA_TOPIC_ID, 0)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: which, at what virtual second, and the state of both sides."""

    invariant: str
    text: str
    at_s: float


class Oracle:
    """All truths of one run."""

    def __init__(
        self,
        *,
        voters: Callable[[], Sequence[int]] = tuple,
        static: Mapping[str, str] = NO_CONFIGS,
    ) -> None:
        """`voters`: who they are before the metadata log names any.

        `static`: the configuration of all nodes.
        """
        self.counts: Counter[str] = Counter()
        self.violation: Violation | None = None
        self.broken = asyncio.Event()
        self._static = static
        self.metadata = Metadata(self.fail, self.counts, static, self._elected)
        self._causes: dict[int, str] = {}  # node -> what may have taken some of its logs
        self._running: dict[int, None] = {}  # nodes that have opened all that they found
        self.stopping: set[int] = set()  # nodes that were asked to, and whose process still lives
        self.faults = DiskFaults()
        # Deleted replicas with a job under way, by node, topic and partition.
        self.flushing: dict[tuple[int, str, int], object] = {}
        self._payloads: dict[Name, bytes] = {}  # of metadata batches that are not committed yet
        self.voters = Voters(voters)
        self.quorum = PartitionTruth(
            "__cluster_metadata-0", self.fail, self.counts, voters=self.voters.counting
        )
        self.quorum.commits = self._committed
        self._truths: dict[Key, PartitionTruth] = {METADATA_KEY: self.quorum}
        self.groups: GroupOracle | None = None  # where there are groups

    def truth(self, key: Key) -> PartitionTruth:
        """What is known of a partition, by topic id and number."""
        found = self._truths.get(key)
        if found is None:
            found = self._truths[key] = self._made(key)
            found.copies_min = lambda: self.metadata.copies.get(key, 1)
            found.deletions.asked = lambda: self.metadata.deletions_asked(key)
            found.deletions.policy = lambda: self.metadata.policies.get(key[0], Policy())
            if self.keeps_groups(key):
                self._groups.watch(key[1], found)
        return found

    def keeps_groups(self, key: Key) -> bool:
        """Whether a partition is one of `__consumer_offsets`, and groups are looked at."""
        return self.groups is not None and self.metadata.topics.get(key[0]) == GROUP_OFFSETS

    @property
    def _groups(self) -> GroupOracle:
        assert self.groups is not None, "there are groups"
        return self.groups

    def _made(self, key: Key) -> PartitionTruth:
        name, own = self.metadata.name(key), self.metadata.own_config
        if "compact" not in own(key[0], "cleanup.policy", "delete"):
            return PartitionTruth(name, self.fail, self.counts)
        of_nodes = self._static.get("log.cleaner.delete.retention.ms", "86400000")
        return CompactedTruth(
            name,
            self.fail,
            self.counts,
            retention_ms=float(own(key[0], "delete.retention.ms", of_nodes)),
            now_ms=lambda: asyncio.get_running_loop().time() * 1000,
        )

    def named(self, topic: str, partition: int) -> PartitionTruth | None:
        """The truth of a partition by the name of a topic that there is."""
        key = self.metadata.find(topic, partition)
        return None if key is None else self.truth(key)

    def is_led(self, topic: str, partition: int) -> bool:
        """Whether a partition, by the name of a topic that there is, has a leader."""
        key = self.metadata.find(topic, partition)
        return key is not None and self.metadata.partitions[key].leader >= 0

    def leads(self, node: int, topic: str, partition: int) -> bool:
        """Whether a partition of a topic that there is has this leader, as far as is committed."""
        key = self.metadata.find(topic, partition)
        return key is not None and self.metadata.partitions[key].leader == node

    # -- what is done to nodes -----------------------------------------------------------------

    def died(self, node: int, cause: str = "") -> None:
        """A node's process is dead. `cause`: what may have taken some of its logs as well."""
        for truth in self._truths.values():
            truth.died(node)
        self.faults.died(node, replaced=cause == WIPED)
        self.stopping.discard(node)
        self._running.pop(node, None)
        if cause or node not in self._causes:
            self._causes[node] = cause

    def opened(
        self,
        key: Key,
        replica: Replica,
        entries: Iterable[Entry],
        start: int,
        high_watermark: int,
    ) -> PartitionTruth:
        truth = self.truth(key)
        replica.settled = replica.node in self._running
        truth.opened(
            replica,
            entries,
            start=start,
            high_watermark=high_watermark,
            cause=self._cause(replica.node),
        )
        return truth

    def _cause(self, node: int) -> str:
        cause = self._causes.get(node, "")
        return DISK_FAULT if self.faults.excuses(node) and cause != WIPED else cause

    def loaded(self, node: int) -> None:
        """A node has opened all logs that it found; what it does not have now, it has lost."""
        cause = self._cause(node)
        for truth in self._truths.values():
            truth.missed(node, cause)
        self._causes.pop(node, None)
        self.faults.recovered(node)
        self._running[node] = None

    # -- metadata ------------------------------------------------------------------------------

    def keep(self, entry: Entry, batch: bytes) -> None:
        """Remember a metadata batch until it is committed."""
        if self.quorum.committed.end <= entry.base:
            self._payloads.setdefault(entry.name, batch)
            self.voters.saw(entry, batch)

    def _committed(self, entry: Entry) -> None:
        payload = self._payloads.pop(entry.name, None)
        if payload is None:
            self.fail(Invariant.ALL_SEEN, f"metadata [{entry}]")
            return
        self.counts["metadata batches committed"] += 1
        self.counts["sets of voters committed"] += self.voters.commit(entry)
        self.metadata.apply(
            (one for batch in decode_batches(memoryview(payload)) for one in batch.records),
            entry.last + 1,
        )

    def _elected(self, key: Key, epoch: int, election: Election) -> None:
        self.truth(key).elections[epoch] = election
        if self.keeps_groups(key):
            self._groups.elected(key[1], epoch, election.leader)

    # -- the verdict ---------------------------------------------------------------------------

    def fail(self, invariant: str, text: str) -> None:
        """Keep the first finding, ours or somebody else's."""
        if self.violation is None:
            self.violation = Violation(invariant, text, asyncio.get_running_loop().time())
            self.broken.set()
