"""Goal: a server for tests leaves nothing behind, touches nobody's folders, and is the newest one.

Method: the real programs, and a start that is interrupted when the server runs already.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.processes import wait_until
from holdfast.lab import postgresql


def test_the_newest_is_told_by_its_number() -> None:
    folders = [Path(f"/usr/lib/postgresql/{version}/bin") for version in ("10", "9.6", "17", "9")]
    newest = [folder.parent.name for folder in postgresql.newest_first(folders)]
    assert newest == ["17", "10", "9.6", "9"]


@pytest.fixture
def telling() -> Iterator[Path]:
    """A folder of programs that tells when the server was started."""
    found = postgresql.programs()
    if found is None:
        pytest.skip("PostgreSQL's server is not on this machine")
    # Not in pytest's own folder, where the server's user can't come.
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    for name in ("initdb", "pg_isready"):
        (folder / name).symlink_to(found / name)
    script = f'#!/bin/sh\necho "$$ $2" > {folder}/started\nexec {found}/postgres "$@"\n'
    (folder / "postgres").write_text(script)
    (folder / "postgres").chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_start_that_fails_leaves_no_server_and_no_folder(
    telling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary files belong where only root can come: that stays so."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    started = telling / "started"

    def interrupted(_condition: object, **_bounds: object) -> None:
        wait_until(lambda: started.exists() and started.read_text(), timeout_s=60, what="a start")
        raise KeyboardInterrupt

    monkeypatch.setattr(postgresql, "wait_until", interrupted)
    with pytest.raises(KeyboardInterrupt), postgresql.server(telling):
        pytest.fail("nobody waited for it")
    pid, data = started.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not Path(data).parent.exists()
    assert closed.stat().st_mode & 0o777 == 0o700
