"""`holdfast configs`: kafka-configs' flags for topics, brokers and groups, on any Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.refusals import refusal_text, refusals_told
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    listed,
    refuse_idle,
    target,
    unknown_keys,
)
from holdfast.clients.administration import configs_of, perform_patiently, who_answers
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_configs import configured_groups, present_groups
from holdfast.clients.topic_descriptions import topic_names
from holdfast.wire.administration import AdminError, ConfigEntry, Source, alter_configs
from holdfast.wire.structs import ResourceType

KINDS = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "groups": ResourceType.GROUP,
}
GOES_WITH = {
    "--all": ["--describe"],
    "--add-config": ["--alter"],
    "--delete-config": ["--alter"],
    "--json": ["--describe"],
}
DEFAULT = ""  # the name of all brokers' default
# One KEY=VALUE of a list; the value may stand in brackets and then have commas of its own.
_PAIR = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)\s*(?:,|$)")


EntityType = Annotated[
    str, typer.Option("--entity-type", metavar="topics|brokers|groups", help="Whose settings.")
]
EntityName = Annotated[
    str | None,
    typer.Option(
        "--entity-name", metavar="NAME", help="The name of a topic or group, a broker's id."
    ),
]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="What all brokers have that don't differ.")
]
Describe = Annotated[bool, typer.Option("--describe", help="Show what was changed at run time.")]
All = Annotated[
    bool, typer.Option("--all", help="With --describe: defaults and static settings too.")
]
Alter = Annotated[bool, typer.Option("--alter", help="Change settings; no restart.")]
AddConfig = Annotated[
    str | None,
    typer.Option("--add-config", metavar="K1=V1,K2=[A,B]", help="Set keys; brackets around lists."),
]
DeleteConfig = Annotated[
    str | None,
    typer.Option("--delete-config", metavar="K1,K2", help="Back to the default."),
]


def configs(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    entity_type: EntityType = "topics",
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    describe: Describe = False,
    all_: All = False,
    alter: Alter = False,
    add_config: AddConfig = None,
    delete_config: DeleteConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show or change settings of topics, brokers, groups of any Kafka, with kafka-configs' flags.

    Examples: `--alter --entity-type topics --entity-name t --add-config min.insync.replicas=2`,
    `--describe --entity-type brokers --entity-default`.
    """
    kind = KINDS.get(entity_type)
    if kind is None:
        raise CommandError(
            f"--entity-type {entity_type}: topics, brokers or groups is wanted here."
            f"{did_you_mean(entity_type, KINDS)}",
            code=EXIT_USAGE,
        )
    name = _name(kind, entity_name, default=entity_default)
    refuse_if(describe == alter, "Say either --describe or --alter.")
    given = {
        "--all": all_,
        "--add-config": add_config,
        "--delete-config": delete_config,
        "--json": as_json,
    }
    refuse_idle("--describe" if describe else "--alter", given, GOES_WITH)
    refuse_if(
        alter and not (add_config or delete_config),
        "--alter needs --add-config KEY=VALUE or --delete-config KEY.",
    )
    if alter and name is None:
        raise CommandError(
            "--alter needs --entity-name, or --entity-default for all brokers.", code=EXIT_USAGE
        )
    added = parse_added(add_config or "")
    deleted = [key.strip() for key in (delete_config or "").split(",") if key.strip()]
    both = [key for key in deleted if key in added]
    if both:
        raise CommandError(
            f"--add-config and --delete-config both name {both[0]}: leave one out.", code=EXIT_USAGE
        )
    with refusals_told(), connected(target(bootstrap_server, data_dir_option)) as driver:
        if describe:
            _describe(driver, kind, name, everything=all_, as_json=as_json)
        elif name is not None:
            _alter(driver, kind, name, {**added, **dict.fromkeys(deleted)})


def _alter(
    driver: Driver, kind: ResourceType, name: str, changes: Mapping[str, str | None]
) -> None:
    asked = alter_configs(kind, name, changes)
    node = who_answers(kind, name)
    try:
        if node is None:
            perform_patiently(driver, asked)
        else:
            driver.perform(asked, node=node)
    except AdminError as error:
        advice = _advice(driver, kind, name, list(changes))
        raise CommandError(f"{refusal_text(error)}{advice}") from None
    print(_completed(kind, name))


def _advice(driver: Driver, kind: ResourceType, name: str, keys: Sequence[str]) -> str:
    """Say what a topic's name or the keys may have been meant as."""
    topics = list(topic_names(driver)) if kind is ResourceType.TOPIC else []
    if topics and name not in topics:
        return did_you_mean(name, topics)
    try:
        known = configs_of(driver, kind, [name])[name]
    except AdminError:
        return ""
    return unknown_keys(keys, [entry.name for entry in known])


def _name(kind: ResourceType, given: str | None, *, default: bool) -> str | None:
    """Return the entity's name, "" for the brokers' default, None for every entity."""
    refuse_if(
        default and given is not None, "--entity-name and --entity-default exclude each other."
    )
    refuse_if(
        default and kind is not ResourceType.BROKER,
        "--entity-default goes with --entity-type brokers: topics and groups take their defaults "
        "there.",
    )
    refuse_if(
        given is not None and kind is ResourceType.BROKER and not given.isdecimal(),
        f"--entity-name {given!r}: a broker's id is a number.",
    )
    refuse_if(given == "", "--entity-name is empty.")
    return DEFAULT if default else given


def parse_added(text: str) -> dict[str, str]:
    """Read "K1=V1,K2=[A,B]" of --add-config."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            raise CommandError(
                f"--add-config {text!r}: {text[at:]!r} is not KEY=VALUE (a value with commas "
                "stands in brackets).",
                code=EXIT_USAGE,
            )
        value = match[2].strip()
        if match[1] in found:
            raise CommandError(f"--add-config names {match[1]} twice.", code=EXIT_USAGE)
        found[match[1]] = value[1:-1] if value.startswith("[") else value
        at = match.end()
    return found


def _completed(kind: ResourceType, name: str) -> str:
    if name == DEFAULT:
        return "Completed updating default config for brokers in the cluster."
    return f"Completed updating config for {kind.name.lower()} {name}."


def _describe(
    driver: Driver, kind: ResourceType, name: str | None, *, everything: bool, as_json: bool
) -> None:
    if name is not None:
        if not (everything and kind is ResourceType.GROUP):  # what a group would have may be asked
            _check_there(driver, kind, name)
        names = [name]
    elif kind is ResourceType.GROUP:
        names = sorted(present_groups(driver) | (configured_groups(driver) or set()))
    elif kind is ResourceType.TOPIC:
        names = list(topic_names(driver))
    else:
        names = [*map(str, sorted(driver.nodes())), DEFAULT]
    found = configs_of(driver, kind, names)
    shown = {
        resource: [
            entry
            for entry in sorted(found[resource], key=lambda entry: entry.name)
            if everything or is_own(kind, resource, entry)
        ]
        for resource in names
    }
    if as_json:
        print(json.dumps([_to_json(kind, key, shown[key]) for key in names], indent=2))
        return
    for resource, entries in shown.items():
        print(title(kind, resource, everything=everything))
        for entry in entries:
            print(line(entry))


def _check_there(driver: Driver, kind: ResourceType, name: str) -> None:
    """CommandError: there is no such topic or group, or the broker isn't alive to be asked."""
    if kind is ResourceType.TOPIC:
        topics = topic_names(driver)
        if name not in topics:
            advice = did_you_mean(name, topics)
            raise CommandError(f"--entity-name {name}: there is no such topic.{advice}")
    elif kind is ResourceType.GROUP:
        configured = configured_groups(driver)
        if configured is None or name in configured or name in (there := present_groups(driver)):
            return
        advice = did_you_mean(name, sorted(configured | there))
        raise CommandError(
            f"--entity-name {name}: there is no such group, and nothing is set for one.{advice}"
        )
    elif name != DEFAULT and int(name) not in (brokers := sorted(driver.nodes())):
        alive = listed([str(each) for each in brokers])
        raise CommandError(f"--entity-name {name}: it is not among the brokers alive, {alive}.")


def is_own(kind: ResourceType, name: str, entry: ConfigEntry) -> bool:
    """Say whether a value was set at run time for just this entity."""
    if kind is ResourceType.TOPIC:
        return entry.source == Source.DYNAMIC_TOPIC_CONFIG.name
    if kind is ResourceType.GROUP:
        return entry.source == Source.DYNAMIC_GROUP_CONFIG.name
    if name == DEFAULT:
        return entry.source == Source.DYNAMIC_DEFAULT_BROKER_CONFIG.name
    return entry.source == Source.DYNAMIC_BROKER_CONFIG.name


def title(kind: ResourceType, name: str, *, everything: bool) -> str:
    """Return the line above one entity's settings, as kafka-configs writes it."""
    if name == DEFAULT:
        return "Default configs for brokers in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind.name.lower()} {name} are:"


def line(entry: ConfigEntry) -> str:
    """Return one setting as kafka-configs writes it; null as Java does."""
    synonyms = ", ".join(
        f"{source}:{name}={_text(value)}" for source, name, value in entry.synonyms
    )
    sensitive = "true" if entry.sensitive else "false"
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _to_json(kind: ResourceType, name: str, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    return {
        "entity_type": f"{kind.name.lower()}s",
        "entity_name": name or None,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source,
                "read_only": entry.read_only,
                "sensitive": entry.sensitive,
                "synonyms": [
                    {"source": source, "name": synonym, "value": value}
                    for source, synonym, value in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }
