"""What a cluster writes into its nodes' properties files is read back as it was meant.

Goal: a value is one value, whatever it holds. Method: write, parse with the node's own parser.
"""

from __future__ import annotations

import pytest

from holdfast.cluster.layout import render_properties
from holdfast.cluster.plan import with_config
from holdfast.config.properties import parse_properties

VALUES = ["100", "100\nx=1", "a\\b", " leading", "k=v", "#no comment"]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_stays_one_value(value: str) -> None:
    written = render_properties([("From --config", {"message.max.bytes": value})])
    assert parse_properties(written) == {"message.max.bytes": value}
    changed = with_config("message.max.bytes=1\nnode.id=0\n", {"message.max.bytes": value})
    assert parse_properties(changed) == {"message.max.bytes": value, "node.id": "0"}
