"""OffsetForLeaderEpoch, versions 2 to 4.

Returns the end offset of a leader epoch, so that a consumer can detect that the log was truncated. Follows
`Partition.lastOffsetForLeaderEpoch` and `UnifiedLog.endOffsetForEpoch`.

- A later epoch than the current one, or -1: epoch -1, end offset -1. For an epoch that the log never had, the answer
  has the largest earlier epoch of the log; if there is none, the epoch itself with the offset at which the log's first
  epoch starts.
- A `current_leader_epoch` later than the broker's: UNKNOWN_LEADER_EPOCH; an earlier one: FENCED_LEADER_EPOCH.

Authorization: CLUSTER_ACTION on the cluster, or else DESCRIBE on each topic.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import may_cluster, may_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.leadership import NO_LEADER_EPOCH
from klamm_broker.topics.topic import Topic


def end_offsets(
    broker: BrokerServices,
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of an epoch, per partition. Runs on the processor's thread, so it must not block."""
    every = may_cluster(context, AclOperation.CLUSTER_ACTION, log_if_denied=False)
    topics = []
    for wanted in request.topics:
        topic = broker.topics.get(wanted.topic)
        denied = not every and not may_topic(context, AclOperation.DESCRIBE, wanted.topic)
        results = []
        for each in wanted.partitions:
            try:
                if denied:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                results.append(_end_offset(broker.cluster, topic, each))
            except KafkaError as error:
                results.append(EpochEndOffset(error.error_code, each.partition))
        topics.append(OffsetForLeaderTopicResult(wanted.topic, results))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_offset(cluster: ClusterView, topic: Topic | None, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = topic.partition(wanted.partition) if topic is not None else None
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    cluster.check_leads(partition)
    if wanted.leader_epoch < NO_LEADER_EPOCH:
        return EpochEndOffset(0, partition.index, wanted.leader_epoch, partition.log.log_start_offset)
    epoch, log = partition.leadership.epoch, partition.log
    if not NO_LEADER_EPOCH < wanted.leader_epoch <= epoch:
        return EpochEndOffset(0, partition.index)
    found = log.end_offset_for_epoch(wanted.leader_epoch) if wanted.leader_epoch < epoch else None
    if found is None:
        # The wanted epoch is the current one, or an earlier one after which no records were written.
        return EpochEndOffset(0, partition.index, wanted.leader_epoch, log.high_watermark)
    return EpochEndOffset(0, partition.index, found.epoch, found.start_offset)
