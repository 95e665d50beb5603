"""Options that several commands share, and what they mean when they are not given.

Owns the default data directory, the rule by which a command finds a cluster to talk to, and the
sentence when nobody answers there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.layout import PLACE_VARIABLE

if TYPE_CHECKING:
    from holdfast.clients.blocking_driver import Driver

# A broker that is there accepts and says its versions at once; who waits longer named a wrong one.
CONNECT_S = 5.0
REQUEST_TIMEOUT_MS = 30_000  # for the cluster to do what it is asked
ANSWER_S = REQUEST_TIMEOUT_MS / 1000 + 5

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
ClusterDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The local cluster in this directory, instead of --bootstrap-server.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Nodes to ask first. `named`: how the user came to name them, as an error begins."""

    servers: str
    named: str
    advice: str  # what to do when nobody answers there


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


def target(
    given: str | None, directory: Path | None = None, *, option: str = "--bootstrap-server"
) -> Target:
    """Return the brokers a command talks to. CommandError: none are known, or malformed."""
    if given is not None:
        refuse_if(
            directory is not None,
            f"{option} and --data-dir both say which cluster: name one of them.",
        )
        return Target(
            servers=addresses(given, option),
            named=f"{option} {given}",
            advice="Is the address right, and is it running?",
        )
    where = data_dir(directory)
    try:
        record = LocalCluster.open(where).record
    except ClusterError as error:
        if directory is not None:
            raise
        raise CommandError(
            f"No {option} HOST:PORT is given, and the local cluster to default to can't be had: "
            f"{error}",
            code=EXIT_USAGE,
        ) from None
    flag = "" if directory is None else f" --data-dir {directory}"
    inside = record.network is not None and PLACE_VARIABLE in os.environ
    return Target(
        servers=record.inside_servers if inside else record.bootstrap_servers,
        named=f"The local cluster in {where}",
        advice=f"`holdfast status{flag}` shows its nodes, `holdfast up{flag}` starts it; "
        f"{option} names another one.",
    )


def connected(whom: Target, *, timeout_s: float = ANSWER_S) -> Driver:
    """Return a client that has found somebody there. CommandError, soon: nobody answers."""
    from holdfast.clients.blocking_driver import Driver, UnreachableError  # noqa: PLC0415 - `up` has no use

    driver = Driver(whom.servers, "holdfast-admin", timeout_s=timeout_s, connect_s=CONNECT_S)
    try:
        driver.peer()
    except UnreachableError as error:
        raise unanswered(whom, str(error)) from None
    return driver


def unanswered(whom: Target, why: str) -> CommandError:
    """Return the error that nobody answers."""
    return CommandError(f"{whom.named}: nobody answers there ({why}). {whom.advice}")


def addresses(given: str, option: str) -> str:
    """Return HOST:PORT,... as it was given. CommandError: it isn't that."""
    for address in given.split(","):
        host, colon, port = address.strip().rpartition(":")
        digits = port.isascii() and port.isdigit()
        refuse_if(
            not (colon and host and digits and 0 < int(port) < 65_536),
            f"{option} {given!r}: {address.strip()!r} is not HOST:PORT.",
        )
    return given


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Read KEY=VALUE pairs. CommandError names the option."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        refuse_if(not equals or not key, f"{option} {pair!r} is not KEY=VALUE.")
        if values.get(key, value) != value:
            raise CommandError(
                f"{option} says {key}={values[key]} and {key}={value}: leave one of them out.",
                code=EXIT_USAGE,
            )
        values[key] = value
    return values


def feature_levels(pairs: Sequence[str], option: str = "--feature") -> dict[str, int]:
    """Read NAME=LEVEL pairs. CommandError names the option."""
    levels: dict[str, int] = {}
    for name, level in key_values(pairs, option).items():
        refuse_if(
            not (level.isascii() and level.isdigit()),
            f"{option} {name}={level}: a level is a whole number.",
        )
        levels[name] = int(level)
    return levels


def refuse_idle(
    action: str, given: Mapping[str, object], goes_with: Mapping[str, Collection[str]]
) -> None:
    """Refuse an option that would have no effect on this action, instead of ignoring it.

    `given`: values by option, those of options that were not typed being None, False or empty.
    `goes_with`: the actions that an option has an effect on; one that isn't there suits all.
    """
    for option, value in given.items():
        if value is None or value is False or value in ([], ()):
            continue
        suited = goes_with.get(option)
        if suited is not None and action not in suited:
            raise CommandError(
                f"{option} has no effect with {action}: it goes with {listed(suited)}.",
                code=EXIT_USAGE,
            )


def listed(words: Collection[str], last: str = "and") -> str:
    """Return "a", "a and b", "a, b and c"."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def unknown_keys(keys: Collection[str], known: Collection[str]) -> str:
    """Return what keys that nobody knows may have been meant as; "": all are known."""
    return "".join(did_you_mean(key, known) for key in keys if key not in known)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a sentence, with a space before it, that names what comes close; "": nothing does."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    close = get_close_matches(word, known)
    return f" Did you mean {listed(close, 'or')}?" if close else ""
