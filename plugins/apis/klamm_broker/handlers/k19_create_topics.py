"""CreateTopics, versions 2 to 7.

Topics are durable and ready when the response is sent; their directories are made afterwards. Follows
`ControllerApis.createTopics` and `ReplicationControlManager.createTopics`.

- More than 10,000 partitions in total: POLICY_VIOLATION for every topic, before anything else is checked.
- An invalid name: INVALID_TOPIC_EXCEPTION; an existing one: TOPIC_ALREADY_EXISTS; one given twice: INVALID_REQUEST.
- Partitions: -1 means `num.partitions`; 0, other negative numbers and more than 100,000: INVALID_PARTITIONS.
- Replication factor: -1 means `default.replication.factor`; 0, other negative numbers and more than the number of
  running nodes: INVALID_REPLICATION_FACTOR.
- Manual assignments: partitions numbered from 0, each with running nodes, else INVALID_REPLICA_ASSIGNMENT; together
  with a number of partitions or replicas: INVALID_REQUEST.
- Invalid configs: INVALID_CONFIG. Configs that exceed the room that `topic.max.bytes` leaves: POLICY_VIOLATION.
- Over `controller_mutation_rate` (KIP-599): THROTTLING_QUOTA_EXCEEDED, before version 6 only a `throttle_time_ms`.
- Not started within `timeout_ms`: REQUEST_TIMED_OUT.
- `validate_only` returns the result and creates nothing; the topic id is then zero.

Authorization: CREATE on the cluster, or else on the topic; DESCRIBE_CONFIGS on the topic, or else its configs and
numbers are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_broker.configs.config_registry import check_topic_configs
from klamm_broker.configs.topic_config import TOPIC_CONFIGS
from klamm_broker.handlers.deadline import Deadline
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import may_cluster, require_topic, shows
from klamm_broker.services import BrokerServices
from klamm_broker.topics.placement import NewTopic
from klamm_broker.topics.topic import Topic
from klamm_broker.topics.topic_registry import KRAFT_METADATA_TOPIC, MAX_PARTITIONS_PER_TOPIC

_DEFAULT = -1
_MAX_PARTITIONS_PER_REQUEST = 10_000
_FIRST_VERSION_WITH_STRICT_QUOTA = 6


def create_named_topics(
    broker: BrokerServices, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create topics, or only validate the request. Raises KafkaError(POLICY_VIOLATION) for the whole request. Runs on a
    request handler's thread.
    """
    # The answer has the configs of each topic, so it may become large.
    context.expect_answer(len(request.topics) * len(TOPIC_CONFIGS))
    if sum(_requested_count(broker, wanted) for wanted in request.topics) > _MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    times = Counter(wanted.name for wanted in request.topics)
    every = may_cluster(context, AclOperation.CREATE, log_if_denied=False)
    deadline = Deadline(broker.clock, request.timeout_ms)
    topics: dict[str, NewTopic] = {}
    results: list[CreatableTopicResult] = []
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
            deadline.check()
            topics[wanted.name] = _checked(broker, wanted, context)
            results.append(CreatableTopicResult(wanted.name, error_message=None))
        except KafkaError as error:
            results.append(_failed(wanted.name, error))
    made = {} if request.validate_only else broker.topics.create_all(topics, deadline.check)
    _describe(broker, context, results, topics, made)
    return CreateTopicsResponse(topics=results)


def _describe(
    broker: BrokerServices,
    context: RequestContext,
    results: list[CreatableTopicResult],
    topics: Mapping[str, NewTopic],
    made: Mapping[str, Topic | KafkaError],
) -> None:
    """Complete each result with the topic that was made, or with the error."""
    configs = _Configs(broker)
    for index, result in enumerate(results):
        if result.error_code:
            continue
        outcome = made.get(result.name)
        if isinstance(outcome, KafkaError):
            results[index] = _failed(result.name, outcome)
            continue
        if outcome is not None:
            result.topic_id = outcome.id
        if shows(context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
            topic = topics[result.name]
            result.num_partitions, result.replication_factor = topic.partitions, topic.replication_factor
            result.configs = configs.of(topic)
        else:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.num_partitions = result.replication_factor = -1
            result.configs = None


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=error.error_code, error_message=error.message)


class _Configs:
    """The described configs of new topics. Topics with equal configs are described once."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._described: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, topic: NewTopic) -> list[CreatableTopicConfigs]:
        key = tuple(topic.overrides.items())
        found = self._described.get(key)
        if found is None:
            found = self._described[key] = [
                CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source)
                for entry in self._broker.configs.describe_topic(topic.overrides, as_written=True)
            ]
        return found


def _checked(broker: BrokerServices, wanted: CreatableTopic, context: RequestContext) -> NewTopic:
    """Return the topic to create. Raises KafkaError."""
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
    # Values that are valid separately may contradict each other.
    broker.configs.log_config(overrides)
    return NewTopic(partitions, overrides, _replicas(wanted), factor, owner_of(context))


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
            "assignments must name the partitions from 0 upwards, each once",
        )
    for assignment in assignments:
        broker.topics.placement.check_replicas(assignment.broker_ids)
    return len(assignments)
