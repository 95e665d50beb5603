"""Goal: who asks for the leader says how far its log goes at that moment.

Method: the real asking in virtual time; what it connects to is made by hand, and takes so long that
the log grows meanwhile.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.log_kit import virtual

from holdfast.core.quorum.voter_events import NOBODY
from holdfast.node.quorum import discovery
from holdfast.node.quorum.discovery import Discovery
from holdfast.runtime.ports import Runtime
from holdfast.wire.messages.fetch import FetchRequest, FetchResponse


def test_the_question_goes_out_from_where_the_log_ends_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was made before there was a connection, and named an end from before that."""
    asked: list[int] = []
    replica: Any = SimpleNamespace(
        runtime=None,
        settings=SimpleNamespace(
            controller_quorum_bootstrap_servers=[SimpleNamespace(host="c", port=1)],
            controller_quorum_fetch_timeout_ms=2000,
            controller_quorum_election_timeout_ms=1000,
        ),
        key=SimpleNamespace(node_id=3),
        log=SimpleNamespace(end=81),
        cluster_id=None,
    )

    class Leader:
        async def send(self, message: FetchRequest, *, timeout_ms: int) -> FetchResponse:
            assert timeout_ms == 2000
            asked.append(message.topics[0].partitions[0].fetch_offset)
            return FetchResponse()

        def close(self) -> None:
            pass

    async def dial(*_to: object, **_how: object) -> Leader:
        await asyncio.sleep(0.1)
        replica.log.end = 82
        return Leader()

    async def body(_runtime: Runtime) -> None:
        member: Any = SimpleNamespace(follow_again=lambda: None, loop_ended=lambda _task: None)
        lost: Any = SimpleNamespace(known_leader=NOBODY)
        addresses: Any = None
        asking = Discovery(replica, lost, addresses, member)
        asking.start()
        await asyncio.sleep(1)
        asking.close()

    monkeypatch.setattr(discovery, "dial", dial)
    virtual(body)
    assert asked == [82]
