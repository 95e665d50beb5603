"""A Redis server of our own, on a loopback port, that can be killed and started again.

Owns its folder's content and its process. With appendfsync always it loses nothing that it has
acknowledged, whenever it dies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Unreachable
from redis.retry import Retry

from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.lab.postgresql import ServerError

PROGRAM = "redis-server"
MISSING = "Redis's server is not on this machine (Debian: apt-get install redis-server)"
TIMEOUT_S = 60
SAFE = ("--appendonly", "yes", "--appendfsync", "always")


def program() -> str | None:
    return shutil.which(PROGRAM)


class RedisServer:
    """A child of this process: who makes one ends it.

    `environment` is added to ours: a run marks what it starts, so that its guard may end it.
    """

    def __init__(
        self, folder: Path, *settings: str, environment: Mapping[str, str] | None = None
    ) -> None:
        found = program()
        if found is None:
            raise ServerError(MISSING)
        (self.port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._log = folder / "log"
        self._environment = {**os.environ, **(environment or {})}
        self._command = [
            found, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder),
            "--save", "", "--daemonize", "no", *(settings or SAFE),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it has read what it wrote before."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the program that was found
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        wait_until(self._answers, timeout_s=TIMEOUT_S, what="Redis to start")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:  # its port was taken meanwhile, say
            said = self._log.read_text(errors="replace")
            raise ServerError(f"Redis ended with {self._process.returncode}: {said[-2_000:]}")
        with closing(Redis(port=self.port, retry=Retry(NoBackoff(), 0))) as client:
            try:
                return bool(client.ping())
            except Unreachable:  # also while it loads
                return False

    def kill(self) -> None:
        """SIGKILL: nothing is written any more."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def client(self) -> Redis:
        return Redis(port=self.port, retry=Retry(NoBackoff(), 0))
