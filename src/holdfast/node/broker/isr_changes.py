"""The one AlterPartition request that a broker may have in flight, and what waits behind it.

Owns the batching of proposals from all partitions that this broker leads, and the retries. Which
ISR to ask for, and what an answer means, `core.replica.replication` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import islice

from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.replication import Change, Proposal, Reaction
from holdfast.node.broker.controller_channel import ControllerChannel
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.node.broker.registration import Asking, Registration
from holdfast.runtime.ports import never
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import alter_partition as wire

logger = logging.getLogger("holdfast.isr")

# Partitions in one request. A controller decides on all of them in one turn of its loop: thousands
# would hold it up for so long that its quorum elects another one, which is asked the same.
ASKED_MAX = 500
RETRY_SECONDS = 0.05
LATE_SECONDS = 1.0  # of an answer that is late on purpose, in a simulation

Sent = dict[PartitionKey, tuple[LeadingReplica, Proposal]]


class IsrChanges(Asking):
    """Sends proposals to the controller, batched, one request at a time."""

    def __init__(
        self,
        channel: ControllerChannel,
        registration: Registration,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        super().__init__(channel, registration)
        self._provoke = provoke
        self._waiting: Sent = {}

    def propose(self, leading: LeadingReplica, proposal: Proposal) -> None:
        """Ask for an ISR; what else is proposed in this turn of the loop goes along."""
        self._waiting[leading.key] = (leading, proposal)
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        sent: Sent = {}
        while self._waiting and not sent:
            first = list(islice(self._waiting, ASKED_MAX))
            taken = {key: self._waiting.pop(key) for key in first}
            sent = {
                key: (leading, proposal)
                for key, (leading, proposal) in taken.items()
                if leading.is_current and leading.state.pending is proposal
            }
        if not sent or self._closed:
            self._busy = False
            return
        self._ask(self._request(sent), partial(self._came, sent))

    def _request(self, sent: Sent) -> wire.AlterPartitionRequest:
        topics: dict[bytes, list[wire.RequestPartitionData]] = {}
        for (topic_id, index), (leading, proposal) in sent.items():
            # The epoch that fetched, not the one that is registered: a broker that came back with
            # an empty disk must not pass for the one before (KIP-903).
            epochs = {node: f.broker_epoch for node, f in leading.state.followers.items()}
            epochs[self._registration.node] = self._registration.epoch
            topics.setdefault(topic_id, []).append(
                wire.RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        wire.BrokerState(broker_id=node, broker_epoch=epochs[node])
                        for node in proposal.isr
                    ],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return wire.AlterPartitionRequest(
            broker_id=self._registration.node,
            broker_epoch=self._registration.epoch,
            topics=[
                wire.RequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _came(self, sent: Sent, response: wire.AlterPartitionResponse | None, why: object) -> None:
        if self._provoke("isr.answer-late"):
            # Meanwhile the metadata log may say the same, or more.
            asyncio.get_running_loop().call_later(LATE_SECONDS, self._answered, sent, response, why)
        else:
            self._answered(sent, response, why)

    def _answered(
        self, sent: Sent, response: wire.AlterPartitionResponse | None, why: object
    ) -> None:
        if self._closed:
            return
        if self._provoke("isr.answer-lost"):
            why = "the answer is lost"
        if response is None or why is not None:
            logger.warning("AlterPartition failed, trying again: %s", why)
            self._again(sent)
            return
        retry: Sent = {}
        for topic in response.topics:
            for answer in topic.partitions:
                key = (bytes(topic.topic_id), answer.partition_index)
                if key in sent and not self._settle(*sent[key], answer):
                    retry[key] = sent[key]
        self._again(retry)

    def _settle(
        self, leading: LeadingReplica, proposal: Proposal, answer: wire.ResponsePartitionData
    ) -> bool:
        """Apply one partition's answer; False when the same request has to go out again."""
        if answer.error_code == ErrorCode.NONE:
            isr = tuple(answer.isr)
            logger.info("%s: ISR is %s", leading, ",".join(map(str, isr)))
            if proposal.change is Change.SHRINK:
                # Who leaves a short ISR stays eligible to lead, so from here on nothing may be
                # committed without it: that hangs on a min.insync.replicas at least as new as
                # this answer. The metadata log brings both in order (rules:
                # replication.md#a-granted-isr).
                return True
            if leading.is_current:
                leading.isr_granted(isr, answer.partition_epoch)
            return True
        if not leading.is_current:
            return True
        error = error_code(answer.error_code)
        logger.info("%s: ISR %s refused: %s", leading, ",".join(map(str, proposal.isr)), error.name)
        return leading.isr_refused(proposal, error) is not Reaction.RETRY

    def _again(self, unsettled: Sent) -> None:
        """Send what is waiting now; what failed a little later, behind newer proposals."""
        self._waiting = unsettled | self._waiting
        loop = asyncio.get_running_loop()
        if unsettled:
            loop.call_later(RETRY_SECONDS, self._send)
        else:
            loop.call_soon(self._send)
