"""Topics that come into being because a client asked for their metadata.

Owns which are being created, so that impatient clients do not ask the controller again and again.
The creation itself is an ordinary CreateTopics, in an Envelope with the client's principal.

Rules: topics.md#automatic-creation.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from holdfast.core.metadata.topic_names import INTERNAL_TOPICS
from holdfast.node.api.forward import envelope
from holdfast.node.broker.broker import Broker
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.node.door.api_table import CREATE_CLUSTER, CREATE_TOPIC
from holdfast.node.door.request_context import CLUSTER_NAME, RequestContext, refusal
from holdfast.wire.errors import ErrorCode, WireError, error_code
from holdfast.wire.frame import LENGTH_SIZE, decode_response, encode_request
from holdfast.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    new_topic,
)

logger = logging.getLogger("holdfast.auto_creation")

VERSION: Final = 7
UNDER_WAY_MAX: Final = 1000
NAMES_LOGGED_MAX: Final = 5  # of one request
NAME_LOGGED_MAX: Final = 100  # characters
REASON_LOGGED_MAX: Final = 400


class AutoCreation:
    """The topics that one Metadata request brings into being, sent in one CreateTopics."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._host = context.client.host
        self._under_way = broker.forwarding.topics_under_way
        self._wanted: list[str] = []

    def ask(self, name: str) -> ErrorCode:
        """Want a topic created; return what to say of it meanwhile."""
        if name in self._under_way:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = refusal(self._context, CLUSTER_NAME, CREATE_CLUSTER) and refusal(
            self._context, name, CREATE_TOPIC
        )
        if refused is not None:
            return refused.code
        if name in INTERNAL_TOPICS:  # which have settings of their own
            if name == GROUP_OFFSETS:
                self._broker.groups.topic.make()
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        forwarding = self._broker.forwarding
        if len(self._under_way) >= UNDER_WAY_MAX or forwarding.is_half_full(self._host):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._under_way[name] = None
        self._wanted.append(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def send(self) -> None:
        """Ask the controller; nobody waits for it: the client will ask for metadata again."""
        if not self._wanted:
            return
        request = CreateTopicsRequest(
            topics=[new_topic(name) for name in self._wanted],
            timeout_ms=self._broker.settings.request_timeout_ms,
        )
        frame = encode_request(request, VERSION, self._context.header.correlation_id, None)
        self._broker.forwarding.send(
            envelope(self._context, frame[LENGTH_SIZE:]),
            self._host,
            timeout_ms=self._broker.settings.request_timeout_ms,
        ).add_done_callback(self._answered)

    def _answered(self, done: asyncio.Future[Any]) -> None:
        for name in self._wanted:
            self._under_way.pop(name, None)
        if done.cancelled():
            return
        failure = done.exception()
        if failure is not None:
            self._not_created(self._wanted, str(failure))
            return
        outer = done.result()
        if outer.error_code != ErrorCode.NONE or outer.response_data is None:
            self._not_created(self._wanted, error_code(outer.error_code).name)
            return
        try:
            _, response = decode_response(CreateTopicsRequest.KEY, VERSION, outer.response_data)
        except WireError:
            logger.exception("the controller's answer does not parse")
            return
        assert isinstance(response, CreateTopicsResponse)
        created, refused = [], []
        for topic in response.topics:
            code = error_code(topic.error_code)
            if code is ErrorCode.NONE:
                created.append(topic.name)
            elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refused.append(topic.name)
                why = f"{code.name} {topic.error_message}"
        if created:
            logger.info("created on first use: topic %s", _some(created))
        if refused:
            self._not_created(refused, why)

    def _not_created(self, names: list[str], why: str) -> None:
        self._broker.forwarding.not_created.warning(
            "not created: topic %s: %s", _some(names), why[:REASON_LOGGED_MAX]
        )


def _some(names: list[str]) -> str:
    """Return the first of these names for the log: a client has chosen them, and how many."""
    named = ", ".join(f"{name[:NAME_LOGGED_MAX]!r}" for name in names[:NAMES_LOGGED_MAX])
    more = len(names) - NAMES_LOGGED_MAX
    return f"{named} and {more} more" if more > 0 else named
