"""`RULES`: the permissions that each API needs. An API without a rule needs ALTER on the cluster.

The gateway calls `authorize` before it forwards a request, if the listener has an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import CLUSTER_NAME, AclOperation, ResourceType
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from klamm.wire.messages.offset_delete import (
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from klamm_gateway.authorization.checks import (
    NOT_REQUESTED,
    EachOf,
    Forwarded,
    LocalAnswer,
    Rule,
    Verdict,
    denial,
    may,
    named,
    operations,
    require,
    require_cluster,
    require_topics,
    suffices,
    then,
    with_field,
)
from klamm_gateway.authorization.metadata import authorize_metadata
from klamm_gateway.authorization.offset_fetch import authorize_offset_fetch
from klamm_gateway.authorization.unnamed_topics import (
    authorize_described_transactions,
    authorize_share_fetch,
    authorize_share_offsets,
    described_groups,
)
from klamm_gateway.layout import Cluster

_OP = AclOperation
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TXN, _CLUSTER = ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER
_TOPIC_RESOURCE: Final = 2
_GROUP_RESOURCE: Final = 32
_NO_SESSION: Final = -1
_FETCH_WITH_NAMES: Final = 12


def authorize(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    """Apply the rule of the request's API. Raises KafkaError if the whole request is denied."""
    return RULES.get(context.api_key, _alter_cluster)(message, context, cluster)


def _of_cluster(operation: AclOperation, message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    require_cluster(context, operation)
    return Forwarded(message)


_alter_cluster: Final[Rule] = partial(_of_cluster, _OP.ALTER)


def _free(message: Any, _context: RequestContext, _cluster: Cluster) -> Verdict:
    return Forwarded(message)


def _group(operation: AclOperation, message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    require(context, operation, _GROUP, message.group_id)
    return Forwarded(message)


def _after(check: Callable[[Any, RequestContext], None], rule: Rule) -> Rule:
    """Return a rule that first checks the whole request, and then applies another rule."""

    def both(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
        check(message, context)
        return rule(message, context, cluster)

    return both


def _may_use_transaction(message: Any, context: RequestContext) -> None:
    if message.transactional_id is not None:
        require(context, _OP.WRITE, _TXN, message.transactional_id)


def _may_read_group(message: Any, context: RequestContext) -> None:
    require(context, _OP.READ, _GROUP, message.group_id)


def _may_commit_in_transaction(message: Any, context: RequestContext) -> None:
    require(context, _OP.WRITE, _TXN, message.transactional_id)
    require(context, _OP.READ, _GROUP, message.group_id)


def _fetch(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    state = message.replica_state
    if message.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        # A follower reads uncommitted records, and its leader counts it as a replica.
        require_cluster(context, _OP.CLUSTER_ACTION)
    # The node opens no fetch session. So the client names all its partitions in each request, and all are checked.
    whole = with_field(with_field(message, "session_epoch", _NO_SESSION), "session_id", 0)
    rule = EachOf("topics", "responses", _OP.READ, shape_version=_FETCH_WITH_NAMES)
    return rule(with_field(whole, "forgotten_topics_data", []), context, cluster)


def _find_coordinator(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    kinds = {0: _GROUP, 1: _TXN}
    kind = kinds.get(message.key_type)
    if kind is None:
        require_cluster(context, _OP.CLUSTER_ACTION)
        return Forwarded(message)
    if context.api_version < 4:
        require(context, _OP.DESCRIBE, kind, message.key)
        return Forwarded(message)
    return EachOf("coordinator_keys", "coordinators", _OP.DESCRIBE, kind, named)(message, context, cluster)


def _filtered(
    whole: AclOperation | None, field: str, id_field: str, kind: ResourceType
) -> Callable[[Any, RequestContext, Cluster], Verdict]:
    """Return a rule for a list of all resources: the client gets only those that it may describe, unless it may perform
    `whole` on the cluster.
    """

    def rule(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
        if whole is not None and suffices(context, whole):
            return Forwarded(message)

        def change(response: Any) -> Any:
            entries = getattr(response, field)
            visible = [each for each in entries if may(context, _OP.DESCRIBE, kind, getattr(each, id_field))]
            setattr(response, field, visible)
            return response

        return Forwarded(message, change)

    return rule


def _unless_whole(whole: AclOperation, rule: Rule) -> Rule:
    """Return a rule that applies only to clients that may not perform `whole` on the cluster."""

    def either(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
        return Forwarded(message) if suffices(context, whole) else rule(message, context, cluster)

    return either


def _create_topics(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    created = _unless_whole(_OP.CREATE, EachOf("topics", "topics", _OP.CREATE))(message, context, cluster)

    def change(response: Any) -> Any:
        for topic in response.topics:
            if not topic.error_code and not may(context, _OP.DESCRIBE_CONFIGS, _TOPIC, topic.name):
                # As in Kafka, the topic is created but not described.
                topic.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None
        return response

    return then(created, change)


def _delete_topics(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    field = "topics" if context.api_version >= 6 else "topic_names"
    rule = EachOf(field, "responses", _OP.DELETE, first_operation=_OP.DESCRIBE)
    return _unless_whole(_OP.DELETE, rule)(message, context, cluster)


def _init_producer_id(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    if message.transactional_id is not None:
        require(context, _OP.WRITE, _TXN, message.transactional_id)
    elif not suffices(context, _OP.IDEMPOTENT_WRITE) and not context.authorize_by_resource_type(_OP.WRITE, _TOPIC):
        raise denial(_CLUSTER)
    return Forwarded(message)


def _add_partitions_to_txn(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    if context.api_version >= 4:
        require_cluster(context, _OP.CLUSTER_ACTION)
        return Forwarded(message)
    require(context, _OP.WRITE, _TXN, message.v3_and_below_transactional_id)
    topics = message.v3_and_below_topics
    denied = {topic.name for topic in topics if not context.authorize(_OP.WRITE, _TOPIC, topic.name)}
    if not denied:
        return Forwarded(message)
    # The update is atomic: if one partition is denied, the others are not attempted.
    results = []
    for topic in topics:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.name in denied else ErrorCode.OPERATION_NOT_ATTEMPTED
        partitions = [AddPartitionsToTxnPartitionResult(each, int(code)) for each in topic.partitions]
        results.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
    return LocalAnswer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def _transaction(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    require(context, _OP.WRITE, _TXN, message.transactional_id)
    return Forwarded(message)


def _add_offsets_to_txn(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    _may_commit_in_transaction(message, context)
    return Forwarded(message)


def _config_kind(resource: Any) -> ResourceType:
    return {_TOPIC_RESOURCE: _TOPIC, _GROUP_RESOURCE: _GROUP}.get(resource.resource_type, _CLUSTER)


def _config_name(resource: Any, _cluster: Cluster) -> str | None:
    name: str = CLUSTER_NAME if _config_kind(resource) is _CLUSTER else resource.resource_name
    return name


def _configs(operation: AclOperation, response_field: str) -> Rule:
    return EachOf("resources", response_field, operation, name_of=_config_name, kind_of=_config_kind)


def _offset_delete(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    require(context, _OP.DELETE, _GROUP, message.group_id)
    allowed, denied = [], []
    for topic in message.topics:
        if context.authorize(_OP.READ, _TOPIC, topic.name):
            allowed.append(topic)
            continue
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partitions = [OffsetDeleteResponsePartition(each.partition_index, code) for each in topic.partitions]
        denied.append(OffsetDeleteResponseTopic(topic.name, partitions))
    if not denied:
        return Forwarded(message)

    # The request is sent even if all topics are denied: as in Kafka, the node's error for the whole group comes first.
    def add(response: Any) -> Any:
        if not response.error_code:
            response.topics.extend(denied)
        return response

    return Forwarded(with_field(message, "topics", allowed), add)


def _describe_cluster(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    def change(response: Any) -> Any:
        if response.cluster_authorized_operations != NOT_REQUESTED:
            response.cluster_authorized_operations = operations(context, _CLUSTER)
        return response

    return Forwarded(message, change)


def _group_heartbeat(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    require(context, _OP.READ, _GROUP, message.group_id)
    require_topics(context, cluster, _OP.DESCRIBE, message.subscribed_topic_names)
    if getattr(message, "subscribed_topic_regex", None):
        # The node would also match topics that the client may not describe.
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a regular expression is not authorized by the gateway")
    return Forwarded(message)


def _group_and_topics(operation: AclOperation, message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    require(context, operation, _GROUP, message.group_id)
    require_topics(context, cluster, _OP.READ, message.topics)
    return Forwarded(message)


def _describe_topic_partitions(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    def own_operations(response: Any) -> Any:
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_REQUESTED:
                topic.topic_authorized_operations = operations(context, _TOPIC, topic.name)
        return response

    if message.topics:
        return then(EachOf("topics", "topics", _OP.DESCRIBE)(message, context, cluster), own_operations)

    def check_cursor(response: Any) -> Any:
        # The cursor of the next page also names a topic, and the node needs this name.
        cursor = response.next_cursor
        if cursor is not None and not may(context, _OP.DESCRIBE, _TOPIC, cursor.topic_name):
            raise denial(_TOPIC)
        return own_operations(response)

    return then(_filtered(None, "topics", "name", _TOPIC)(message, context, cluster), check_cursor)


_each = EachOf
RULES: Final[dict[int, Rule]] = {
    ApiKey.PRODUCE: _after(_may_use_transaction, _each("topic_data", "responses", _OP.WRITE)),
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _each("topics", "topics", _OP.DESCRIBE),
    ApiKey.METADATA: authorize_metadata,
    ApiKey.OFFSET_COMMIT: _after(_may_read_group, _each("topics", "topics", _OP.READ)),
    ApiKey.OFFSET_FETCH: authorize_offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    **{
        key: partial(_group, _OP.READ)
        for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
    },
    ApiKey.DESCRIBE_GROUPS: described_groups("groups", name_topics=False),
    ApiKey.CONSUMER_GROUP_DESCRIBE: described_groups("group_ids", name_topics=True),
    ApiKey.SHARE_GROUP_DESCRIBE: described_groups("group_ids", name_topics=True),
    ApiKey.LIST_GROUPS: _filtered(_OP.DESCRIBE, "groups", "group_id", _GROUP),
    ApiKey.DELETE_GROUPS: _each("groups_names", "results", _OP.DELETE, _GROUP, named),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _each("topics", "results", _OP.ALTER),
    ApiKey.DELETE_RECORDS: _each("topics", "topics", _OP.DELETE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _unless_whole(_OP.CLUSTER_ACTION, _each("topics", "topics", _OP.DESCRIBE)),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _transaction,
    ApiKey.TXN_OFFSET_COMMIT: _after(_may_commit_in_transaction, _each("topics", "topics", _OP.READ)),
    ApiKey.DESCRIBE_TRANSACTIONS: authorize_described_transactions,
    ApiKey.LIST_TRANSACTIONS: _filtered(None, "transaction_states", "transactional_id", _TXN),
    ApiKey.DESCRIBE_PRODUCERS: _each("topics", "topics", _OP.READ),
    ApiKey.DESCRIBE_CONFIGS: _configs(_OP.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _configs(_OP.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(_OP.ALTER_CONFIGS, "responses"),
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _group_heartbeat,
    ApiKey.SHARE_GROUP_HEARTBEAT: _group_heartbeat,
    ApiKey.SHARE_FETCH: authorize_share_fetch,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: authorize_share_offsets,
    ApiKey.SHARE_ACKNOWLEDGE: partial(_group_and_topics, _OP.READ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: partial(_group_and_topics, _OP.READ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: partial(_group_and_topics, _OP.DELETE),
    ApiKey.OFFSET_DELETE: _offset_delete,
    **{
        key: partial(_of_cluster, _OP.DESCRIBE)
        for key in (
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
        )
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(_of_cluster, _OP.DESCRIBE_CONFIGS),
    ApiKey.LIST_CONFIG_RESOURCES: partial(_of_cluster, _OP.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: partial(_of_cluster, _OP.ALTER_CONFIGS),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _free,
    ApiKey.PUSH_TELEMETRY: _free,
}
