"""Goal: a cluster of Apache Kafka's nodes is made of the right programs, or it is said what lacks.

Method: folders with jars' names alone, and the properties and commands that follow; no JVM starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cluster import apache, nodes, zookeeper
from holdfast.cluster.layout import APACHE, EMBEDDED, OLDER, ClusterError, UsageError
from holdfast.cluster.local import LocalCluster
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.plan import PROXIES
from holdfast.config.properties import parse_properties
from holdfast.lab.parameters import Parameters


def home(folder: Path, version: str) -> Path:
    (folder / "libs").mkdir(parents=True)
    (folder / "libs" / f"kafka_2.13-{version}.jar").touch()
    return folder


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that is there, and homes of an older and a newer Apache Kafka."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("KAFKA_HOME", str(home(tmp_path / "newer", "4.3.1")))
    monkeypatch.setenv("KAFKA_OLDER_HOME", str(home(tmp_path / "older", "3.9.1")))
    return program


def test_each_engine_has_its_own_home(tmp_path: Path) -> None:
    assert apache.find_home() == str(tmp_path / "newer")
    assert apache.find_home(with_zookeeper=True) == str(tmp_path / "older")


@pytest.mark.parametrize(
    ("variable", "with_zookeeper", "version", "said"),
    [
        ("KAFKA_HOME", False, "3.9.1", "is 3.9.1: one from 4.0 on is wanted. KAFKA_HOME names"),
        ("KAFKA_OLDER_HOME", True, "4.0.0", "is 4.0.0: one before 4.0 is wanted. KAFKA_OLDER_HOME"),
        ("KAFKA_OLDER_HOME", True, None, "No Apache Kafka before 4.0: KAFKA_OLDER_HOME="),
        ("KAFKA_HOME", False, None, "No Apache Kafka from 4.0 on: KAFKA_HOME="),
    ],
)
def test_what_is_wanted_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    with_zookeeper: bool,
    version: str | None,
    said: str,
) -> None:
    other = tmp_path / "other"
    monkeypatch.setenv(variable, str(other if version is None else home(other, version)))
    with pytest.raises(ClusterError) as refused:
        apache.find_home(with_zookeeper=with_zookeeper)
    assert said in str(refused.value)


def test_brokers_with_zookeeper_are_told_where_it_is_and_nothing_of_controllers(
    tmp_path: Path, java: Path
) -> None:
    """Goal: any of these keys would have a broker start without ZooKeeper, or not at all."""
    cluster = LocalCluster.create(
        tmp_path / "c",
        engine=OLDER,
        port=0,
        racks=["a", "b", "c"],
        config={"broker.session.timeout.ms": "4000", "num.io.threads": "9"},
    )
    keeper = cluster.node(100)
    assert cluster.controller_ids == (100,)
    assert cluster.engine == " of Apache Kafka 3.9.1 with ZooKeeper"
    texts = {n.id: parse_properties(Path(n.config_file).read_text()) for n in cluster.nodes}
    for number, rack in enumerate("abc"):
        found = texts[number]
        assert found["broker.id"] == str(number)
        assert found["zookeeper.connect"] == f"127.0.0.1:{keeper.port}"
        assert found[zookeeper.SESSION] == "4000"
        # Seen to fail: a broker that found no ZooKeeper within a session ended.
        assert int(found[zookeeper.CONNECT]) >= 1000 * Parameters(engine=OLDER).start_s
        assert found["broker.rack"] == rack
        assert found["num.io.threads"] == "9"
        assert found["listeners"] == f"PLAINTEXT://127.0.0.1:{cluster.node(number).port}"
        assert not {"process.roles", "node.id", "controller.quorum.voters"} & found.keys()
        assert "controller.listener.names" not in found
    assert texts[100]["clientPort"] == str(keeper.port)
    assert (Path(keeper.config_file).parent / zookeeper.LOG4J).exists()
    commands = {n.id: apache.command_of(cluster.record, n) for n in cluster.nodes}
    assert commands[0][0] == str(java)
    assert commands[0][-2:] == ["kafka.Kafka", cluster.node(0).config_file]
    assert commands[100][-2:] == [zookeeper.MAIN, keeper.config_file]
    assert LocalCluster.open(tmp_path / "c").record.zookeeper
    with pytest.raises(UsageError, match="stays as it was made"):
        cluster.move(9092)
    with pytest.raises(UsageError, match="stays as it was made"):
        cluster.configure({"num.io.threads": "7"})


@pytest.mark.parametrize("shape", [{"controllers": 3}, {"controllers": 1, "combined": True}])
def test_a_shape_that_zookeeper_has_not_is_refused(tmp_path: Path, shape: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="one of it"):
        LocalCluster.create(tmp_path / "c", engine=OLDER, port=0, **shape)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("new", ["data", "more"])
def test_a_node_is_formatted_where_one_of_its_disks_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    formatted: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        apache, "format_nodes", lambda _, nodes, *__: formatted.append(tuple(n.id for n in nodes))
    )
    cluster = LocalCluster.create(tmp_path / "c", engine=APACHE, port=0)
    node = cluster.node(1)
    folders = {name: Path(node.config_file).parent / name for name in ("data", "more")}
    text = Path(node.config_file).read_text()
    dirs = ",".join(map(str, folders.values()))
    Path(node.config_file).write_text(
        text.replace(f"log.dirs={folders['data']}", f"log.dirs={dirs}")
    )
    for name, folder in folders.items():
        folder.mkdir()
        if name != new:
            (folder / apache.FORMATTED).touch()
    formatted.clear()
    apache.format_if_new(cluster.record, node)
    assert formatted == [(1,)]
    (folders[new] / apache.FORMATTED).touch()
    apache.format_if_new(cluster.record, node)
    assert formatted == [(1,)]


def test_proxies_are_no_network_for_nodes_that_they_cannot_tell_apart(tmp_path: Path) -> None:
    """Seen to fail: a cut between such nodes dropped nothing, and nobody noticed."""
    proxies = Possibility(PROXIES)
    with pytest.raises(UsageError, match="take namespaces"):
        LocalCluster.create(tmp_path / "c", engine=APACHE, port=0, network=proxies)
    assert not (tmp_path / "c").exists()


def test_nodes_begin_with_archived_classes_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apache, "format_nodes", lambda *_: None)
    cluster = LocalCluster.create(tmp_path / "c", engine=APACHE, port=0)
    node = cluster.node(0)
    without = apache.command_of(cluster.record, node)
    archive = tmp_path / "newer" / apache.ARCHIVE
    archive.touch()
    with_it = apache.command_of(cluster.record, node)
    added = [word for word in with_it if word not in without]
    assert added[0] == f"-XX:SharedArchiveFile={archive}"
    assert [word for word in with_it if word not in added] == without
    assert not LocalCluster.create(tmp_path / "ours", engine=EMBEDDED, port=0).record.zookeeper


@pytest.mark.parametrize("engine", [APACHE, OLDER])
def test_a_cluster_is_taken_down_where_no_java_is_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Goal: another terminal's JAVA_HOME leaves no broker running. Seen to fail."""
    monkeypatch.setattr(apache, "format_nodes", lambda *_: None)
    cluster = LocalCluster.create(tmp_path / "c", engine=engine, port=0)
    for node in cluster.nodes:
        ending = nodes.ending_of(cluster.record, node)
        assert nodes.command_of(cluster.record, node)[-len(ending) :] == ending
        assert ending[-1] == node.config_file
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert cluster.down() == []
    assert cluster.is_down
