"""Throttles of moves: what is told to the cluster when other moves are under way.

Goal: nobody takes another move's throttle off. Method: a cluster that only notes what it is told.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.exit_status import CommandError
from holdfast.cli.reassignment import mover
from holdfast.cli.reassignment.mover import Mover
from holdfast.clients import reassigning
from holdfast.wire.administration import AdminRequest, Move
from holdfast.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from holdfast.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from holdfast.wire.structs import ResourceType

SLOW = ("t", 0)


class Noting:
    """A driver of a cluster where t-0 goes from broker 0 to 1, and of which configs are noted."""

    def __init__(self) -> None:
        self.moves = {SLOW: Move(replicas=[1, 0], adding=[1], removing=[0])}
        self.configs: dict[tuple[str, str], str | None] = {}
        self.told: dict[int, int | None] = {}  # by broker: who was told of its settings

    def nodes(self) -> dict[int, tuple[str, int]]:
        return {0: ("nowhere", 1), 1: ("nowhere", 2)}

    def perform(self, asked: AdminRequest[Any], *, node: int | None = None) -> Any:
        if isinstance(asked.message, ListPartitionReassignmentsRequest):
            return dict(self.moves)
        assert isinstance(asked.message, IncrementalAlterConfigsRequest)
        for resource in asked.message.resources:
            if resource.resource_type == ResourceType.BROKER:
                self.told[int(resource.resource_name)] = node
            for config in resource.configs:
                self.configs[resource.resource_name, config.name] = config.value
        return None


def test_a_second_move_of_a_topic_leaves_the_first_one_on_the_list() -> None:
    """Seen to fail: t-0, which was still moving, went unthrottled."""
    driver: Any = Noting()
    current = {SLOW: [1, 0], ("t", 1): [0]}
    brokers = reassigning.throttle(driver, current, {("t", 1): [2]}, 5)
    assert brokers == [0, 1, 2]
    leaders, followers = (driver.configs["t", key] for key in reassigning.REPLICAS)
    assert (leaders, followers) == ("0:0,1:0", "0:1,1:2")


def test_each_broker_that_is_alive_is_told_of_its_own_rates() -> None:
    """Seen to fail: Apache Kafka's brokers take none but their own, and nothing was moved."""
    driver: Any = Noting()
    brokers = reassigning.throttle(driver, {SLOW: [1, 0]}, {SLOW: [2]}, 5)
    assert driver.told == {0: 0, 1: 1, 2: None}
    driver.told.clear()
    reassigning.clear_throttle(driver, ["t"], brokers)
    assert driver.told == {0: 0, 1: 1, 2: None}


def test_of_more_replicas_than_a_setting_can_name_all_are_throttled() -> None:
    """Seen to fail: Kafka refuses a list of more than 32,767 bytes, and nothing was moved."""
    driver: Any = Noting()
    current = {("t", partition): [0] for partition in range(6_000)}
    target = {key: [2] for key in current}
    assert reassigning.throttle(driver, current, target, 5) == [0, 1, 2]
    assert [driver.configs["t", key] for key in reassigning.REPLICAS] == ["*", "*"]


def test_a_new_target_is_throttled_at_who_was_arriving() -> None:
    """Seen to fail: broker 1, which held nothing yet, counted as one that is copied from."""
    driver: Any = Noting()
    reassigning.throttle(driver, {SLOW: [1, 0]}, {SLOW: [2]}, 5)
    leaders, followers = (driver.configs["t", key] for key in reassigning.REPLICAS)
    assert (leaders, followers) == ("0:0", "0:2,0:1")


@pytest.mark.parametrize("others", [True, False])
def test_what_is_done_takes_its_throttle_off_unless_others_move(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], others: bool
) -> None:
    """Seen to fail: the rate was taken off every broker, under the moves that were left."""
    driver: Any = Noting()
    if not others:
        driver.moves.clear()
    monkeypatch.setattr(reassigning, "outstanding", lambda *_: {})
    monkeypatch.setattr(reassigning, "racks", lambda _: {0: None, 1: None})
    Mover(driver, as_json=False, throttle=None, racks=True).verify({("u", 0): [1]}, keep=False)
    assert bool(driver.configs) is not others
    said = "Throttles stay on for t-0, until --verify finds all done."
    assert (said in capsys.readouterr().out) is others


def test_of_a_mistyped_topic_nothing_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: --verify --topic paymets said that all was done, and cleared throttles."""
    monkeypatch.setattr(mover, "topic_names", lambda _: {"payments": False})
    driver: Any = Noting()
    moving = Mover(driver, as_json=False, throttle=None, racks=True)
    moving.check_topics(["payments"])
    with pytest.raises(CommandError, match="Did you mean payments"):
        moving.check_topics(["paymets"])
