"""Goal: every scenario is whole, and settings that make no sense are refused with the reason.

Method: tables over all scenarios; nothing is started.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.judge.verdict import Anomaly
from holdfast.lab.parameters import NEVER, ONE_IN_FLIGHT, LabError, Parameters
from holdfast.lab.scenario import DRAWN, IDLE, SCENARIOS, load_scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_something_to_prove_and_a_control(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    proofs = [part for part in scenario.parts if not part.is_control]
    controls = [part for part in scenario.parts if part.is_control]
    assert proofs
    assert controls
    for part in scenario.parts:
        part.parameters(scenario.defaults)  # its change makes sense
    for control in controls:
        kinds = (control.breaks_with, control.breaks_group, control.breaks_check)
        assert sum(each is not None for each in kinds) == 1
        if control.breaks_with is not None:
            assert control.breaks_with in scenario.defaults.promise.forbids
        if control.breaks_group is not None:
            assert scenario.defaults.group_promise is not None
            assert control.breaks_group in scenario.defaults.group_promise.forbids


RESENDS = {
    ("arrival-times", "acks-1"),
    ("replay", "control"),
    ("split-brain", "control"),
    ("storm", "control"),
    ("three-zones", "control"),
}
GIVES_UP = {  # an idempotent producer that takes a new epoch by itself
    ("client-links-cut", "longer"),
    ("clients-cut-off", "longer"),
}


@pytest.mark.parametrize("name", [*SCENARIOS, *DRAWN])
def test_doubled_events_are_the_clients_own_only_where_nobody_promised_otherwise(name: str) -> None:
    """Goal: what librdkafka sends twice with acks=1 breaks nothing, and excuses nobody else."""
    scenario = load_scenario(name)
    counted = {part.name: part for part in scenario.parts if Anomaly.DUPLICATED in part.counted}
    assert {(name, each) for each in counted} == {
        key for key in RESENDS | GIVES_UP if key[0] == name
    }
    for part in counted.values():
        parameters = part.parameters(scenario.defaults)
        if (name, part.name) in RESENDS:
            assert (parameters.acks, parameters.idempotent) == ("1", False)
        else:
            assert not part.is_control


@pytest.mark.parametrize("name", SCENARIOS)
def test_settings_that_steps_rely_on_are_refused(name: str) -> None:
    scenario = load_scenario(name)
    changed = {"brokers": 5, "partitions": 9, "acks": "0", "signal": "TERM", "min_isr": 1,
               "replication_factor": 3, "elr": True, "unclean": True, "controllers": 5,
               "combined": True}  # fmt: skip
    for flag in scenario.fixed:
        if changed[flag] != getattr(scenario.defaults, flag):
            with pytest.raises(LabError, match=flag.replace("_", "-")):
                scenario.with_flags({flag: changed[flag]})
    if name in IDLE["rate"]:
        with pytest.raises(LabError, match="no effect"):
            scenario.with_flags({"rate": 7.0})
    else:
        rate = max(7.0, scenario.least.get("rate", 0))
        assert scenario.with_flags({"rate": rate}).rate == rate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"acks": "2"}, "--acks"),
        ({"replication_factor": 4}, "3 brokers"),
        ({"min_isr": 0}, "--min-isr"),
        ({"min_isr": 3, "replication_factor": 2}, "--min-isr"),
        ({"signal": "HUP"}, "--signal"),
        ({"profile": "fast"}, "--profile"),
        ({"kills": 0}, "--kills"),
        ({"rate": 0.0}, "--rate"),
        ({"rate": float("inf")}, "--rate"),
        ({"duration_s": float("nan")}, "--duration"),
        ({"controllers": 0}, "--controllers"),
        ({"controllers": 5, "combined": True}, "3 brokers"),
        ({"racks": ("a",)}, "1 racks for 3 brokers"),
    ],
)
def test_settings_that_make_no_sense(change: dict[str, object], words: str) -> None:
    with pytest.raises(LabError, match=words):
        replace(Parameters(), **change)  # type: ignore[arg-type]


def test_an_unknown_scenario_is_named_with_those_that_are_there() -> None:
    with pytest.raises(LabError, match="one-broker-down"):
        load_scenario("no-such")


def test_the_ring_of_replicas_is_that_of_the_experiments() -> None:
    ground = Parameters(replication_factor=2, min_isr=1).assignment()
    assert ground == {0: (1, 0), 1: (2, 1), 2: (0, 2)}
    three = Parameters().assignment()
    assert three == {0: (1, 0, 2), 1: (2, 1, 0), 2: (0, 2, 1)}


def test_idempotence_follows_acks_and_retries() -> None:
    assert Parameters().idempotent
    assert not Parameters(acks="1").idempotent
    assert not Parameters(retries=0).idempotent
    assert Anomaly.LOST not in Parameters(acks="1").promise.forbids
    assert Anomaly.LOST in Parameters().promise.forbids


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, []),
        ({"config": "linger.ms=5"}, ["linger.ms=5"]),
        ({"config": ["a=1", "b=2"]}, ["a=1", "b=2"]),
    ],
)
def test_a_producer_sends_twice_only_where_that_is_asked_for(
    config: dict[str, object], told: list[str]
) -> None:
    """Goal: what a client doubles by itself is not laid at the cluster's door.

    It does when a message times out in flight, and when a later request is taken for one out of
    order, behind one that was refused. What a scenario asks for comes last, and counts.
    """
    assert Parameters().producer_flags(config)["config"] == [NEVER, ONE_IN_FLIGHT, *told]
    given_up = {"delivery_timeout_ms": 5000, **config}
    assert Parameters().producer_flags(given_up)["config"] == [ONE_IN_FLIGHT, *told]
    not_idempotent = {"no_idempotence": True, **config}
    assert Parameters().producer_flags(not_idempotent)["config"] == [NEVER, *told]
    sent_once = Parameters(acks="1").producer_flags(config)
    assert (sent_once["config"], sent_once["retries"]) == ([NEVER, *told], 0)


def test_profiles_and_config() -> None:
    assert Parameters().session_s == 3
    assert Parameters(profile="kafka").session_s == 9
    assert Parameters(config={"broker.session.timeout.ms": "5000"}).session_s == 5


def test_what_the_steps_can_not_do_without_is_refused() -> None:
    """Goal: no half minute of waiting for a voter that isn't there. Method: one controller."""
    scenario = load_scenario("controller-election")
    with pytest.raises(LabError, match="--controllers 2: controller-election takes 3 or more"):
        scenario.with_flags({"controllers": 2})
    assert scenario.with_flags({"controllers": 5}).controllers == 5
