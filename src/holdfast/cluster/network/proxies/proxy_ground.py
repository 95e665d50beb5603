"""Makes and ends the relays that stand in for a network where namespaces are denied."""

from __future__ import annotations

import json
import os
import signal as signals
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError, WaitError
from holdfast.cluster.network import addresses, ground
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.processes import State

# Of each node, the ports that it advertises, and beside each the one that it listens on.
Listeners = Mapping[str, Sequence[tuple[int, int]]]


@dataclass(slots=True, kw_only=True)
class Proxies(AbstractContextManager["Proxies"]):
    """Relays that stand. As a context manager they end at the end.

    `plan` has loopback addresses: a node listens on its own, and dials from there.
    """

    directory: Path
    plan: Plan
    pid: int
    process: str
    lifeline: int | None = field(default=None, repr=False)  # None: they are settled

    def __exit__(self, *_: object) -> None:
        self.end()

    def ended(self) -> str | None:
        """Return which of their processes has ended; None: they stand."""
        dead = processes.state(self.pid, self.process) is State.DEAD
        return f"its proxies, process {self.pid}" if dead else None

    def end(self, *, timeout_s: float = ground.END_TIMEOUT_S) -> None:
        """End them, and return when their process has gone."""
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None
        processes.send(self.pid, self.process, signals.SIGTERM)

        def gone() -> bool:
            return processes.state(self.pid, self.process) is State.DEAD

        with suppress(WaitError):
            processes.wait_until(gone, timeout_s=timeout_s, what="the proxies to end")
            return
        processes.send(self.pid, self.process, signals.SIGKILL)
        processes.wait_until(gone, timeout_s=timeout_s, what="the proxies to end")
        ground.clear(self.directory)


def open_proxies(directory: Path) -> Proxies:
    """Open the proxies of a directory. ClusterError when none stand there."""
    directory = directory.absolute()
    try:
        values = json.loads((directory / ground.DESCRIPTION).read_bytes())
        found = Proxies(
            directory=directory, plan=addresses.from_json(values["places"]), **values["proxies"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"There are no proxies in {directory}: {error}.") from None
    if processes.state(found.pid, found.process) is State.DEAD:
        raise ClusterError(
            f"The proxies of {directory} have gone: process {found.pid} has ended. `holdfast down` "
            "ends what is left of the cluster, `holdfast up` starts it again."
        )
    return found


def make(directory: Path, plan: Plan, listeners: Listeners, *, settle: bool = False) -> Proxies:
    """Put a relay on each of these listeners; return when they take connections.

    They end with this process, however that ends, unless they are to `settle`. ClusterError: a
    port is taken.
    """
    directory = directory.absolute()
    planned = addresses.on_loopback(plan)
    orders, lifeline = os.pipe()
    answers, answering = os.pipe()
    try:
        words = [sys.executable, "-P", "-m", f"{__package__}.pair_proxies", str(directory)]
        pid = ground.spawn(words, stdin=orders, stdout=answering, stderr=answering)
        task = {"places": addresses.to_json(planned), "listeners": listeners}
        with suppress(BrokenPipeError):  # what it said before it ended is read below
            ground.write_all(lifeline, json.dumps(task).encode() + b"\n")
        os.close(answering)
        answering = -1
        said = ground.read_line(answers, ground.MAKE_TIMEOUT_S)
        if said == b"ready\n" and settle:
            os.write(lifeline, b"settle\n")
            said = ground.read_line(answers, ground.MAKE_TIMEOUT_S)
        process = processes.identify(pid)
        if said not in {b"ready\n", b"settled\n"} or process is None:
            reason = said.decode().strip()
            raise ClusterError(f"No proxies can be had here: {reason}.")  # noqa: TRY301
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        for file in (orders, answers, *([] if answering < 0 else [answering])):
            os.close(file)
    if settle:
        os.close(lifeline)
    held = None if settle else lifeline
    return Proxies(directory=directory, plan=planned, pid=pid, process=process, lifeline=held)
