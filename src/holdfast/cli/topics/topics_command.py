"""`holdfast topics`: kafka-topics' flags, on any Kafka."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.refusals import refusal_text, refusals_told
from holdfast.cli.shared_options import (
    REQUEST_TIMEOUT_MS,
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    key_values,
    refuse_idle,
    target,
    unknown_keys,
)
from holdfast.cli.topics.topics_format import Filters, describe, to_json
from holdfast.clients.administration import configs_of, perform_patiently
from holdfast.clients.blocking_driver import AnswerLostError, Driver, UnsupportedError
from holdfast.clients.topic_descriptions import Topic, described, note_moves, topic_names
from holdfast.config import registry
from holdfast.wire.administration import (
    AdminError,
    AdminRequest,
    add_partitions,
    create_topic,
    delete_topic,
    reassignments,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import DEFAULT
from holdfast.wire.structs import ResourceType

ACTIONS = ("--list", "--create", "--describe", "--alter", "--delete")
GOES_WITH: Mapping[str, Sequence[str]] = {
    "--partitions": ("--create", "--alter"),
    "--replication-factor": ("--create",),
    "--replica-assignment": ("--create", "--alter"),
    "--config": ("--create",),
    "--if-exists": ("--describe", "--alter", "--delete"),
    "--if-not-exists": ("--create",),
    "--under-replicated-partitions": ("--describe",),
    "--unavailable-partitions": ("--describe",),
    "--under-min-isr-partitions": ("--describe",),
    "--at-min-isr-partitions": ("--describe",),
    "--topics-with-overrides": ("--describe",),
    "--exclude-internal": ("--list", "--describe", "--alter", "--delete"),
    "--json": ("--list", "--describe"),
}
MOVES_TIMEOUT_S = 3.0  # of what a description only adds: without a controller nobody answers
PERIOD_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)


def _flag(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, help=text)
    return option


ListAll = Annotated[bool, _flag("--list", "Print the names of all topics.")]
Create = Annotated[bool, _flag("--create", "Create the topic named by --topic.")]
Describe = Annotated[bool, _flag("--describe", "Show partitions, leaders, replicas.")]
Alter = Annotated[bool, _flag("--alter", "Add partitions: --partitions is the total.")]
Delete = Annotated[bool, _flag("--delete", "Delete topics and their data.")]
TopicName = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="A name; except with --create also a regular expression, or several with commas.",
    ),
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", help="How many.", min=1)
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option("--replication-factor", metavar="N", help="Copies of each.", min=1),
]
ReplicaAssignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="1:0,2:1",
        help="Brokers of each partition, the preferred leader first; new ones for --alter.",
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="With --create; may be repeated."),
]
IfExists = Annotated[bool, _flag("--if-exists", "No error when there is none.")]
IfNotExists = Annotated[bool, _flag("--if-not-exists", "No error when it exists.")]
UnderReplicatedPartitions = Annotated[
    bool, _flag("--under-replicated-partitions", "Only those that lack a replica in sync.")
]
UnavailablePartitions = Annotated[
    bool, _flag("--unavailable-partitions", "Only those without a live leader.")
]
UnderMinIsrPartitions = Annotated[
    bool, _flag("--under-min-isr-partitions", "Only those that refuse acks=all.")
]
AtMinIsrPartitions = Annotated[
    bool, _flag("--at-min-isr-partitions", "Only those one failure away from that.")
]
TopicsWithOverrides = Annotated[
    bool, _flag("--topics-with-overrides", "Only topics with settings of their own.")
]
ExcludeInternal = Annotated[
    bool, _flag("--exclude-internal", "Without topics such as __consumer_offsets.")
]


def topics(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    list_: ListAll = False,
    create: Create = False,
    describe_: Describe = False,
    alter: Alter = False,
    delete: Delete = False,
    topic: TopicName = None,
    partitions: Partitions = None,
    replication_factor: ReplicationFactor = None,
    replica_assignment: ReplicaAssignment = None,
    config: Config = None,
    if_exists: IfExists = False,
    if_not_exists: IfNotExists = False,
    under_replicated_partitions: UnderReplicatedPartitions = False,
    unavailable_partitions: UnavailablePartitions = False,
    under_min_isr_partitions: UnderMinIsrPartitions = False,
    at_min_isr_partitions: AtMinIsrPartitions = False,
    topics_with_overrides: TopicsWithOverrides = False,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """List, create, describe, alter or delete topics of any Kafka, with kafka-topics' flags.

    Exactly one of --list, --create, --describe, --alter, --delete says what to do.
    """
    action = _action([list_, create, describe_, alter, delete])
    filters = Filters(
        under_replicated=under_replicated_partitions,
        unavailable=unavailable_partitions,
        under_min_isr=under_min_isr_partitions,
        at_min_isr=at_min_isr_partitions,
        with_overrides=topics_with_overrides,
    )
    given = {
        "--partitions": partitions,
        "--replication-factor": replication_factor,
        "--replica-assignment": replica_assignment,
        "--config": config,
        "--if-exists": if_exists,
        "--if-not-exists": if_not_exists,
        "--under-replicated-partitions": under_replicated_partitions,
        "--unavailable-partitions": unavailable_partitions,
        "--under-min-isr-partitions": under_min_isr_partitions,
        "--at-min-isr-partitions": at_min_isr_partitions,
        "--topics-with-overrides": topics_with_overrides,
        "--exclude-internal": exclude_internal,
        "--json": as_json,
    }
    _check_combination(action, topic, given, filters)
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    settings = key_values(config or [], "--config")
    with refusals_told(), connected(target(bootstrap_server, data_dir_option)) as driver:
        if action == "--create":
            assert topic is not None, "checked above"
            asked = create_topic(
                topic,
                partitions=partitions or DEFAULT,
                replication_factor=replication_factor or DEFAULT,
                assignment=dict(enumerate(assignment or [])),
                configs=settings,
                timeout_ms=REQUEST_TIMEOUT_MS,
            )
            _create(driver, topic, asked, settings, if_not_exists=if_not_exists)
            return
        names = _matching(
            driver,
            topic,
            exclude_internal=exclude_internal,
            may_be_none=if_exists or action == "--list",
        )
        if action == "--list":
            print(json.dumps(names)) if as_json else _print_lines(names)
        elif action == "--describe":
            _describe(driver, names, filters, as_json=as_json)
        elif action == "--alter":
            assert partitions is not None, "checked above"
            _alter(driver, names, partitions, assignment)
        else:
            _delete(driver, names)


def _action(chosen: Sequence[bool]) -> str:
    actions = [name for name, is_chosen in zip(ACTIONS, chosen, strict=True) if is_chosen]
    refuse_if(
        len(actions) != 1,
        "Say what to do with exactly one of --list, --create, --describe, --alter, --delete.",
    )
    return actions[0]


def _check_combination(
    action: str, topic: str | None, given: Mapping[str, object], filters: Filters
) -> None:
    problem = None
    if topic is not None and not topic.strip():
        problem = "--topic is empty."
    elif topic is None and action in {"--create", "--alter", "--delete"}:
        problem = f"{action} needs --topic NAME."
    elif action == "--alter" and given["--config"]:
        problem = (
            "--config can't be used with --alter: `holdfast configs --alter --entity-type topics "
            f"--entity-name {topic} --add-config KEY=VALUE` changes settings."
        )
    elif action == "--alter" and given["--partitions"] is None:
        problem = "--alter needs --partitions N, the total to have afterwards."
    elif filters.count > 1:
        problem = "Only one filter at a time: they exclude each other, as in kafka-topics."
    elif topic is None and given["--if-exists"]:
        problem = "--if-exists goes with --topic NAME: without one there is nothing to miss."
    elif action == "--create" and given["--replica-assignment"] is not None:
        for option in ("--partitions", "--replication-factor"):
            if given[option] is not None:
                problem = f"--replica-assignment says it already: leave out {option}."
    if problem:
        raise CommandError(problem, code=EXIT_USAGE)
    refuse_idle(action, given, GOES_WITH)


def parse_assignment(text: str) -> list[list[int]]:
    """Read "1:0,2:1": partitions after commas, their brokers after colons."""
    try:
        assignment = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise CommandError(
            f"--replica-assignment {text!r}: broker ids with ':' between them, and ',' between "
            "partitions, are wanted; such as 1:0,2:1.",
            code=EXIT_USAGE,
        ) from None
    for index, brokers in enumerate(assignment):
        refuse_if(
            len(set(brokers)) != len(brokers),
            f"--replica-assignment: partition {index} names a broker twice.",
        )
        if len(brokers) != len(assignment[0]):
            raise CommandError(
                f"--replica-assignment: partition {index} has {len(brokers)} replicas, "
                f"partition 0 has {len(assignment[0])}.",
                code=EXIT_USAGE,
            )
    return assignment


def _matching(
    driver: Driver, topic: str | None, *, exclude_internal: bool, may_be_none: bool
) -> list[str]:
    """Names that the given expression matches as a whole, sorted. CommandError: it matches none."""
    known = topic_names(driver)
    names = [name for name in known if not (exclude_internal and known[name])]
    if topic is None:
        return names
    try:
        pattern = re.compile(topic.strip().replace(" ", "").replace(",", "|"))
    except re.error as error:
        raise CommandError(
            f"--topic {topic!r} is not a regular expression: {error}.", code=EXIT_USAGE
        ) from None
    found = [name for name in names if pattern.fullmatch(name)]
    if not found and not may_be_none:
        raise CommandError(f"--topic {topic}: there is no such topic.{did_you_mean(topic, known)}")
    return found


def _print_lines(lines: Sequence[str]) -> None:
    if lines:
        print("\n".join(lines))


def _create(
    driver: Driver,
    name: str,
    asked: AdminRequest[None],
    config: Mapping[str, str],
    *,
    if_not_exists: bool,
) -> None:
    if "." in name or "_" in name:
        print(PERIOD_WARNING)
    try:
        perform_patiently(driver, asked)
    except AdminError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            # A topic that isn't there can't be asked which keys it has.
            advice = unknown_keys(config, registry.TOPIC)
            raise CommandError(f"{refusal_text(error)}{advice}") from None
        if not if_not_exists:
            text = f"Topic {name} exists already (--if-not-exists makes that no error)."
            raise CommandError(text) from None
    else:
        print(f"Created topic {name}.")


def _describe(driver: Driver, names: Sequence[str], filters: Filters, *, as_json: bool) -> None:
    found = described(driver, names)
    _note_moves(driver, found)
    configs = configs_of(driver, ResourceType.TOPIC, [topic.name for topic in found])
    live = set(driver.nodes())
    if as_json:
        print(json.dumps(to_json(found, configs, live, filters), indent=2))
    else:
        _print_lines(list(describe(found, configs, live, filters)))


def _note_moves(driver: Driver, topics: Sequence[Topic]) -> None:
    """Say of each partition whether it is being moved, if the cluster tells us."""
    if not topics:
        return
    try:
        moves = driver.perform(reassignments(), timeout_s=MOVES_TIMEOUT_S)
        note_moves(topics, moves)
    except UnsupportedError:
        return
    except (AdminError, AnswerLostError) as error:
        why = f"no controller says what is being moved ({error})"
        print(f"warning: {why}; the rest is as brokers last knew it", file=sys.stderr)


def _alter(
    driver: Driver,
    names: Sequence[str],
    partitions: int,
    assignment: Sequence[Sequence[int]] | None,
) -> None:
    counts = {topic.name: len(topic.partitions) for topic in described(driver, names)}
    for name, count in counts.items():
        added = assignment
        if assignment is not None and len(assignment) == partitions:
            added = assignment[count:]  # kafka-topics wants those that exist named as well
        if added is not None and len(added) != partitions - count:
            raise CommandError(
                f"--replica-assignment names {len(added)} partitions, but {partitions - count} are "
                f"new in {name} (it has {count}).",
                code=EXIT_USAGE,
            )
        perform_patiently(driver, add_partitions(name, partitions, added, REQUEST_TIMEOUT_MS))


def _delete(driver: Driver, names: Sequence[str]) -> None:
    for name in names:
        perform_patiently(driver, delete_topic(name, REQUEST_TIMEOUT_MS))
