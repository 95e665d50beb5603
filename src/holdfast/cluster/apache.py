"""Nodes of a local cluster that are those of an Apache Kafka on this machine.

Owns where that Apache Kafka is, how a node of it is started, and how its directories are formatted.
Everything else of such a cluster (ports, places in a network, signals, `cluster.json`) is as with
nodes of our own. Only clusters of that engine load this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.cluster.layout import ClusterError, ClusterRecord, NodeRecord

HOME_VARIABLE: Final = "KAFKA_HOME"
BROUGHT: Final = Path(".cache") / "apache-kafka"  # by `make apache`, in the project's folder
OLDEST: Final = (4, 0)
FORMAT_S: Final = 120.0
_NONE: Final[Mapping[str, int]] = {}
_JAR: Final = re.compile(r"kafka_2\.13-(\d+)\.(\d+)\.(\d+)\.jar")
# As its own start script starts it, with a heap that lets six of them stand on one machine.
_SERVER: Final = (
    *("-server", "-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"),
)
_TOOL: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
_LOGGING: Final = """\
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
"""


def find_home(environment: Mapping[str, str] = os.environ) -> str:
    """Return the folder of the Apache Kafka that can be run. ClusterError: none, and what to do."""
    asked = environment.get(HOME_VARIABLE)
    folder = Path(asked) if asked else Path(__file__).parents[3] / BROUGHT
    found = version(str(folder))
    if found is None:
        where = f"{HOME_VARIABLE}={asked} has none" if asked else f"there is none in {folder}"
        raise ClusterError(
            f"No Apache Kafka: {where}. `make apache` brings one by Maven; or name the folder of "
            f"one, which has a folder libs in it, by {HOME_VARIABLE}."
        )
    if found < OLDEST:
        raise ClusterError(
            f"The Apache Kafka in {folder} is {'.'.join(map(str, found))}: "
            f"{'.'.join(map(str, OLDEST))} or newer is wanted."
        )
    _java()
    return str(folder.resolve())


def version(home: str) -> tuple[int, int, int] | None:
    """Return which Apache Kafka is in a folder; None: there is none."""
    names = sorted(path.name for path in (Path(home) / "libs").glob("kafka_2.13-*.jar"))
    for name in names:
        if (found := _JAR.fullmatch(name)) is not None:
            major, minor, patch = map(int, found.groups())
            return major, minor, patch
    return None


def _java() -> str:
    """Return the program that runs it, absolute. ClusterError: there is no Java."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        raise ClusterError("Apache Kafka needs Java, and there is none: install it, or JAVA_HOME.")
    return found


def command_of(record: ClusterRecord, node: NodeRecord) -> list[str]:
    """Return the command of a node's process, its properties last."""
    assert record.kafka_home is not None
    logging = Path(node.config_file).parent / "log4j2.properties"
    options = (f"-Dlog4j2.configurationFile={logging}", "kafka.Kafka", node.config_file)
    return [_java(), *_SERVER, "-cp", f"{record.kafka_home}/libs/*", *options]


def format_nodes(
    record: ClusterRecord, nodes: Sequence[NodeRecord], features: Mapping[str, int] = _NONE
) -> None:
    """Format nodes' directories, all at once, as kafka-storage does. ClusterError."""
    assert record.kafka_home is not None
    flags = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    begun = []
    for node in nodes:
        (Path(node.config_file).parent / "log4j2.properties").write_text(_LOGGING)
        command = [_java(), *_TOOL, "-cp", f"{record.kafka_home}/libs/*", "kafka.tools.StorageTool"]
        command += ["format", "--cluster-id", record.cluster_id, "--config", node.config_file]
        begun.append(
            subprocess.Popen(  # noqa: S603 - no shell
                [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    said = []
    try:
        for process in begun:
            output, _ = process.communicate(timeout=FORMAT_S)
            said.append(output)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"Nodes are not formatted after {FORMAT_S:g} s.") from None
    finally:
        for process in begun:
            if process.poll() is None:
                process.kill()
                process.wait()
    for node, process, output in zip(nodes, begun, said, strict=True):
        if process.returncode:
            raise ClusterError(f"Node {node.id} can't be formatted: {output.strip()}")


def format_if_new(record: ClusterRecord, node: NodeRecord) -> None:
    """Format a node whose disks are new: it refuses them, where one of ours does that by itself."""
    data = Path(node.config_file).parent / "data"
    if not (data / "meta.properties").exists():
        format_nodes(record, [node])
