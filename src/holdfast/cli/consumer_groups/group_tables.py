"""How groups are shown: the columns of kafka-consumer-groups, character by character. Pure.

Descriptions go in, text comes out as it is to be printed, line ends included: Kafka's tool begins
some tables with an empty line and ends others with one.

Rules: tools.md#describing-groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.clients.group_descriptions import Assignment, Description, Listing, Member
from holdfast.clients.group_lags import PartitionLag
from holdfast.wire.administration import TopicPartition

MISSING: Final = "-"
LEAST: Final = 15  # of columns that grow with what is in them
REBALANCING: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)

Row = Sequence[str]


def group_list(groups: Sequence[Listing], *, types: bool, states: bool) -> str:
    """Return `--list`, with the columns that --type and --state add."""
    if not (types or states):
        return "".join(f"{each.group}\n" for each in groups)
    header = ["GROUP", *(["TYPE"] if types else []), *(["STATE"] if states else [])]
    rows = [
        [
            each.group,
            *([each.type or "Unknown"] if types else []),
            *([each.state or "Unknown"] if states else []),
        ]
        for each in groups
    ]
    widths = [max([LEAST, *(len(each.group) for each in groups)]) + 10, 20, 20]
    return "".join(f"{_padded(row, widths)}\n" for row in [header, *rows])


def note(description: Description) -> str:
    """Return what is said of a group on standard error before its table; "": nothing."""
    group = description.group
    if description.state == "Empty":
        return f"\nConsumer group '{group}' has no active members."
    if description.state in REBALANCING:
        return f"\nWarning: Consumer group '{group}' is rebalancing."
    return ""


def offsets(group: str, rows: Sequence[PartitionLag], *, verbose: bool) -> str:
    """Return `--describe --offsets` of one group that has any."""
    epoch = ["LEADER-EPOCH"] if verbose else []
    header = [
        *("GROUP", "TOPIC", "PARTITION"),
        *epoch,
        *("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    cells = [_offset_cells(group, row, verbose=verbose) for row in rows]
    last = len(header) - 1
    grows = (0, 1, last - 2, last - 1)
    fixed = [10, *([15] if verbose else []), 15, 15, 15]
    least = [LEAST, LEAST, *fixed, LEAST, LEAST, 0]
    widths = [_width(cells, at, least[at]) if at in grows else least[at] for at in range(last + 1)]
    return "".join(f"\n{_padded(row, widths)}" for row in [header, *cells]) + "\n"


def _offset_cells(group: str, row: PartitionLag, *, verbose: bool) -> Row:
    member = row.member
    known = row.committed
    epoch = MISSING if known is None or known.leader_epoch < 0 else str(known.leader_epoch)
    return [
        group,
        row.topic,
        str(row.partition),
        *([epoch] if verbose else []),
        MISSING if known is None else str(known.offset),
        _number(row.log_end),
        _number(row.lag),
        MISSING if member is None else member.id,
        MISSING if member is None else member.host,
        MISSING if member is None else member.client_id,
    ]


def members(description: Description, *, verbose: bool) -> str:
    """Return `--describe --members` of one group, which may have none."""
    has_instances = any(member.instance_id for member in description.members)
    header = [
        *("GROUP", "CONSUMER-ID"),
        *(["GROUP-INSTANCE-ID"] if has_instances else []),
        *("HOST", "CLIENT-ID", "#PARTITIONS"),
    ]
    least = [LEAST, LEAST, *([17] if has_instances else []), LEAST, LEAST, LEAST]
    cells = [
        [
            description.group,
            member.id,
            *([member.instance_id or ""] if has_instances else []),
            *(member.host, member.client_id, str(member.size)),
        ]
        for member in description.members
    ]
    is_mixed = verbose and _is_mixed(description)
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        least += [LEAST, 20, LEAST, 20]
        if is_mixed:
            header.append("UPGRADED")
            least.append(0)
        for row, member in zip(cells, description.members, strict=True):
            row.extend(_verbose_cells(description, member, is_mixed=is_mixed))
    widths = [_width(cells, at, width) for at, width in enumerate(least)]
    if is_mixed:
        widths[-1] = 0  # nothing stands behind it
    end = "\n" if verbose else " \n"
    return "\n" + "".join(f"{_padded(row, widths)}{end}" for row in [header, *cells])


def _is_mixed(description: Description) -> bool:
    """Say whether members of both protocols are in it: only then Kafka's tool tells them apart."""
    told = [member.upgraded for member in description.members]
    return True in told and False in told


def _verbose_cells(description: Description, member: Member, *, is_mixed: bool) -> list[str]:
    return [
        _number(member.epoch),
        assignment(member.assignment),
        _number(description.target_epoch),
        MISSING if member.target is None else assignment(member.target),
        *(
            [MISSING if member.upgraded is None else str(member.upgraded).lower()]
            if is_mixed
            else []
        ),
    ]


def assignment(partitions: Assignment) -> str:
    """Return partitions by topic on one line: a:0,1;b:2."""
    parts = [
        f"{topic}:{','.join(map(str, sorted(numbers)))}"
        for topic, numbers in partitions.items()
        if numbers
    ]
    return ";".join(sorted(parts)) or MISSING  # by the text, so that a-b stands before a


def state(description: Description, *, verbose: bool) -> str:
    """Return `--describe --state` of one group."""
    known = description.coordinator
    header = [
        *("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"),
        *(["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []),
        "#MEMBERS",
    ]
    cells = [
        description.group,
        f"{known.host}:{known.port}  ({known.node})",
        description.assignor or MISSING,
        description.state,
        *([_number(description.epoch), _number(description.target_epoch)] if verbose else []),
        str(len(description.members)),
    ]
    least = [LEAST, 25, 20, 20, *([15, 25] if verbose else []), 0]
    widths = [_width([cells], at, width) if at < 2 else width for at, width in enumerate(least)]
    return "".join(f"\n{_padded(row, widths)}" for row in [header, cells]) + "\n"


def new_offsets(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return what --reset-offsets sets, or would."""
    rows = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    rows += [
        [group, topic, str(partition), str(offset)]
        for group, plan in plans.items()
        for (topic, partition), offset in plan.items()
    ]
    widths = [_width(rows, 0, LEAST), _width(rows, 1, LEAST), 10, 0]
    return "".join(f"\n{_padded(row, widths)}" for row in rows) + "\n"


def deleted_offsets(statuses: Mapping[TopicPartition, str]) -> str:
    """Return what --delete-offsets says of each partition; -1: of a topic that isn't there."""
    rows = [["TOPIC", "PARTITION", "STATUS"]]
    rows += [
        [topic, MISSING if number < 0 else str(number), statuses[topic, number]]
        for topic, number in sorted(statuses)
    ]
    widths = [_width(rows, 0, LEAST), 10, LEAST]
    return "".join(f"\n{_padded(row, widths)}" for row in rows) + "\n"


# For machines.


def list_json(groups: Sequence[Listing]) -> list[dict[str, Any]]:
    """Return `--list`."""
    return [
        {"group": each.group, "type": each.type or None, "state": each.state or None}
        for each in groups
    ]


def offsets_json(description: Description, rows: Sequence[PartitionLag]) -> dict[str, Any]:
    """Return `--describe --offsets`; null for what there isn't."""
    return _head_json(description) | {
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "leader_epoch": (
                    None
                    if row.committed is None or row.committed.leader_epoch < 0
                    else row.committed.leader_epoch
                ),
                "current_offset": None if row.committed is None else row.committed.offset,
                "log_end_offset": row.log_end,
                "lag": row.lag,
                "metadata": None if row.committed is None else row.committed.metadata,
                "consumer_id": None if row.member is None else row.member.id,
                "host": None if row.member is None else row.member.host,
                "client_id": None if row.member is None else row.member.client_id,
            }
            for row in rows
        ]
    }


def members_json(description: Description) -> dict[str, Any]:
    """Return `--describe --members`."""
    return _head_json(description) | {
        "members": [
            {
                "consumer_id": member.id,
                "group_instance_id": member.instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "epoch": member.epoch,
                "assignment": _assignment_json(member.assignment),
                "target_assignment": (
                    None if member.target is None else _assignment_json(member.target)
                ),
            }
            for member in description.members
        ]
    }


def state_json(description: Description) -> dict[str, Any]:
    """Return `--describe --state`."""
    return _head_json(description) | {
        "coordinator": {
            "id": description.coordinator.node,
            "host": description.coordinator.host,
            "port": description.coordinator.port,
        },
        "assignment_strategy": description.assignor,
        "group_epoch": description.epoch,
        "target_assignment_epoch": description.target_epoch,
        "member_count": len(description.members),
    }


def _assignment_json(partitions: Assignment) -> dict[str, list[int]]:
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}


def _head_json(description: Description) -> dict[str, Any]:
    return {
        "group": description.group,
        "type": description.type,
        "state": description.state,
    }


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)


def _width(rows: Sequence[Row], at: int, least: int) -> int:
    return max([least, *(len(row[at]) for row in rows)])


def _padded(row: Row, widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
