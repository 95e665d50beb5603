"""Goal: properties become settings, or one sentence that names the key and says what to do.

Method: one file that works, changed in one place per case.
"""

from __future__ import annotations

import pytest

from holdfast.config.key import ConfigError
from holdfast.config.listeners import Listener, Server, Voter
from holdfast.config.node import NodeSettings

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@127.0.0.1:9192",
    "log.dirs": "/data/a,/data/b",
}
CONTROLLER = BROKER | {
    "process.roles": "controller",
    "node.id": "100",
    "listeners": "CONTROLLER://127.0.0.1:9192",
}
COMBINED = CONTROLLER | {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9192",
}


def settings_of(properties: dict[str, str]) -> NodeSettings:
    settings, warnings = NodeSettings.from_properties(properties)
    assert warnings == []
    return settings


def test_a_broker() -> None:
    settings = settings_of(BROKER)
    assert settings.node_id == 1
    assert settings.is_broker
    assert not settings.is_controller
    assert settings.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.advertised_listeners == settings.listeners
    assert settings.controller_quorum_voters == (Voter(100, "127.0.0.1", 9192),)
    assert settings.log_dirs == ("/data/a", "/data/b")
    assert settings.metadata_log_dir == "/data/a"
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.replica_lag_time_max_ms == 30000
    assert settings.properties == BROKER


def test_a_controller() -> None:
    settings = settings_of(CONTROLLER)
    assert settings.is_controller
    assert not settings.is_broker
    assert settings.broker_listeners == ()
    assert settings.controller_listeners == (Listener("CONTROLLER", "127.0.0.1", 9192),)


def test_both_in_one() -> None:
    settings = settings_of(COMBINED)
    assert settings.is_broker
    assert settings.is_controller
    assert [each.name for each in settings.broker_listeners] == ["PLAINTEXT"]
    assert [each.name for each in settings.controller_listeners] == ["CONTROLLER"]


def test_without_arguments_the_settings_are_kafkas_defaults() -> None:
    settings = NodeSettings()
    assert settings.broker_session_timeout_ms == 9000
    assert settings.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert settings.log_dirs == ("/tmp/kafka-logs",)


@pytest.mark.parametrize(
    ("changes", "attribute", "value"),
    [
        ({"node.id": None, "broker.id": "3"}, "node_id", 3),
        ({"log.dirs": None, "log.dir": "/one"}, "log_dirs", ("/one",)),
        ({"metadata.log.dir": "/meta"}, "metadata_log_dir", "/meta"),
        ({"broker.rack": ""}, "broker_rack", None),
        ({"broker.rack": "b"}, "broker_rack", "b"),
        ({"listeners": "PLAINTEXT://[::1]:0"}, "listeners", (Listener("PLAINTEXT", "::1", 0),)),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised_listeners",
            (Listener("PLAINTEXT", "", 9092),),
        ),
        (
            {"advertised.listeners": "plaintext://kafka.example:19092"},
            "advertised_listeners",
            (Listener("PLAINTEXT", "kafka.example", 19092),),
        ),
        (
            {
                "listeners": "INSIDE://a:1,OUTSIDE://a:2",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "inter.broker.listener.name": "inside",
            },
            "inter_broker_listener_name",
            "INSIDE",
        ),
        (
            {
                "listeners": "ONLY://a:1",
                "listener.security.protocol.map": "ONLY:PLAINTEXT",
            },
            "inter_broker_listener_name",
            "ONLY",
        ),
        (
            {
                "controller.quorum.voters": None,
                "controller.quorum.bootstrap.servers": "c:1,d:2",
            },
            "controller_quorum_bootstrap_servers",
            (Server("c", 1), Server("d", 2)),
        ),
    ],
)
def test_what_follows_from_keys(
    changes: dict[str, str | None], attribute: str, value: object
) -> None:
    assert getattr(settings_of(changed(BROKER, changes)), attribute) == value


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (BROKER, {"process.roles": None}, "process.roles is missing"),
        (BROKER, {"process.roles": "zookeeper"}, "one of broker, controller"),
        (BROKER, {"node.id": None}, "node.id is missing"),
        (BROKER, {"node.id": "-1"}, "node.id=-1: must be at least 0"),
        (BROKER, {"controller.quorum.fetch.timeout.ms": "0"}, "must be at least 10"),
        (BROKER, {"broker.id": "2"}, "remove broker.id"),
        (BROKER, {"log.dirs": ""}, None),
        (BROKER, {"controller.listener.names": None}, "controller.listener.names is missing"),
        (BROKER, {"controller.quorum.voters": None}, "controller.quorum.voters is missing"),
        (BROKER, {"controller.quorum.voters": "1@a:9"}, "process.roles makes a broker only"),
        (BROKER, {"controller.quorum.voters": "a:9"}, "must look like ID@HOST:PORT"),
        (BROKER, {"controller.quorum.voters": "5@a:0"}, "can be reached"),
        (CONTROLLER, {"node.id": "7"}, "lacks node.id=7"),
        (CONTROLLER, {"listeners": "PLAINTEXT://a:1"}, "none of controller.listener.names"),
        (CONTROLLER, {"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2"}, "only a controller"),
        (COMBINED, {"listeners": "CONTROLLER://a:2"}, "no listener for clients"),
        (BROKER, {"listeners": "PLAINTEXT://a:1,CONTROLLER://a:2"}, "only a broker"),
        (BROKER, {"listeners": "SSL://a:1"}, "TLS and SASL are not built yet"),
        (BROKER, {"listeners": "MINE://a:1"}, "add MINE:PLAINTEXT"),
        (BROKER, {"listeners": "127.0.0.1:9092"}, "NAME://HOST:PORT"),
        (BROKER, {"listeners": "PLAINTEXT://a:70000"}, "up to 65535"),
        (BROKER, {"listeners": "PLAINTEXT://::1:90"}, "brackets"),
        (BROKER, {"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "twice"),
        (BROKER, {"listeners": "PLAINTEXT://a b:1"}, "not the name or address"),
        (BROKER, {"advertised.listeners": "OTHER://a:1"}, "OTHER"),
        (BROKER, {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "can't be reached"),
        (BROKER, {"inter.broker.listener.name": "OTHER"}, "must be one of the listeners"),
        (BROKER, {"inter.broker.listener.name": "CONTROLLER"}, "kept for controllers"),
        (BROKER, {"security.inter.broker.protocol": "SSL"}, "not built yet"),
        (BROKER, {"authorizer.class.name": "Acl"}, "every request is allowed"),
        (BROKER, {"remote.log.storage.system.enable": "true"}, "tiered storage"),
        (BROKER, {"broker.heartbeat.interval.ms": "9000"}, "must be below broker.session"),
        (BROKER, {"log.retention.hours": "x"}, "log.retention.hours=x"),
        (BROKER, {"log.cleaner.dedupe.buffer.size": "1048576"}, "at least 1MB per cleaner thread"),
        (
            BROKER,
            {"log.cleaner.threads": "5", "log.cleaner.dedupe.buffer.size": "5242884"},
            "at least 1MB per cleaner thread",
        ),
        (BROKER, {"zookeeper.connect": "z:2181"}, "zookeeper.connect no longer exists"),
        (BROKER, {"inter.broker.protocol.version": "3.0"}, "metadata.version"),
        (BROKER, {"advertised.host.name": "a"}, "use advertised.listeners"),
    ],
)
def test_what_cannot_be_used_is_refused(
    base: dict[str, str], changes: dict[str, str | None], says: str | None
) -> None:
    properties = changed(base, changes)
    if says is None:
        assert settings_of(properties).log_dirs == ("/tmp/kafka-logs",)
        return
    with pytest.raises(ConfigError, match=r"\w") as caught:
        NodeSettings.from_properties(properties)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num.io.threads", "num.io.threads is read but has no effect yet"),
        ("sasl.enabled.mechanisms", "no effect here"),
        ("num.partition", "check its spelling"),
    ],
)
def test_what_does_nothing_is_a_warning(name: str, says: str) -> None:
    _, warnings = NodeSettings.from_properties(BROKER | {name: "4"})
    assert len(warnings) == 1
    assert says in warnings[0]


def test_dynamic_configs_change_what_may_change() -> None:
    settings = settings_of(BROKER | {"min.insync.replicas": "1"})
    changed_settings = settings.with_dynamic(
        cluster={"min.insync.replicas": "2", "producer.id.expiration.ms": "10", "node.id": "9"},
        broker={"producer.id.expiration.ms": "20"},
    )
    assert changed_settings.min_insync_replicas == 2
    assert changed_settings.producer_id_expiration_ms == 20
    assert changed_settings.node_id == 1
    assert settings.min_insync_replicas == 1
    assert settings.with_dynamic(cluster={}, broker={}) is settings


def test_settings_are_frozen() -> None:
    settings = settings_of(BROKER)
    with pytest.raises(AttributeError, match="frozen"):
        settings.node_id = 2
    with pytest.raises(AttributeError, match="frozen"):
        del settings.node_id
    with pytest.raises(TypeError, match="nod_id"):
        settings.replace(nod_id=2)
    assert settings.replace(node_id=2).node_id == 2
    assert settings.replace(node_id=2) != settings
    assert settings.replace() == settings
    assert hash(settings.replace()) == hash(settings)


def changed(base: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**base, **changes}
    return {name: value for name, value in merged.items() if value is not None}
