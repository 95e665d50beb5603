"""Who this broker is to the controller, for all who have to say so in their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOT_REGISTERED: Final = -1


@dataclass(slots=True)
class Registration:
    """A broker's id, and the broker epoch of its newest registration: `Lifecycle` alone sets it."""

    node: int
    epoch: int = NOT_REGISTERED
