"""`holdfast groups --list` and `--describe`: what there is, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.cli.consumer_groups import group_tables as tables
from holdfast.cli.consumer_groups.group_tool import GroupTool, error_json, is_there, why
from holdfast.clients.group_descriptions import Description, listed
from holdfast.clients.group_lags import PartitionLag, lags_of
from holdfast.wire.administration import AdminError


def show_list(tool: GroupTool, states: Sequence[str] | None, types: Sequence[str] | None) -> None:
    """Print groups; with types and states, those of them if any are named. None: no column."""
    found = listed(tool.driver, states=states or (), types=types or (), patience_s=tool.patience_s)
    if tool.as_json:
        tool.show_json(tables.list_json(found))
    else:
        tool.show(tables.group_list(found, types=types is not None, states=states is not None))


def show_offsets(tool: GroupTool, groups: Sequence[str], *, verbose: bool) -> None:
    """Print committed offsets and lags; of a group that has none only a note."""
    there, entries = _sorted_out(tool, groups)
    lags = lags_of(tool.coordinators, there, patience_s=tool.patience_s)
    for group, description in there.items():
        rows = lags[group]
        if isinstance(rows, AdminError):
            sentence = f"--group {group}: its offsets can't be had: {why(rows)}."
            tool.complain(sentence)
            entries[group] = error_json(group, sentence)
        elif tool.as_json:
            entries[group] = tables.offsets_json(description, rows)
        else:
            _print_offsets(tool, description, rows, verbose=verbose)
    _print_entries(tool, entries)


def _print_offsets(
    tool: GroupTool, description: Description, rows: Sequence[PartitionLag], *, verbose: bool
) -> None:
    text = tables.offsets(description.group, rows, verbose=verbose) if rows else ""
    tool.show(text, tables.note(description))


def show_members(tool: GroupTool, groups: Sequence[str], *, verbose: bool) -> None:
    """Print who is in each group, and what they have."""
    _show(
        tool,
        groups,
        lambda description: tables.members(description, verbose=verbose),
        tables.members_json,
    )


def show_states(tool: GroupTool, groups: Sequence[str], *, verbose: bool) -> None:
    """Print the state of each group, and who coordinates it."""
    _show(
        tool,
        groups,
        lambda description: tables.state(description, verbose=verbose),
        tables.state_json,
    )


def _show(
    tool: GroupTool,
    groups: Sequence[str],
    text_of: Callable[[Description], str],
    json_of: Callable[[Description], dict[str, Any]],
) -> None:
    there, entries = _sorted_out(tool, groups)
    for group, description in there.items():
        if tool.as_json:
            entries[group] = json_of(description)
        else:
            tool.show(text_of(description), tables.note(description))
    _print_entries(tool, entries)


def _sorted_out(
    tool: GroupTool, groups: Sequence[str]
) -> tuple[dict[str, Description], dict[str, Any]]:
    """Return the groups that are there, and say of the others why they aren't."""
    there: dict[str, Description] = {}
    entries: dict[str, Any] = {}
    for group, answer in tool.described(groups).items():
        if isinstance(answer, Description) and is_there(answer):
            there[group] = answer
            continue
        sentence = (
            tool.refused(group, answer) if isinstance(answer, AdminError) else tool.missing(group)
        )
        tool.complain(sentence)
        entries[group] = error_json(group, sentence)
    return there, entries


def _print_entries(tool: GroupTool, entries: dict[str, Any]) -> None:
    if tool.as_json:
        tool.show_json([entries[group] for group in sorted(entries)])
