"""ElectLeaders: an operator asks for the preferred leaders back, or for unclean ones.

Owns that request only; elections that nobody has to ask for are in `elections`.

Rules: elections.md#elections-on-request.
"""

from __future__ import annotations

from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.controller.elections import Election, Wish, decide_on
from holdfast.core.metadata.image import NO_LEADER, MetadataRecord, Partition
from holdfast.core.refusal import shown
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def elect_leaders(state: ControllerState, request: ElectLeadersRequest) -> Decision:
    """Elect for the partitions named, or for the whole cluster when none are."""
    if request.election_type not in (Election.PREFERRED, Election.UNCLEAN):
        return Decision(_of_unknown_kind(request))
    election = Election(request.election_type)
    records: list[MetadataRecord] = []
    results: list[ReplicaElectionResult] = []
    if request.topic_partitions is None:
        for topic in state.image.topics.values():
            outcomes = [_elect_one(state, each, election, records) for each in topic.partitions]
            # Asked for everything, Kafka leaves out what was right already, but not its topic.
            outcomes = [
                each for each in outcomes if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=outcomes))
        return Decision(ElectLeadersResponse(replica_election_results=results), records)
    done: set[tuple[str, int]] = set()
    for asked in request.topic_partitions:
        outcomes = []
        for index in asked.partitions:
            if (asked.topic, index) in done:
                continue
            done.add((asked.topic, index))
            partition = state.image.partition(asked.topic, index)
            if partition is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                message = f"No such partition: {shown(asked.topic)}-{index}"
                outcomes.append(_result(index, code, message))
            else:
                outcomes.append(_elect_one(state, partition, election, records))
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=outcomes))
    return Decision(ElectLeadersResponse(replica_election_results=results), records)


def _of_unknown_kind(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Refuse the whole request, and each partition once."""
    code, kind = ErrorCode.INVALID_REQUEST, request.election_type
    message = f"There is no kind {kind} of election: 0 is the preferred, 1 the unclean one."
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _result(index, code, message) for index in dict.fromkeys(asked.partitions)
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _elect_one(
    state: ControllerState, partition: Partition, election: Election, records: list[MetadataRecord]
) -> PartitionResult:
    index = partition.index
    if election is Election.PREFERRED and partition.leader == partition.preferred_leader:
        return _result(index, ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already.")
    if election is Election.UNCLEAN and partition.leader != NO_LEADER:
        return _result(
            index, ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads already."
        )
    record = decide_on(state, partition, Wish(election=election))
    elected = NO_LEADER if record is None else record.leader
    if election is Election.PREFERRED and elected != partition.preferred_leader:
        return _result(
            index,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred replica {partition.preferred_leader} is not up, or not in sync "
            f"(ISR {list(partition.isr)}). Start it, or wait until it has caught up.",
        )
    if record is None:
        return _result(
            index,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"None of the replicas {list(partition.replicas)} is up. Start one of them.",
        )
    records.append(record)
    return _result(index, ErrorCode.NONE, None)


def _result(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
