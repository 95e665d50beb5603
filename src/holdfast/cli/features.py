"""`holdfast features`: kafka-features' flags and words, on any Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from holdfast.cli.exit_status import EXIT_FAILED, EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.groups import Command, group, remember_target, target_of
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    Target,
    connected,
    did_you_mean,
    feature_levels,
)
from holdfast.wire import administration
from holdfast.wire.administration import Feature
from holdfast.wire.messages.update_features import UpgradeType
from holdfast.wire.well_known import METADATA_VERSION

ANSWER_S = 65.0
DOWNGRADES = (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE)  # by --unsafe
KINDS_SINCE = 1  # of UpdateFeatures' versions; before it a downgrade was a flag

# Levels of metadata.version that Kafka has given a name, from the first one on.
FIRST_METADATA_LEVEL = 7
METADATA_VERSIONS = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1"),
    "4.3-IV0",
)

features = group("Show the cluster's features, and change their levels.")
features.callback()(remember_target)

Levels = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="Which, to which level; may be repeated."),
]
Metadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="VERSION", help="metadata.version by name: 4.0-IV3."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask whether it could be done.")]


@features.command(cls=Command)
def describe(
    context: typer.Context,
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    as_json: AsJson = False,
) -> None:
    """Show every feature: what is supported, and what is in force."""
    with connected(target_of(context, bootstrap_server, data_dir_option)) as driver:
        epoch, found = driver.perform(administration.features())
    if as_json:
        rows = [{"name": f.name, "min": f.low, "max": f.high, "level": f.level} for f in found]
        print(json.dumps({"epoch": epoch, "features": rows}, indent=2))
    else:
        print("\n".join(described(epoch, found)))


@features.command(cls=Command)
def upgrade(
    context: typer.Context,
    *,
    feature: Levels = None,
    metadata: Metadata = None,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Raise levels of features."""
    levels = _wanted(feature, metadata)
    whom = target_of(context, bootstrap_server, data_dir_option)
    _update("upgrade", levels, UpgradeType.UPGRADE, whom, dry_run=dry_run)


@features.command(cls=Command)
def downgrade(
    context: typer.Context,
    *,
    feature: Levels = None,
    metadata: Metadata = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if metadata are lost.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Lower levels of features; 0 turns one off."""
    levels = _wanted(feature, metadata)
    whom = target_of(context, bootstrap_server, data_dir_option)
    _update("downgrade", levels, DOWNGRADES[unsafe], whom, dry_run=dry_run)


@features.command(cls=Command)
def disable(
    context: typer.Context,
    *,
    feature: Annotated[
        list[str], typer.Option("--feature", metavar="NAME", help="Which; may be repeated.")
    ],
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if metadata are lost.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Turn features off."""
    for name in feature:
        refuse_if(
            "=" in name, f"--feature {name}: disable takes a name alone; `downgrade` takes a level."
        )
    whom = target_of(context, bootstrap_server, data_dir_option)
    _update("disable", dict.fromkeys(feature, 0), DOWNGRADES[unsafe], whom, dry_run=dry_run)


def described(epoch: int, found: Sequence[Feature]) -> list[str]:
    """Return kafka-features' lines."""
    shown = "-" if epoch < 0 else str(epoch)
    return [
        f"Feature: {each.name:<42}"
        f"SupportedMinVersion: {level_text(each.name, each.low):<17}"
        f"SupportedMaxVersion: {level_text(each.name, each.high):<17}"
        f"FinalizedVersionLevel: {level_text(each.name, each.level):<17}"
        f"Epoch: {shown}"
        for each in found
    ]


def level_text(name: str, level: int) -> str:
    """Return a level as Kafka shows it: metadata.version by its name."""
    place = level - FIRST_METADATA_LEVEL
    if name == METADATA_VERSION and 0 <= place < len(METADATA_VERSIONS):
        return METADATA_VERSIONS[place]
    return str(level)


def outcome_text(
    verb: str, name: str, level: int, error: str | None, *, dry_run: bool = False
) -> str:
    """Return kafka-features' sentence about one feature."""
    to = "" if verb == "disable" else f" to {level}"
    if error is not None:
        return f"{'Can' if dry_run else 'Could'} not {verb} {name}{to}. {error}"
    done = f"{verb}d" if verb.endswith("e") else f"{verb}ed"
    return f"{name} {'can be' if dry_run else 'was'} {done}{to}."


def _wanted(pairs: list[str] | None, metadata: str | None) -> dict[str, int]:
    levels = feature_levels(pairs or [])
    if metadata is not None:
        if metadata not in METADATA_VERSIONS:
            raise CommandError(
                f"--metadata {metadata}: it is one of {', '.join(METADATA_VERSIONS)}."
                f"{did_you_mean(metadata, METADATA_VERSIONS)}",
                code=EXIT_USAGE,
            )
        refuse_if(
            METADATA_VERSION in levels,
            f"--metadata and --feature {METADATA_VERSION} say the same: name one of them.",
        )
        levels[METADATA_VERSION] = FIRST_METADATA_LEVEL + METADATA_VERSIONS.index(metadata)
    refuse_if(not levels, "Say which with --feature NAME=LEVEL or --metadata.")
    return levels


def _update(
    verb: str, levels: Mapping[str, int], kind: UpgradeType, whom: Target, *, dry_run: bool
) -> None:
    asked = administration.update_features(levels, kind, validate_only=dry_run)
    with connected(whom, timeout_s=ANSWER_S) as driver:
        if driver.peer().version_of(asked.message) < KINDS_SINCE:
            raise CommandError("This cluster is too old to say what kind of change is wanted.")
        errors = driver.perform(asked)
    for name, level in levels.items():
        print(outcome_text(verb, name, level, errors[name], dry_run=dry_run))
    failed = sum(error is not None for error in errors.values())
    if failed:
        raise CommandError(f"{failed} out of {len(levels)} operation(s) failed.", code=EXIT_FAILED)
