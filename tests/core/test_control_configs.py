"""Goal: configurations change as IncrementalAlterConfigs and AlterConfigs say, or not at all.

Method: a table of single changes, then what several together do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.core.control_kit import CONTROLLER_ID, Cluster, Counted

from holdfast.core.controller import config_changes, shown_settings
from holdfast.core.controller.config_changes import (
    alter_configs,
    incremental_alter_configs,
)
from holdfast.core.controller.decisions import Decision
from holdfast.core.metadata.image import Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import alter_configs as legacy
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.structs import ConfigOperation, ConfigValue, ResourceType

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
Change = tuple[int, str, str | None]

GROUP = ResourceType.GROUP
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
GROUP_INTERVAL = "group.consumer.assignment.interval.ms"


def _cluster() -> Cluster:
    cluster = Cluster().start(0, 1)
    cluster.create("t", [0, 1], retention_ms="7")
    return cluster


def _alter(
    cluster: Cluster, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=int(operation), value=value)
            for operation, key, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = cluster.decide(incremental_alter_configs, request).responses[0]
    return ErrorCode(answer.error_code), answer.error_message or ""


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "text"),
    [
        (2, "nobody", (SET, "retention.ms", "1"), E.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
        (2, "t", (SET, "no.such.key", "1"), E.INVALID_CONFIG, "Unknown topic config"),
        (2, "t", (SET, "retention.ms", "soon"), E.INVALID_CONFIG, "whole number"),
        (2, "t", (SET, "retention.ms", None), E.INVALID_REQUEST, "Null value"),
        (2, "t", (APPEND, "retention.ms", "1"), E.INVALID_CONFIG, "not a list"),
        (2, "t", (9, "retention.ms", "1"), E.INVALID_REQUEST, "operation 9"),
        (2, "t", (SET, "cleanup.policy", "compacted"), E.INVALID_CONFIG, "compact"),
        (4, "5", (SET, "log.retention.ms", "1"), E.BROKER_ID_NOT_REGISTERED, "not registered"),
        (4, "one", (SET, "log.retention.ms", "1"), E.INVALID_REQUEST, "not a broker's id"),
        (4, "01", (SET, "log.retention.ms", "1"), E.INVALID_REQUEST, "not a broker's id"),
        (4, "0", (SET, "log.dirs", "/tmp"), E.INVALID_REQUEST, "run time"),
        (4, "", (SET, "log.retention.ms", "soon"), E.INVALID_REQUEST, "whole number"),
        (2, "", (SET, "retention.ms", "1"), E.INVALID_REQUEST, "no name"),
        (8, "0", (SET, "root", "DEBUG"), E.INVALID_REQUEST, "Resource type 8"),
        (4, "", (SET, GROUP_INTERVAL, "15001"), E.INVALID_REQUEST, "group.consumer.max.assign"),
        (4, "0", (SET, GROUP_INTERVAL, "15001"), E.INVALID_REQUEST, "group.consumer.max.assign"),
        (4, "", (SET, "group.consumer.session.timeout.ms", "46000"), E.INVALID_REQUEST, "run time"),
        (32, "", (SET, SESSION, "50000"), E.INVALID_REQUEST, "Default group resources"),
        (32, "g", (SET, SESSION, "60001"), E.INVALID_CONFIG, "group.consumer.max.session"),
        (32, "g", (SET, SESSION, "0"), E.INVALID_CONFIG, "at least 1"),
        (32, "g", (SET, SESSION, None), E.INVALID_REQUEST, "Null value"),
        (32, "g", (SET, "retention.ms", "1"), E.INVALID_CONFIG, "Unknown group config name"),
        (32, "g", (APPEND, SESSION, "1"), E.INVALID_CONFIG, "not a list"),
        (32, "g", (APPEND, "cleanup.policy", "delete"), E.INVALID_CONFIG, "not a list"),
        (32, "g", (9, SESSION, "50000"), E.INVALID_REQUEST, "operation 9"),
    ],
)
def test_refused_changes(kind: int, name: str, change: Change, code: ErrorCode, text: str) -> None:
    cluster = _cluster()
    before = cluster.state.image.offset
    found, message = _alter(cluster, kind, name, change)
    assert found is code
    assert text in message
    assert cluster.state.image.offset == before


def test_a_refused_step_takes_the_whole_resource_along() -> None:
    cluster = _cluster()
    code, _ = _alter(
        cluster, 2, "t", (SET, "segment.bytes", "2000000"), (SET, "retention.ms", "soon")
    )
    assert code is E.INVALID_CONFIG
    assert cluster.state.image.topic_configs("t") == {"retention.ms": "7"}


def test_what_a_topic_would_have_together_is_looked_at() -> None:
    """Also with what it has already, and without what goes."""
    cluster = _cluster()
    least, largest = "min.compaction.lag.ms", "max.compaction.lag.ms"
    assert _alter(cluster, 2, "t", (SET, largest, "9"))[0] is E.NONE
    code, message = _alter(cluster, 2, "t", (SET, least, "10"))
    assert code is E.INVALID_CONFIG
    assert f"{least} (10) > {largest} (9)" in message
    assert _alter(cluster, 2, "t", (DELETE, largest, None), (SET, least, "10"))[0] is E.NONE


def test_a_group_is_configured_whether_it_is_there_or_not() -> None:
    """Of any name; what it has already counts, and the rest of its configuration stays."""
    cluster = _cluster()
    image = cluster.state.image
    name = "a group\n"
    assert (
        _alter(cluster, GROUP, name, (SET, SESSION, "50000"), (SET, HEARTBEAT, "6000"))[0] is E.NONE
    )
    assert image.group_configs(name) == {SESSION: "50000", HEARTBEAT: "6000"}
    assert image.group_configs("a group") == {}
    assert list(cluster.deltas[-1].configs_changed) == [(GROUP, name)]
    assert (
        _alter(cluster, GROUP, name, (SET, HEARTBEAT, "4999"), (DELETE, SESSION, None))[0]
        is not E.NONE
    )
    assert _alter(cluster, GROUP, name, (DELETE, SESSION, None))[0] is E.NONE
    assert image.group_configs(name) == {HEARTBEAT: "6000"}
    assert _alter(cluster, GROUP, name, (DELETE, "no.such.key", None))[0] is E.NONE
    assert _alter(cluster, GROUP, name, (DELETE, HEARTBEAT, None))[0] is E.NONE
    assert (GROUP, name) not in image.configs, "nothing is left of it"


def test_a_group_is_held_to_the_bounds_in_the_controllers_file() -> None:
    cluster = _cluster()
    cluster.state.settings = cluster.state.settings.replace(
        properties={
            "group.consumer.min.session.timeout.ms": "10",
            "group.consumer.max.heartbeat.interval.ms": "50000",
        }
    )
    assert _alter(cluster, GROUP, "g", (SET, SESSION, "5001"))[0] is E.NONE
    code, message = _alter(cluster, GROUP, "g", (SET, HEARTBEAT, "5001"))
    assert code is E.INVALID_CONFIG
    assert message == f"{SESSION} must be greater than {HEARTBEAT}"
    together = ((SET, HEARTBEAT, "5001"), (SET, SESSION, "5002"))
    assert _alter(cluster, GROUP, "g", *together)[0] is E.NONE


def test_a_group_s_whole_configuration_is_replaced() -> None:
    cluster = _cluster()
    _alter(cluster, GROUP, "g", (SET, SESSION, "50000"))
    for configs, left in (({HEARTBEAT: "6000"}, {HEARTBEAT: "6000"}), ({}, {})):
        resource = legacy.AlterConfigsResource(
            resource_type=GROUP,
            resource_name="g",
            configs=[ConfigValue(name=name, value=value) for name, value in configs.items()],
        )
        request = legacy.AlterConfigsRequest(resources=[resource])
        assert cluster.decide(alter_configs, request).responses[0].error_code == E.NONE
        assert cluster.state.image.group_configs("g") == left


@pytest.mark.parametrize("name", ["", "0"])
def test_the_cleaners_threads_and_its_memory_are_looked_at_together(name: str) -> None:
    """As Apache Kafka does: a megabyte for each thread, and not many more or fewer at once."""
    cluster = _cluster()
    threads, size = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"

    def told(*changes: Change) -> str:
        code, message = _alter(cluster, 4, name, *changes)
        assert code in {E.NONE, E.INVALID_REQUEST}
        assert (code is E.NONE) == (message == "")
        return message

    megabyte = f"{size} must be at least 1MB per cleaner thread."
    assert told((SET, size, "1048576")) == megabyte
    assert told((SET, size, "1048577")) == ""
    assert told((SET, threads, "2")) == megabyte
    assert told((SET, threads, "3"), (SET, size, "9000000")).endswith("double the current value 1")
    assert told((SET, threads, "2"), (SET, size, "9000000")) == ""
    assert told((SET, threads, "4")) == ""
    assert told((SET, threads, "1")).endswith("less than half the current value 4")
    assert told((SET, threads, "0")) == "Log cleaner threads should be at least 1"
    assert told((SET, threads, "2"), (SET, "log.retention.ms", "5")) == ""
    assert told((DELETE, threads, None), (DELETE, size, None)) == ""


@pytest.mark.parametrize("name", ["", "0"])
def test_a_brokers_key_that_nobody_knows_is_kept(name: str) -> None:
    """As by Apache Kafka: a plug-in may know it."""
    cluster = _cluster()
    assert _alter(cluster, 4, name, (SET, "no.such.key", "1")) == (E.NONE, "")
    assert cluster.state.image.configs[4, name] == {"no.such.key": "1"}


def test_set_delete_and_the_same_again() -> None:
    cluster = _cluster()
    image = cluster.state.image
    assert _alter(cluster, 2, "t", (SET, "min.insync.replicas", "2"))[0] is E.NONE
    assert image.topic_configs("t") == {"retention.ms": "7", "min.insync.replicas": "2"}
    before = image.offset
    assert _alter(cluster, 2, "t", (SET, "min.insync.replicas", "2"))[0] is E.NONE
    assert _alter(cluster, 2, "t", (DELETE, "segment.bytes", None))[0] is E.NONE
    assert image.offset == before, "what is so already needs no record"
    assert _alter(cluster, 2, "t", (DELETE, "retention.ms", None))[0] is E.NONE
    assert image.topic_configs("t") == {"min.insync.replicas": "2"}


def test_lists_grow_and_shrink() -> None:
    cluster = _cluster()
    image = cluster.state.image
    assert _alter(cluster, 2, "t", (SET, "cleanup.policy", "delete"))[0] is E.NONE
    assert _alter(cluster, 2, "t", (APPEND, "cleanup.policy", "delete"))[0] is E.NONE
    assert image.topic_configs("t")["cleanup.policy"] == "delete"
    code, message = _alter(cluster, 2, "t", (APPEND, "cleanup.policy", "shred"))
    assert code is E.INVALID_CONFIG, "the whole list is judged, not the addition"
    assert "delete,shred" in message
    assert _alter(cluster, 2, "t", (APPEND, "cleanup.policy", "compact"))[0] is E.NONE
    assert image.topic_configs("t")["cleanup.policy"] == "delete,compact"
    assert _alter(cluster, 2, "t", (SUBTRACT, "cleanup.policy", "compact"))[0] is E.NONE
    assert _alter(cluster, 2, "t", (SUBTRACT, "cleanup.policy", "delete"))[0] is E.NONE
    assert image.topic_configs("t")["cleanup.policy"] == ""


def test_a_list_that_was_never_set_begins_with_what_it_inherits() -> None:
    cluster = _cluster()
    assert _alter(cluster, 2, "t", (APPEND, "cleanup.policy", "delete"))[0] is E.NONE
    assert cluster.state.image.topic_configs("t")["cleanup.policy"] == "delete"


@pytest.mark.parametrize(("kind", "name", "key"), [
    (2, "t", "cleanup.policy"), (4, "", "log.cleanup.policy"), (4, "0", "log.cleanup.policy"),
])  # fmt: skip
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_list_that_nobody_has_set_begins_with_its_default(
    kind: int, name: str, key: str, operation: ConfigOperation
) -> None:
    """Goal: no topic stops to expire since a list was taken for empty. Method: each scope."""
    cluster = _cluster()
    assert _alter(cluster, kind, name, (operation, key, "delete"))[0] is E.NONE
    expected = "delete" if operation is APPEND else ""
    assert cluster.state.image.configs[ResourceType(kind), name][key] == expected
    # What is not in a list takes nothing out of it.
    cluster = _cluster()
    assert _alter(cluster, kind, name, (SUBTRACT, key, "compact"))[0] is E.NONE
    assert cluster.state.image.configs[ResourceType(kind), name][key] == "delete"


def test_a_brokers_list_begins_with_the_clusters_also_when_that_is_empty() -> None:
    cluster = _cluster()
    assert _alter(cluster, 4, "", (SET, "log.cleanup.policy", ""))[0] is E.NONE
    assert _alter(cluster, 4, "0", (SUBTRACT, "log.cleanup.policy", "compact"))[0] is E.NONE
    assert cluster.state.image.configs[ResourceType.BROKER, "0"]["log.cleanup.policy"] == ""


@pytest.mark.parametrize("name", ["", "0", str(CONTROLLER_ID)])
def test_brokers_and_their_defaults(name: str) -> None:
    cluster = _cluster()
    assert _alter(cluster, 4, name, (SET, "min.insync.replicas", "2"))[0] is E.NONE
    assert cluster.state.image.configs[ResourceType.BROKER, name] == {"min.insync.replicas": "2"}


def test_validate_only() -> None:
    cluster = _cluster()
    change = (SET, "retention.ms", "8")
    assert _alter(cluster, 2, "t", change, validate_only=True)[0] is E.NONE
    assert cluster.state.image.topic_configs("t") == {"retention.ms": "7"}


def test_naming_anything_twice_is_refused() -> None:
    cluster = _cluster()
    code, _ = _alter(cluster, 2, "t", (SET, "retention.ms", "8"), (DELETE, "retention.ms", None))
    assert code is E.INVALID_REQUEST
    resource = AlterConfigsResource(resource_type=2, resource_name="t")
    request = IncrementalAlterConfigsRequest(resources=[resource, resource])
    answer = cluster.decide(incremental_alter_configs, request)
    assert [each.error_code for each in answer.responses] == [E.INVALID_REQUEST] * 2


@pytest.mark.parametrize(
    ("decide", "request_of", "resource_of"),
    [
        (incremental_alter_configs, IncrementalAlterConfigsRequest, AlterConfigsResource),
        (alter_configs, legacy.AlterConfigsRequest, legacy.AlterConfigsResource),
    ],
)
def test_each_resource_is_not_held_against_every_other(
    decide: Callable[..., Decision], request_of: Any, resource_of: Any
) -> None:
    """Seen to fail: 476 KB that named 60,000 topics held the controller for 32 s."""
    cluster = _cluster()
    resources = [
        resource_of(resource_type=2, resource_name=Counted(f"nobody-{number}"))
        for number in range(300)
    ]
    Counted.compared = 0
    answer = cluster.decide(decide, request_of(resources=resources, validate_only=True))
    assert {each.error_code for each in answer.responses} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert Counted.compared < 10 * len(resources)


class Watched(list[Partition]):
    """Partitions of a topic, counted as they are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Partition]:
        for each in super().__iter__():
            Watched.looks += 1
            yield each


def test_unclean_election_looks_at_the_partitions_of_its_topics_alone() -> None:
    """Goal: what topics of one request set off does not cost each all partitions that there are.

    Seen to fail: each of the topics had all twenty looked at.
    """
    cluster = Cluster().start(0, 1)
    for number in range(20):
        cluster.create(f"t{number}", [0])
    for each in cluster.state.image.topics.values():
        each.partitions = Watched(each.partitions)
    Watched.looks = 0
    change = AlterableConfig(
        name="unclean.leader.election.enable", config_operation=SET, value="true"
    )
    resources = [
        AlterConfigsResource(resource_type=2, resource_name=f"t{number}", configs=[change])
        for number in range(10)
    ]
    answer = cluster.decide(
        incremental_alter_configs, IncrementalAlterConfigsRequest(resources=resources)
    )
    assert {each.error_code for each in answer.responses} == {E.NONE}
    assert Watched.looks == 10


@pytest.mark.parametrize("digits", [11, 5000])
def test_a_name_of_thousands_of_digits_is_no_broker(digits: int) -> None:
    """Seen to fail: int() raised ValueError for 5,000 digits, which nobody expected."""
    code, message = _alter(
        _cluster(), ResourceType.BROKER, "9" * digits, (SET, "num.io.threads", "8")
    )
    assert code is E.INVALID_REQUEST
    assert "not a broker's id" in message


def test_the_older_request_replaces_everything() -> None:
    cluster = _cluster()
    _alter(cluster, 2, "t", (SET, "min.insync.replicas", "2"))
    resource = legacy.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[ConfigValue(name="segment.bytes", value="2000000")],
    )
    request = legacy.AlterConfigsRequest(resources=[resource])
    assert cluster.decide(alter_configs, request).responses[0].error_code == E.NONE
    assert cluster.state.image.topic_configs("t") == {"segment.bytes": "2000000"}


def test_a_value_is_no_longer_than_older_requests_can_carry() -> None:
    """Goal: no value grows by what is appended to it, nor is looked at as a whole for that.

    Seen to fail: four requests made one of 17 MB, and each held the controller for longer.
    """
    cluster, key = _cluster(), "leader.replication.throttled.replicas"
    members = [f"{number}:0" for number in range(5_000)]
    code, message = _alter(cluster, 2, "t", (SET, key, ",".join(members)))
    assert (code, "32767 bytes" in message) == (E.INVALID_CONFIG, True)
    assert _alter(cluster, 2, "t", (SET, key, ",".join(members[:4_000])))[0] is E.NONE
    code, message = _alter(cluster, 2, "t", (APPEND, key, ",".join(members[4_000:])))
    assert (code, "32767 bytes" in message) == (E.INVALID_CONFIG, True)
    assert _alter(cluster, 2, "t", (SUBTRACT, key, ",".join(members)))[0] is E.NONE
    assert _alter(cluster, 4, "", (SET, "no.such.key", "\N{EURO SIGN}" * 11_000))[1] == message


def test_a_default_is_looked_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: each list that was appended to had all settings of a topic described."""
    looked_at: list[int] = []
    describe = shown_settings.described

    def counted(*asked: Any, **names: Any) -> Any:
        found = describe(*asked, **names)
        looked_at.append(len(found))
        return found

    cluster = _cluster()
    monkeypatch.setattr(config_changes, "described", counted)
    key = "follower.replication.throttled.replicas"
    steps = (APPEND, "cleanup.policy", "delete"), (APPEND, key, "0:1")
    assert _alter(cluster, 2, "t", *steps)[0] is E.NONE
    assert looked_at == [1, 1]
