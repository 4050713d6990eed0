"""CreatePartitions, versions 0 to 3.

Adds partitions to topics; no record moves. Follows `ReplicationControlManager.createPartitions`.

- A count that is not larger than the present one: INVALID_PARTITIONS. No such topic: UNKNOWN_TOPIC_OR_PARTITION.
- Assignments for another number of partitions, or to other nodes: INVALID_REPLICA_ASSIGNMENT.
- A topic named twice: INVALID_REQUEST.
- Not started within `timeout_ms`: REQUEST_TIMED_OUT.
- Over `controller_mutation_rate` (KIP-599): THROTTLING_QUOTA_EXCEEDED, before version 3 only a `throttle_time_ms`.

Authorization: ALTER on each topic.
"""

from __future__ import annotations

from collections import Counter

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from klamm_broker.handlers.deadline import Deadline
from klamm_broker.security.authorization import require_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic_registry import MAX_PARTITIONS_PER_TOPIC

_FIRST_VERSION_WITH_STRICT_QUOTA = 3


def add_partitions(
    broker: BrokerServices, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to topics, or only validate the request. Runs on a request handler's thread."""
    times = Counter(wanted.name for wanted in request.topics)
    deadline = Deadline(broker.clock, request.timeout_ms)
    results = []
    for wanted in {each.name: each for each in request.topics}.values():
        result = CreatePartitionsTopicResult(wanted.name)
        try:
            if times[wanted.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            require_topic(context, AclOperation.ALTER, wanted.name)
            deadline.check()
            _add(broker, wanted, context, None if request.validate_only else deadline)
        except KafkaError as error:
            result.error_code, result.error_message = error.error_code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _add(
    broker: BrokerServices, wanted: CreatePartitionsTopic, context: RequestContext, deadline: Deadline | None
) -> None:
    """Add partitions. Without a deadline, only check that they could be added."""
    topic = broker.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    now = len(topic.partitions)
    if wanted.count <= now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} already has {now} partitions")
    if wanted.count > MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS_PER_TOPIC} partitions")
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - now:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{wanted.count - now} partitions to add, {len(wanted.assignments)} assignments",
            )
        for assignment in wanted.assignments:
            broker.topics.placement.check_replicas(assignment.broker_ids)
    context.charge_mutations(wanted.count - now, strict=context.api_version >= _FIRST_VERSION_WITH_STRICT_QUOTA)
    if deadline is not None:
        replicas = [tuple(each.broker_ids) for each in wanted.assignments or ()]
        broker.topics.add_partitions(topic, wanted.count, replicas, deadline.check)
