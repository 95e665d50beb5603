"""A network that tests of one module share, and what they leave behind: nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.cluster.layout import BROKER, CONTROLLER, NodeRecord
from holdfast.cluster.network import ground, possible
from holdfast.cluster.network.addresses import Plan, plan_network
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.processes import wait_until

MARK = "HOLDFAST_TEST_NETWORK"


def record(number: int, *roles: str, rack: str | None = None) -> NodeRecord:
    return NodeRecord(
        id=number, roles=roles, host="", port=9092, log_file="", config_file="", rack=rack
    )


def small_plan() -> Plan:
    """Two brokers and a controller in two zones: 0 and 100 in a, 1 in b."""
    return plan_network([record(0, BROKER), record(1, BROKER), record(100, CONTROLLER)], ("a", "b"))


def marked_processes(value: str) -> list[int]:
    """Return the processes that have this mark in their environment."""
    wanted = f"{MARK}={value}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            with suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def nothing_is_left(value: str, folder: Path) -> None:
    """Assert that no marked process and no file stays. What does all the same is ended here."""
    try:
        wait_until(
            lambda: not marked_processes(value) and not any(folder.iterdir()),
            timeout_s=30,
            what=f"the end of {marked_processes(value)} and of {[*folder.iterdir()]}",
        )
    finally:
        for process in marked_processes(value):
            with suppress(ProcessLookupError):
                os.kill(process, 9)


@pytest.fixture(scope="session")
def possibility() -> Possibility:
    return possible.look({})


@pytest.fixture(scope="module")
def network(
    possibility: Possibility, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    """A network of `small_plan`, shared; its links are healed before each test."""
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")
    folder = tmp_path_factory.mktemp("network")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, str(folder))
        with ground.make(folder, small_plan()) as made:
            yield made
    nothing_is_left(str(folder), folder)


@pytest.fixture
def links(network: Network) -> Links:
    found = Links(network.directory)
    found.heal()
    return found
