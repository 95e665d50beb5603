"""A user's program, in a driver that stays when it has ended: PROGRAM ARGUMENT...

So its JVM can be a Connect server, too, and a test needs one less.
"""

from __future__ import annotations

import os
import runpy
import sys
import time

LOOK_S = 0.2


def main() -> None:
    parent = os.getppid()  # the JVM: nobody ends this process when that dies
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("the program has ended", flush=True)  # noqa: T201 - the test waits for it
    while os.getppid() == parent:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
