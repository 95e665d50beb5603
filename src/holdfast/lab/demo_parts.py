"""The demo's parts, for whoever puts them together: the topic, the processes, the read, the table.

Each function does one thing to what it is given and waits no longer than its bound. None of them
knows in which order they come: that is `demo`, and `demo_soak`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sql
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy.exc import SQLAlchemyError

from holdfast.clients.recorder import Recorder
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.lab.demo_check import READER, next_offsets
from holdfast.lab.demo_events import id_in_line, id_in_payment
from holdfast.lab.demo_plan import DemoError, DemoPlan, Places
from holdfast.lab.demo_process import Child
from holdfast.lab.demo_reader import ReadTimeoutError, read_whole_log

BROKERS = 3
MIN_ISR = 2
STEP_TIMEOUT_S = 60.0


def create_topic(plan: DemoPlan, cluster: LocalCluster) -> None:
    """Create the topic on all brokers, and wait until each partition has a leader."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic(
        plan.topic,
        plan.partitions,
        BROKERS,
        config={"min.insync.replicas": str(MIN_ISR)},
    )
    try:
        admin.create_topics([topic])[plan.topic].result(STEP_TIMEOUT_S)
    except KafkaException as error:
        said = error.args[0].str()
        raise DemoError(f"The topic {plan.topic} could not be created: {said}.") from error
    for number in range(plan.partitions):
        cluster.wait_for_leader(plan.topic, number)


def start_driver(
    plan: DemoPlan, places: Places, cluster: LocalCluster, *options: str
) -> contextlib.AbstractContextManager[Child]:
    """Start Spark with the plan's recipe; `options` are the driver's own, besides."""
    arguments = [
        *("--bootstrap-server", cluster.bootstrap_servers),
        *("--topic", plan.topic),
        *("--database", places.database(plan)),
        *("--checkpoint", str(places.checkpoint)),
        *("--query", plan.query),
        # Spark takes all it can get, and brokers that share its cores must still send
        # heartbeats in time.
        *("--nice", "5"),
        *options,
    ]
    if plan.kind == "payments":
        arguments += ["--accounts", str(plan.accounts), "--opening", str(plan.opening)]
        module = "holdfast.pipelines.ledger"
    else:
        module = "holdfast.pipelines.lines"
    return _kept(Child("The Spark driver", module, arguments, places.driver_log))


def start_producer(
    plan: DemoPlan, places: Places, cluster: LocalCluster
) -> contextlib.AbstractContextManager[Child]:
    """Start the producer behind its gate: `open_gate` lets it send."""
    arguments = [
        "--gated",
        *("--bootstrap-server", cluster.bootstrap_servers),
        *("--topic", plan.topic),
        *("--partitions", str(plan.partitions)),
        *("--history", str(places.history / "producer.jsonl")),
        *("--rate", str(plan.rate)),
    ]
    if plan.input is None:
        arguments += ["--events", str(plan.events), "--seed", str(plan.seed)]
        arguments += ["--accounts", str(plan.accounts)]
    else:
        arguments += ["--input", plan.input]
        arguments += [] if plan.key is None else ["--key", plan.key]
    module = "holdfast.lab.demo_producer"
    return _kept(Child("The producer", module, arguments, places.producer_log))


@contextlib.contextmanager
def _kept(child: Child) -> Iterator[Child]:
    """Nothing of a run outlives it, whatever goes wrong."""
    try:
        yield child
    finally:
        child.kill()


def open_gate(producer: Child, events: int) -> None:
    """Allow so many events in all; one more than there are lets the producer see the end."""
    producer.tell(str(events + 1))


def send_bound_s(plan: DemoPlan) -> float:
    """How long sending everything may take, with time to spare for a fault or two."""
    return 2 * STEP_TIMEOUT_S + 2 * plan.events / plan.rate


def read_log(plan: DemoPlan, places: Places, cluster: LocalCluster) -> dict[int, int]:
    """Read the whole log into the history; return where each partition ends."""
    with Recorder(places.history / "reader.jsonl", READER) as recorder:
        try:
            return read_whole_log(
                cluster.bootstrap_servers,
                plan.topic,
                range(plan.partitions),
                recorder,
                id_in_payment if plan.kind == "payments" else id_in_line,
                timeout_s=STEP_TIMEOUT_S + plan.events / 5_000,
            )
        except ReadTimeoutError as error:
            raise DemoError(f"{error}.") from error


def table_at(plan: DemoPlan, places: Places) -> dict[int, int]:
    """Return how far the table is; nothing when it is not there, or locked just now."""
    engine = sql.create_engine(places.database(plan))
    try:
        with engine.connect() as connection:
            return next_offsets(connection, plan)
    except SQLAlchemyError:
        return {}
    finally:
        engine.dispose()


def refuse_used(database: str) -> None:
    """A database of the user's own must be empty of our tables: sums would be mixed up."""
    try:
        engine = sql.create_engine(database)
        used = sql.inspect(engine).has_table("holdfast_query")
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        reason = getattr(error, "orig", None) or error  # the driver's own words, no more
        shown = str(reason).splitlines()[0]
        raise DemoError(f"--database {database}: {shown}") from error
    if used:
        raise DemoError(f"--database {database}: it holds tables of an earlier run; name another.")


def take_down(cluster: LocalCluster) -> None:
    """Stop the cluster; what could not be stopped cleanly was killed."""
    with contextlib.suppress(ClusterError):
        cluster.down()
