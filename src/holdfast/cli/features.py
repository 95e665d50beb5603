"""`holdfast features`: kafka-features' flags and words, on any Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import EXIT_FAILED, EXIT_USAGE, CommandError
from holdfast.cli.groups import Command, group, remember_target, target_of
from holdfast.cli.options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    Target,
    connected,
    did_you_mean,
    feature_levels,
)
from holdfast.clients.driver import Driver
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ANSWER_S = 65.0
METADATA_VERSION = "metadata.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature: levels that the cluster supports, and the one that it has. 0: it is off."""

    name: str
    low: int
    high: int
    level: int


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
        epoch, found = asked(driver)
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
    _update("upgrade", levels, UPGRADE, whom, dry_run=dry_run)


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
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    levels = _wanted(feature, metadata)
    whom = target_of(context, bootstrap_server, data_dir_option)
    _update("downgrade", levels, kind, whom, dry_run=dry_run)


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
        if "=" in name:
            raise CommandError(
                f"--feature {name}: disable takes a name alone; `downgrade` takes a level.",
                code=EXIT_USAGE,
            )
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    whom = target_of(context, bootstrap_server, data_dir_option)
    _update("disable", dict.fromkeys(feature, 0), kind, whom, dry_run=dry_run)


def asked(driver: Driver) -> tuple[int, list[Feature]]:
    """Return the epoch of the finalized features, and all features, sorted by name."""
    request = ApiVersionsRequest(
        client_software_name="holdfast", client_software_version=__version__
    )
    answer = driver.send(request)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    found = [
        Feature(
            name=each.name,
            low=each.min_version,
            high=each.max_version,
            level=levels.get(each.name, 0),
        )
        for each in answer.supported_features
    ]
    return answer.finalized_features_epoch, sorted(found, key=lambda feature: feature.name)


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
        if METADATA_VERSION in levels:
            raise CommandError(
                f"--metadata and --feature {METADATA_VERSION} say the same: name one of them.",
                code=EXIT_USAGE,
            )
        levels[METADATA_VERSION] = FIRST_METADATA_LEVEL + METADATA_VERSIONS.index(metadata)
    if not levels:
        raise CommandError("Say which with --feature NAME=LEVEL or --metadata.", code=EXIT_USAGE)
    return levels


def _update(
    verb: str, levels: Mapping[str, int], kind: int, whom: Target, *, dry_run: bool
) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=kind,
            )
            for name, level in levels.items()
        ],
        validate_only=dry_run,
    )
    with connected(whom, timeout_s=ANSWER_S) as driver:
        if driver.peer().version_of(UpdateFeaturesRequest) < KINDS_SINCE:
            raise CommandError("This cluster is too old to say what kind of change is wanted.")
        answer = driver.send(request)
    whole = _error(answer.error_code, answer.error_message)
    errors: dict[str, str | None] = dict.fromkeys(levels, whole)
    for each in answer.results:
        errors[each.feature] = _error(each.error_code, each.error_message)
    for name, level in levels.items():
        print(outcome_text(verb, name, level, errors[name], dry_run=dry_run))
    failed = sum(error is not None for error in errors.values())
    if failed:
        raise CommandError(f"{failed} out of {len(levels)} operation(s) failed.", code=EXIT_FAILED)


def _error(code: int, message: str | None) -> str | None:
    if code == ErrorCode.NONE:
        return None
    return message or error_name(code)
