"""Which seeds this code is tried with: each state of it has its own, which nobody has seen before.

They are drawn from the code, so whoever has the same code sees what others saw: a failure of one
machine is a failure of every machine. More of them: `make simulate`.
"""

from __future__ import annotations

import os
from typing import Final

from holdfast.lab.background import fingerprint

CHUNKS: Final = int(os.environ.get("HOLDFAST_TEST_CHUNKS", "4"))  # `make quick` takes fewer
SEEDS: Final = 5  # each
_NAME: Final = "HOLDFAST_TEST_FIRST_SEED"  # others, on purpose
FIRST: Final = int(os.environ.get(_NAME) or int(fingerprint(["."])[:10], 16))
