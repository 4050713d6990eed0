"""AlterReplicaLogDirs, versions 1 and 2: there is one log directory, and every replica is in it.

Follows `KafkaApis.handleAlterReplicaLogDirsRequest` and `ReplicaManager.alterReplicaLogDirs`.

- A topic name that is too long for the directory name of a moving replica: INVALID_TOPIC_EXCEPTION.
- The directory of the replica: no error, because there is nothing to do. Another directory: LOG_DIR_NOT_FOUND.
- No such partition: UNKNOWN_TOPIC_OR_PARTITION.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from pathlib import Path

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices

_MAX_DIRECTORY_NAME_LENGTH = 255
# Kafka appends the 32 digits of a UUID and "-future" to the directory name of a moving replica.
_MOVING_SUFFIX_LENGTH = len(".") + 32 + len("-future")


def move_replicas(
    broker: BrokerServices, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Return an error for each replica that is not in the requested directory. Raises KafkaError. Runs on the
    processor's thread, so it must not block.
    """
    require_cluster(context, AclOperation.ALTER)
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        is_here = Path(directory.path) in (broker.log_dir, broker.data_dir.absolute())
        for wanted in directory.topics:
            topic = broker.topics.get(wanted.name)
            for index in wanted.partitions:
                exists = topic is not None and topic.partition(index) is not None
                codes.setdefault(wanted.name, {})[index] = _code(wanted.name, index, is_here, exists)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name, [AlterReplicaLogDirPartitionResult(index, code) for index, code in partitions.items()]
            )
            for name, partitions in codes.items()
        ]
    )


def _code(name: str, index: int, is_here: bool, exists: bool) -> ErrorCode:
    if len(f"{name}-{index}") + _MOVING_SUFFIX_LENGTH > _MAX_DIRECTORY_NAME_LENGTH:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not is_here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
