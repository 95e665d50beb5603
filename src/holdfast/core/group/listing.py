"""Groups as ListGroups and DescribeGroups show them.

Rules: classic-groups.md#describing, classic-groups.md#listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.group.any_group import AnyGroup
from holdfast.core.group.classic.classic_group import CLASSIC, ClassicGroup
from holdfast.core.group.classic.classic_state import GroupState
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_groups import DescribedGroup
from holdfast.wire.messages.list_groups import ListedGroup

NOT_FOUND_SINCE: Final = 6  # DescribeGroups: before, a group that is not there was dead


def describe(group: AnyGroup | None, group_id: str, version: int) -> DescribedGroup:
    """Describe a classic group; there is no other for DescribeGroups."""
    if group is not None and group.kind == CLASSIC:
        assert isinstance(group, ClassicGroup), "one class says that it is classic"
        return group.describe()
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        what = "not found" if group is None else "is not a classic group"
        described.error_message = f"Group {group_id} {what}."
    return described


def list_groups(
    groups: Iterable[AnyGroup], states: Sequence[str], types: Sequence[str]
) -> list[ListedGroup]:
    """List the groups in one of these states and of one of these types; none named: all."""
    states = [each.lower().strip() for each in states]
    types = [each.lower() for each in types]
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.kind,
        )
        for group in groups
        if (not states or group.state_name.lower() in states) and (not types or group.kind in types)
    ]
