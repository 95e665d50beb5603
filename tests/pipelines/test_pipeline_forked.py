"""Goal: a process that forks after it has read shares no connection with its child.

Method: a script of its own reads a canned log, both ways, and forks: between two ranges, and in the
middle of one. Child and parent read on; the child ends as a program does, so that whatever it would
destroy is destroyed. Seen to fail: with clients that a child keeps (no connection is new), and with
librdkafka's clients destroyed in a child (it hangs).
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.pipelines.canned_log import CannedLog

from holdfast.wire.batch import Record, build_batch

SCRIPT = """
import os, sys
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.read_range import Access, ReadError, read_range
from holdfast.pipelines.reading import told_offsets

is_ours = len(sys.argv) == 2
client = (("bootstrap.servers", sys.argv[1]),)
if not is_ours:
    client += (("socket.keepalive.enable", "true"),)
fetch_bytes = 250 if is_ours else 1_000_000
access = Access(client=client, fetch_bytes=fetch_bytes, silence_ms_max=20_000)
CANNED = Partition("canned", 0)

def read(start, end):
    batches = read_range(CANNED, start, end, access)
    assert [o for b in batches for o in b.column("offset").to_pylist()] == [*range(start, end)]

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)
    return pid

def ended(pid):
    assert os.waitpid(pid, 0)[1] == 0, "the child"

read(0, 60)
if not is_ours:
    told_offsets.admin_of(client)
pid = child(lambda: read(0, 60))
read(20, 40)
ended(pid)
pid = child(lambda: None)
ended(pid)
read(0, 60)
print("read")

def in_vain():
    try:
        for _ in reading:
            pass
    except ReadError as error:
        assert "process that forked" in str(error), error
    else:
        sys.exit("the child read its parent's answers")

access = Access(client=client, fetch_bytes=fetch_bytes, silence_ms_max=500)
reading = read_range(CANNED, 0, 20_011, access)
rows = next(reading).num_rows
ended(child(in_vain))
assert rows + sum(batch.num_rows for batch in reading) == 20_011
print("whole")
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("way", ["ours", "librdkafka"])
def test_who_forks_keeps_its_connections(way: str) -> None:
    with CannedLog() as log:
        log.add(build_batch([Record(b"k", b"v", 5)] * 20_001))
        for _ in range(2):
            log.add(build_batch([Record(b"k", b"v" * 40, 5)] * 5, base_offset=log.end))
        arguments = [log.bootstrap, *(["librdkafka"] if way != "ours" else [])]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments],
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.stdout.split() == ["read", "whole"], done.stderr
        assert done.returncode == 0
        if way == "ours":
            assert len(log._open) == 2, "one for the parent, and one for the child that reads"
