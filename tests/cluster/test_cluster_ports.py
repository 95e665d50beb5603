"""Goal: clusters of one machine don't collide, also when a node of one is down for a while.

Method: processes that hold ports on which nobody listens yet, and what is given out beside them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from holdfast.cluster import ports
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.ports import BLOCK, FREE_PORTS, free_ports, is_free

HOLDER = """
import json, random, sys
random.seed(1)
from holdfast.cluster.ports import free_ports
print(json.dumps(free_ports(200)), flush=True)
sys.stdin.read()
"""


def test_free_ports_are_free_and_differ() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        assert port in FREE_PORTS
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_comes_again_after_all_others_and_not_while_it_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_own", None)  # in this process's own block, its nodes hold some
    first = free_ports(1)[0]
    assert ports._own is not None
    with socket.create_server(("127.0.0.1", first)):
        assert not is_free(first)
        free = sum(is_free(port) for port in ports._own.ports)
        assert free > BLOCK // 2, "left over nodes of others"
        found = [free_ports(1)[0] for _ in range(free - 10)]  # strangers may take some meanwhile
    assert first not in found
    assert len(set(found)) == len(found)
    with pytest.raises(ClusterError, match="of a block are free"):
        free_ports(BLOCK)


@pytest.mark.slow
@pytest.mark.process
def test_no_two_processes_get_the_same() -> None:
    """Method: both draw the same block first; it fails when nothing guards a block."""
    command = [sys.executable, "-c", HOLDER]
    holders = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        taken = []
        for holder in holders:
            assert holder.stdout is not None
            taken.append(set(json.loads(holder.stdout.readline())))
        assert not taken[0] & taken[1]
        for some in taken:
            guard = FREE_PORTS.start + (min(some) - FREE_PORTS.start) // BLOCK * BLOCK
            assert not is_free(guard), "the block says that it is taken"
    finally:
        for holder in holders:
            holder.communicate(timeout=30)


def test_a_fork_takes_a_block_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(free_ports(100))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    monkeypatch.setattr(ports, "_own", ports._own)  # put back afterwards
    assert not before & set(free_ports(200))
