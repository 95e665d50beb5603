"""Which seeds the run of this moment tries: nobody has seen them before."""

from __future__ import annotations

import os
import random
from typing import Final

CHUNKS: Final = int(os.environ.get("HOLDFAST_TEST_CHUNKS", "40"))  # `make quick` takes fewer
SEEDS: Final = 5  # each
_NAME: Final = "HOLDFAST_TEST_FIRST_SEED"  # all workers of a run try the same
FIRST: Final = int(os.environ.setdefault(_NAME, str(random.SystemRandom().randrange(1 << 40))))
