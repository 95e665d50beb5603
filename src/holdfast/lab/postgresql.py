"""A PostgreSQL server of our own, on a Unix socket, for as long as it is wanted.

Owns its files and its process. It is run by an unprivileged user, since it refuses to run as root.
Its data need not outlive the machine: it isn't synced, which a kill of a client can't tell.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from holdfast.cluster.processes import wait_until

USER = "nobody"
PROGRAMS = ("initdb", "postgres", "pg_isready")
TIMEOUT_S = 60


class ServerError(Exception):
    """The server can't be run; the text says why."""


def programs() -> Path | None:
    """Return the folder of the server's programs: the newest of Debian's, or what PATH has."""
    for folder in [
        *newest_first(Path("/usr/lib/postgresql").glob("*/bin")),
        Path("/usr/local/bin"),
    ]:
        if all((folder / name).exists() for name in PROGRAMS):
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("postgres") else None


def newest_first(folders: Iterable[Path]) -> list[Path]:
    """Sort folders like `/usr/lib/postgresql/9.6/bin` by the version in their name."""

    def version(folder: Path) -> list[int]:
        return [int(part) for part in folder.parent.name.split(".") if part.isdecimal()]

    return sorted(folders, key=version, reverse=True)


@contextmanager
def server(found: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server with `found`, a folder of programs; yield the URL of its first database.

    `environment` is added to ours: a run marks what it starts, so that its guard may end it.
    """
    with ExitStack() as ending:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-", dir=_open_folder()))
        ending.callback(shutil.rmtree, directory)
        prefix = _as_unprivileged(directory)
        data, sockets = directory / "data", directory / "s"

        def run(*command: str) -> None:
            done = subprocess.run(  # noqa: S603 - the programs that were found
                [*prefix, *command], capture_output=True, timeout=TIMEOUT_S, cwd="/", check=False
            )
            if done.returncode:
                said = (done.stdout + done.stderr).decode(errors="replace").strip()
                raise ServerError(f"{' '.join(command)} ended with {done.returncode}: {said}")

        run("mkdir", str(sockets))
        run(str(found / "initdb"), "-D", str(data), "-U", "holdfast", "-A", "trust", "-E", "UTF8")
        options = ("listen_addresses=", f"unix_socket_directories={sockets}", "fsync=off")
        words = [word for option in options for word in ("-c", option)]
        log = ending.enter_context((directory / "log").open("wb"))
        # A child of ours and no daemon: it is ended whatever becomes of its start.
        process = subprocess.Popen(  # noqa: S603 - as above
            [*prefix, str(found / "postgres"), "-D", str(data), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
            cwd="/",
            start_new_session=True,
        )
        ending.callback(_end, process)

        def ready() -> bool:
            if process.poll() is not None:
                said = (directory / "log").read_text(errors="replace")
                raise ServerError(f"PostgreSQL ended with {process.returncode}: {said}")
            command = [str(found / "pg_isready"), "-q", "-h", str(sockets)]
            return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - as above

        wait_until(ready, timeout_s=TIMEOUT_S, what="PostgreSQL to start")
        yield f"postgresql+psycopg://holdfast@/postgres?host={sockets}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it at once, without a checkpoint. Just started it may not hear yet: it is told again."""
    for _ in range(TIMEOUT_S):
        process.send_signal(signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return
    process.kill()
    process.wait()


def _open_folder() -> str:
    """Return a folder for temporary files that the server's user can come to."""
    folders = [tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108 - the usual ones
    for folder in folders:
        path = Path(folder).resolve()
        if os.geteuid() or all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents)):
            return folder
    raise ServerError(f"user {USER} can come to none of {', '.join(folders)}; set TMPDIR")


def _as_unprivileged(directory: Path) -> list[str]:
    """Return the words that run a command as somebody who may run the server there."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(USER)
    os.chown(directory, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
