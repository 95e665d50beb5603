"""What a node tells of itself: DescribeConfigs of its own figures, as any tool asks it.

Owns the asking. Never tries twice: who shows it shows nothing where nothing was answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from holdfast.clients.blocking_driver import DriverError, Peer
from holdfast.cluster.layout import NodeRecord
from holdfast.config.figures import FIGURES
from holdfast.config.key import ConfigType
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.wire.structs import ResourceType

CLIENT_ID = "holdfast-cluster"
ASK_TIMEOUT_S = 1.0


def ask(node: NodeRecord) -> Mapping[str, int | str]:
    """Ask one node. Empty: it does not answer, or tells nothing."""
    asked = DescribeConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name=str(node.id),
        configuration_keys=list(FIGURES),
    )
    try:
        with closing(Peer(*node.watch_address, CLIENT_ID, timeout_s=ASK_TIMEOUT_S)) as peer:
            answer = peer.send(DescribeConfigsRequest(resources=[asked]))
    except DriverError:
        return {}
    return {
        each.name: int(each.value) if each.config_type == ConfigType.LONG else each.value
        for result in answer.results
        for each in result.configs
    }
