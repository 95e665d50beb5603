"""A PostgreSQL server of our own, on a Unix socket, for as long as it is wanted.

Owns its files and its process. It is run by an unprivileged user, since it refuses to run as root.
Its data need not outlive the machine: it isn't synced, which a kill of a client can't tell.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "nobody"
TIMEOUT_S = 60


def programs() -> Path | None:
    """Return the folder of the server's programs: the newest of Debian's, or what PATH has."""
    folders = [Path("/usr/local/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    for folder in reversed(folders):
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("pg_ctl") else None


@contextmanager
def server(found: Path) -> Iterator[str]:
    """Run a server with `found`, a folder of programs; yield the URL of its first database."""
    # No folder of a caller's: each of its parents has to be open to the server's user.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-"))
    prefix = _as_unprivileged(directory)
    data, sockets = directory / "data", directory / "s"

    def run(*command: str) -> None:
        done = subprocess.run(  # noqa: S603 - the programs that were found
            [*prefix, *command], capture_output=True, timeout=TIMEOUT_S, cwd="/", check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    run("mkdir", str(sockets))
    run(str(found / "initdb"), "-D", str(data), "-U", "holdfast", "-A", "trust", "-E", "UTF8")
    options = f"-c listen_addresses= -c unix_socket_directories={sockets} -c fsync=off"
    log = str(directory / "log")
    run(str(found / "pg_ctl"), "-D", str(data), "-w", "-l", log, "-o", options, "start")
    try:
        yield f"postgresql+psycopg://holdfast@/postgres?host={sockets}"
    finally:
        run(str(found / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory)


def _as_unprivileged(directory: Path) -> list[str]:
    """Return the words that run a command as somebody who may run the server there."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(USER)
    os.chown(directory, user.pw_uid, user.pw_gid)
    for parent in directory.parents:
        if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):  # noqa: S108
            parent.chmod(parent.stat().st_mode | 0o011)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
