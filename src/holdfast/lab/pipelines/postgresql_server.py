"""A PostgreSQL server that is killed and started again. Its files are `lab.postgresql`'s.

A kill meets every process of it, so that none finishes what it was asked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.cluster.processes import wait_until
from holdfast.lab import postgresql
from holdfast.lab.pipelines.process_trees import below, is_alive
from holdfast.lab.pipelines.tables import refuse_without_spark

TIMEOUT_S = 120.0
MARKED_BY_NOBODY: Final[Mapping[str, str]] = {}


class PostgresqlServer:
    """One that runs already. Who has the context of `server` ends what this starts."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        refuse_without_spark()
        import sqlalchemy as sql  # noqa: PLC0415 - of an extra

        self.url = url
        self._environment = environment
        sockets = sql.make_url(url).query["host"]
        assert isinstance(sockets, str), "the URL names one folder of sockets"
        self._data = Path(sockets).parent / "data"
        self._owner = self._data.stat()
        self._command = Path(f"/proc/{self._pid()}/cmdline").read_bytes().split(b"\0")[:-1]
        self._process: subprocess.Popen[bytes] | None = None

    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def kill(self) -> None:
        """SIGKILL to all of it, the one first that would start others again."""
        server = self._pid()
        everybody = [server, *below(server)]
        for pid in everybody:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Ask for it, or its number stays in use, and the next one takes it for its rival.
        if self._process is not None:
            self._process.wait()
        else:
            with suppress(ChildProcessError):
                os.waitpid(server, 0)
        # It refuses to start while somebody of before has its memory.
        over = lambda: not any(map(is_alive, everybody))  # noqa: E731 - a condition
        wait_until(over, timeout_s=TIMEOUT_S, what="PostgreSQL to die")

    def start(self) -> None:
        """Start it as it was started, and wait until it has gone through its log."""
        self._process = subprocess.Popen(  # noqa: S603 - the program that ran before
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._environment},
            cwd="/",
            start_new_session=True,
            user=self._owner.st_uid,
            group=self._owner.st_gid,
            extra_groups=[],
        )
        wait_until(self._answers, timeout_s=TIMEOUT_S, what="PostgreSQL to start")

    def _answers(self) -> bool:
        import sqlalchemy as sql  # noqa: PLC0415 - as above

        engine = sql.create_engine(self.url, poolclass=sql.NullPool)
        with suppress(sql.exc.OperationalError), engine.connect():
            return True
        return False


@contextmanager
def running(environment: Mapping[str, str] = MARKED_BY_NOBODY) -> Iterator[PostgresqlServer]:
    """Run a server. ServerError: none is on this machine.

    With a run's `environment` its guard ends it when the run itself can't, killed by SIGKILL.
    """
    found = postgresql.programs()
    if found is None:
        raise postgresql.ServerError("PostgreSQL's server is not on this machine.")
    with ExitStack() as ending:
        url = ending.enter_context(postgresql.server(found, environment))
        server = PostgresqlServer(url, environment)
        ending.callback(server.kill)
        yield server
