"""Which seeds the run of this moment tries: nobody has seen them before."""

from __future__ import annotations

import random
from typing import Final

CHUNKS: Final = 8
SEEDS: Final = 25  # each
FIRST: Final = random.SystemRandom().randrange(1 << 40)
