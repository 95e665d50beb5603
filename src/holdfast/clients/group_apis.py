"""The requests that tools put to coordinators, and how an answer to them is read.

The table of all APIs (`wire.messages`) does not name these yet, and an answer can't be read without
it: here they are named while a question is under way, and no longer. Once the table has them, `ask`
is `peer.send`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.clients.blocking_driver import Peer
from holdfast.wire.messages import API_NAMES, FLEXIBLE_SINCE
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_commit import OffsetCommitRequest
from holdfast.wire.messages.offset_delete import OffsetDeleteRequest
from holdfast.wire.schema import Request

__all__ = [
    "ConsumerGroupDescribeRequest",
    "DeleteGroupsRequest",
    "DescribeGroupsRequest",
    "ListGroupsRequest",
    "OffsetCommitRequest",
    "OffsetDeleteRequest",
    "ask",
]


def ask(peer: Peer, request: Request, *, version: int | None = None) -> Any:
    """Send a request about groups and return the answer, as `Peer.send` does."""
    with _named(request):
        return peer.send(request, version=version)


@contextmanager
def _named(request: Request) -> Iterator[None]:
    if request.KEY in API_NAMES:
        yield
        return
    API_NAMES[request.KEY] = type(request).__name__.removesuffix("Request")
    FLEXIBLE_SINCE[request.KEY] = request.FLEXIBLE
    try:
        yield
    finally:
        del API_NAMES[request.KEY], FLEXIBLE_SINCE[request.KEY]
