"""Where the coordinator is, what is said before it is there, and groups as tools see them."""

from __future__ import annotations

from functools import partial
from typing import Final

from compare import group_requests as ask
from compare.asking import Side
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from holdfast.wire.schema import Request

SEVERAL_KEYS_SINCE: Final = 4
KINDS: Final = (0, 1, 2, 3, 9, -1)
# What the filters of ListGroups are given, each by itself.
STATES: Final = (
    ["Stable"],
    ["stable"],
    ["STABLE", "Empty"],
    [" Empty "],
    ["Dead"],
    ["PreparingRebalance"],
    ["Nonsense"],
    ["Nonsense", "Empty"],
    [""],
)
TYPES: Final = (
    ["classic"],
    ["Classic"],
    ["consumer"],
    ["CONSUMER", "classic"],
    [" classic "],
    ["share"],
    ["streams"],
    ["nonsense"],
    ["nonsense", "classic"],
    [""],
)


def steps(side: Side) -> None:
    """Put them. They are the first that ask for a coordinator."""
    side.create("offsets-of", 3)
    _before(side)
    serve(side)
    _found(side)
    _seen(side)
    _removed(side)
    side.ask("commit of a transaction", TxnOffsetCommitRequest(group_id="g"), version=3)


def serve(side: Side) -> None:
    """Wait until all groups have their coordinator."""
    groups = [f"anybody-{number}" for number in range(40)]  # in each of the partitions

    def served() -> bool:
        found = FindCoordinatorRequest(coordinator_keys=groups)
        if any(one.error_code for one in side.driver.send(found, node=side.node).coordinators):
            return False
        answers = (side.driver.send(ask.fetch(one), node=side.node, version=9) for one in groups)
        return not any(each.error_code for answer in answers for each in answer.groups)

    side.until(served, "the coordinator to serve")


def _before(side: Side) -> None:
    """What is asked of a broker that coordinates nothing yet."""
    requests: dict[str, Request] = {
        "list": ListGroupsRequest(),
        "describe": DescribeGroupsRequest(groups=["early", ""]),
        "describe a consumer's": ConsumerGroupDescribeRequest(group_ids=["early", ""]),
        "delete": DeleteGroupsRequest(groups_names=["early", ""]),
        "join": ask.join("early"),
        "join nothing": ask.join(""),
        "sync": ask.sync("early", 1, "m"),
        "beat": ask.beat("early", 1, "m"),
        "leave": ask.leave("early", ("m", None)),
        "consume": ask.consume("early", "m", 0, ["offsets-of"]),
        "delete offsets": ask.delete_offsets("early", {"offsets-of": [0]}),
    }
    for step, request in requests.items():
        side.ask(f"before: {step}", request)
    side.ask("before: commit", ask.commit("early", {"offsets-of": {0: 1}}), version=9)
    side.ask_in_each(
        "before: fetch",
        lambda version: ask.fetch("early", {"offsets-of": [0]}, version=version),
        until=9,
    )
    side.ask("before: find", FindCoordinatorRequest(coordinator_keys=["early"]))


def _found(side: Side) -> None:
    def find(key: str, kind: int, version: int) -> FindCoordinatorRequest:
        if version < SEVERAL_KEYS_SINCE:
            return FindCoordinatorRequest(key=key, key_type=kind)
        return FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)

    side.ask_in_each("find", lambda version: find("g", 0, version))
    side.ask_in_each("find of no name", lambda version: find("", 0, version))
    for kind in KINDS:
        if kind != 1:  # a transaction's: theirs makes its topic first
            side.ask_in_each(
                f"find of kind {kind}",
                partial(find, "g", kind),
                since=1,
            )
    for keys in ([], ["a", "b", ""], ["a", "a"], ["é", "x" * 1000]):
        request = FindCoordinatorRequest(coordinator_keys=keys)
        side.ask(f"find {[key[:5] for key in keys]}", request)


def _seen(side: Side) -> None:
    """Groups that hold offsets alone, and none."""
    side.ask("commit to be seen", ask.commit("simple", {"offsets-of": {0: 5}}), version=9)
    side.ask_in_each("describe", DescribeGroupsRequest(groups=["simple"]))
    side.ask_in_each("describe an unknown one", DescribeGroupsRequest(groups=["unknown"]))
    side.ask_in_each(
        "describe with operations",
        DescribeGroupsRequest(groups=["simple"], include_authorized_operations=True),
        since=3,
    )
    side.ask_in_each(
        "describe unknown ones with operations",
        DescribeGroupsRequest(groups=["unknown", ""], include_authorized_operations=True),
        since=3,
    )
    side.ask_in_each("describe one twice", DescribeGroupsRequest(groups=["simple", "simple"]))
    side.ask("describe nothing", DescribeGroupsRequest(groups=[]))
    side.ask("describe the one of no name", DescribeGroupsRequest(groups=[""]))
    for names in (["simple"], ["unknown"], [""], [], ["simple", "unknown", ""], ["unknown"] * 2):
        request = ConsumerGroupDescribeRequest(group_ids=names)
        side.ask_in_each(f"describe consumers' {names}", request)
    side.ask(
        "describe consumers' with operations",
        ConsumerGroupDescribeRequest(group_ids=["simple"], include_authorized_operations=True),
    )
    listed(side, "groups")


def listed(side: Side, when: str) -> None:
    """List the groups as they are, by each filter."""
    side.ask_in_each(f"list {when}", ListGroupsRequest())
    for states in STATES:
        request = ListGroupsRequest(states_filter=states)
        side.ask_in_each(f"list {when} in {states}", request, since=4)
    for types in TYPES:
        side.ask(f"list {when} of {types}", ListGroupsRequest(types_filter=types))
    both = ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"])
    side.ask(f"list {when} by both", both)


def _removed(side: Side) -> None:
    for version in range(3):
        group = f"removed-{version}"
        side.ask(f"commit to {group}", ask.commit(group, {"offsets-of": {0: 5, 1: 6}}), version=9)
        request = DeleteGroupsRequest(groups_names=[group, "unknown", ""])
        side.ask(f"delete groups v{version}", request, version=version)
        side.ask(f"delete groups again v{version}", request, version=version)
        side.ask(f"fetch of {group}", ask.fetch(group), version=9)
    side.ask("commit to one named twice", ask.commit("twice", {"offsets-of": {0: 5}}), version=9)
    side.ask("delete one group twice", DeleteGroupsRequest(groups_names=["twice", "twice"]))
    side.ask("delete no group", DeleteGroupsRequest(groups_names=[]))
