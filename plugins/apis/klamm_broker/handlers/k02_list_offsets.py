"""ListOffsets, versions 1 to 11.

Returns the offset of the first record at or after a timestamp, exact to the record. Special timestamps mean: latest
(-1), earliest (-2), the record with the largest timestamp (-3, from version 7), earliest local (-4, from version 8),
latest tiered (-5, from version 9), earliest pending upload (-6, from version 11). Follows
`KafkaApis.handleListOffsetRequest`, `ReplicaManager.fetchOffset` and `UnifiedLog.fetchOffsetByTimestamp`.

- `read_committed`: latest is the last stable offset; later records are not found.
- Nothing found: offset -1, timestamp -1, no error. Other negative timestamps: UNSUPPORTED_VERSION.
- A partition named twice: INVALID_REQUEST, answered once.
- Authorization: DESCRIBE on each topic.
- There is no remote storage: earliest local is earliest, latest tiered and earliest pending upload are -1.
"""

from __future__ import annotations

from collections import Counter

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import may_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSION_WITH_LEADER_EPOCH = 4
_FIRST_VERSION_WITH = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NO_TIMESTAMP = -1
_READ_COMMITTED = 1


def find_offsets(broker: BrokerServices, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look up one offset per partition. Runs on a request handler's thread."""
    committed_only = request.isolation_level == _READ_COMMITTED
    asked = [(wanted.name, each.partition_index) for wanted in request.topics for each in wanted.partitions]
    twice = {key for key, times in Counter(asked).items() if times > 1}
    answered: set[tuple[str, int]] = set()
    found: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for wanted in request.topics:
        topic = broker.topics.get(wanted.name)
        denied = not may_topic(context, AclOperation.DESCRIBE, wanted.name)
        results = found.setdefault(wanted.name, [])
        for each in wanted.partitions:
            key = (wanted.name, each.partition_index)
            if key in answered:
                continue
            try:
                if denied:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if key in twice:
                    answered.add(key)
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_timestamp(each.timestamp, context.api_version)
                partition = topic.partition(each.partition_index) if topic is not None else None
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                results.append(_find(broker.cluster, partition, each, context.api_version, committed_only))
            except KafkaError as error:
                results.append(ListOffsetsPartitionResponse(each.partition_index, error.error_code))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(*each) for each in found.items()])


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _FIRST_VERSION_WITH.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _find(
    cluster: ClusterView, partition: Partition, wanted: ListOffsetsPartition, version: int, committed_only: bool
) -> ListOffsetsPartitionResponse:
    timestamp = wanted.timestamp
    partition.check_leader_epoch(wanted.current_leader_epoch)
    cluster.check_leads(partition)
    log = partition.log
    index = partition.index
    end = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return _answer(partition, version, _NO_TIMESTAMP, end, partition.leadership.epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        known = log.leader_epochs.entries
        first_epoch = known[0].epoch if known else partition.leadership.epoch
        return _answer(partition, version, _NO_TIMESTAMP, log.log_start_offset, first_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return ListOffsetsPartitionResponse(index)
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return ListOffsetsPartitionResponse(index)
    return _answer(partition, version, found.timestamp_ms, found.offset, found.leader_epoch)


def _answer(
    partition: Partition, version: int, timestamp_ms: int, offset: int, leader_epoch: int
) -> ListOffsetsPartitionResponse:
    # The log may contain later epochs if another broker has written it.
    epoch = min(leader_epoch, partition.leadership.epoch) if version >= _FIRST_VERSION_WITH_LEADER_EPOCH else -1
    return ListOffsetsPartitionResponse(partition.index, 0, timestamp_ms, offset, epoch)
