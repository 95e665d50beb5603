"""Goal: a network is there or it is not, whatever ends whoever makes it.

Method: makers that are killed at random moments of the set-up and behind it; networks that are to
stay, and holders that are killed. Processes are found by a mark in their environment.
"""

from __future__ import annotations

import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.network.conftest import MARK, marked_processes, nothing_is_left, small_plan
from tests.cluster.network.talkers import RefusedError, Talker

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError, UsageError
from holdfast.cluster.network import ground, possible
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.entering import Holder
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.ports import free_ports

pytestmark = pytest.mark.process

MAKER = """
import sys
from pathlib import Path
from tests.cluster.network.conftest import small_plan
from holdfast.cluster.network import ground
print("begins", flush=True)
ground.make(Path(sys.argv[1]), small_plan(), settle=sys.argv[2:] == ["settle"])
print("stands", flush=True)
sys.stdin.read()
"""
FEW_FILES = 128
IN_VAIN_S = 0.3
LONG_S = 30.0
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _only_where_it_can_be(possibility: Possibility) -> None:
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of which nothing is left at the end, nor of the processes that had its mark."""
    where = tmp_path / "network"
    where.mkdir()
    monkeypatch.setenv(MARK, str(where))
    yield where
    nothing_is_left(str(where), where)


def maker(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", MAKER, str(folder), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT)


# One process that has imported everything, and becomes a maker over and over: it is told when.
MAKERS = """
import os, sys
from pathlib import Path
from tests.cluster.network.conftest import MARK, small_plan
from holdfast.cluster.network import ground
from holdfast.cluster.ports import free_ports
os.environ[MARK] = sys.argv[1]  # of those that it starts, and not its own
folder = Path(sys.argv[1])
doors = {port: "10.1.0.1:9092" for port in free_ports(1)}
for line in sys.stdin:
    made = os.fork()
    if made == 0:
        os.close(0)
        ground.make(folder, small_plan(), doors=doors)
        print("stands", flush=True)
        while True: os.wait()
    print(made, flush=True)
    os.waitpid(made, 0)
"""


@pytest.mark.slow
def test_killed_makers_leave_nothing(folder: Path) -> None:
    """Twenty moments: a share of the time that one takes which is left alone."""
    randomness = random.Random(16)
    command = [sys.executable, "-c", MAKERS, str(folder)]
    plain = {name: value for name, value in os.environ.items() if name != MARK}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=plain) as makers:
        assert makers.stdin
        assert makers.stdout
        whole_s = 0.0
        for moment in range(21):
            makers.stdin.write(b"\n")
            makers.stdin.flush()
            while (line := makers.stdout.readline()) == b"stands\n":
                pass  # of the one before, which was killed behind its end
            maker = int(line)
            begun = time.monotonic()
            stands = [makers.stdout] if moment == 0 else []
            bound_s = 60.0 if moment == 0 else randomness.uniform(0, 1.1 * whole_s)
            if select.select(stands, [], [], bound_s)[0]:  # of the first, when it stands
                assert makers.stdout.readline() == b"stands\n"
                whole_s = time.monotonic() - begun
            os.kill(maker, 9)
            nothing_is_left(str(folder), folder)
        makers.kill()


@pytest.mark.slow
def test_what_is_settled_stays_until_it_is_ended(folder: Path) -> None:
    with maker(folder, "settle") as gone:
        assert gone.stdout
        assert [gone.stdout.readline() for _ in range(2)] == [b"begins\n", b"stands\n"]
        gone.kill()
    network = ground.open_network(folder)
    assert len(Links(folder).cut("0", "1")) == 2
    with pytest.raises(ClusterError, match="has a network already"):
        ground.make(folder, small_plan())
    description = folder / ground.DESCRIPTION
    told = description.read_text()
    description.unlink()  # as if that one were in the middle of being made
    with pytest.raises(ground.GroundError, match="another network is made or stands there"):
        ground.make(folder, small_plan())
    description.write_text("{}")  # as one of which nobody knows who made it
    with pytest.raises(ground.GroundError, match="another network is made or stands there"):
        ground.make(folder, small_plan())
    description.write_text(told)
    assert len(Links(folder).heal()) == 2, "who was refused took nothing away"
    network.end()
    with pytest.raises(ClusterError, match="no network"):
        ground.open_network(folder)


# It stands still when the namespaces are there, and who serves them is not.
HALFWAY = MAKER.replace(
    'print("begins", flush=True)',
    """
import os, signal
begin = ground.start_servant
def start_servant(*words, **options):
    os.kill(os.getpid(), signal.SIGSTOP)
    return begin(*words, **options)
ground.start_servant = start_servant
""",
)


@pytest.mark.slow
def test_who_asks_while_a_network_is_made_is_told_to_wait(folder: Path) -> None:
    """Seen to fail: the advice was to take the cluster down, which was just coming up."""
    command = [sys.executable, "-c", HALFWAY, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as making:
        assert making.stdin
        assert making.stdout
        assert os.WIFSTOPPED(os.waitpid(making.pid, os.WUNTRACED)[1])
        try:
            with pytest.raises(ClusterError, match="just being made: wait until") as asked:
                Links(folder).cut("0", "1")
            assert "down" not in str(asked.value)
        finally:
            making.send_signal(signal.SIGCONT)
        assert making.stdout.readline() == b"stands\n"
        assert len(Links(folder).cut("0", "1")) == 2
        making.stdin.close()


@pytest.mark.slow
def test_a_holder_that_was_killed_is_cleared_away(folder: Path) -> None:
    network = ground.make(folder, small_plan())
    os.kill(network.holder.pid, 9)
    processes.wait_until(
        lambda: not marked_processes(str(folder)), timeout_s=30, what="the agent to follow"
    )
    with pytest.raises(ClusterError, match="has gone: process"):
        ground.open_network(folder)
    entered = subprocess.run(network.prefix("0"), capture_output=True, check=False)
    assert b"the network has gone: its holder" in entered.stderr
    with ground.make(folder, small_plan()):
        assert len(Links(folder).cut("0", "1")) == 2
    network.end()


@pytest.mark.slow
def test_an_agent_that_ends_late_takes_nothing_from_the_next_network(folder: Path) -> None:
    """Seen to fail: it removed the next one's socket as its own."""
    before = ground.make(folder, small_plan())
    (agent,) = before.servants
    os.kill(agent.pid, signal.SIGSTOP)
    os.kill(before.holder.pid, signal.SIGKILL)
    processes.wait_until(lambda: not before.stands(), timeout_s=30, what="the holder's end")
    with ground.make(folder, small_plan()):
        os.kill(agent.pid, signal.SIGCONT)
        processes.wait_until(
            lambda: processes.state(agent.pid, agent.process) is processes.State.DEAD,
            timeout_s=30,
            what="the agent's end",
        )
        assert len(Links(folder).cut("0", "1")) == 2
        before.end()
        assert len(Links(folder).heal()) == 2


@pytest.mark.slow
def test_a_holder_s_pid_given_away_is_not_entered(folder: Path) -> None:
    """The pid of a process that holds no network, with another one's start."""
    with ground.make(folder, small_plan()) as network:
        holder = network.holder
        network.holder = Holder(
            pid=os.getpid(), process=holder.process, user=False, descriptors=holder.descriptors
        )
        entered = subprocess.run([*network.prefix("0"), "true"], capture_output=True, check=False)
        network.holder = holder
    assert entered.returncode == 126
    assert b"the network has gone" in entered.stderr


@pytest.mark.slow
def test_who_enters_keeps_its_pid_and_sees_the_names(folder: Path) -> None:
    with ground.make(folder, small_plan()) as network:
        command = [*network.prefix("1"), "sh", "-c", "echo $$; cat /etc/hosts /etc/resolv.conf"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as entered:
            assert entered.stdout
            pid, *hosts = entered.stdout.read().splitlines()
        assert int(pid) == entered.pid
        assert "10.1.0.1 node-0" in hosts
        assert hosts[-1] == "10.4.0.1 observer", "and no name server"
        with pytest.raises(UsageError, match="no place '7'"):
            network.prefix("7")
        missing = subprocess.run(
            [*network.prefix("1"), "/no/such"], capture_output=True, check=False
        )
        assert (missing.returncode, missing.stderr) == (
            127,
            b"enter: /no/such: No such file or directory\n",
        )


def test_a_missing_program_is_named_with_its_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "nft" else name)
    with pytest.raises(ground.GroundError, match=r"install Debian's nftables \(nft\)"):
        ground.make(folder, small_plan())


def test_what_the_kernel_refuses_is_said(folder: Path) -> None:
    """A place whose address is none: `ip` refuses, in the middle of the set-up."""
    plan = small_plan()
    broken = Plan((*plan.places[:1], replace(plan.places[1], address="x")))
    with pytest.raises(ground.GroundError, match=r"No network can be made here: .*ip: .*x"):
        ground.make(folder, broken)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root is unprivileged in every test")
def test_who_is_not_root_has_a_network_as_well() -> None:
    """All of it: namespaces, a rule, packets; as the user that owns nothing."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    script = "from holdfast.cluster.network import possible; print(repr(possible.look({})))"
    command = [*words, sys.executable, "-B", "-P", "-c", script]
    if subprocess.run([*command[:-1], "import holdfast"], check=False).returncode != 0:
        pytest.skip("another user can't read this environment")
    found = subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=True, env={"PATH": os.defpath}
    )
    assert found.stdout == "Possibility(how='namespaces', reason='')\n"


@pytest.mark.slow
def test_where_namespaces_are_denied_that_is_said() -> None:
    """A user namespace that allows no others, and a process in it without any capability."""
    script = "from holdfast.cluster.network import possible; print(possible.look({}))"
    denied = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "
    denied += f'--inh-caps=-all {sys.executable} -B -P -c "{script}"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", denied]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("No network can be made here: unshare: unshare failed: ")
    assert "Links are broken by proxies between the nodes instead." in found.stdout


def fill(talker: Talker, name: str) -> None:
    """Send until nothing is taken any more. RefusedError: that is so."""
    for _ in range(100):
        talker.do("send", name=name, text="x" * (1 << 20))


@pytest.mark.slow
def test_a_door_ends_with_its_network_though_somebody_does_not_read(folder: Path) -> None:
    """Seen to fail: it stayed until that client went on, or ended."""
    (port,) = free_ports(1)
    network = ground.make(folder, small_plan(), doors={port: "10.1.0.1:9092"})
    with Talker(network.prefix("0")) as node, Talker([]) as client:
        node.do("listen", name="port", port=9092)
        client.do("connect", name="node", address="127.0.0.1", port=port, timeout=LONG_S)
        node.do("accept", name="client", listener="port", timeout=LONG_S)
        with pytest.raises(RefusedError, match="ETIMEDOUT"):
            node.do("receive", name="client", timeout=IN_VAIN_S)  # from here on it waits no longer
        with pytest.raises(RefusedError, match="ETIMEDOUT"):
            fill(node, "client")
        os.kill(network.holder.pid, signal.SIGKILL)
        _, door = network.servants
        processes.wait_until(
            lambda: processes.state(door.pid, door.process) is processes.State.DEAD,
            timeout_s=LONG_S,
            what="the door's end",
        )
    ground.clear(folder)


@pytest.mark.slow
def test_a_node_that_takes_nothing_in_keeps_no_client_from_the_others(folder: Path) -> None:
    """Seen to fail: with the usual limit on open files, 500 connections to a node that stood still
    were all that there could be, and each one to a node that was well was reset.

    Method: a smaller limit, and more connections than that has room for; none of them ends.
    """
    ports = free_ports(2)
    targets = ("10.1.0.1:9092", "10.1.0.2:9092")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, limits[1]))
    try:
        network = ground.make(folder, small_plan(), doors=dict(zip(ports, targets, strict=True)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with network, ExitStack() as stack:
        talkers = [stack.enter_context(Talker(network.prefix(name))) for name in ("0", "1")]
        for talker in talkers:
            talker.do("listen", name="port", port=9092)
        client = stack.enter_context(Talker([]))
        for number in range(FEW_FILES // 2):
            dialled = {"address": "127.0.0.1", "port": ports[0], "timeout": LONG_S}
            client.do("connect", name=str(number), **dialled)
            talkers[0].do("accept", name=str(number), listener="port", timeout=LONG_S)
        client.do("connect", name="well", address="127.0.0.1", port=ports[1], timeout=LONG_S)
        talkers[1].do("accept", name="client", listener="port", timeout=LONG_S)
        client.do("send", name="well", text="heard")
        assert talkers[1].do("receive", name="client", timeout=LONG_S) == "heard"


@pytest.mark.slow
def test_files_of_any_number_are_read() -> None:
    """Seen to fail: who had 1024 files open could make no network, and slow no link."""
    script = """
import fcntl, os, resource
from holdfast.cluster.network import ground
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
reading, writing = os.pipe()
os.write(writing, b"line\\n")
print(ground.read_line(fcntl.fcntl(reading, fcntl.F_DUPFD, 1024), 30.0))
"""
    command = [sys.executable, "-P", "-c", script]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "b'line\\n'\n"
