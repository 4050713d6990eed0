"""ElectLeaders, versions 0 to 2.

A preferred election (type 0) makes the first replica the leader: PREFERRED_LEADER_NOT_AVAILABLE if its node is not
running. An unclean election (type 1) is for partitions without a leader: ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica
is running.

- A partition whose first replica leads already (type 0), or that has a leader (type 1): ELECTION_NOT_NEEDED. The answer
  to a request for all partitions (a null list) leaves such a partition out.
- No such partition: UNKNOWN_TOPIC_OR_PARTITION.
- An unknown type of election: INVALID_REQUEST, unless the list of partitions is empty.

Follows `QuorumController.electLeaders` and `ReplicationControlManager.electLeaders`.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Partition, Topic

_PREFERRED, _UNCLEAN = 0, 1


def elect(broker: BrokerServices, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.ALTER)
    nothing_asked = request.topic_partitions is not None and not request.topic_partitions
    if request.election_type not in (_PREFERRED, _UNCLEAN) and not nothing_asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}")
    elections = broker.elections
    elect_one = elections.elect_preferred if request.election_type == _PREFERRED else elections.elect_any
    every = request.topic_partitions is None
    if every:
        context.expect_answer(broker.topics.partition_count)
    results = []
    for name, indexes in _wanted(broker, request):
        topic = broker.topics.get(name)
        partitions = [_elect_one(elect_one, topic, name, index) for index in indexes]
        if every:
            partitions = [each for each in partitions if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        if partitions or not every:
            results.append(ReplicaElectionResult(name, partitions))
    return ElectLeadersResponse(replica_election_results=results)


def _wanted(broker: BrokerServices, request: ElectLeadersRequest) -> Iterator[tuple[str, Sequence[int]]]:
    if request.topic_partitions is None:
        for topic in broker.topics.all():
            yield topic.name, range(len(topic.partitions))
        return
    for wanted in request.topic_partitions:
        yield wanted.topic, wanted.partitions


def _elect_one(elect_one: Callable[[Partition], None], topic: Topic | None, name: str, index: int) -> PartitionResult:
    partition = topic.partition(index) if topic is not None else None
    try:
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        elect_one(partition)
    except KafkaError as error:
        return PartitionResult(index, error.error_code, error.message)
    return PartitionResult(index, error_message=None)
