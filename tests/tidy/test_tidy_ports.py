"""The node reaches the world through its ports only.

Goal: what the simulator runs is all that there is. Method: look through the source of `log`,
`core` and `node` for every import and call by which code gets at a clock, chance, a file, a socket
or a thread without asking a port.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
FOLDERS = ("core", "log", "node")

# Timers of the loop are virtual in a simulation; these are not.
BANNED_MODULES = {
    "concurrent", "datetime", "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl",
    "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
BANNED_NAMES = {"open", "input", "id", "hash"}  # the last two differ from run to run
BANNED_ATTRIBUTES = {
    "add_reader", "add_signal_handler", "add_writer", "connect_accepted_socket",
    "create_connection", "create_datagram_endpoint", "create_server", "create_subprocess_exec",
    "create_subprocess_shell", "getaddrinfo", "open_connection", "open_unix_connection",
    "run_in_executor", "sock_accept", "sock_connect", "sock_recv", "sock_sendall", "start_server",
    "start_unix_server", "to_thread",
}  # fmt: skip
# The one place that picks the real ports, and has a command line and signals.
ALLOWED = {"node/__main__.py": {"signal", "socket", "open", "add_signal_handler"}}


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((SOURCE / folder).rglob("*.py"))


def reached(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each way around the ports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
            yield from ((node.lineno, name) for name in names if name in BANNED_MODULES)
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").partition(".")[0]
            if name in BANNED_MODULES:
                yield node.lineno, name
            if (node.module or "").startswith("holdfast.runtime.real"):
                yield node.lineno, "holdfast.runtime.real"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in BANNED_NAMES:
                yield node.lineno, node.func.id
        elif isinstance(node, ast.Attribute) and node.attr in BANNED_ATTRIBUTES:
            yield node.lineno, node.attr


@pytest.mark.parametrize("path", list(files()), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_reaches_around_the_ports(path: Path) -> None:
    allowed = ALLOWED.get(str(path.relative_to(SOURCE)), set())
    if allowed:
        allowed = allowed | {"holdfast.runtime.real"}
    found = [
        f"line {line}: {name}"
        for line, name in reached(ast.parse(path.read_text()))
        if name not in allowed
    ]
    assert not found, "use the ports of the Runtime that is passed down"


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os.path",
        "def f():\n    from random import choice",
        "from concurrent.futures import ThreadPoolExecutor",
        "data = open('x').read()",
        "asyncio.to_thread(f)",
        "loop.run_in_executor(None, f)",
        "await asyncio.open_connection('h', 1)",
        "from holdfast.runtime.real import RealDisk",
        "order = hash(name)",
    ],
)
def test_each_way_around_is_seen(code: str) -> None:
    assert list(
        reached(ast.parse(f"async def main():\n    {code.replace(chr(10), chr(10) + '    ')}"))
    )
