"""`holdfast groups`: kafka-consumer-groups' flags, on any Kafka.

Owns which options go together, and who does what they say: the modules beside this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.cli.consumer_groups import deleting, describing
from holdfast.cli.consumer_groups.group_options import (
    TIMEOUT_MS,
    AllGroups,
    AllTopics,
    ByDuration,
    Delete,
    DeleteOffsets,
    Describe,
    DryRun,
    Execute,
    Export,
    FromFile,
    Group,
    ListAll,
    Members,
    ResetOffsets,
    ShiftBy,
    ShowOffsets,
    State,
    Timeout,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    Topic,
    Type,
    ValidateRegex,
    Verbose,
)
from holdfast.cli.consumer_groups.group_tool import GroupTool
from holdfast.cli.consumer_groups.patterns import say_whether_valid
from holdfast.cli.consumer_groups.reset_values import (
    OFFSET_MAX,
    parse_datetime,
    parse_duration,
    parse_topics,
    read_plan,
)
from holdfast.cli.consumer_groups.resetting import Resetting
from holdfast.cli.consumer_groups.resetting import reset_offsets as carry_out_reset
from holdfast.cli.exit_status import EXIT_USAGE, CommandError, refuse_if
from holdfast.cli.refusals import refusals_told
from holdfast.cli.shared_options import (
    AsJson,
    BootstrapServer,
    ClusterDir,
    connected,
    did_you_mean,
    listed,
    refuse_idle,
    target,
)
from holdfast.clients.blocking_driver import NoBrokerError, UnsupportedError
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import STATES, TYPES
from holdfast.clients.offset_resets import Aim, Reset

ACTIONS = (
    "--list",
    "--describe",
    "--delete",
    "--reset-offsets",
    "--delete-offsets",
    "--validate-regex",
)
RESET = ("--reset-offsets",)
DESCRIBE = ("--describe",)
AIMS = (
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset",
    "--shift-by",
    "--by-duration",
    "--to-datetime",
    "--from-file",
)
GOES_WITH: Mapping[str, Sequence[str]] = {
    "--group": ("--describe", "--delete", "--reset-offsets", "--delete-offsets"),
    "--all-groups": ("--describe", "--delete", "--reset-offsets"),
    "--topic": ("--reset-offsets", "--delete-offsets"),
    "--all-topics": RESET,
    "--offsets": DESCRIBE,
    "--members": DESCRIBE,
    "--state": ("--describe", "--list"),
    "--verbose": DESCRIBE,
    "--type": ("--list",),
    **dict.fromkeys(AIMS, RESET),
    "--dry-run": RESET,
    "--execute": RESET,
    "--export": RESET,
    "--timeout": ACTIONS[:-1],
    "--json": ACTIONS[:-1],
}
VIEWS = ("--offsets", "--members", "--state")


def groups(
    *,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
    list_: ListAll = False,
    describe: Describe = False,
    delete: Delete = False,
    reset_offsets: ResetOffsets = False,
    delete_offsets: DeleteOffsets = False,
    validate_regex: ValidateRegex = None,
    group: Group = None,
    all_groups: AllGroups = False,
    topic: Topic = None,
    all_topics: AllTopics = False,
    offsets: ShowOffsets = False,
    members: Members = False,
    state: State = None,
    verbose: Verbose = False,
    type_: Type = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    by_duration: ByDuration = None,
    to_datetime: ToDatetime = None,
    from_file: FromFile = None,
    dry_run: DryRun = False,
    execute: Execute = False,
    export: Export = False,
    timeout_ms: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """List, describe, reset, delete groups of any Kafka, with kafka-consumer-groups' flags.

    Exactly one of --list, --describe, --delete, --reset-offsets, --delete-offsets, --validate-regex
    says what to do. Groups of both protocols, classic and consumer (KIP-848), are shown alike.
    """
    given: dict[str, Any] = {
        "--group": group,
        "--all-groups": all_groups,
        "--topic": topic,
        "--all-topics": all_topics,
        "--offsets": offsets,
        "--members": members,
        "--state": state,
        "--verbose": verbose,
        "--type": type_,
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--by-duration": by_duration,
        "--to-datetime": to_datetime,
        "--from-file": from_file,
        "--dry-run": dry_run,
        "--execute": execute,
        "--export": export,
        "--timeout": timeout_ms,
        "--json": as_json,
    }
    chosen = [list_, describe, delete, reset_offsets, delete_offsets, validate_regex is not None]
    action = _action(chosen)
    _check(action, given)
    if validate_regex is not None:
        say_whether_valid(validate_regex)
        return
    states = parse_words("--state", state, STATES) if list_ else None
    types = parse_words("--type", type_, TYPES)
    topics = parse_topics(topic or ())
    names = list(dict.fromkeys(group or ()))
    resetting = _resetting(given, names, topics) if reset_offsets else None
    waits_s = (timeout_ms or TIMEOUT_MS) / 1000
    whom = target(bootstrap_server, data_dir_option)
    with _told(), connected(whom, timeout_s=waits_s) as driver:
        coordinators = Coordinators(driver, patience_s=waits_s)
        tool = GroupTool(driver, coordinators, as_json=as_json, patience_s=waits_s)
        if all_groups:
            names = tool.all_groups()
        if list_:
            describing.show_list(tool, states, types)
        elif describe:
            show = _view(members=members, state=state is not None)
            show(tool, names, verbose=verbose)
        elif delete:
            deleting.delete(tool, names)
        elif delete_offsets:
            deleting.forget_offsets(tool, names[0], topics)
        else:
            assert resetting is not None, "there is no other action"
            carry_out_reset(tool, names, resetting)
        tool.end()


@contextmanager
def _told() -> Iterator[None]:
    """Turn refusals into CommandErrors; also that of a cluster that has no groups."""
    with refusals_told():
        try:
            yield
        except NoBrokerError:
            raise
        except UnsupportedError as error:
            raise CommandError(f"{error}. Does this cluster serve groups?") from None


def _action(chosen: Sequence[bool]) -> str:
    actions = [name for name, is_chosen in zip(ACTIONS, chosen, strict=True) if is_chosen]
    refuse_if(len(actions) != 1, f"Say what to do with exactly one of {listed(ACTIONS, 'or')}.")
    return actions[0]


def _check(action: str, given: Mapping[str, Any]) -> None:
    """Refuse what can't go together, as kafka-consumer-groups does, and what would be ignored."""
    refuse_idle(action, given, GOES_WITH)
    views = [view for view in VIEWS if _is_on(given[view])]
    aims = [aim for aim in AIMS if _is_on(given[aim])]
    problem = None
    if given["--group"] and given["--all-groups"]:
        problem = "--all-groups has no effect with --group: name one of them."
    elif any(not name for name in given["--group"] or ()):
        problem = "--group is empty."
    elif action in GOES_WITH["--all-groups"] and not (given["--group"] or given["--all-groups"]):
        problem = f"{action} takes --group GROUP or --all-groups."
    elif action == "--describe" and len(views) > 1:
        problem = f"{' and '.join(views)}: --describe shows one of them at a time."
    elif action == "--describe" and given["--state"]:
        problem = f"--state {given['--state']}: --describe --state takes no states; --list does."
    elif action == "--delete-offsets":
        if not (given["--group"] and given["--topic"]):
            problem = "--delete-offsets takes --group GROUP and --topic NAME."
        elif len(given["--group"]) > 1:
            problem = "--delete-offsets takes one --group."
    elif action == "--reset-offsets":
        problem = _wrong_reset(given, aims)
    refuse_if(problem, problem or "")


def _wrong_reset(given: Mapping[str, Any], aims: Sequence[str]) -> str | None:
    if len(aims) != 1:
        return f"--reset-offsets takes one of {listed(AIMS, 'or')}."
    if given["--dry-run"] and given["--execute"]:
        return "--dry-run and --execute exclude each other."
    if given["--export"] and given["--json"]:
        return "--export and --json say both how to print: leave one out."
    scopes = [scope for scope in ("--topic", "--all-topics") if given[scope]]
    if aims == ["--from-file"]:
        return f"{scopes[0]} has no effect with --from-file, which names them." if scopes else None
    if len(scopes) != 1:
        return f"{aims[0]} takes --topic NAME or --all-topics."
    return None


def _is_on(value: object) -> bool:
    return value is not None and value is not False and value != []


def _view(*, members: bool, state: bool) -> Callable[..., None]:
    """Return what shows what --describe is asked for."""
    if members:
        return describing.show_members
    return describing.show_states if state else describing.show_offsets


def _resetting(
    given: Mapping[str, Any], groups: Sequence[str], topics: Mapping[str, list[int] | None]
) -> Resetting:
    """Read where offsets are to be set to. CommandError: a value is none."""
    path = given["--from-file"]
    return Resetting(
        reset=None if path is not None else _reset(given),
        plans={} if path is None else read_plan(path, groups),
        topics=None if given["--all-topics"] else topics,
        execute=given["--execute"],
        export=given["--export"],
    )


def _reset(given: Mapping[str, Any]) -> Reset:
    if given["--to-offset"] is not None:
        return Reset(Aim.OFFSET, given["--to-offset"])
    if given["--shift-by"] is not None:
        return Reset(Aim.SHIFT, given["--shift-by"])
    if given["--to-datetime"] is not None:
        return Reset(Aim.TIMESTAMP, _since_1970(parse_datetime(given["--to-datetime"])))
    if given["--by-duration"] is not None:
        now_ms = time.time_ns() // 1_000_000
        return Reset(Aim.TIMESTAMP, _since_1970(now_ms - parse_duration(given["--by-duration"])))
    if given["--to-earliest"]:
        return Reset(Aim.EARLIEST)
    return Reset(Aim.LATEST if given["--to-latest"] else Aim.CURRENT)


def _since_1970(timestamp_ms: int) -> int:
    """Bound a moment: what is below zero has a meaning of its own in ListOffsets."""
    return min(max(timestamp_ms, 0), OFFSET_MAX)


def parse_words(option: str, text: str | None, known: Sequence[str]) -> list[str] | None:
    """Read words with commas between, in any case; None: not given; []: without any.

    CommandError: one of them isn't known.
    """
    if text is None:
        return None
    spelt = {word.lower(): word for word in known}
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word.lower() not in spelt:
            raise CommandError(
                f"{option} {text}: {word!r} is not one of {listed(known)}."
                f"{did_you_mean(word, known)}",
                code=EXIT_USAGE,
            )
    return list(dict.fromkeys(spelt[word.lower()] for word in words))
