"""Stands in for a Spark driver: a plain consumer that keeps the demo's ledger, without Spark.

Rows and offsets go into the table in one transaction, by the recipe that Spark's driver has. It is
for tests of what comes behind the table, which need no Spark and should not wait for one.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections import Counter
from typing import Any

import sqlalchemy as sql
from confluent_kafka import Consumer, TopicPartition

from holdfast.lab.demo.demo_plan import PARTITIONS
from holdfast.pipelines import fence
from holdfast.pipelines.driver import add_options, say, say_committed
from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.ledger import Ledger

POLL_S = 0.1
BATCH = 1000


def row_of(message: Any) -> dict[str, Any]:
    value = message.value()
    place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    return {**place, **json.loads(value), "value": value}


def main() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("--accounts", type=int)
    parser.add_argument("--opening", type=int)
    options = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    engine = open_engine(options.database)
    recipe = Ledger(options.accounts, options.opening)
    with engine.begin() as connection:
        fence.metadata.create_all(connection)
        recipe.prepare(connection)
        for number in range(PARTITIONS):
            place = {"query": options.query, "topic": options.topic, "partition": number}
            connection.execute(fence.offsets.insert().values(next_offset=0, **place))
    consumer = Consumer({"bootstrap.servers": options.bootstrap_server, "group.id": "plain"})
    consumer.assign([TopicPartition(options.topic, number, 0) for number in range(PARTITIONS)])
    say("started")
    batch = 0
    while not stopping:
        messages = [each for each in consumer.consume(BATCH, POLL_S) if each.error() is None]
        if not messages:
            continue
        counts = Counter(each.partition() for each in messages)
        with engine.begin() as connection:
            recipe.write(connection, [row_of(each) for each in messages])
            for number, count in counts.items():
                connection.execute(
                    sql.update(fence.offsets)
                    .where(fence.offsets.c.partition == number)
                    .values(next_offset=fence.offsets.c.next_offset + count)
                )
        batch += 1
        say_committed(batch, len(messages))
    consumer.close()


if __name__ == "__main__":
    main()
