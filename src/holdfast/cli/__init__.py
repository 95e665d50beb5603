"""The `holdfast` command: a table of commands, each loaded only when it is the one that is typed.

Owns names, exit codes and the translation of errors into one line on standard error. Every command
is thin: it parses options, calls what does the work, and prints. Never imports `core`, `log` or
`node`; nodes are processes of their own.
"""

from __future__ import annotations

import sys
import time

STARTED = time.monotonic()

# name -> (module, function with typer's annotations, one line of help). In the order of `--help`.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("holdfast.cli.up", "up", "Start a cluster on this machine."),
    "down": ("holdfast.cli.cluster", "down", "Stop the cluster cleanly; its data stays."),
    "status": ("holdfast.cli.cluster", "status", "Show the cluster's nodes and their health."),
    "kill": ("holdfast.cli.cluster", "kill", "Send a signal to nodes."),
    "start": ("holdfast.cli.cluster", "start", "Start nodes that are down."),
    "demo": ("holdfast.cli.demo", "demo", "Events, a crash, a Spark table: exactly once, proven."),
    "prove": ("holdfast.cli.prove", "prove", "Break a cluster on purpose and judge what it kept."),
    "check": ("holdfast.cli.check", "check", "Judge the folder of a run again."),
    "topics": ("holdfast.cli.topics", "topics", "List, create, describe, alter, delete topics."),
    "configs": ("holdfast.cli.configs", "configs", "Show and change settings at run time."),
    "leader-election": (
        "holdfast.cli.leader_election",
        "leader_election",
        "Give leadership back to the preferred replicas, or force it.",
    ),
    "metadata-quorum": (
        "holdfast.cli.metadata_quorum",
        "metadata_quorum",
        "Show the controllers and how far each is; add and remove them.",
    ),
    "reassign-partitions": (
        "holdfast.cli.reassign",
        "reassign_partitions",
        "Move partitions: more replicas, a new broker's share, a broker to be emptied.",
    ),
    "delete-records": (
        "holdfast.cli.delete_records",
        "delete_records",
        "Forget what lies before an offset.",
    ),
    "cluster": ("holdfast.cli.cluster_tool", "cluster", "A cluster's id; brokers gone for good."),
    "features": ("holdfast.cli.features", "features", "Levels of the cluster's features."),
    "cat": ("holdfast.cli.cat", "cat", "Produce, consume, list: kcat's flags."),
    "node": ("holdfast.cli.node", "node", "Run one node in the foreground, by Kafka's own keys."),
    "storage": ("holdfast.cli.node", "storage", "Make cluster ids; format a node's directories."),
}

EXIT_FAILED = 1
EXIT_USAGE = 2
# Of these, status 1 says that a promise was broken; whatever else goes wrong decides nothing.
VERDICTS = frozenset({"check", "demo", "prove"})
EXIT_UNDECIDED = 2
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A command can't do what it was asked; the text says why and what to do instead."""

    def __init__(self, text: str, *, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


class InterruptedCommandError(CommandError):
    """Ctrl-C: the text says how far the command had come, and how to go on."""

    def __init__(self, text: str = "") -> None:
        super().__init__(f"\nInterrupted. {text}".rstrip(" "), code=EXIT_INTERRUPTED)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were loading
        status = EXIT_INTERRUPTED
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status. Expected failures become a line on stderr."""
    from holdfast.cli import table  # noqa: PLC0415 - `import holdfast.cli` stays cheap

    return table.run(arguments)
