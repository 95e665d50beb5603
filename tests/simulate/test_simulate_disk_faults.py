"""A disk's fault excuses a loss only if it has struck, and until its node has recovered.

Goal: a fault that struck nothing excuses nothing, and one that is over and done with not what is
lost later. Method: the life of a node and its disk, step by step.
"""

from __future__ import annotations

import pytest

from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.disk_quota import Quota
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.truth import DISK_FAULT, WIPED

NODE = 1


class World:
    def __init__(self, *, struck: int) -> None:
        self.oracle = Oracle()
        self.fault = DiskFault(operations=["append"])
        self.fault.struck = struck
        self.oracle.faults.laid_in(NODE, self.fault)

    @property
    def cause(self) -> str:
        return self.oracle._cause(NODE)

    def heal(self, *, up: bool = True) -> None:
        self.oracle.faults.healed(NODE, up=up)


@pytest.mark.parametrize(("struck", "cause"), [(0, ""), (1, DISK_FAULT)])
def test_a_fault_excuses_what_it_struck(struck: int, cause: str) -> None:
    world = World(struck=struck)
    assert world.cause == cause
    assert world.oracle.faults.harmed == ({NODE} if struck else set())


@pytest.mark.parametrize("up", [True, False], ids=["killed on a healed disk", "dead until healed"])
def test_the_excuse_ends_with_the_first_recovery_on_a_healed_disk(*, up: bool) -> None:
    world = World(struck=1)
    world.oracle.died(NODE)
    world.oracle.loaded(NODE)
    assert world.cause == DISK_FAULT, "its disk fails still"
    world.heal(up=up)
    if up:
        world.oracle.loaded(NODE)
        assert world.cause == DISK_FAULT, "it began before that"
        world.oracle.died(NODE)
    assert world.cause == DISK_FAULT, "what it lost is found now"
    world.oracle.loaded(NODE)
    assert world.cause == ""
    assert world.oracle.faults.harmed == {NODE}, "who may lead was decided with that"


def test_a_later_fault_is_another_one() -> None:
    world = World(struck=1)
    world.heal(up=False)
    world.oracle.faults.laid_in(NODE, DiskFault(operations=["append"]))
    world.oracle.loaded(NODE)
    assert world.cause == DISK_FAULT, "it was not healed"


def test_a_new_disk_has_no_faults() -> None:
    world = World(struck=1)
    world.oracle.died(NODE, WIPED)
    assert world.cause == WIPED
    world.oracle.loaded(NODE)
    assert world.cause == ""


def test_a_full_disk_is_no_loss_and_is_out_of_use_until_its_node_begins_anew() -> None:
    world = World(struck=0)
    faults = world.oracle.faults
    room = Quota(prefix="/", left_bytes=0)
    faults.filled(NODE, room)
    assert not faults.offline(NODE)
    room.struck = 1
    world.oracle.died(NODE)
    assert faults.offline(NODE), "it has no room still"
    world.heal()
    assert faults.offline(NODE), "it goes on without what it has lost"
    assert world.cause == ""
    world.oracle.died(NODE)
    assert not faults.offline(NODE)
