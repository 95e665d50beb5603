"""The table of commands, and a typer group whose members are loaded when they are asked for.

Owns their names, and the outermost try: what a user can do something about leaves as one line on
standard error and an exit status.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import typer
import typer.core
import typer.main

from holdfast import __version__
from holdfast.cli import groups, quick
from holdfast.cli.exit_status import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_UNDECIDED,
    EXIT_USAGE,
    CommandError,
    InterruptedCommandError,
)
from holdfast.cli.shared_options import listed
from holdfast.cluster import ClusterError, UsageError

# name -> (module, function with typer's annotations, one line of help). In the order of `--help`.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("holdfast.cli.local.up", "up", "Start a cluster on this machine."),
    "down": (
        "holdfast.cli.local.local_cluster",
        "down",
        "Stop the cluster cleanly; its data stays.",
    ),
    "status": (
        "holdfast.cli.local.local_cluster",
        "status",
        "Show the cluster's nodes and their health.",
    ),
    "watch": (
        "holdfast.cli.watch.watch_command",
        "watch",
        "Show leaders, replicas, lag and broken links as they change.",
    ),
    "kill": ("holdfast.cli.local.local_cluster", "kill", "Send a signal to nodes."),
    "start": ("holdfast.cli.local.local_cluster", "start", "Start nodes that are down."),
    "enter": ("holdfast.cli.local.enter", "enter", "Run a command inside a cluster's network."),
    "cut": ("holdfast.cli.links.link_commands", "cut", "Let nothing pass between two nodes."),
    "isolate": (
        "holdfast.cli.links.link_commands",
        "isolate",
        "Cut a node or a zone from all others.",
    ),
    "slow": ("holdfast.cli.links.link_commands", "slow", "Delay what passes between two nodes."),
    "lose": ("holdfast.cli.links.link_commands", "lose", "Lose a share of the packets."),
    "drop-responses": (
        "holdfast.cli.links.link_commands",
        "drop_responses",
        "Swallow a node's answers to a client.",
    ),
    "heal": ("holdfast.cli.links.link_commands", "heal", "Make links whole again."),
    "demo": ("holdfast.cli.demo", "demo", "Events, a crash, a Spark table: exactly once, proven."),
    "prove": ("holdfast.cli.prove", "prove", "Break a cluster on purpose and judge what it kept."),
    "check": ("holdfast.cli.check", "check", "Judge the folder of a run again."),
    "topics": (
        "holdfast.cli.topics.topics_command",
        "topics",
        "List, create, describe, alter, delete topics.",
    ),
    "configs": ("holdfast.cli.configs", "configs", "Show and change settings at run time."),
    "leader-election": (
        "holdfast.cli.leader_election",
        "leader_election",
        "Give leadership back to the preferred replicas, or force it.",
    ),
    "metadata-quorum": (
        "holdfast.cli.quorum.metadata_quorum",
        "metadata_quorum",
        "Show the controllers and how far each is; add and remove them.",
    ),
    "reassign-partitions": (
        "holdfast.cli.reassignment.reassign_partitions",
        "reassign_partitions",
        "Move partitions: more replicas, a new broker's share, a broker to be emptied.",
    ),
    "delete-records": (
        "holdfast.cli.delete_records",
        "delete_records",
        "Forget what lies before an offset.",
    ),
    "groups": (
        "holdfast.cli.consumer_groups.groups_command",
        "groups",
        "List, describe, reset, delete consumer groups of any Kafka.",
    ),
    "get-offsets": (
        "holdfast.cli.offsets.get_offsets",
        "get_offsets",
        "Print where partitions begin and end.",
    ),
    "inspect": (
        "holdfast.cli.offsets.inspect_partition",
        "inspect_partition",
        "Show how far each replica is; is message N committed?",
    ),
    "cluster": ("holdfast.cli.cluster_tool", "cluster", "A cluster's id; brokers gone for good."),
    "features": ("holdfast.cli.features", "features", "Levels of the cluster's features."),
    "cat": ("holdfast.cli.cat.cat_command", "cat", "Produce, consume, list: kcat's flags."),
    "node": ("holdfast.cli.node", "node", "Run one node in the foreground, by Kafka's own keys."),
    "storage": ("holdfast.cli.node", "storage", "Make cluster ids; format a node's directories."),
}

# Of these, status 1 says that a promise was broken; whatever else goes wrong decides nothing.
VERDICTS = frozenset({"check", "demo", "prove"})

# Options that may stand without their values, as in Kafka's tools: an empty one stands for that.
VALUE_LEFT_OUT = {"groups": ("--state", "--type")}

# What other tools call it.
ELSEWHERE = {
    "stop": "down",
    "run": "up",
    "restart": "down, then holdfast up",
    "produce": "cat -P",
    "console-producer": "cat -P",
    "consume": "cat -C",
    "console-consumer": "cat -C",
    "server-start": "node",
    "elect-leaders": "leader-election",
    "consumer-groups": "groups",
}
HELP = """A replicated log that speaks the Kafka protocol, and a lab that proves what it keeps.

`holdfast up` starts three brokers and three controllers; any Kafka client can then use them.
`holdfast COMMAND --help` explains a command.
"""


def function_named(name: str) -> Any:
    """Load what the table names: a function with typer's annotations, or a typer app."""
    module, function, _ = COMMANDS[name]
    return getattr(importlib.import_module(module), function)


def command_named(name: str) -> Any:
    """Make a click command of one command of the table."""
    found = function_named(name)
    app = found if isinstance(found, typer.Typer) else _app_of(found, name, COMMANDS[name][2])
    command = typer.main.get_command(app)
    command.name = name
    return command


def _app_of(function: Callable[..., None], name: str, summary: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(
        name,
        short_help=summary,
        cls=groups.Command,
        context_settings=getattr(function, "context_settings", groups.CONTEXT),
    )(function)
    return app


class _Commands(groups.Group):
    """The group: names come from the table, commands from their modules."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.commands = {name: _listed(name) for name in COMMANDS}  # what a mistake is held against

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ours = ELSEWHERE.get(args[0])
        if ours is not None:
            ctx.fail(f"No such command {args[0]!r}. `holdfast {ours}` does that here.")
        longer = [name for name in COMMANDS if name.startswith(f"{args[0]}-")]
        if longer:  # "reassign": too short for the guess that typer makes
            ctx.fail(f"No such command {args[0]!r}. Did you mean {listed(longer, 'or')}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class calls it so
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if ctx.resilient_parsing or (ctx.invoked_subcommand is None and _wants_help()):
            return _listed(cmd_name)
        return command_named(cmd_name)


def _wants_help() -> bool:
    return len(sys.argv) < 2 or sys.argv[1].startswith("-")


def _listed(name: str) -> Any:
    """Stand in for a command where only its name and its line of help are wanted."""
    return typer.core.TyperCommand(name, short_help=COMMANDS[name][2], help=COMMANDS[name][2])


def _version(value: bool) -> None:
    if value:
        from holdfast.wire.walker.record_walker import WALKER  # noqa: PLC0415 - for this alone

        print(f"holdfast {__version__}, record walker: {WALKER}")
        raise typer.Exit


def _group() -> Any:
    app = typer.Typer(
        cls=_Commands,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        context_settings=groups.CONTEXT,
    )

    @app.callback(help=HELP)
    def root(
        *,
        version: bool = typer.Option(
            False, "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ) -> None:
        assert not version, "its callback has ended the program"

    return typer.main.get_command(app)


class _NothingDecided:
    """Ends a command that gives verdicts with its own status where a mistake of ours ends it.

    Python's status for an uncaught error is 1, which would say that a promise was broken.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            traceback.print_exception(kind, error, trace)
            raise SystemExit(EXIT_UNDECIDED)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    name = arguments[0] if arguments else ""
    if name not in VERDICTS:
        return _run(name, arguments, EXIT_FAILED)
    with _NothingDecided():
        return _run(name, arguments, EXIT_UNDECIDED)


def _run(name: str, arguments: list[str], failed: int) -> int:
    """Run one command; `failed`: its status where it fails for a reason of its own."""
    try:
        status = _called(name, arguments, failed)
    except BrokenPipeError:
        status = failed
    except OSError as error:  # a full disk, a directory that isn't ours: it names the file
        status = _fail(str(error), failed)
    try:
        sys.stdout.flush()
    except OSError as error:
        # Its reader has gone, or its disk is full; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failed if isinstance(error, BrokenPipeError) else _fail(str(error), failed)
    return status


def _called(name: str, arguments: list[str], failed: int) -> int:
    try:
        if name not in COMMANDS:
            _group().main(arguments, prog_name="holdfast")
            return 0
        words = filled(name, arguments[1:])
        if (values := quick.values_of(function_named(name), words)) is not None:
            function_named(name)(**values)
        else:
            command_named(name).main(words, prog_name=f"holdfast {name}")
    except typer.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:
        if stop.code == EXIT_INTERRUPTED:  # typer has taken the interrupt
            return _interrupted(InterruptedCommandError())
        return _status(stop.code)
    except InterruptedCommandError as error:
        return _interrupted(error)
    except CommandError as error:
        return _fail(str(error), failed if error.code == EXIT_FAILED else error.code)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except ClusterError as error:
        return _fail(str(error), failed)
    except _loaded("holdfast.clients.blocking_driver", "DriverError") as error:
        return _fail(f"{error} (--bootstrap-server says whom to ask)", failed)
    except _loaded("holdfast.wire.errors", "EncodeError") as error:  # it can't be sent
        return _fail(f"A number is larger than the protocol can carry: {error}", EXIT_USAGE)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # it is the terminal that can't show something
            raise
        return _fail("An argument holds bytes that are no text in UTF-8.", EXIT_USAGE)
    except KeyboardInterrupt:
        return _interrupted(InterruptedCommandError())
    return 0


def filled(name: str, words: list[str]) -> list[str]:
    """Return a command line with an empty value where an option stands without one, and may."""
    found = []
    for at, word in enumerate(words):
        is_last = at + 1 == len(words) or words[at + 1].startswith("-")
        found.append(f"{word}=" if is_last and word in VALUE_LEFT_OUT.get(name, ()) else word)
    return found


def _loaded(module: str, name: str) -> tuple[type[Exception], ...]:
    """Return an error's class where its module was used: `up` starts without loading it."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()


def _status(code: Any) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else EXIT_FAILED


def _interrupted(error: InterruptedCommandError) -> int:
    _flush()
    print(error, file=sys.stderr)
    return error.code


def _fail(text: str, code: int) -> int:
    _flush()
    print(f"holdfast: {text}", file=sys.stderr)
    return code


def _flush() -> None:
    """Let what was printed stand before what is said now; that it can't be written, `_run` says."""
    with suppress(OSError):
        sys.stdout.flush()
