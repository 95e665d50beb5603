"""Goal: the groups that settings may be asked of are found on any Kafka.

Method: a scripted cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.scripted import Scripted

from holdfast.clients.group_configs import configured_groups, present_groups
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def answering(code: ErrorCode = ErrorCode.NONE, *groups: str) -> Scripted:
    def configured(_node: int, _request: Any) -> Any:
        found = [ConfigResource(resource_name=name, resource_type=32) for name in groups]
        return ListConfigResourcesResponse(error_code=code, config_resources=found)

    cluster = Scripted()
    cluster.answers[ListConfigResourcesRequest] = configured
    return cluster


def test_one_broker_tells_which_are_configured() -> None:
    cluster: Any = answering(ErrorCode.NONE, "a", "b")
    assert configured_groups(cluster) == {"a", "b"}
    ((_, asked),) = cluster.asked_for(ListConfigResourcesRequest)
    assert asked.resource_types == [32]


def test_who_can_not_tell_is_not_taken_for_who_has_none() -> None:
    older: Any = Scripted()
    assert configured_groups(older) is None
    old: Any = answering()
    old.versions[ListConfigResourcesRequest] = 0
    assert configured_groups(old) is None
    assert configured_groups(answering(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) is None  # type: ignore[arg-type]
    assert configured_groups(answering()) == set()  # type: ignore[arg-type]
    refusing: Any = answering(ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(AdminError, match="UNKNOWN_SERVER_ERROR"):
        configured_groups(refusing)


def test_groups_that_are_there_are_those_of_all_brokers_and_kinds() -> None:
    cluster: Any = Scripted()
    assert present_groups(cluster) == set(), "no broker serves groups"
    cluster.answers[ListGroupsRequest] = lambda node, _: ListGroupsResponse(
        groups=[ListedGroup(group_id=f"g{node}", protocol_type="connect" if node else "consumer")]
    )
    assert present_groups(cluster) == {"g0", "g1", "g2"}
