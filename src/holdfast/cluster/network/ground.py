"""Makes, opens and ends the network of one directory: its namespaces, and who serves them.

The maker's side. `holder.py` makes the namespaces and holds them; the agent keeps the links; doors
let in what comes from outside. All or nothing: who makes a network holds its lifeline until all of
it stands, and a maker that ends before leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal as signals
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.cluster import own_code, processes
from holdfast.cluster.layout import ClusterError, WaitError
from holdfast.cluster.network import addresses, entering
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.entering import Holder
from holdfast.cluster.network.holder import claim
from holdfast.cluster.processes import State

DESCRIPTION: Final = "network.json"
SOCKET: Final = "network.sock"
LOG: Final = "network.log"
HOSTS, NO_RESOLVER = "hosts", "resolv.conf"
FILES: Final = (DESCRIPTION, HOSTS, NO_RESOLVER, SOCKET, LOG)
FORMAT: Final = 1
MAKE_TIMEOUT_S: Final = 30.0
END_TIMEOUT_S: Final = 10.0
PACKAGES: Final[Mapping[str, str]] = {
    "ip": "iproute2",
    "ss": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_SCRIPT: Final = str(Path(__file__).with_name("holder.py"))
_CAP_SYS_ADMIN: Final = 21
# In each namespace. Nothing here speaks IPv6, and its own packets would only be noise. A packet
# that comes back from the switch does so on another device than its source is behind.
_SETTINGS: Final[Mapping[str, str]] = {
    "/proc/sys/net/ipv4/ip_forward": "1",
    "/proc/sys/net/ipv4/conf/all/rp_filter": "0",
    "/proc/sys/net/ipv4/conf/default/rp_filter": "0",
    "/proc/sys/net/ipv6/conf/all/disable_ipv6": "1",
    "/proc/sys/net/ipv6/conf/default/disable_ipv6": "1",
}


class GroundError(ClusterError):
    """No network can be made here; the text says what is missing."""


class StandInError(ClusterError):
    """Proxies stand in for a network (`proxy_ground`): nothing can be entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servant:
    """A process that serves a network: the agent, or the doors."""

    name: str
    pid: int
    process: str


@dataclass(slots=True, kw_only=True)
class Network(AbstractContextManager["Network"]):
    """A network that stands. As a context manager it ends at the end."""

    directory: Path
    plan: Plan
    holder: Holder
    servants: tuple[Servant, ...] = ()
    lifeline: int | None = field(default=None, repr=False)  # None: it is settled, or another's

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def socket(self) -> Path:
        """Where the links' agent is asked (`link_calls`)."""
        return self.directory / SOCKET

    def prefix(self, place: str) -> list[str]:
        """Return the words that, put before a command, run it in a place."""
        if place != addresses.ROUTER:
            place = self.plan.place(place).beside or place
        return entering.prefix(self.holder, place, self.directory)

    def stands(self) -> bool:
        return processes.state(self.holder.pid, self.holder.process) is not State.DEAD

    def ended(self) -> str | None:
        """Return which of its processes has ended; None: all of it stands."""
        if not self.stands():
            return f"its holder, process {self.holder.pid}"
        for each in self.servants:
            if processes.state(each.pid, each.process) is State.DEAD:
                return f"its {each.name}, process {each.pid}"
        return None

    def end(self, *, timeout_s: float = END_TIMEOUT_S) -> None:
        """End it, and return when its processes have gone. Whoever is in a place stays, cut off."""
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None
        everyone = [(self.holder.pid, self.holder.process)]
        everyone += [(each.pid, each.process) for each in self.servants]
        processes.send(*everyone[0], signals.SIGTERM)

        def gone() -> bool:
            return all(processes.state(*each) is State.DEAD for each in everyone)

        with suppress(WaitError):
            processes.wait_until(gone, timeout_s=timeout_s, what="the network to end")
            return
        for each in everyone:
            processes.send(*each, signals.SIGKILL)
        processes.wait_until(gone, timeout_s=timeout_s, what="the network's processes to end")
        clear(self.directory)


def make(
    directory: Path,
    plan: Plan,
    *,
    doors: Mapping[int, str] | None = None,
    watch: Mapping[int, str] | None = None,
    settle: bool = False,
) -> Network:
    """Make the network of this plan, with its links' agent; return when it is in force.

    It ends with this process, however that ends, unless it is to `settle`: then it stays until
    somebody ends it. `doors`: ports of 127.0.0.1 outside, and for each the `address:port` inside
    to which it leads, from the place `host`; `watch`: the same from `observer`. GroundError: it
    can't be had here; ClusterError: there is one already.
    """
    directory = directory.absolute()
    if _is_alive(directory):
        raise ClusterError(f"{directory} has a network already, and it stands.")
    tools = find_tools()
    user = not _has_admin()
    pid, lifeline, answers = _start_holder(tools, user)
    try:
        talk = _Talk(pid, lifeline, answers)
        said = talk.ask(_task(directory, plan, tools))
        process = processes.identify(pid)
        if process is None:
            raise GroundError("The network's holder ended as soon as it stood.")  # noqa: TRY301
        holder = Holder(pid=pid, process=process, user=user, descriptors=said["descriptors"])
        network = Network(directory=directory, plan=plan, holder=holder, lifeline=lifeline)
        talk.ask({"write": {DESCRIPTION: _description(network)}})
        network.servants = (start_servant(network, "links.link_agent", [str(directory)]),)
        for place, ways in ((addresses.HOST, doors), (addresses.OBSERVER, watch)):
            if ways:
                leads = [f"{port}={target}" for port, target in ways.items()]
                words = [str(directory), place, *leads]
                network.servants += (start_servant(network, "relays.door", words, outside=True),)
        talk.ask({"write": {DESCRIPTION: _description(network)}})
        if settle:
            talk.ask({"settle": True})
            os.close(lifeline)
            network.lifeline = None
    except BaseException:  # Ctrl-C, too: nothing may stay of half a network
        with suppress(OSError):
            os.close(lifeline)
        _await_end(pid)
        raise
    finally:
        os.close(answers)
    return network


def open_network(directory: Path) -> Network:
    """Open the network of a directory. ClusterError when none stands there, or only proxies do."""
    path = directory.absolute() / DESCRIPTION
    try:
        network = _from_description(path)
    except FileNotFoundError:
        raise ClusterError(f"There is no network in {directory} (no {DESCRIPTION}).") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"{path} can't be read as a network's: {error}.") from None
    if not network.stands():
        raise ClusterError(
            f"The network of {directory} has gone: process {network.holder.pid}, which held it, "
            "has ended. `holdfast down` ends what is left of the cluster, `holdfast up` starts it "
            "again."
        )
    return network


class _Talk:
    """Orders to a holder, one line each, and its answers."""

    def __init__(self, pid: int, lifeline: int, answers: int) -> None:
        self._pid, self._lifeline, self._answers = pid, lifeline, answers
        self._received = b""

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Give an order and return the answer. GroundError has what the holder said instead."""
        with suppress(BrokenPipeError):  # what it said before it ended is read below
            write_all(self._lifeline, json.dumps(order).encode() + b"\n")
        line = read_line(self._answers, MAKE_TIMEOUT_S)
        try:
            answer = json.loads(line)
        except ValueError:
            text = line.decode(errors="replace").strip()
            raise GroundError(f"No network can be made here: {text or 'no answer'}.") from None
        if "error" in answer:
            raise GroundError(f"No network can be made here: {answer['error']}.")
        assert isinstance(answer, dict)
        return answer


def read_line(file: int, timeout_s: float) -> bytes:
    """Return the next line of a pipe, or what came before it ended or the time was over."""
    received = b""
    deadline = time.monotonic() + timeout_s
    readable = select.poll()  # `select` knows no file from 1024 on
    readable.register(file, select.POLLIN)
    while not received.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not readable.poll(left * 1000):
            return received + b" (no answer in time)"
        part = os.read(file, 1 << 16)
        if not part:
            break
        received += part
    return received


def find_tools() -> dict[str, str]:
    """Return where the programs are that a network needs. GroundError names the packages."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    found = {name: shutil.which(name, path=path) for name in PACKAGES}
    missing = [name for name, where in found.items() if where is None]
    if missing:
        packages = ", ".join(f"{PACKAGES[name]} ({name})" for name in missing)
        raise GroundError(f"No network can be made here: install Debian's {packages}.")
    return {name: where for name, where in found.items() if where is not None}


def _has_admin() -> bool:
    """Say whether we may make a network namespace without a user namespace around it."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _start_holder(tools: Mapping[str, str], user: bool) -> tuple[int, int, int]:
    """Start the holder; return its pid, our end of its lifeline, and where it answers."""
    words = [tools["unshare"], *(["--map-root-user"] if user else []), "--net"]
    words += entering.python(_SCRIPT)
    orders, lifeline = os.pipe()
    answers, answering = os.pipe()
    try:
        pid = spawn(words, stdin=orders, stdout=answering, stderr=answering)
    except BaseException:
        os.close(lifeline)
        os.close(answers)
        raise
    finally:
        os.close(orders)
        os.close(answering)
    return pid, lifeline, answers


def _task(directory: Path, plan: Plan, tools: Mapping[str, str]) -> dict[str, Any]:
    # The holder knows best by which path its descriptors are found, and puts that in.
    paths = [f"@{place.name}@" for place in plan.namespaces]
    return {
        "directory": str(directory),
        "ip": tools["ip"],
        "files": {HOSTS: addresses.hosts_text(plan), NO_RESOLVER: ""},
        "others": [DESCRIPTION, SOCKET, LOG],
        "settings": _SETTINGS,
        "router": addresses.router_commands(plan, paths),
        "places": [
            {
                "name": place.name,
                "commands": addresses.place_commands(place, plan.seconds(place)),
            }
            for place in plan.namespaces
        ],
    }


def start_servant(
    network: Network, module: str, words: Sequence[str], *, outside: bool = False
) -> Servant:
    """Start a process that serves the network, and return when it says that it does.

    It watches the holder by itself, and ends when that does.
    """
    entered = [] if outside else entering.prefix(network.holder, addresses.ROUTER, None)
    command = [*entered, sys.executable, "-P", "-m", f"{__package__}.{module}", *words]
    ready, saying = os.pipe()
    # Opened here, not by the child: one that comes to it late would make the file anew after the
    # holder has removed it.
    log = os.open(network.directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        pid = spawn(command, stdin=null, stdout=saying, stderr=log)
    finally:
        for file in (saying, log, null):
            os.close(file)
    try:
        said = read_line(ready, MAKE_TIMEOUT_S)
    finally:
        os.close(ready)
    process = processes.identify(pid)
    if said != b"ready\n" or process is None:
        tail = processes.log_tail(network.directory / LOG)
        raise GroundError(f"The network's {module} did not begin: {tail or said.decode()}")
    return Servant(name=module, pid=pid, process=process)


def spawn(words: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> int:
    """Start a process in a session of its own with these three files and no others of ours."""
    return os.posix_spawn(
        words[0],
        list(words),
        {**os.environ, **own_code.environment()},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signals.SIGINT, signals.SIGTERM, signals.SIGPIPE),
    )


def _description(network: Network) -> str:
    holder = network.holder
    values = {
        "format": FORMAT,
        "holder": {
            "pid": holder.pid,
            "process": holder.process,
            "user": holder.user,
            "descriptors": holder.descriptors,
        },
        "servants": [
            {"name": each.name, "pid": each.pid, "process": each.process}
            for each in network.servants
        ],
        "places": addresses.to_json(network.plan),
    }
    return json.dumps(values, indent=2) + "\n"


def _from_description(path: Path) -> Network:
    values = json.loads(path.read_bytes())
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']} is not known; this version writes {FORMAT}")
    if "proxies" in values:
        raise StandInError(f"Proxies stand in for a network in {path.parent}: it has no places.")
    return Network(
        directory=path.parent,
        plan=addresses.from_json(values["places"]),
        holder=Holder(**values["holder"]),
        servants=tuple(Servant(**each) for each in values["servants"]),
    )


def _is_alive(directory: Path) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError, StandInError):
        return _from_description(directory / DESCRIPTION).stands()
    return False


def clear(directory: Path) -> None:
    """Remove what a network left whose holder was killed; nothing of one that stands or is made."""
    with suppress(OSError):
        claimed = claim(str(directory))
        try:
            remove_files(directory)
        finally:
            os.close(claimed)


def remove_files(directory: Path) -> None:
    """Remove all files of a network from a directory that the caller has claimed."""
    for name in FILES:
        (directory / name).unlink(missing_ok=True)
        (directory / f"{name}.new").unlink(missing_ok=True)


def _await_end(pid: int) -> None:
    """Wait until a holder that lost its lifeline has ended, and reap it."""
    process = processes.identify(pid)
    with suppress(WaitError):
        processes.wait_until(
            lambda: processes.state(pid, process) is State.DEAD,
            timeout_s=END_TIMEOUT_S,
            what="the network's holder to end",
        )
        return
    processes.send(pid, process, signals.SIGKILL)


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
