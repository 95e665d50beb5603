"""`python -m holdfast.node`: one node in the foreground. The only place that picks the real ports.

Owns the command line of the process, its signals and its exit status. It stays small: its imports
are the node's start-up time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from socket import gethostname
from typing import Any

from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.config.properties import parse_properties
from holdfast.log.errors import CorruptFileError, DirectoryError, StorageError
from holdfast.node.broker.lifecycle import RegistrationError
from holdfast.node.door.server import StartError
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.node import Node
from holdfast.runtime.garbage import Garbage
from holdfast.runtime.real import real_runtime

_VOTER_OPTIONS = {
    "--standalone": False,
    "--initial-controllers": True,
    "--no-initial-controllers": False,
}

USAGE = """\
Usage: python -m holdfast.node --config FILE [--override KEY=VALUE ...]
                               [--format-if-needed CLUSTER_ID]
       python -m holdfast.node format --config FILE --cluster-id ID [--ignore-formatted]
                               [--feature NAME=LEVEL ...] [--standalone |
                               --initial-controllers ID@HOST:PORT:DIRECTORY_ID,... |
                               --no-initial-controllers]
       python -m holdfast.node random-uuid

Runs one node in the foreground with Kafka's own keys. SIGTERM hands leadership over and stops it.
"""

logger = logging.getLogger("holdfast.node")

FILES_MAX = 1_048_576
LOG_FILES_MAX = 8192
SPARE_FILES = 256


class UsageError(Exception):
    """The command line does not say what to do."""


def _options(arguments: list[str], known: dict[str, bool]) -> dict[str, list[str]]:
    """Parse `--name value`, `--name=value` and flags; `known` says which take a value."""
    found: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in known:
            raise UsageError(f"unknown option {name}")
        if known[name] and not equals:
            if not rest:
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        found.setdefault(name, []).append(value)
    return found


def _settings(options: dict[str, list[str]]) -> NodeSettings:
    if "--config" not in options:
        raise UsageError("--config FILE is missing")
    path = options["--config"][-1]
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
            properties = parse_properties(file.read())
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--config {path} is no text in UTF-8 at byte {error.start}: "
            "is it a properties file? Write other letters as \\uXXXX"
        ) from error
    for override in options.get("--override", []):
        key, equals, value = override.partition("=")
        if not equals:
            raise UsageError(f"--override {override}: write it as KEY=VALUE")
        properties[key] = value
    settings, warnings = NodeSettings.from_properties(properties)
    for warning in warnings:
        logger.warning("%s", warning)
    return settings


async def _run(settings: NodeSettings) -> None:
    file_limit, connection_limit = _share_descriptors()
    node = Node(
        real_runtime(),
        settings,
        machine_name=gethostname(),
        file_limit=file_limit,
        connection_limit=connection_limit,
    )
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for caught in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(caught, end, caught)
    garbage = Garbage()
    garbage.start()
    await node.start()
    garbage.set_everything_aside()  # what is loaded now stays
    serving = loop.create_task(node.serve())
    either: list[asyncio.Future[Any]] = [ended, serving]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        logger.info("stopping on %s", signal.Signals(ended.result()).name)
    failure = serving.exception() if serving.done() else None
    serving.cancel()
    await node.stop()
    if failure is not None:
        raise failure


def _share_descriptors() -> tuple[int, int]:
    """Take as many descriptors as there may be; return how many logs and connections may have.

    The logs keep half of them at most. Some are left for what both need in between: directories
    that are synced, jobs of the worker, connections that are just being closed.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            logger.warning("the limit on open files stays at %d: %s", soft, error)
    limit = FILES_MAX if soft == resource.RLIM_INFINITY else soft
    files = min(LOG_FILES_MAX, limit // 2)
    return files, limit - files - min(SPARE_FILES, limit // 4)


def _start(arguments: list[str]) -> None:
    options = _options(
        arguments, {"--config": True, "--override": True, "--format-if-needed": True}
    )
    settings = _settings(options)
    if "--format-if-needed" in options:
        _format_directories(settings, options["--format-if-needed"][-1], ignore_formatted=True)
    asyncio.run(_run(settings))


def _format(arguments: list[str]) -> None:
    options = _options(
        arguments,
        {
            "--config": True,
            "--cluster-id": True,
            "--ignore-formatted": False,
            "--feature": True,
            **_VOTER_OPTIONS,
        },
    )
    if "--cluster-id" not in options:
        raise UsageError("--cluster-id ID is missing; `random-uuid` makes one")
    settings = _settings(options)
    _check_voter_options(settings, [name for name in _VOTER_OPTIONS if name in options])
    for line in _format_directories(
        settings,
        options["--cluster-id"][-1],
        ignore_formatted="--ignore-formatted" in options,
        features=_features(options.get("--feature", [])),
        standalone="--standalone" in options,
        initial_controllers=options.get("--initial-controllers", [""])[-1],
    ):
        print(line)


def _check_voter_options(settings: NodeSettings, given: list[str]) -> None:
    """As Kafka: who has no fixed voters says which kind of controller this one is."""
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")
    if given or not settings.is_controller or settings.controller_quorum_voters:
        return
    raise UsageError(
        "a controller without controller.quorum.voters is formatted with --standalone (the first), "
        "--initial-controllers (one of the first) or --no-initial-controllers (added later)"
    )


def _features(given: list[str]) -> dict[str, int]:
    levels = {}
    for each in given:
        name, _, level = each.partition("=")
        if not level.isascii() or not level.isdigit():
            raise UsageError(f"--feature {each}: write it as NAME=LEVEL, the level a number")
        levels[name] = int(level)
    return levels


def _format_directories(
    settings: NodeSettings,
    cluster_id: str,
    *,
    ignore_formatted: bool,
    features: dict[str, int] | None = None,
    standalone: bool = False,
    initial_controllers: str = "",
) -> list[str]:
    from holdfast.node.controller.storage_format import (
        Beginning,
        FormatError,
        format_directories,
    )
    from holdfast.node.quorum.initial_voters import parse_initial_controllers

    runtime = real_runtime()
    voters = parse_initial_controllers(initial_controllers) if initial_controllers else None
    try:
        done = format_directories(
            runtime.disk,
            runtime.random,
            settings,
            cluster_id,
            Beginning(features, standalone, voters),
            ignore_formatted=ignore_formatted,
        )
    except FormatError as error:
        raise StartError(str(error)) from error
    return [
        f"Formatted {each.directory} for cluster {cluster_id}."
        if each.fresh
        else f"{each.directory} was formatted before; it is left as it is."
        for each in done
    ]


def main(arguments: list[str]) -> int:
    """Run what the arguments say. 0: stopped as asked; 1: could not start; 2: wrong usage."""
    if not __debug__:
        print("holdfast does not run under -O: its assertions guard your data", file=sys.stderr)
        return 2
    if "--help" in arguments or "-h" in arguments:
        print(USAGE, end="")
        return 0
    # Nothing of this is printed, and it is half of what a line costs: elections log thousands.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as the logging how-to of Python says
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    try:
        if arguments[:1] == ["random-uuid"]:
            from holdfast.node.controller.storage_format import random_cluster_id

            print(random_cluster_id(real_runtime().random))
        elif arguments[:1] == ["format"]:
            _format(arguments[1:])
        else:
            _start(arguments)
    except UsageError as error:
        print(f"error: {error} (-h shows the usage)", file=sys.stderr)
        return 2
    except (
        ConfigError,
        CorruptFileError,
        DirectoryError,
        MetadataLogError,
        RegistrationError,
        StartError,
        StorageError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
