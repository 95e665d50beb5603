"""The options of `holdfast groups`, which are kafka-consumer-groups'."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 86_400_000


def _flag(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, help=text)
    return option


ListAll = Annotated[bool, _flag("--list", "Print the names of all groups.")]
Describe = Annotated[bool, _flag("--describe", "Show how far groups are, or who is in them.")]
Delete = Annotated[bool, _flag("--delete", "Delete groups with all that they have committed.")]
ResetOffsets = Annotated[
    bool, _flag("--reset-offsets", "Set what a group has committed, while nobody is in it.")
]
DeleteOffsets = Annotated[
    bool, _flag("--delete-offsets", "Forget what a group has committed of topics.")
]
ValidateRegex = Annotated[
    str | None,
    typer.Option(
        "--validate-regex", metavar="REGEX", help="Say whether brokers take this pattern (RE2)."
    ),
]
Group = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="A group; may be repeated.")
]
AllGroups = Annotated[bool, _flag("--all-groups", "All groups.")]
Topic = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="NAME[:0,1]", help="A topic, or some partitions of it; repeatable."
    ),
]
AllTopics = Annotated[bool, _flag("--all-topics", "All that the group has committed.")]
ShowOffsets = Annotated[
    bool, _flag("--offsets", "With --describe: offsets and lags; what is shown without a word.")
]
Members = Annotated[bool, _flag("--members", "With --describe: who is in it.")]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="[STATE,...]",
        help="With --describe: state and coordinator. With --list: a column, or groups in these "
        "states alone.",
    ),
]
Verbose = Annotated[bool, _flag("--verbose", "With --describe: epochs and assignments, too.")]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="[TYPE,...]",
        help="With --list: a column, or groups of these types alone (classic, consumer).",
    ),
]
ToEarliest = Annotated[bool, _flag("--to-earliest", "To the first record there is.")]
ToLatest = Annotated[bool, _flag("--to-latest", "To the end.")]
ToCurrent = Annotated[
    bool, _flag("--to-current", "To what is committed; to the end where nothing is.")
]
ToOffset = Annotated[
    int | None,
    typer.Option("--to-offset", metavar="N", help="To this offset."),
]
ShiftBy = Annotated[
    int | None,
    typer.Option("--shift-by", metavar="N", help="N further; back with -N."),
]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="PnDTnHnMnS", help="Back by so much time from now."),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="To a moment, of UTC if no zone."
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option("--from-file", metavar="FILE", help="To what --export has written."),
]
DryRun = Annotated[bool, _flag("--dry-run", "Print the new offsets, change nothing (default).")]
Execute = Annotated[bool, _flag("--execute", "Set the offsets.")]
Export = Annotated[bool, _flag("--export", "Print the new offsets as CSV, for --from-file.")]
Timeout = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="MS",
        help="How long to wait for answers, and for coordinators that load or move.",
        show_default=str(TIMEOUT_MS),
        min=1,
        max=TIMEOUT_MS_MAX,
    ),
]
