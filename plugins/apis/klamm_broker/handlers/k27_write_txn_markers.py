"""WriteTxnMarkers, versions 1 and 2.

Ends the transactions of producers in the named partitions. Coordinators send it to other brokers, and administrators
send it to end a hanging transaction (KIP-664). Answered when the markers are synced to the disk. Follows
`KafkaApis.handleWriteTxnMarkersRequest`.

- No such partition: UNKNOWN_TOPIC_OR_PARTITION. An epoch before the producer's: INVALID_PRODUCER_EPOCH. A coordinator
  epoch lower than in the last marker: TRANSACTION_COORDINATOR_FENCED.
- A producer id or epoch of -1: UNKNOWN_SERVER_ERROR, and nothing is written.
- For a partition of `__consumer_offsets`, the pending offsets of the transaction are committed or dropped.
- The field for the transaction version (v2) is ignored.

Authorization: ALTER on the cluster, or CLUSTER_ACTION on it.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.handlers.countdown import call_after
from klamm_broker.security.authorization import may_cluster, require_cluster
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.markers import Marker
from klamm_broker.transactions.offsets_partition import OFFSETS_TOPIC


def write_markers(
    broker: BrokerServices, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Pending:
    """Write each marker to each of its partitions. Raises KafkaError. Runs on a request handler's thread."""
    if not may_cluster(context, AclOperation.ALTER, log_if_denied=False):
        require_cluster(context, AclOperation.CLUSTER_ACTION)
    response = WriteTxnMarkersResponse()
    wanted: list[tuple[Marker, str, WritableTxnMarkerPartitionResult]] = []
    for each in request.markers:
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch)
        result = WritableTxnMarkerResult(each.producer_id)
        response.markers.append(result)
        for topic in each.topics:
            partitions = [WritableTxnMarkerPartitionResult(index) for index in topic.partition_indexes]
            result.topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            wanted.extend((marker, topic.name, partition) for partition in partitions)
    if not wanted:
        return response
    settle = call_after(len(wanted), lambda: context.respond(response))
    for marker, name, partition in wanted:
        _write(broker, marker, name, partition, settle)
    return context.later()


def _write(
    broker: BrokerServices,
    marker: Marker,
    topic: str,
    result: WritableTxnMarkerPartitionResult,
    settle: Callable[[], None],
) -> None:
    def written(error: KafkaError | None) -> None:
        result.error_code = ErrorCode.NONE if error is None else error.error_code
        settle()

    if topic == OFFSETS_TOPIC:
        broker.groups.transactional_offsets.end(marker.producer_id, written, committed=marker.committed)
        return
    found = broker.topics.get(topic)
    partition = found.partition(result.partition_index) if found is not None else None
    try:
        if partition is not None:
            broker.cluster.check_leads(partition)
            _check_producer(marker)
        broker.transaction_markers.append(marker, (topic, result.partition_index), written)
    except KafkaError as error:
        written(error)


def _check_producer(marker: Marker) -> None:
    """Raise KafkaError(UNKNOWN_SERVER_ERROR), like Kafka, for a marker without a producer."""
    if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer id and an epoch")
