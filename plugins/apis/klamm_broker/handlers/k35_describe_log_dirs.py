"""DescribeLogDirs, versions 1 to 5.

Describes the data directory: the size of each partition in it, and the size of the file system. Follows
`ReplicaManager.describeLogDirs`. No topics (null) means all of them; partitions that do not exist are left out, and a
partition that is named twice is described once. A directory that cannot be read gets KAFKA_STORAGE_ERROR.

Authorization: DESCRIBE on the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Partition

log = logging.getLogger("klamm.broker.log")


def log_directories(
    broker: BrokerServices, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the data directory. Raises KafkaError. Runs on a request handler's thread."""
    require_cluster(context, AclOperation.DESCRIBE)
    log_dir = str(broker.log_dir)
    try:
        usage = shutil.disk_usage(broker.data_dir)
    except OSError as error:
        log.warning("%s cannot be described: %s", log_dir, error)
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)
        return DescribeLogDirsResponse(results=[failed])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    node_id = broker.cluster.node_id
    for partition in _wanted(broker, request):
        if node_id not in partition.leadership.replicas:
            continue
        # A partition whose log cannot be opened is left out.
        with contextlib.suppress(KafkaError):
            described = DescribeLogDirsPartition(partition.index, partition.log.size_bytes)
            topics.setdefault(partition.topic.name, []).append(described)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=log_dir,
                topics=[DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()],
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )


def _wanted(broker: BrokerServices, request: DescribeLogDirsRequest) -> Iterator[Partition]:
    if request.topics is None:
        for topic in broker.topics.all():
            yield from topic.partitions
        return
    asked = {(wanted.topic, index): None for wanted in request.topics for index in wanted.partitions}
    for name, index in asked:
        found = broker.topics.get(name)
        partition = found.partition(index) if found is not None else None
        if partition is not None:
            yield partition
