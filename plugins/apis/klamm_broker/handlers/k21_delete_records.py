"""DeleteRecords, versions 0 to 2.

Moves the start of a log to an offset (-1: its end); files that end before it are deleted. Follows
`ReplicaManager.deleteRecords` and `Partition.deleteRecordsOnLeader`.

- An offset beyond the end or negative: OFFSET_OUT_OF_RANGE. One before the start changes nothing.
- A topic whose cleanup policy lacks `delete`: POLICY_VIOLATION. An internal topic: INVALID_TOPIC_EXCEPTION.
- `timeout_ms` is for followers, of which there are none.

Authorization: DELETE on each topic.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import may_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Topic

_HIGH_WATERMARK = -1
_INVALID_LOW_WATERMARK = -1


def delete_records_before(
    broker: BrokerServices,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> DeleteRecordsResponse:
    """Delete the records before the offsets. Runs on a request handler's thread."""
    topics = []
    for wanted in request.topics:
        topic = broker.topics.get(wanted.name)
        denied = not may_topic(context, AclOperation.DELETE, wanted.name)
        results = []
        for each in wanted.partitions:
            try:
                if denied:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                low_watermark = _delete(broker.cluster, topic, each)
                results.append(DeleteRecordsPartitionResult(each.partition_index, low_watermark))
            except KafkaError as error:
                results.append(
                    DeleteRecordsPartitionResult(each.partition_index, _INVALID_LOW_WATERMARK, error.error_code)
                )
        topics.append(DeleteRecordsTopicResult(wanted.name, results))
    return DeleteRecordsResponse(topics=topics)


def _delete(cluster: ClusterView, topic: Topic | None, wanted: DeleteRecordsPartition) -> int:
    partition = topic.partition(wanted.partition_index) if topic is not None else None
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    cluster.check_leads(partition)
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.delete_records(offset)
    return log.log_start_offset
