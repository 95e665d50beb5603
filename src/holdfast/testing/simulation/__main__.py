"""`python -m holdfast.testing.simulation`: see `runner`."""

import sys

from holdfast.lab.background import run_on_copy
from holdfast.testing.simulation.runner import MODULE, main, with_fixed_hashes

if __name__ == "__main__":
    if any(word.startswith("--results") for word in sys.argv):
        run_on_copy(MODULE, sys.argv[1:])  # a long batch: edits go on beside it
    with_fixed_hashes(sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
