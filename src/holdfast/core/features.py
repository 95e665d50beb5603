"""Which levels of Kafka's features this version knows, and which a new cluster begins with.

A level that is finalized is a promise to clients: transaction.version, group.version and
eligible.leader.replicas.version stay at 0, that is unmentioned, until what they mean is built.
"""

from __future__ import annotations

from typing import Final

METADATA_VERSION: Final = "metadata.version"

SUPPORTED: Final[dict[str, tuple[int, int]]] = {METADATA_VERSION: (21, 25)}  # 3.9-IV0 to 4.0-IV3
BOOTSTRAP: Final[dict[str, int]] = {METADATA_VERSION: 25}
