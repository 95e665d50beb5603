"""`python -m holdfast.lab.soak`: what `make soak` calls, on a copy of the code."""

from __future__ import annotations

import sys

from holdfast.lab import background
from holdfast.lab.soak.campaign import main

if __name__ == "__main__":
    background.run_on_copy("holdfast.lab.soak", sys.argv[1:])  # edits go on beside it for hours
    sys.exit(main(sys.argv[1:]))
