"""What a node tells of itself beside its configuration, each figure under a name of its own.

Owns the names. A figure is asked for as a key of the node's configuration, in DescribeConfigs, by
its name: what lists all keys does not show it, for it is no setting and changes by itself.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "holdfast."
COMPACTION_ROUNDS: Final = "holdfast.compaction.rounds"
LOGS_NOT_COMPACTED: Final = "holdfast.logs.not.compacted"
LOG_DIRS_OFFLINE: Final = "holdfast.log.dirs.offline"
LOOP_LAG_MS_MAX: Final = "holdfast.loop.lag.ms.max"
ANSWER_BYTES: Final = "holdfast.answer.bytes"
CONNECTIONS_INDEBTED: Final = "holdfast.connections.indebted"
CONNECTIONS: Final = "holdfast.connections"
CONNECTIONS_REFUSED: Final = "holdfast.connections.refused"
CONNECTIONS_UNFINISHED: Final = "holdfast.connections.unfinished"
FORWARDING_REFUSED: Final = "holdfast.forwarding.refused"
REQUEST_BYTES: Final = "holdfast.request.bytes"
REPLICAS_SET_ASIDE: Final = "holdfast.replicas.set.aside"

FIGURES: Final = {
    COMPACTION_ROUNDS: "How many rounds of compaction were done since the start.",
    LOGS_NOT_COMPACTED: (
        "The logs that have no more rounds of compaction until the next start, each with what is"
        " damaged in it; empty when there are none. They grow, and serve as the others do."
    ),
    ANSWER_BYTES: "Bytes of answers that are held for clients who have not taken them.",
    CONNECTIONS_INDEBTED: (
        "How many connections were closed since the start because they had not taken the most, when"
        " all answers held, or those of its address, came to more than is allowed."
    ),
    CONNECTIONS: "How many connections are open, on all listeners together.",
    CONNECTIONS_REFUSED: (
        "How many connections were closed since the start because there were too many, of the node"
        " or of an address."
    ),
    CONNECTIONS_UNFINISHED: (
        "How many connections were closed since the start because they had sent the most of"
        " requests that were not whole, when all of those, or its address's, were too many."
    ),
    FORWARDING_REFUSED: (
        "How many requests for the controller were refused since the start because too many, of all"
        " clients or of an address, were on their way."
    ),
    REQUEST_BYTES: "Bytes of memory into which large requests are received.",
    LOG_DIRS_OFFLINE: (
        "The log directories that are offline and why, a full disk or a failing one; empty when"
        " all of them work."
    ),
    LOOP_LAG_MS_MAX: (
        "How late a timer of 100 ms came at worst in the last minute: so long the node did nothing"
        " else, or had no processor."
    ),
    REPLICAS_SET_ASIDE: (
        "The replicas that a broker can't fetch or append, each with the reason; empty when there"
        " are none. They are tried again alone, and the others go on."
    ),
}

TROUBLES: Final = (
    LOG_DIRS_OFFLINE,
    LOGS_NOT_COMPACTED,
    REPLICAS_SET_ASIDE,
)  # not empty: somebody has to look


def short_name(figure: str) -> str:
    """Return the name of a figure in `holdfast status --json`."""
    return figure.removeprefix(PREFIX).replace(".", "_")
