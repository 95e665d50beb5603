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

from holdfast.cluster import zookeeper
from holdfast.cluster.layout import ClusterError, ClusterRecord, NodeRecord
from holdfast.config.properties import parse_properties

HOME_VARIABLE: Final = "KAFKA_HOME"
BROUGHT: Final = Path(".cache") / "apache-kafka"  # by `make apache`, in the project's folder
OLDER_VARIABLE: Final = "KAFKA_OLDER_HOME"
BROUGHT_OLDER: Final = Path(".cache") / "apache-kafka-older"
FIRST_OF_NOW: Final = (4, 0)  # without ZooKeeper
FORMAT_S: Final = 120.0
ARCHIVE: Final = "classes.jsa"  # in its folder: see `_shared_classes`
FORMATTED: Final = "meta.properties"  # in a log directory
LOG4J2: Final = "log4j2.properties"
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


def find_home(environment: Mapping[str, str] = os.environ, *, with_zookeeper: bool = False) -> str:
    """Return the folder of the Apache Kafka that can be run. ClusterError: none, and what to do.

    `with_zookeeper`: one before 4.0, which a cluster with ZooKeeper takes.
    """
    variable = OLDER_VARIABLE if with_zookeeper else HOME_VARIABLE
    asked = environment.get(variable)
    brought = BROUGHT_OLDER if with_zookeeper else BROUGHT
    folder = Path(asked) if asked else Path(__file__).parents[3] / brought
    found = version(str(folder))
    wanted = "before 4.0" if with_zookeeper else "from 4.0 on"
    if found is None:
        where = f"{variable}={asked} has none" if asked else f"there is none in {folder}"
        raise ClusterError(
            f"No Apache Kafka {wanted}: {where}. `make apache` brings one by Maven; or name the "
            f"folder of one, which has a folder libs in it, by {variable}."
        )
    if (found < FIRST_OF_NOW) is not with_zookeeper:
        raise ClusterError(
            f"The Apache Kafka in {folder} is {'.'.join(map(str, found))}: one {wanted} is wanted. "
            f"{variable} names another folder."
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


def _shared_classes(home: str) -> list[str]:
    """Return the options that have a JVM begin with the classes that `make apache` has archived.

    It starts in half the time then. An archive of another JVM or of other jars is passed over.
    """
    archive = Path(home) / ARCHIVE
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _jvm(home: str, *options: str) -> list[str]:
    return [_java(), *options, *_shared_classes(home), "-cp", f"{home}/libs/*"]


def command_of(record: ClusterRecord, node: NodeRecord) -> list[str]:
    """Return the command of a node's process. ClusterError: there is no Java."""
    assert record.kafka_home is not None
    return [*_jvm(record.kafka_home, *_SERVER), *ending_of(record, node)]


def ending_of(record: ClusterRecord, node: NodeRecord) -> list[str]:
    """Return with what a node's command ends, whatever ran it: its own files, the properties last.

    It is known, too, where no Java is any more.
    """
    folder = Path(node.config_file).parent
    if record.zookeeper:
        logging = f"-Dlog4j.configuration=file:{folder / zookeeper.LOG4J}"
        main = zookeeper.main_of(node)
    else:
        logging, main = f"-Dlog4j2.configurationFile={folder / LOG4J2}", "kafka.Kafka"
    return [logging, main, node.config_file]


def format_nodes(
    record: ClusterRecord, nodes: Sequence[NodeRecord], features: Mapping[str, int] = _NONE
) -> None:
    """Format nodes' directories, all at once, as kafka-storage does. ClusterError.

    With ZooKeeper there is nothing to format, and there are no features.
    """
    assert record.kafka_home is not None
    if record.zookeeper:
        for node in nodes:
            (Path(node.config_file).parent / zookeeper.LOG4J).write_text(zookeeper.LOGGING)
        return
    flags = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
    begun = []
    for node in nodes:
        (Path(node.config_file).parent / LOG4J2).write_text(_LOGGING)
        command = [*_jvm(record.kafka_home, *_TOOL), "kafka.tools.StorageTool"]
        command += [
            "format",
            "--ignore-formatted",
            "--cluster-id",
            record.cluster_id,
            "--config",
            node.config_file,
        ]
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
    """Format a node with a disk that is new: it refuses to, where one of ours does it itself."""
    config = parse_properties(Path(node.config_file).read_text(encoding="utf-8"))
    folders = [Path(each.strip()) for each in config.get("log.dirs", "").split(",")]
    if not record.zookeeper and not all((each / FORMATTED).exists() for each in folders):
        format_nodes(record, [node])
