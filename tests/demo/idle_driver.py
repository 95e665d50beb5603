"""Stands in for a Spark driver: it says that its query runs, and writes nothing.

The file DIE beside its checkpoint ends it as a lack of memory does: with a word, and by itself.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.pipelines.driver import say

LOOK_S = 0.05


def main() -> None:
    checkpoint = Path(sys.argv[sys.argv.index("--checkpoint") + 1])
    say("session")
    say("started")
    while not checkpoint.with_name("die").exists():
        time.sleep(LOOK_S)
    say("failed", error="out of memory")
    sys.exit(1)


if __name__ == "__main__":
    main()
