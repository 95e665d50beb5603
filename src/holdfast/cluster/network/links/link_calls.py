"""Asks the agent of a network's links, over its Unix socket. Methods block, with a bound."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError, UsageError
from holdfast.cluster.network import ground

TIMEOUT_S: Final = 15.0  # nft has ten
LOOK_S: Final = 1.5  # of who shows links to somebody, beside other things
ANSWER_BYTES_MAX: Final = 64 << 20
LOOKS: Final = frozenset({"status", "first-bytes"})  # requests that change nothing
_ATTEMPTS: Final = 2


class Links:
    """The links of the network in one directory.

    Names are places (a node by its id, `client-a`, `host`), zones, and the groups `brokers`,
    `controllers`, `clients`, `all`. Changes hold when the call returns, and return the links that
    they changed as (from, to). UsageError: it can't be done as it was said.
    """

    def __init__(self, directory: Path, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s`: how long the agent is waited for, in all."""
        self._directory, self._timeout_s = directory, timeout_s
        # Between whom (who dialled, whom) the last change reset connections so as to be in force:
        # those that a heal had left in the relay, and whose packets are to be lost or reordered.
        self.reset: list[tuple[str, str]] = []

    def within(self, timeout_s: float) -> Links:
        """Return the same links, of an agent that is waited for so long."""
        return Links(self._directory, timeout_s)

    def cut(
        self, a: str, b: str, *, one_way: bool = False, reset: bool = False
    ) -> list[tuple[str, str]]:
        """Let nothing pass between A and B; with `one_way`, nothing that A sends to B.

        With `reset` who sends TCP is answered with an RST; otherwise packets vanish.
        """
        return self.change({"do": "cut", "a": a, "b": b, "one_way": one_way, "reset": reset})

    def isolate(self, name: str, *, reset: bool = False) -> list[tuple[str, str]]:
        """Cut a node, zone or group from all others but the observer."""
        return self.change({"do": "isolate", "a": name, "reset": reset})

    def heal(
        self, a: str | None = None, b: str | None = None, *, watch: bool = False
    ) -> list[tuple[str, str]]:
        """Make links whole: between A and B, all of A, or all there are.

        With `watch` it is measured from then on when the first byte passes (`first_bytes`).
        """
        return self.change({"do": "heal", "a": a, "b": b, "watch": watch})

    def hold(
        self, faults: Sequence[Mapping[str, Any]], *, watch: bool = False
    ) -> list[tuple[str, str]]:
        """Let these faults be all that is wrong with links, in one step.

        Each is a request (`link_requests`) that cuts, isolates, loses or slows. What one of them
        holds, and was so before, is never whole in between. Swallowed answers stay as they are.
        `watch` as with `heal`.
        """
        return self.change({"do": "hold", "faults": [*faults], "watch": watch})

    def lose(self, a: str, b: str, share: str, *, one_way: bool = False) -> list[tuple[str, str]]:
        """Let a share of packets vanish, such as `5%`, each direction by itself."""
        return self.change({"do": "lose", "a": a, "b": b, "share": share, "one_way": one_way})

    def slow(
        self,
        a: str,
        b: str,
        *,
        latency: str | None = None,
        jitter: str | None = None,
        rate: str | None = None,
        reorder: str | None = None,
        one_way: bool = False,
    ) -> list[tuple[str, str]]:
        """Delay packets (`200ms`, give or take `50ms`), and let so much pass (`1MB/s`).

        `reorder`: a share of packets that don't wait, and come before others.
        """
        how = {"latency": latency, "jitter": jitter, "rate": rate, "reorder": reorder}
        return self.change({"do": "slow", "a": a, "b": b, "one_way": one_way, **how})

    def drop_responses(
        self, client: str, node: str, api: str, *, count: int = 1, close: bool = False
    ) -> list[tuple[str, str]]:
        """Swallow so many answers of a node to a client, such as those to `Produce`.

        The connection stays open then, and silent; with `close` it is closed. Connections that
        there are between the two are reset first.
        """
        words = {"a": client, "b": node, "api": api, "count": count, "close": close}
        return self.change({"do": "drop-responses", **words})

    def status(self) -> dict[str, Any]:
        """Return what is wrong with which link, and what was dropped (`link_requests.status`)."""
        return self._ask({"do": "status"})

    def first_bytes(self) -> list[dict[str, Any]]:
        """Return of each heal that was watched, in order, when TCP's first byte passed the link.

        A heal has `from`, `to`, `after_s` (None: nothing came yet) and `cut_again`. Where proxies
        stand in for the network there are none. To wait costs a rule on every packet until each
        link has spoken: whoever watches asks now and then, which ends it.
        """
        return list(self._ask({"do": "first-bytes"})["links"])

    def change(self, request: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Do what a request says (`link_requests`)."""
        said = self._ask(request)
        self.reset = [(client, node) for client, node in said.get("reset", ())]
        return [(source, target) for source, target in said["changed"]]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request. One whose answer was lost is sent again: its id makes it be done once.

        It says until when it counts. An agent that comes to it later does nothing: nobody waits
        for that any more, and a change would surprise whoever was told that there is no answer.
        """
        until_s = time.monotonic() + self._timeout_s
        values = {**request, "id": os.urandom(16).hex(), "until_s": until_s}
        line = json.dumps(values).encode() + b"\n"
        reached = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._connected(until_s) as agent:
                    reached = True
                    answer = json.loads(_exchange(agent, line, until_s))
                break
            except (OSError, ValueError) as error:
                if attempt == _ATTEMPTS or time.monotonic() >= until_s:
                    raise self._unanswered(error, request, reached=reached) from None
        if "error" in answer:
            raise (UsageError if answer["usage"] else ClusterError)(answer["error"])
        assert isinstance(answer, dict)
        return answer

    @contextmanager
    def _connected(self, until_s: float) -> Iterator[socket.socket]:
        """Give a connection to the agent, however long the path of its socket is. OSError."""
        folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
                agent.settimeout(_left_s(until_s))
                agent.connect(f"/proc/self/fd/{folder}/{ground.SOCKET}")
                yield agent
        finally:
            os.close(folder)

    def _unanswered(
        self, error: Exception, request: Mapping[str, Any], *, reached: bool
    ) -> ClusterError:
        """Return what to say of a request without an answer. `reached`: the agent may have it."""
        with suppress(ground.StandInError):
            found = ground.open_network(self._directory)  # which says so if there is none any more
            if not found.servants:  # they are written down when all of them serve
                return ClusterError(
                    "The network is just being made: wait until `holdfast up` says that the "
                    "cluster is ready."
                )
        if request.get("do") in LOOKS:
            left = "so nobody knows which links are broken"
        elif reached:
            left = (
                f"so what was asked for ({request.get('do')}) may be in force, or may come into "
                "force yet: `holdfast status --links` tells once it answers"
            )
        else:
            left = "and they stay as they are"
        tail = processes.log_tail(self._directory / ground.LOG)
        return ClusterError(
            f"The agent of the network's links does not answer ({error}), {left}. `holdfast "
            f"status` says what has become of it; `holdfast down` and `holdfast up` start all "
            f"anew. {tail}".rstrip()
        )


def _exchange(agent: socket.socket, line: bytes, until_s: float) -> bytes:
    """Send a line and return the one that answers it. OSError: none came in time, or whole."""
    agent.sendall(line)
    received = bytearray()
    while not received.endswith(b"\n"):
        agent.settimeout(_left_s(until_s))
        part = agent.recv(1 << 16)
        if not part or len(received) > ANSWER_BYTES_MAX:
            raise ConnectionResetError("it ended in the middle of an answer")
        received += part
    return bytes(received)


def _left_s(until_s: float) -> float:
    """Return how long may still be waited. TimeoutError: no more."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
