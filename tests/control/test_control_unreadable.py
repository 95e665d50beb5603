"""Goal: a broker that can't understand the metadata log ends and says so; it never goes on with
what it knew, unfenced. And clients' requests to the controller never stand before the broker's own.

Method: one broker of three finds a batch that does not parse, for ever or for a while; a controller
that never answers what clients ask for.
Seen to fail: the broker tried for ever, led on, and was counted on; a block of producer ids came
behind an answer that did not come; nothing was refused; and one connection took all there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.control.control_world import creation, play

from holdfast.node.broker import forwarding, metadata_observer
from holdfast.node.controller.controller import Controller
from holdfast.node.metadata.metadata_log import CommittedBatch, decode_in_turns
from holdfast.runtime.dial import Connection, RequestTimeoutError, dial
from holdfast.testing.ground.loop import current_process
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import BROKER_PORT, SimulatedCluster
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.messages.create_topics import CreateTopicsRequest
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest

LONG_MS = 600_000


def spoil(monkeypatch: pytest.MonkeyPatch, attempts: int) -> list[int]:
    """Let broker 2 find damage so many times wherever a topic of this name stands."""
    met: list[int] = []

    def damaged(data: bytes | memoryview) -> Iterator[CommittedBatch | None]:
        process = current_process()
        is_it = process is not None and process.name.startswith("broker-2")
        if is_it and b"unreadable" in bytes(data) and len(met) < attempts:
            met.append(len(data))
            raise WireError("a record of a type that nobody knows")
        yield from decode_in_turns(data)

    monkeypatch.setattr(metadata_observer, "decode_in_turns", damaged)
    return met


def test_a_broker_that_does_not_understand_the_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, 1000)

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t", assignments=[[2, 0, 1]])
        offset = cluster.image.offset
        await client.ask(creation("unreadable"))
        await cluster.until(lambda: bool(cluster.exits), "it ends", seconds=30)
        (why,) = cluster.exits
        assert f"broker-2: the metadata log does not parse at offset {offset + 1}" in why
        assert "a record of a type that nobody knows" in why
        await cluster.until(lambda: cluster.image.partition("t", 0).leader == 0, "it is led")  # type: ignore[union-attr]
        client.forget()
        await client.until(lambda: client.produce("t", 0, [b"x"], acks=-1, node=0))

    play(story)


def test_what_can_be_read_at_last_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    met = spoil(monkeypatch, metadata_observer.UNREAD_MAX - 1)

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().ask(creation("unreadable"))
        broker = cluster.nodes[2].broker
        assert broker is not None
        await cluster.until(lambda: "unreadable" in broker.image.topics, "it has been read")
        assert len(met) == metadata_observer.UNREAD_MAX - 1
        met.clear()
        await cluster.client().ask(creation("unreadable-too"))
        await cluster.until(lambda: "unreadable-too" in broker.image.topics, "once more")
        assert cluster.exits == []

    play(story)


def deafen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller never answers a CreateTopics, nor what comes behind it on a connection."""
    decide = Controller.decide

    def deaf(self: Controller, context: Any, *given: Any, **named: Any) -> Any:
        if context.header.key == CreateTopicsRequest.KEY:
            return context.defer()
        return decide(self, context, *given, **named)

    monkeypatch.setattr(Controller, "decide", deaf)


async def knowing(cluster: SimulatedCluster, count: int) -> list[ClusterClient]:
    """Clients that know the brokers."""
    clients = [cluster.client(f"client-{number}") for number in range(count)]
    await clients[0].create_topic("known")
    for client in clients:
        await client.leader("known", 0)
    return clients


def test_a_brokers_own_requests_do_not_wait_behind_those_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client, other = await knowing(cluster, 2)
        deafen(monkeypatch)
        waiting = asyncio.ensure_future(client.ask(creation("t"), node=1))
        await asyncio.sleep(0.2)
        answer = await other.ask(InitProducerIdRequest(transactional_id=None), node=1)
        assert answer.error_code == ErrorCode.NONE
        assert not waiting.done()
        waiting.cancel()

    play(story, request_timeout_ms="20000")


def test_an_isr_shrinks_while_clients_wait_for_the_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice: the next change goes out when the one before has been answered."""

    async def story(cluster: SimulatedCluster) -> None:
        client, other = await knowing(cluster, 2)
        await other.create_topic("t", assignments=[[1, 2, 0]])
        deafen(monkeypatch)
        endless = creation("more")
        endless.timeout_ms = 60_000
        waiting = asyncio.ensure_future(client.ask(endless, node=1))
        await asyncio.sleep(0.2)
        for dies, isr in ((2, (1, 0)), (0, (1,))):
            cluster.crash(dies)
            await other.until(lambda: other.produce("t", 0, [b"x"], acks=1, node=1))
            await cluster.until(
                lambda isr=isr: cluster.image.partition("t", 0).isr == isr,  # type: ignore[misc, union-attr]
                "its leader has asked for it",
                seconds=5,
            )
        waiting.cancel()

    play(
        story,
        request_timeout_ms="20000",
        broker_session_timeout_ms="60000",
        replica_lag_time_max_ms="1000",
    )


@pytest.mark.parametrize("bound", ["REQUESTS_MAX", "BYTES_MAX"])
def test_what_is_forwarded_is_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 200

    async def story(cluster: SimulatedCluster) -> None:
        clients = await knowing(cluster, 20)
        monkeypatch.setattr(forwarding, "ADDRESS_PART", 1)
        monkeypatch.setattr(forwarding, bound, 3 if bound == "REQUESTS_MAX" else 3 * size)
        deafen(monkeypatch)
        asked = [asyncio.ensure_future(each.ask(creation("t"), node=1)) for each in clients]
        await asyncio.sleep(1)
        refused = [each.result().topics[0] for each in asked if each.done()]
        assert 0 < len(refused) < len(asked), "some are on their way"
        assert {each.error_code for each in refused} == {ErrorCode.REQUEST_TIMED_OUT}
        assert all("was not sent: try again" in str(each.error_message) for each in refused)
        await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.sleep(5)  # the broker's own patience with the controller is over, too
        with pytest.raises(RequestTimeoutError):  # it is sent: what is over counts no more
            await clients[0].ask(creation("t"), node=1)

    play(story)


def test_who_sends_many_together_takes_no_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each connection is under way, and of an address a quarter of all."""
    monkeypatch.setattr(forwarding, "REQUESTS_MAX", 12)

    async def story(cluster: SimulatedCluster) -> None:
        (other,) = await knowing(cluster, 1)
        broker = cluster.nodes[1].broker
        assert broker is not None
        deafen(monkeypatch)
        greedy = cluster.world.machine("greedy").boot()

        async def flood() -> Connection:
            connection = await dial(greedy, "broker-1", BROKER_PORT, "greedy")
            for _ in range(20):
                connection.send(creation("t"), timeout_ms=LONG_MS).add_done_callback(answers.append)
            return connection

        answers: list[asyncio.Future[Any]] = []
        first = await flood()
        await asyncio.sleep(0.5)
        assert broker.forwarding.refused == 0
        assert not answers
        more = [await flood() for _ in range(4)]
        await asyncio.sleep(0.5)
        assert broker.forwarding.refused == 2 * 20, "three of that address are on their way"
        waiting = asyncio.ensure_future(other.ask(creation("t"), node=1))
        await asyncio.sleep(0.5)
        assert broker.forwarding.refused == 2 * 20
        assert not waiting.done(), "it was sent"
        waiting.cancel()
        for connection in (first, *more):
            connection.close()
        await asyncio.gather(*answers, return_exceptions=True)

    play(story)
