"""Notices the end of the process that holds a network."""

from __future__ import annotations

import os

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network.entering import Holder


def watch_holder(holder: Holder) -> int:
    """Return a descriptor that is readable once the holder has ended. ClusterError: it has."""
    try:
        watched = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        raise ClusterError("The network's holder has ended.") from None
    if processes.identify(holder.pid) != holder.process:  # looked at behind the opening
        os.close(watched)
        raise ClusterError("The network's holder has ended.")
    return watched
