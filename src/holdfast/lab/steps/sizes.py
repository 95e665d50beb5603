"""What replicas take on disks, and what brokers have sent each other: asked, not computed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster.layout import NodeRecord
from holdfast.lab.run import Run
from holdfast.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

_RECEIVED = re.compile(r"\bbytes_received:(\d+)")
_OWNER = re.compile(r"\bpid=(\d+)")


def replica_sizes(run: Run) -> dict[tuple[int, int], int]:
    """Return how many bytes each broker's log of each partition of the topic has.

    By broker and partition; who does not answer is left out.
    """
    asked = DescribableLogDirTopic(topic=run.topic, partitions=list(run.partitions))
    found: dict[tuple[int, int], int] = {}
    for node in run.cluster.broker_ids:
        try:
            results = run.driver.peer(node).send(DescribeLogDirsRequest(topics=[asked])).results
        except DriverError:
            continue
        for topic in (topic for result in results for topic in result.topics):
            for one in topic.partitions:
                if not one.is_future_key:
                    found[node, one.partition_index] = one.partition_size
    return found


def bytes_between(run: Run) -> Counter[tuple[int, int]] | None:
    """Return what each broker has received so far over connections to another's port.

    By who dialled and who was dialled: followers dial leaders, and fetch. Counted by the kernel,
    for connections that are open; None: this system has no `ss`.
    """
    command = shutil.which("ss")
    if command is None:
        return None
    told = subprocess.run(  # noqa: S603 - our own words
        [command, "-tinpHO", "state", "established"], capture_output=True, text=True, check=False
    )
    brokers = [node for node in run.cluster.nodes if node.is_broker]
    return between(told.stdout.splitlines(), brokers) if told.returncode == 0 else None


def between(lines: Iterable[str], brokers: Iterable[NodeRecord]) -> Counter[tuple[int, int]]:
    """Sum up what `ss` says, a connection a line, of those from one broker to another."""
    by_pid = {node.pid: node.id for node in brokers}
    by_address = {node.address: node.id for node in brokers}
    return Counter(_summed(lines, by_pid, by_address))


def _summed(
    lines: Iterable[str], by_pid: Mapping[int | None, int], by_address: Mapping[str, int]
) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for dialler, peer, count in _connections(lines):
        if dialler in by_pid and peer in by_address:
            pair = by_pid[dialler], by_address[peer]
            found[pair] = found.get(pair, 0) + count
    return found


def _connections(lines: Iterable[str]) -> Iterator[tuple[int, str, int]]:
    """Yield each connection's process, the address of its other end, and the bytes it has got."""
    for line in lines:
        words, owner = line.split(), _OWNER.search(line)
        received = _RECEIVED.search(line)
        if len(words) >= 4 and owner is not None:
            # A JVM's sockets are of IPv6, whoever they talk to.
            peer = words[3].replace("[::ffff:", "").replace("]", "")
            yield int(owner[1]), peer, 0 if received is None else int(received[1])
