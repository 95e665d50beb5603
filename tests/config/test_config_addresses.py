"""Goal: an address counts as the same however it is written. Method: tables, by themselves."""

from __future__ import annotations

import pytest

from holdfast.config.addresses import network_of, override_of
from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.config.registry import validate_broker_config

OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("written", "peer"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("::1:5", "::1"),
        ("2001:DB8::1:5", "2001:db8::1"),
        ("0:0:0:0:0:0:0:1:5", "::1"),
        ("[::1]:5", "::1"),
        ("fe80::1%eth0:5", "fe80::1"),
        ("::ffff:10.0.0.1:5", "10.0.0.1"),
    ],
)
def test_an_override_holds_however_its_address_is_written(written: str, peer: str) -> None:
    """Seen to fail: it was taken, and nothing came of it."""
    assert override_of(written) == (peer, 5)
    assert validate_broker_config(OVERRIDES, written, per_broker=False) is None


@pytest.mark.parametrize("written", ["localhost:5", "010.0.0.1:5", "10.0.0:5", "[::1:5", "::5"])
def test_an_override_without_an_address_is_refused(written: str) -> None:
    """Apache Kafka looks names up; here they would never match. Also where it is set later."""
    properties = {
        "node.id": "1",
        "process.roles": "broker",
        "controller.quorum.voters": "9@h:1",
        "controller.listener.names": "CONTROLLER",
    }
    with pytest.raises(ConfigError, match=f"{OVERRIDES}=.*is no IP address"):
        NodeSettings.from_properties({**properties, OVERRIDES: f"10.0.0.2:5,{written}"})
    why = validate_broker_config(OVERRIDES, f"10.0.0.2:5,{written}", per_broker=True)
    assert why is not None
    assert "is no IP address" in why


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "20010db800000000"),
        ("2001:db8::ffff:1", "20010db800000000"),
        ("2001:db8:0:1::1", "20010db800000001"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("a-name", "a-name"),
        ("no:address", "no:address"),
    ],
)
def test_an_owner_has_an_address_or_a_network_of_ipv6(host: str, network: str) -> None:
    assert network_of(host) == network
