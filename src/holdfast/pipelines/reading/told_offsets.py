"""What librdkafka's admin client is told of a log's ends, and in which leader epoch.

Owns this process's admin clients. Answers are facts of the moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from holdfast.pipelines.intake.connection import Client, open_admin
from holdfast.pipelines.intake.forked import forget_in_child, leak
from holdfast.pipelines.offsets import Partition

# Workers outlive tasks, and connections are dear; a worker reads for few clusters.
admins: dict[Client, AdminClient] = forget_in_child({}, leak)

NO_ANSWER: Final = "no answer"


class Told(NamedTuple):
    """An offset and the epoch that was told with it (-1: none). Without an offset, why not."""

    offset: int
    epoch: int = -1
    why: str = ""


def admin_of(client: Client) -> AdminClient:
    """Return this process's admin client for a cluster."""
    if client not in admins:
        admins[client] = open_admin(client)
    return admins[client]


def ask_offsets(
    admin: AdminClient, specs: Mapping[Partition, Any], *, is_committed: bool, wait_s: float
) -> dict[Partition, Told]:
    """Ask the leaders that the client remembers, once; return what each of them says."""
    level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    futures = admin.list_offsets(
        {TopicPartition(p.topic, p.number): spec for p, spec in specs.items()},
        isolation_level=level,
        request_timeout=wait_s,
    )
    told: dict[Partition, Told] = {}
    for asked, future in futures.items():
        try:
            found = future.result()
        except KafkaException as error:
            answer = Told(-1, why=error.args[0].str())
        else:
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            # Below zero is the client's way to say that a leader's answer did not come.
            answer = Told(found.offset, epoch, "" if found.offset >= 0 else NO_ANSWER)
        told[Partition(asked.topic, asked.partition)] = answer
    return told


def ends_of(client: Client, partition: Partition, wait_s: float) -> tuple[Told, Told]:
    """Return where a log begins and where what may be read of it ends, as its leader says.

    A leader that does not answer is looked for anew the next time.
    """
    is_committed = dict(client).get("isolation.level") == "read_committed"
    first, last = (
        ask_offsets(admin_of(client), {partition: spec}, is_committed=is_committed, wait_s=wait_s)[
            partition
        ]
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    if first.why or last.why:
        forget(client)
    return first, last


def forget(client: Client) -> None:
    """Have a client of its own ask whoever leads now: it does not forget a leader that is dead."""
    admins.pop(client, None)
