"""A cluster whose coordination is ZooKeeper's: Apache Kafka before 4.0, as older texts have it.

One ZooKeeper, as these texts start it, stands where a cluster has its controllers otherwise. Owns
what the properties of its nodes say, and what their processes run. Which Apache Kafka that is, and
how its programs are started, is `apache.py`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.cluster.layout import (
    ClusterRecord,
    NodeRecord,
    UsageError,
    render_properties,
)
from holdfast.cluster.plan import PROFILE_TITLE, Shape, profile

BROKER_MAIN: Final = "kafka.Kafka"
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Sessions of 2 to 20 ticks are granted: Kafka's own, and the short ones of a lab.
TICK_MS: Final = 500
# How long a broker that starts looks for it before it gives up: Kafka's own is a session, which is
# over before a JVM on a busy machine has begun to listen. Who starts nodes bounds that by itself.
CONNECT_MS: Final = 600_000
CONNECT: Final = "zookeeper.connection.timeout.ms"
SESSION, KRAFT_SESSION = "zookeeper.session.timeout.ms", "broker.session.timeout.ms"
LOG4J: Final = "log4j.properties"  # beside a node's properties
LOGGING: Final = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
# Four lines and a stack trace for each attempt to connect would bury all others.
log4j.logger.org.apache.zookeeper.ClientCnxn=ERROR
"""


def refuse_unfit(shape: Shape) -> None:
    """UsageError: this shape can't be had with ZooKeeper."""
    if shape.network is not None:
        raise UsageError("A cluster with ZooKeeper has no network of its own.")
    if shape.combined or shape.voters != 1:
        raise UsageError("A cluster with ZooKeeper has one of it, a process of its own.")


def properties(record: ClusterRecord, node: NodeRecord, shape: Shape) -> str:
    """Return the text of one node's properties: a broker's, or ZooKeeper's own."""
    data = str(Path(node.config_file).parent / "data")
    if node.is_controller:
        return render_properties([("ZooKeeper", _zookeeper(node, data))])
    listener = f"PLAINTEXT://{node.host}:{node.listen_port}"
    (keeper,) = record.controllers
    settings = {**profile(shape), **shape.config}
    own = {
        "broker.id": str(node.id),
        "zookeeper.connect": f"{keeper.host}:{keeper.port}",
        SESSION: settings[KRAFT_SESSION],
        CONNECT: str(CONNECT_MS),
        "listeners": listener,
        "advertised.listeners": listener,
        "log.dirs": data,
    }
    if node.rack is not None:
        own["broker.rack"] = node.rack
    return render_properties(
        [
            (f"Broker {node.id}, with ZooKeeper", own),
            (PROFILE_TITLE, profile(shape)),
            ("From --config", shape.config),
        ]
    )


def _zookeeper(node: NodeRecord, data: str) -> dict[str, str]:
    return {
        "dataDir": data,
        "clientPortAddress": node.host,
        "clientPort": str(node.port),
        "tickTime": str(TICK_MS),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
    }


def main_of(node: NodeRecord) -> str:
    """Return the class that a node's process runs."""
    return MAIN if node.is_controller else BROKER_MAIN
