"""Goal: what we serve is what Apache Kafka serves. Method: its ApiVersions beside our table."""

from __future__ import annotations

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.node.door.api_table import BROKER
from holdfast.wire.messages import api_name
from holdfast.wire.messages.api_versions import ApiVersionsRequest

pytestmark = [pytest.mark.apache, pytest.mark.slow]


def test_our_versions_are_kafkas(apache_kafka: str) -> None:
    request = ApiVersionsRequest(client_software_name="holdfast", client_software_version="1")
    with Driver(apache_kafka) as driver:
        answer = driver.send(request)
    assert answer.error_code == 0
    theirs = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    expected = {api_name(key): theirs[key] for key in BROKER}

    assert {api_name(key): api.versions for key, api in BROKER.items()} == expected
