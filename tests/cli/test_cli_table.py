"""The command as a whole: help, versions, exit statuses, one line for an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import __version__
from holdfast.cli import shared_options as options
from holdfast.cli.command_table import COMMANDS
from holdfast.cli.exit_status import CommandError
from holdfast.wire.walker.record_walker import WALKER

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_help_lists_every_command(run: Run) -> None:
    """Goal: `holdfast --help` names all, without loading them. Method: read it."""
    outcome = run("--help")
    assert outcome.status == 0
    assert all(name in outcome.output for name in COMMANDS)


def test_nothing_shows_help_and_nonsense_is_refused(run: Run) -> None:
    """Goal: a start for newcomers, status 2 for mistakes. Method: no word, a wrong one."""
    assert "COMMAND" in run().output + run().errors
    wrong = run("fly")
    assert wrong.status == 2
    assert "fly" in wrong.errors


def test_the_version(run: Run) -> None:
    """Goal: --version says it, and whether records are walked quickly here. Method: compare."""
    assert run("--version").output == f"holdfast {__version__}, record walker: {WALKER}\n"


@pytest.mark.parametrize(
    "name",
    [
        *("up", "down", "status", "kill", "start", "topics", "configs", "cat", "node"),
        *("groups", "get-offsets", "inspect"),
    ],
)
def test_each_command_explains_itself(run: Run, name: str) -> None:
    """Goal: help works and comes from the command itself. Method: --help of each."""
    outcome = run(name, "--help")
    assert outcome.status == 0
    assert f"holdfast {name}" in outcome.output


@pytest.mark.parametrize(
    "line", ["", "topics", "features", "features describe", "prove", "cat", "groups"]
)
def test_a_flag_is_shown_without_a_value(run: Run, line: str) -> None:
    """Goal: nobody is led to type `--json true`, which is refused. Method: help of each kind.

    Seen to fail: "<bool>" stood behind every flag.
    """
    output = run(*line.split(), "--help").output
    assert "--help" in output
    assert "bool" not in output


def test_a_cluster_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """Goal: one line that says what to do, status 2. Method: each command that needs one."""
    for command in (["down"], ["status"], ["kill", "0"], ["start", "0"]):
        outcome = run(*command, "--data-dir", str(tmp_path))
        assert outcome.status == 2
        assert outcome.errors.startswith("holdfast: There is no cluster in")
        assert outcome.errors.count("\n") == 1


def test_commands_without_a_cluster_name_the_option(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no bootstrap servers, no guess. Method: a state directory without a cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    outcome = run("topics", "--list")
    assert outcome.status == 2
    assert "--bootstrap-server" in outcome.errors
    assert str(tmp_path) in outcome.errors


def test_nobody_listens(run: Run) -> None:
    """Goal: an unreachable cluster is one line, not a trace. Method: a closed port."""
    outcome = run("topics", "--list", "--bootstrap-server", "127.0.0.1:1")
    assert outcome.status == 1
    assert "127.0.0.1:1" in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.parametrize("controllers", ["0", "10"])
def test_how_many_controllers_there_can_be(run: Run, tmp_path: Path, controllers: str) -> None:
    """Goal: the error names the option, and leaves nothing. Method: too few, too many."""
    directory = tmp_path / "new"
    outcome = run("up", "--controllers", controllers, "--data-dir", str(directory))
    assert outcome.status == 2
    assert "--controllers" in outcome.errors
    assert not directory.exists()


def test_a_setting_that_is_none(run: Run, tmp_path: Path) -> None:
    """Goal: the error names --config. Method: no equals sign."""
    outcome = run("up", "--config", "nonsense", "--data-dir", str(tmp_path))
    assert (outcome.status, "--config 'nonsense'" in outcome.errors) == (2, True)


def test_the_default_data_directory() -> None:
    """Goal: XDG's rules. Method: set, unset, relative."""
    at_home = Path.home() / ".local/state/holdfast/cluster"
    assert options.default_data_dir({"XDG_STATE_HOME": "/s"}) == Path("/s/holdfast/cluster")
    assert options.default_data_dir({}) == at_home
    assert options.default_data_dir({"XDG_STATE_HOME": "relative"}) == at_home


@pytest.mark.parametrize("text", ["host", ":9092", "host:", "host:x", "host:70000", "a:1,,b:2"])
def test_addresses_are_checked(text: str) -> None:
    """Goal: a typing mistake is found before any waiting. Method: malformed addresses."""
    with pytest.raises(CommandError, match="--bootstrap-server"):
        options.target(text)


def test_a_random_id_and_a_missing_file(run: Run, tmp_path: Path) -> None:
    """Goal: `storage` and `node` check what they get. Method: an id's form; no file."""
    first = run("storage", "random-uuid").output.strip()
    assert len(first) == 22
    assert first != run("storage", "random-uuid").output.strip()
    outcome = run("node", "--config", str(tmp_path / "none"))
    assert (outcome.status, "--config" in outcome.errors) == (2, True)


@pytest.mark.slow
@pytest.mark.process
def test_starting_loads_little() -> None:
    """Goal: `up` starts nodes before anything slow is loaded. Method: what is in sys.modules."""
    program = (
        "import sys\n"
        "from holdfast.cli import command_table as table, quick\n"
        "assert quick.values_of(table.function_named('up'), ['--detach']) is not None\n"
        "slow = {'rich', 'pydantic', 'confluent_kafka', 'asyncio', 'holdfast.wire'}\n"
        "print(sorted(slow & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
