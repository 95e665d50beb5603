"""Which names a topic may have, and which of them would be taken for one another."""

from __future__ import annotations

import re
from typing import Final

from holdfast.wire.well_known import METADATA_TOPIC

NAME_LENGTH_MAX: Final = 249  # a directory name of 255, less "-" and five digits of a partition
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def refuse_name(name: str) -> str | None:
    """Return why a topic can't have this name; None when it can."""
    if not name:
        return "Topic name is illegal, it can't be empty."
    if name in (".", ".."):
        return f"Topic name can't be '{name}'."
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is {len(name)} characters long; at most {NAME_LENGTH_MAX} are allowed."
    if not _LEGAL.match(name):
        return (
            f"Topic name '{name}' is illegal: only ASCII letters and digits, '.', '_' and '-' are "
            "allowed."
        )
    if name == METADATA_TOPIC:
        return f"Topic name '{name}' is kept for the metadata log."
    return None


def folded(name: str) -> str:
    """Return the name that metrics make of it: two topics that fold alike collide."""
    return name.replace(".", "_")
