"""Goal: changes of metadata that were acknowledged and are gone are told of, and no others.

Method: one real broker, which forgets what another client takes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.test_lab_expectations import Sightings

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.lab.parameters import LabError
from holdfast.lab.scenario import load_scenario
from holdfast.lab.scenarios.disk_full import GROUP, SETTING, GroupSettings
from holdfast.wire.administration import alter_configs
from holdfast.wire.structs import ResourceType

MADE = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster.create(directory, brokers=1, combined=True, port=0) as made:
        made.start()
        yield made


@pytest.mark.process
@pytest.mark.parametrize(
    ("forgotten", "lost"), [((), []), ((0,), ["changes of metadata that were acknowledged"])]
)
def test_what_was_acknowledged_is_asked_for_again(
    cluster: LocalCluster, forgotten: tuple[int, ...], lost: list[str]
) -> None:
    seen: Any = Sightings()
    seen.cluster = cluster
    with ExitStack() as seen.afterwards, Driver(cluster.bootstrap_servers) as driver:
        settings = GroupSettings(seen)
        assert all(settings.change() for _ in range(MADE))
        for each in forgotten:
            group = f"{GROUP}-{each}"
            driver.perform(alter_configs(ResourceType.GROUP, group, {SETTING: None}))
        settings.expect_kept()
    assert [(check.expected, check.seen) for check in seen.checks] == [
        (f"all {MADE} kept", f"{len(forgotten)} lost")
    ]
    assert seen.failed == lost


def test_what_is_not_acknowledged_is_not_asked_for() -> None:
    with ExitStack() as afterwards:
        nobody = SimpleNamespace(bootstrap_servers="127.0.0.1:1")
        run: Any = SimpleNamespace(cluster=nobody, afterwards=afterwards)
        settings = GroupSettings(run)
        assert not settings.change()
        assert not settings._made


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"controllers": 2}, "--controllers 2: disk-full takes 3 or more"),
        ({"combined": True}, "--combined"),
    ],
)
def test_another_controller_has_to_follow(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(LabError, match=said):
        load_scenario("disk-full").with_flags(flags)
