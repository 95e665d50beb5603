"""`holdfast groups --delete` and `--delete-offsets`: groups, or some of what they committed, go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.cli.consumer_groups import group_tables as tables
from holdfast.cli.consumer_groups.group_tool import GroupTool, why
from holdfast.clients.group_changes import delete_groups, delete_offsets
from holdfast.clients.topic_descriptions import described
from holdfast.wire.administration import AdminError, TopicPartition

NO_TOPIC = -1
DONE = "Successful"


def delete(tool: GroupTool, groups: Sequence[str]) -> None:
    """Delete groups that nobody is in, and say of the others who holds them."""
    found = delete_groups(tool.coordinators, groups)
    gone = [group for group in sorted(found) if not isinstance(found[group], AdminError)]
    refusals = {
        group: tool.refused(group, error)
        for group, error in sorted(found.items())
        if isinstance(error, AdminError)
    }
    if tool.as_json:
        tool.show_json([{"group": group, "error": refusals.get(group)} for group in sorted(found)])
    elif gone:
        named = ", ".join(f"'{group}'" for group in gone)
        tool.show(
            f"\nThese consumer groups were deleted successfully: {named}\n"
            if refusals
            else f"Deletion of requested consumer groups ({named}) was successful.\n"
        )
    for sentence in refusals.values():
        tool.complain(sentence)


def forget_offsets(tool: GroupTool, group: str, topics: Mapping[str, Sequence[int] | None]) -> None:
    """Delete what a group has committed of topics, partition by partition or all of each."""
    keys, unknown = _partitions(tool, topics)
    outcomes: dict[TopicPartition, AdminError | None] = {}
    statuses: dict[TopicPartition, str] = {
        (topic, NO_TOPIC): "Error: there is no such topic" for topic in unknown
    }
    refused = ""
    if keys:
        try:
            outcomes = delete_offsets(tool.coordinators, group, keys)
        except AdminError as error:
            refused = tool.refused(group, error)
            outcomes = dict.fromkeys(keys, error)
    statuses |= {
        key: DONE if error is None else f"Error: {why(error)}" for key, error in outcomes.items()
    }
    bad = [status for status in statuses.values() if status != DONE]
    if tool.as_json:
        tool.show_json(
            [
                {
                    "topic": topic,
                    "partition": None if number == NO_TOPIC else number,
                    "error": None if statuses[topic, number] == DONE else statuses[topic, number],
                }
                for topic, number in sorted(statuses)
            ]
        )
    else:
        if not bad:
            tool.show(f"Request succeeded for deleting offsets from group {group}.\n")
        tool.show(tables.deleted_offsets(statuses))
    if refused:
        tool.complain(refused)
    elif bad:
        tool.complain(f"--group {group}: {len(bad)} of these offsets were not deleted.")


def _partitions(
    tool: GroupTool, topics: Mapping[str, Sequence[int] | None]
) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions that are meant, and the topics that aren't there."""
    whole = [topic for topic, numbers in topics.items() if numbers is None]
    found: dict[str, list[int]] = {}
    for there in described(tool.driver, whole):
        found[there.name] = [one.index for one in there.partitions]
    keys: list[TopicPartition] = []
    for topic, numbers in topics.items():
        wanted = found.get(topic, []) if numbers is None else numbers
        keys.extend((topic, number) for number in sorted(wanted))
    return keys, [topic for topic in whole if topic not in found]
