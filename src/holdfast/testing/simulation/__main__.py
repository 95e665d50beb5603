"""`python -m holdfast.testing.simulation`: see `runner`."""

import sys

from holdfast.testing.simulation.runner import main, with_fixed_hashes

if __name__ == "__main__":
    with_fixed_hashes(sys.argv[1:])
    sys.exit(main(sys.argv[1:]))
