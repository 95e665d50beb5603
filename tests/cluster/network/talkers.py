"""Processes that talk to each other over TCP and UDP, each in a place of a network."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Any, Self

from holdfast.cluster.network.ground import read_line

_SCRIPT = """
import contextlib, errno, json, select, socket, sys
SO_RCVBUFFORCE = 33
sockets = {}
def connect(name, address, port, timeout, source=None):
    sockets[name] = dialling = socket.socket()
    if source: dialling.bind((source, 0))
    dialling.settimeout(timeout)
    try: dialling.connect((address, port))
    except OSError:
        dialling.close()  # or the kernel would go on, and be accepted when nobody expects it
        raise
    dialling.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def listen(name, port=0, address="0.0.0.0"):
    sockets[name] = socket.create_server((address, port))
    return sockets[name].getsockname()[1]
def accept(name, listener, timeout):
    sockets[listener].settimeout(timeout)
    sockets[name], address = sockets[listener].accept()
    sockets[name].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return address[0]
def send(name, text): sockets[name].sendall(text.encode())
def receive(name, timeout):
    sockets[name].settimeout(timeout)
    return sockets[name].recv(1 << 16).decode()
def finish(name): sockets[name].shutdown(socket.SHUT_WR)
def close(name): sockets.pop(name).close()
def datagrams(name, port=0):
    sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with contextlib.suppress(PermissionError):  # who gets no processor for long misses none
        sockets[name].setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    sockets[name].bind(("0.0.0.0", port))
    return sockets[name].getsockname()[1]
def throw(name, address, port, first, count):
    for number in range(first, first + count):
        sockets[name].sendto(str(number).encode(), (address, port))
def catch(name, count, timeout):
    got = []
    while len(got) < count and select.select([sockets[name]], [], [], timeout)[0]:
        got.append(int(sockets[name].recv(100)))
    return got
for line in sys.stdin:
    what, arguments = json.loads(line)
    try: said = {"value": globals()[what](**arguments)}
    except TimeoutError: said = {"error": "ETIMEDOUT"}
    except OSError as error: said = {"error": errno.errorcode.get(error.errno, str(error))}
    print(json.dumps(said), flush=True)
"""
PATIENCE_S = 60.0


class RefusedError(Exception):
    """What a talker tried failed; the text is errno's name."""


class Talker(AbstractContextManager["Talker"]):
    """A process that does with sockets what it is told, one thing after the other."""

    def __init__(self, prefix: list[str]) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-S", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, what: str, **arguments: Any) -> None:
        """Tell it to do something."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([what, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Return what came of it. RefusedError: it failed."""
        assert self._process.stdout
        said = json.loads(read_line(self._process.stdout.fileno(), PATIENCE_S))
        if "error" in said:
            raise RefusedError(said["error"])
        return said["value"]

    def dial_and_hear(self, *, timeout: float, **dialled: Any) -> None:
        """Connect and wait for what comes. RefusedError, sooner or later, where that is a reset."""
        self.do("connect", name="dialled", timeout=timeout, **dialled)
        self.do("receive", name="dialled", timeout=timeout)

    def do(self, what: str, **arguments: Any) -> Any:
        self.begin(what, **arguments)
        return self.end()
