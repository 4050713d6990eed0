"""ElectLeaders, versions 0 to 2.

The one replica of a partition is its preferred leader and leads: ELECTION_NOT_NEEDED for each partition in the request,
and an empty list for "all partitions" (a null list). No such partition: UNKNOWN_TOPIC_OR_PARTITION. An unknown kind of
election: INVALID_REQUEST, unless it is of no partitions (an empty list). Follows `QuorumController.electLeaders` and
`ReplicationControlManager.electLeaders`.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation
from klamm.wire.messages import elect_leaders
from klamm.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from klamm_broker.security.authorization import require_cluster

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices

_PREFERRED, _UNCLEAN = 0, 1


@handles(elect_leaders, versions=range(0, 3), blocking=False)
def elect(broker: BrokerServices, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer that no election is needed. Raises KafkaError."""
    require_cluster(context, AclOperation.ALTER)
    nothing_asked = request.topic_partitions is not None and not request.topic_partitions
    if request.election_type not in (_PREFERRED, _UNCLEAN) and not nothing_asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}")
    results = []
    for wanted in request.topic_partitions or ():
        topic = broker.topics.get(wanted.topic)
        partitions = []
        for index in wanted.partitions:
            if topic is None or topic.partition(index) is None:
                partitions.append(
                    PartitionResult(
                        index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {wanted.topic}-{index}"
                    )
                )
            else:
                partitions.append(PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, "the only replica leads"))
        results.append(ReplicaElectionResult(wanted.topic, partitions))
    return ElectLeadersResponse(replica_election_results=results)
