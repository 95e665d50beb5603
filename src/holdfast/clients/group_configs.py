"""Groups that settings may be asked of: those that are there, and those that are configured.

A group may be configured before it is there, and stays so when it is gone. Owns how the two are
found on any Kafka: the first are asked of all brokers, the second of any one, if it can tell.
"""

from __future__ import annotations

from typing import Final

from holdfast.clients.blocking_driver import Driver, UnsupportedError
from holdfast.clients.group_descriptions import group_names
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.structs import ResourceType

_FIRST_VERSION_OF_GROUPS: Final = 1  # before it, it listed client metrics


def configured_groups(driver: Driver) -> set[str] | None:
    """Return the groups that have settings of their own; None: the broker can not, or won't, tell.

    AdminError: it refuses otherwise.
    """
    for node in sorted(driver.nodes()):
        peer = driver.peer(node)
        try:
            if peer.version_of(ListConfigResourcesRequest) < _FIRST_VERSION_OF_GROUPS:
                return None
        except UnsupportedError:
            return None
        response = peer.send(ListConfigResourcesRequest(resource_types=[ResourceType.GROUP]))
        code = ErrorCode(response.error_code)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None
        if code is not ErrorCode.NONE:
            raise AdminError("listing the groups that are configured", code)
        return {one.resource_name for one in response.config_resources}
    return None


def present_groups(driver: Driver) -> set[str]:
    """Return the groups that are there; none of a broker that serves no groups. AdminError."""
    try:
        return group_names(driver)
    except UnsupportedError:
        return set()
