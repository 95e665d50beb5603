"""Goal: ElectLeaders is answered as Apache Kafka answers it, also where it elects nobody.

Method: two topics whose preferred replicas lead, and requests for all, and of no known kind.
Seen to fail: a topic without a result was left out, and so was each partition of the second.
"""

from __future__ import annotations

from tests.core.control_kit import Cluster

from holdfast.core.controller.asked_elections import elect_leaders
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions


def test_a_topic_in_which_nothing_is_to_do_is_named() -> None:
    cluster = Cluster().start(0, 1)
    cluster.create("a", [0, 1])
    cluster.create("b", [1, 0])
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    results = cluster.decide(elect_leaders, request).replica_election_results
    assert [(each.topic, each.partition_result) for each in results] == [("a", []), ("b", [])]


def test_an_election_of_no_known_kind_is_refused_at_each_partition() -> None:
    cluster = Cluster().start(0)
    cluster.create("a", [0])
    asked = TopicPartitions(topic="a", partitions=[0, 3, 3])
    request = ElectLeadersRequest(election_type=7, topic_partitions=[asked])
    answer = cluster.decide(elect_leaders, request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    found = [
        (each.partition_id, each.error_code)
        for each in answer.replica_election_results[0].partition_result
    ]
    assert found == [(0, ErrorCode.INVALID_REQUEST), (3, ErrorCode.INVALID_REQUEST)]
