"""What a simulated producer's records say of the time at which they were made.

Owns the odds. Ages are such that some are due for time retention within a run, some at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from holdfast.wire.batch_header import NO_TIMESTAMP

_DAY_MS: Final = 86_400_000
_AHEAD_MS: Final = 3_000_000  # less than message.timestamp.after.max.ms

NOW: Final = None  # the moment at which a batch is made, at each attempt

KINDS: Final[dict[str, Callable[[random.Random, int], int | None]]] = {
    "now": lambda _draw, _now_ms: NOW,
    "none": lambda _draw, _now_ms: NO_TIMESTAMP,
    "past": lambda draw, now_ms: now_ms - draw.choice((3_000, 20_000, 9 * _DAY_MS)),
    "future": lambda draw, now_ms: now_ms + draw.randrange(_AHEAD_MS),
    "mixed": lambda draw, now_ms: KINDS[draw.choice(("now", "none", "past", "future"))](
        draw, now_ms
    ),
}
