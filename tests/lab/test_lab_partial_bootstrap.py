"""Goal: what stands before brokers in a scenario is a balancer, and what it replaces is its part.

Method: a balancer before real sockets; a broker's properties.
"""

from __future__ import annotations

import socket
from contextlib import closing
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.cluster.plan import with_config
from holdfast.lab.parameters import LabError
from holdfast.lab.scenarios.networks.partial_bootstrap import (
    ADVERTISED,
    named_outside,
    refuse_unasked,
    refuse_unled,
)
from holdfast.lab.steps.balancer import Balancer
from holdfast.lab.steps.sides import Sides


def test_a_balancer_leads_each_connection_to_the_next_one() -> None:
    """Method: three servers that say their numbers."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    clients = []
    try:
        with closing(Balancer([server.getsockname() for server in servers])) as balancer:
            host, _, port = balancer.address.rpartition(":")
            said = []
            for turn in range(4):
                clients.append(socket.create_connection((host, int(port)), timeout=10))
                accepted, _ = servers[turn % 3].accept()
                with accepted:
                    accepted.sendall(bytes([turn % 3]))
                said.append(clients[-1].recv(1))
            assert said == [b"\0", b"\1", b"\2", b"\0"]
            targets = [server.getsockname() for server in servers]
            assert balancer.led == dict(zip(targets, (2, 1, 1), strict=True))
            refuse_unled(balancer, targets)
            balancer.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=10)
    finally:
        for each in (*servers, *clients):
            each.close()


def test_a_balancer_resets_whom_it_can_t_lead_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        target = gone.getsockname()
    with closing(Balancer([target])) as balancer:
        host, _, port = balancer.address.rpartition(":")
        # It may come so soon that the connection is never seen to stand.
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection((host, int(port)), timeout=10) as client,
        ):
            client.recv(1)
        with pytest.raises(LabError, match=f"no connection to {target[0]}:{target[1]}"):
            refuse_unled(balancer, [target])


def test_who_is_silent_has_lost_what_it_was_sent() -> None:
    """Goal: a cut that cuts nothing proves nothing of a silent address."""
    refuse_unasked(cast("Sides", SimpleNamespace(dropped=lambda: 1)))
    with pytest.raises(LabError, match="it isn't silent"):
        refuse_unasked(cast("Sides", SimpleNamespace(dropped=lambda: 0)))


def test_only_what_clients_outside_are_told_is_replaced() -> None:
    told = "PLAINTEXT://10.1.0.1:9092,OUTSIDE://127.0.0.1:22018"
    text = with_config("node.id=1\n", {ADVERTISED: told})
    wanted = "PLAINTEXT://10.1.0.1:9092,OUTSIDE://127.0.0.1:7"
    assert named_outside(text, "127.0.0.1:7") == wanted
