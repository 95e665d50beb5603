"""There are no transactions yet, and whoever wants one is told so at once.

Goal: no user waits for ever. Method: an error that says it has to come within a bound of seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

BOUND_S = 30.0


def test_a_transactional_producer_gives_its_user_the_error(target: Target) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": "x"})
    with pytest.raises(KafkaException, match="Transactions are not served") as refused:
        producer.init_transactions(BOUND_S)
    assert refused.value.args[0].fatal()
