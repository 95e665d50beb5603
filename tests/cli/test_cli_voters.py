"""Voters that come and go: what is read of a new one, and what is said without being done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DIRECTORY_ID = "4L6g3nShT-eMCtK--X86sw"
PROPERTIES = """\
process.roles=controller
node.id=103
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:19999
listener.security.protocol.map=CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:19998
"""


def controller(tmp_path: Path, text: str = PROPERTIES, *, formatted: bool = True) -> str:
    data = tmp_path / "data"
    data.mkdir()
    if formatted:
        meta = f"version=1\nnode.id=103\ncluster.id=x\ndirectory.id={DIRECTORY_ID}\n"
        (data / "meta.properties").write_text(meta)
    file = tmp_path / "server.properties"
    file.write_text(f"{text}log.dirs={data}\n")
    return str(file)


def test_what_would_be_added(run: Run, tmp_path: Path) -> None:
    """Goal: kafka-metadata-quorum's sentence. Method: copied from its own --dry-run."""
    file = controller(tmp_path)
    outcome = run("metadata-quorum", "add-controller", "--command-config", file, "--dry-run")
    assert outcome.output == (
        f"DRY RUN of adding controller 103 with directory id {DIRECTORY_ID} "
        "and endpoints: CONTROLLER://127.0.0.1:19999\n"
    )


def test_where_it_is_advertised_counts(run: Run, tmp_path: Path) -> None:
    """Goal: voters are told an address that they can reach. Method: it listens everywhere.

    Seen failing when `listeners` counts for more than `advertised.listeners`.
    """
    text = PROPERTIES.replace("127.0.0.1:19999", ":19999")
    text += "advertised.listeners=CONTROLLER://far.example:29999\n"
    file = controller(tmp_path, text)
    outcome = run("metadata-quorum", "add-controller", "--command-config", file, "--dry-run")
    assert outcome.output.endswith("endpoints: CONTROLLER://far.example:29999\n")


def test_what_would_be_removed(run: Run) -> None:
    """Goal: kafka-metadata-quorum's sentence, two spaces included. Method: as above."""
    ids = ("--controller-id", "5", "--controller-directory-id", DIRECTORY_ID)
    outcome = run("metadata-quorum", "remove-controller", *ids, "--dry-run")
    assert outcome.output == (
        f"DRY RUN of removing  KRaft controller 5 with directory id {DIRECTORY_ID}\n"
    )


@pytest.mark.parametrize(
    ("text", "formatted", "words"),
    [
        (PROPERTIES.replace("103", "many"), True, "node.id=many"),
        (PROPERTIES, False, "format the controller's directory first"),
        (PROPERTIES.replace("127.0.0.1:19999", ":19999"), True, "set advertised.listeners"),
    ],
)
def test_a_controller_that_can_not_be_read(
    run: Run, tmp_path: Path, text: str, formatted: bool, words: str
) -> None:
    """Goal: the error names the file and what it lacks. Method: each way to be wrong."""
    file = controller(tmp_path, text, formatted=formatted)
    outcome = run("metadata-quorum", "add-controller", "--command-config", file)
    assert outcome.status != 0
    assert words in outcome.errors
    assert "Traceback" not in outcome.errors


def test_an_id_that_is_none(run: Run) -> None:
    """Goal: the error says where the right one is shown. Method: a word."""
    ids = ("--controller-id", "5", "--controller-directory-id", "mine")
    outcome = run("metadata-quorum", "remove-controller", *ids)
    assert (outcome.status, "describe --replication" in outcome.errors) == (2, True)


def test_a_cluster_refuses(run: Run, bootstrap: str) -> None:
    """Goal: a voter that isn't there is refused in one line. Method: one controller."""
    ids = ("--controller-id", "55", "--controller-directory-id", DIRECTORY_ID)
    flags = ("--bootstrap-server", bootstrap)
    outcome = run("metadata-quorum", *flags, "remove-controller", *ids)
    assert outcome.status == 1
    assert "Removing controller 55" in outcome.errors
    assert "Traceback" not in outcome.errors
