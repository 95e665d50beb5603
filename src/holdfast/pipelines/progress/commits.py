"""Offsets are committed to a consumer group that nobody is in, through librdkafka.

Owns this process's admin clients and what was said of each group. A commit is information: whatever
becomes of it, it never fails a batch, waits within a bound, and is said once. Only at a query's
start is a group with members refused, since its consumers would jump.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.pipelines.intake.client_options import translate
from holdfast.pipelines.intake.connection import Client, open_admin
from holdfast.pipelines.intake.forked import forget_in_child, leak
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import Offsets
from holdfast.pipelines.progress.ends import Ends
from holdfast.pipelines.progress.group import OPTION, ProgressGroup

PATIENCE_S: Final = 5.0  # for a commit that the next one would cover, too
AILING_S: Final = 1.0  # once one was in vain, until one is not: batches wait for it
PAUSE_S: Final = 0.1
SAID_MAX: Final = 16  # kinds of refusal that are told of a group between two commits
NO_ANSWER: Final = "no broker answers"
_MEMBERS: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
# What the client says by itself where no broker does.
_CUT_OFF: Final = frozenset(
    {KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT, KafkaError._WAIT_COORD}  # noqa: SLF001
)
_NOBODY: Final = _CUT_OFF | {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # noqa: SLF001
# A coordinator moves, or is being made; a connection has been closed, or its broker is no more.
_PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        *_CUT_OFF,
    }
)
log = logging.getLogger(__name__)

# Queries are many in a process, clusters few.
_admins: dict[Client, AdminClient] = forget_in_child({}, leak)
# What was said of a group since its last commit that went well; with an entry it ails.
_said: dict[ProgressGroup, set[str]] = {}


class _RefusedError(Exception):
    """A group was not told; `text` says why, by the kind of refusal and not by the moment."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def commit(ends: Ends, metadata: str) -> None:
    """Commit to each group how far its table is. Never fails: what is in vain is said once."""
    for group, offsets in ends.items():
        if offsets:
            _commit(group, offsets, metadata)


def _commit(group: ProgressGroup, offsets: Offsets, metadata: str) -> None:
    ailing = group in _said
    try:
        _ask(group, AILING_S if ailing else PATIENCE_S, _altering(group, offsets, metadata))
    except _RefusedError as refused:
        said = _said.setdefault(group, set())
        if refused.text not in said and len(said) < SAID_MAX:
            said.add(refused.text)
            log.warning(
                "%s: offsets are not committed to group %r just now: %s. The query goes on, and "
                "a later commit covers this one",
                OPTION,
                group.name,
                refused.text,
            )
        return
    if ailing:
        del _said[group]
        log.info("%s: offsets are committed to group %r again", OPTION, group.name)


def refuse_members(group: ProgressGroup) -> None:
    """Raise OptionError if somebody is in the group. What can't be told is no refusal: it is said.

    Groups of both protocols are asked about; a group that is not there has no members.
    """

    def ask(admin: AdminClient, timeout_s: float) -> Any:
        return admin.describe_consumer_groups([group.name], request_timeout=timeout_s)[group.name]

    try:
        described = _ask(group, PATIENCE_S, ask)
    except _RefusedError as refused:
        log.warning(
            "%s: whether group %r has members was not told: %s. Brokers refuse commits while it "
            "has some",
            OPTION,
            group.name,
            refused.text,
        )
        return
    if members := described.members:
        who = ", ".join(sorted({f"{each.client_id} at {each.host}" for each in members})[:3])
        raise OptionError(
            f"{OPTION}: group {group.name!r} has {len(members)} members ({who}), whose offsets "
            "would jump; end them, or give the group a name of its own"
        )


def _altering(
    group: ProgressGroup, offsets: Offsets, metadata: str
) -> Callable[[AdminClient, float], Future[Any]]:
    places = [
        TopicPartition(partition.topic, partition.number, offset, metadata)
        for partition, offset in sorted(offsets.items())
    ]
    asked = [ConsumerGroupTopicPartitions(group.name, places)]

    def ask(admin: AdminClient, timeout_s: float) -> Future[Any]:
        told = admin.alter_consumer_group_offsets(asked, request_timeout=timeout_s)
        future: Future[Any] = told[group.name]
        return future

    return ask


def _ask(
    group: ProgressGroup, patience_s: float, ask: Callable[[AdminClient, float], Future[Any]]
) -> Any:
    """Return the coordinator's answer. What passes is asked again, for as long as patience is."""
    deadline = time.monotonic() + patience_s
    while True:
        left_s = max(deadline - time.monotonic(), PAUSE_S)
        try:
            answer = ask(_admin(group.client), left_s).result(left_s + AILING_S)
        except OptionError as error:
            raise _RefusedError(str(error)) from error
        except TimeoutError as error:
            _admins.pop(group.client, None)
            raise _RefusedError(NO_ANSWER) from error
        except KafkaException as error:
            refusal = error.args[0]
        else:
            refusal = _refusal(answer)
            if refusal is None:
                return answer
        if refusal.code() not in _PASSING or time.monotonic() + PAUSE_S > deadline:
            # The next one remembers neither a broker that is dead nor a secret that has changed.
            _admins.pop(group.client, None)
            raise _RefusedError(_text(refusal))
        time.sleep(PAUSE_S)


def _admin(client: Client) -> AdminClient:
    """Return this process's client. OptionError: a secret can't be had, or it is misspelt.

    The settings come from a checkpoint, so they are checked as a user's are.
    """
    if client not in _admins:
        _admins[client] = open_admin(tuple(sorted(translate(dict(client)).items())))
    return _admins[client]


def _refusal(answer: Any) -> KafkaError | None:
    """Return what a coordinator says of the first partition that it refuses."""
    places = getattr(answer, "topic_partitions", None) or []
    return next((place.error for place in places if place.error is not None), None)


def _text(refusal: KafkaError) -> str:
    if refusal.code() in _MEMBERS:
        return "the group has members of its own, which hold its offsets until they are gone"
    return NO_ANSWER if refusal.code() in _NOBODY else str(refusal.name())
