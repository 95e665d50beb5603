"""`holdfast groups --reset-offsets`: what would be committed, and with --execute is.

Each group is planned by itself; one that somebody is in, or that can't be planned, keeps its
offsets while the others are served.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.cli.consumer_groups import group_tables as tables
from holdfast.cli.consumer_groups.group_tool import GroupTool, held, is_idle, is_there, why
from holdfast.cli.consumer_groups.reset_values import Offsets, csv_lines
from holdfast.cli.exit_status import CommandError
from holdfast.cli.shared_options import did_you_mean
from holdfast.clients.group_changes import commit_offsets
from holdfast.clients.group_descriptions import Committed, Description, committed
from holdfast.clients.offset_resets import Plan, Reset, ResetError, plan, plan_of
from holdfast.clients.topic_descriptions import described, topic_names
from holdfast.wire.administration import AdminError, TopicPartition

Topics = Mapping[str, Sequence[int] | None]
Planner = Callable[[str], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resetting:
    """What to set offsets to, and of which partitions; `topics` None: all that is committed."""

    reset: Reset | None
    plans: Mapping[str, Offsets]  # in the place of `reset`: what a file says, by group
    topics: Topics | None
    execute: bool
    export: bool


def reset_offsets(tool: GroupTool, groups: Sequence[str], asked: Resetting) -> None:
    """Plan, commit if that is asked, and print the offsets."""
    planner = _planner(tool, asked)
    done: dict[str, Offsets] = {}
    for group, answer in tool.described(groups).items():
        if not is_idle(answer):
            sentence = (
                held(answer, "reset")
                if isinstance(answer, Description)
                else tool.refused(group, answer)
            )
            tool.complain(sentence)
            continue
        try:
            found = planner(group)
        except ResetError as error:
            tool.complain(f"--group {group}: {error}.")
            continue
        except AdminError as error:
            tool.complain(f"--group {group}: {error.subject}: {why(error)}.")
            continue
        for note in found.notes:
            _say(note)
        if asked.execute:
            if not is_there(answer):
                _say(f"There was no group {group} until now: its offsets make it.")
            done[group] = _commit(tool, group, found.offsets)
        else:
            done[group] = found.offsets
    _print(tool, done, asked, of_one=len(groups) == 1)


def _planner(tool: GroupTool, asked: Resetting) -> Planner:
    """Return what plans one group; topics are looked up once for all of them."""
    if asked.reset is None:
        return lambda group: plan_of(
            tool.driver, _of_file(group, asked.plans), patience_s=tool.patience_s
        )
    reset = asked.reset
    named = None if asked.topics is None else _partitions(tool, asked.topics)

    def one(group: str) -> Plan:
        offsets = _committed(tool, group)
        keys = sorted(offsets) if named is None else named
        return plan(tool.driver, reset, keys, offsets, patience_s=tool.patience_s)

    return one


def _of_file(group: str, plans: Mapping[str, Offsets]) -> Offsets:
    if group not in plans:
        raise ResetError("the file has nothing of it")
    return plans[group]


def _committed(tool: GroupTool, group: str) -> dict[TopicPartition, Committed]:
    found = committed(tool.coordinators, [group])[group]
    if isinstance(found, AdminError):
        raise found
    return found


def _partitions(tool: GroupTool, topics: Topics) -> list[TopicPartition]:
    """Return what --topic names. CommandError: a topic isn't there."""
    there = {
        topic.name: [one.index for one in topic.partitions]
        for topic in described(tool.driver, list(topics))
    }
    for topic in topics:
        if topic not in there:
            advice = did_you_mean(topic, topic_names(tool.driver))
            raise CommandError(f"--topic {topic}: there is no such topic.{advice}")
    return sorted(
        (topic, number)
        for topic, numbers in topics.items()
        for number in (there[topic] if numbers is None else numbers)
    )


def _commit(tool: GroupTool, group: str, offsets: Offsets) -> Offsets:
    """Commit, and return what was taken."""
    if not offsets:
        return {}
    try:
        outcomes = commit_offsets(tool.coordinators, group, offsets)
    except AdminError as error:
        tool.complain(tool.refused(group, error))
        return {}
    for (topic, number), refused in sorted(outcomes.items()):
        if refused is not None:
            tool.complain(f"--group {group}: {topic}-{number} stays: {why(refused)}.")
    taken = {key for key, error in outcomes.items() if error is None}
    return {key: offset for key, offset in offsets.items() if key in taken}


def _print(tool: GroupTool, done: Mapping[str, Offsets], asked: Resetting, *, of_one: bool) -> None:
    if tool.as_json:
        tool.show_json(
            [
                {"group": group, "topic": topic, "partition": number, "new_offset": offset}
                for group, offsets in done.items()
                for (topic, number), offset in offsets.items()
            ]
        )
    elif asked.export:
        tool.show("".join(f"{line}\n" for line in csv_lines(done, of_one=of_one)) + "\n")
    elif done:
        tool.show(tables.new_offsets(done))
    if done and not asked.execute:
        _say("A dry run: nothing was changed. --execute sets these offsets.")


def _say(note: str) -> None:
    sys.stdout.flush()
    print(note, file=sys.stderr, flush=True)
