"""What brokers of an older version can't take: a setting that would end them is refused meanwhile.

Owns how they are told from others: by the features with which they registered. Brokers of ours that
know no groups know no compaction, and end when the metadata log says that a topic is compacted.
`__consumer_offsets` is, and any client of a cluster that is upgraded broker by broker may ask for
it. Apache Kafka's brokers know compaction, and each that knows eligible leader replicas knows
groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.controller.decisions import ControllerState
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS, GROUP_VERSION

POLICIES: Final = ("cleanup.policy", "log.cleanup.policy")


def refuse_compaction(state: ControllerState, configs: Mapping[str, str]) -> str | None:
    """Return why settings can't be had yet; None when all brokers understand them.

    Brokers that are down count as well: they read the setting when they come back.
    """
    if not any("compact" in configs.get(name, "") for name in POLICIES):
        return None
    older = [
        str(broker_id)
        for broker_id, broker in sorted(state.image.brokers.items())
        if ELIGIBLE_LEADER_REPLICAS in broker.features and GROUP_VERSION not in broker.features
    ]
    if not older:
        return None
    return (
        f"Brokers of an older version know no compaction, and would end by it: {', '.join(older)}. "
        "Upgrade them first, or unregister those that are gone."
    )
