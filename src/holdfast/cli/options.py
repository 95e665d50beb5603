"""Options that several commands share, and what they mean when they are not given.

Owns the default data directory and the rule by which a command finds a cluster to talk to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import EXIT_USAGE, CommandError
from holdfast.cluster import ClusterError, LocalCluster

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory of the local cluster.",
        show_default="a folder under the user's state directory",
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers to ask first; of any Kafka.",
        show_default="the local cluster of the default data directory",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def default_data_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the default cluster (XDG base directories: state)."""
    values = os.environ if environment is None else environment
    state = values.get("XDG_STATE_HOME", "")
    # The specification says: a path that isn't absolute is to be ignored.
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "holdfast" / "cluster"


def data_dir(given: Path | None) -> Path:
    """Return the directory a command works on."""
    return default_data_dir() if given is None else given.absolute()


def bootstrap_servers(given: str | None) -> str:
    """Return the brokers a command talks to. CommandError: none are known, or malformed."""
    if given is not None:
        return addresses(given, "--bootstrap-server")
    try:
        return LocalCluster.open(default_data_dir()).bootstrap_servers
    except ClusterError:
        raise CommandError(
            "No --bootstrap-server HOST:PORT is given, and there is no local cluster in "
            f"{default_data_dir()} to default to (`holdfast up` makes one).",
            code=EXIT_USAGE,
        ) from None


def addresses(given: str, option: str) -> str:
    """Return HOST:PORT,... as it was given. CommandError: it isn't that."""
    for address in given.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not (colon and host and port.isdecimal() and int(port) < 65_536):
            raise CommandError(
                f"{option} {given!r}: {address.strip()!r} is not HOST:PORT.",
                code=EXIT_USAGE,
            )
    return given


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Read KEY=VALUE pairs. CommandError names the option."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} {pair!r} is not KEY=VALUE.", code=EXIT_USAGE)
        values[key.strip()] = value.strip()
    return values


def feature_levels(pairs: Sequence[str], option: str = "--feature") -> dict[str, int]:
    """Read NAME=LEVEL pairs. CommandError names the option."""
    levels: dict[str, int] = {}
    for name, level in key_values(pairs, option).items():
        if not (level.isascii() and level.isdigit()):
            raise CommandError(
                f"{option} {name}={level}: a level is a whole number.", code=EXIT_USAGE
            )
        levels[name] = int(level)
    return levels
