"""Goal: a test about load can fail for a callback that held up a node's loop.

Method: a process with the watch in it, and a callback that is too long, or not.
Seen to fail: with a limit that nothing reaches.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.loop_watch import LoopWatch

pytestmark = [pytest.mark.process, pytest.mark.slow]
LONG = """
import asyncio

def busy(additions):
    total = 0
    for number in range(additions):
        total += number

async def main():
    loop = asyncio.get_running_loop()
    loop.call_soon(busy, {additions})
    await asyncio.sleep(0.2)

asyncio.run(main())
"""


@pytest.mark.parametrize(("additions", "fails"), [(400_000, False), (9_000_000, True)])
def test_the_watch_sees_what_is_long(tmp_path: Path, additions: int, fails: bool) -> None:
    watch = LoopWatch(tmp_path / "long")
    watch.arm()
    code = LONG.format(additions=additions)
    subprocess.run([sys.executable, "-c", code], env=dict(watch.environment), check=True)
    if fails:
        with pytest.raises(AssertionError, match="busy"):
            watch.check()
    else:
        watch.check()
