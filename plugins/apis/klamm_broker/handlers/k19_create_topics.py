"""CreateTopics, versions 2 to 7.

Topics are durable and ready when the response is sent. Follows `ControllerApis.createTopics` and
`ReplicationControlManager.createTopics`.

- More than 10,000 partitions in total: POLICY_VIOLATION for every topic, before anything else is checked.
- Names: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS; a name given twice: INVALID_REQUEST.
- Partitions: -1 means `num.partitions`; 0, other negative numbers and more than 100,000: INVALID_PARTITIONS.
- Replication factor: -1 means `default.replication.factor`; 0, other negative numbers and more than there are nodes
  that run: INVALID_REPLICATION_FACTOR.
- Manual assignments: partitions numbered from 0, each with nodes that run, else INVALID_REPLICA_ASSIGNMENT; together
  with numbers of partitions or replicas: INVALID_REQUEST.
- Configs: INVALID_CONFIG.
- Over `controller_mutation_rate` (KIP-599): THROTTLING_QUOTA_EXCEEDED, before version 6 only a `throttle_time_ms`.
- `validate_only` returns the result and creates nothing; the topic id is then zero.

Authorization: CREATE on the cluster, or else on the topic; DESCRIBE_CONFIGS on the topic, without which its
configs and numbers are left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation
from klamm.wire.messages import create_topics
from klamm.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_broker.configs.registry import check_topic_configs
from klamm_broker.configs.topic_config import TOPIC_CONFIGS
from klamm_broker.security.authorization import may_cluster, may_topic, require_topic
from klamm_broker.topics.registry import KRAFT_METADATA_TOPIC, MAX_PARTITIONS_PER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm import RequestContext
    from klamm_broker.services import BrokerServices

_DEFAULT = -1
_MAX_PARTITIONS_PER_REQUEST = 10_000
_FIRST_VERSION_WITH_STRICT_QUOTA = 6


@handles(create_topics, versions=range(2, 8))
def create_named_topics(
    broker: BrokerServices, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create topics, or only validate the request. Raises KafkaError POLICY_VIOLATION for all of them."""
    # The configs of each topic are in the answer.
    context.expect_answer(len(request.topics) * len(TOPIC_CONFIGS))
    if sum(_requested_count(broker, wanted) for wanted in request.topics) > _MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    times = Counter(wanted.name for wanted in request.topics)
    every = may_cluster(context, AclOperation.CREATE, log_if_denied=False)
    results = []
    for wanted in {each.name: each for each in request.topics}.values():
        try:
            if times[wanted.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            if wanted.name == KRAFT_METADATA_TOPIC:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{wanted.name} is an internal topic: clients cannot create it"
                )
            if not every:
                require_topic(context, AclOperation.CREATE, wanted.name)
            result = _create(broker, wanted, request.validate_only, context)
            if not may_topic(context, AclOperation.DESCRIBE_CONFIGS, wanted.name, log_if_denied=False):
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.num_partitions = result.replication_factor = -1
                result.configs = None
            results.append(result)
        except KafkaError as error:
            results.append(CreatableTopicResult(wanted.name, error_code=error.error_code, error_message=error.message))
    return CreateTopicsResponse(topics=results)


def _create(
    broker: BrokerServices, wanted: CreatableTopic, validate_only: bool, context: RequestContext
) -> CreatableTopicResult:
    broker.topics.check_new_name(wanted.name)
    overrides = {}
    for config in wanted.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        overrides[config.name] = config.value
    check_topic_configs(overrides)
    partitions = _partition_count(broker, wanted)
    factor = _replication_factor(broker, wanted)
    context.charge_mutations(partitions, strict=context.api_version >= _FIRST_VERSION_WITH_STRICT_QUOTA)
    topic_id = None
    if validate_only:
        broker.configs.log_config(overrides)
    else:
        topic_id = broker.topics.create(wanted.name, partitions, overrides, _replicas(wanted), factor).id
    result = CreatableTopicResult(
        wanted.name,
        num_partitions=partitions,
        replication_factor=factor,
        error_message=None,
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source)
            for entry in broker.configs.describe_topic(overrides, as_written=True)
        ],
    )
    if topic_id is not None:
        result.topic_id = topic_id
    return result


def _requested_count(broker: BrokerServices, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return broker.settings.num_partitions if wanted.num_partitions == _DEFAULT else max(0, wanted.num_partitions)


def _partition_count(broker: BrokerServices, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.replication_factor != _DEFAULT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "with assignments, the replication factor must be -1")
        if wanted.num_partitions != _DEFAULT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "with assignments, the number of partitions must be -1")
        return _assigned_count(broker, wanted.assignments)
    broker.topics.placement.check_replication_factor(_replication_factor(broker, wanted))
    if wanted.num_partitions == _DEFAULT:
        return broker.settings.num_partitions
    if not 0 < wanted.num_partitions <= MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions; -1 means the default number",
        )
    return wanted.num_partitions


def _replication_factor(broker: BrokerServices, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments[0].broker_ids)
    if wanted.replication_factor == _DEFAULT:
        return broker.settings.default_replication_factor
    return wanted.replication_factor


def _replicas(wanted: CreatableTopic) -> list[tuple[int, ...]]:
    return [tuple(each.broker_ids) for each in sorted(wanted.assignments, key=lambda each: each.partition_index)]


def _assigned_count(broker: BrokerServices, assignments: Sequence[CreatableReplicaAssignment]) -> int:
    indexes = sorted(assignment.partition_index for assignment in assignments)
    if indexes != list(range(len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "assignments must be for the partitions from 0 on, each once",
        )
    for assignment in assignments:
        broker.topics.placement.check_replicas(assignment.broker_ids)
    return len(assignments)
