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

pytestmark = pytest.mark.process
LONG = """
import asyncio, time

def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

async def main():
    loop = asyncio.get_running_loop()
    loop.call_soon(busy, {seconds})
    await asyncio.sleep(0.2)

asyncio.run(main())
"""


@pytest.mark.parametrize(("seconds", "fails"), [(0.005, False), (0.08, True)])
def test_the_watch_sees_what_is_long(tmp_path: Path, seconds: float, fails: bool) -> None:
    watch = LoopWatch(tmp_path / "long")
    watch.arm()
    code = LONG.format(seconds=seconds)
    subprocess.run([sys.executable, "-c", code], env=dict(watch.environment), check=True)
    if fails:
        with pytest.raises(AssertionError, match="busy"):
            watch.check()
    else:
        watch.check()
