"""The response that carries an error for a whole request: Kafka's `AbstractRequest.getErrorResponse`, for every API.

If a response has a top-level error code, this code is set. If errors belong to topics, partitions or resources, the
response has the same elements as the request, each with the error. `_MIRRORS` has the rules of each API, and `_SPECIAL`
has a function for each API that no rule describes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klamm.wire.api_keys import ApiKey, load
from klamm.wire.errors import ErrorCode


class Mirror(NamedTuple):
    """The mapping of a list in a request to a list in its error response.

    `copy` names fields that are copied, as `name` or `request_name>response_name`. If the request's list has plain
    values (group ids, partition numbers), `copy` names the field that gets the value. `constants` are set in addition
    to the error code and message. `message_from` is the first version whose response has a message.
    """

    source: str
    target: str
    copy: str
    nested: Mirror | None = None
    constants: tuple[tuple[str, Any], ...] = ()
    error_field: str = "error_code"
    message_from: int = 0


_PARTITIONS: Final = "partition_index"
_MIRRORS: Final[dict[int, Mirror]] = {
    ApiKey.PRODUCE: Mirror(
        "topic_data",
        "responses",
        "name topic_id",
        Mirror(
            "partition_data",
            "partition_responses",
            "index",
            constants=(("base_offset", -1), ("log_append_time_ms", -1), ("log_start_offset", -1)),
        ),
    ),
    ApiKey.FETCH: Mirror(
        "topics",
        "responses",
        "topic topic_id",
        Mirror("partitions", "partitions", "partition>partition_index", constants=(("high_watermark", -1),)),
    ),
    ApiKey.LIST_OFFSETS: Mirror("topics", "topics", "name", Mirror("partitions", "partitions", "partition_index")),
    ApiKey.OFFSET_COMMIT: Mirror(
        "topics", "topics", "name topic_id", Mirror("partitions", "partitions", "partition_index")
    ),
    ApiKey.DESCRIBE_GROUPS: Mirror("groups", "groups", "group_id", message_from=6),
    ApiKey.CREATE_TOPICS: Mirror("topics", "topics", "name"),
    ApiKey.DELETE_RECORDS: Mirror(
        "topics",
        "topics",
        "name",
        Mirror("partitions", "partitions", "partition_index", constants=(("low_watermark", -1),)),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Mirror(
        "topics", "topics", "topic", Mirror("partitions", "partitions", "partition")
    ),
    ApiKey.WRITE_TXN_MARKERS: Mirror(
        "markers",
        "markers",
        "producer_id",
        Mirror("topics", "topics", "name", Mirror("partition_indexes", "partitions", _PARTITIONS)),
    ),
    ApiKey.TXN_OFFSET_COMMIT: Mirror(
        "topics", "topics", "name topic_id", Mirror("partitions", "partitions", "partition_index")
    ),
    ApiKey.CREATE_ACLS: Mirror("creations", "results", ""),
    ApiKey.DELETE_ACLS: Mirror("filters", "filter_results", ""),
    ApiKey.DESCRIBE_CONFIGS: Mirror("resources", "results", "resource_type resource_name"),
    ApiKey.ALTER_CONFIGS: Mirror("resources", "responses", "resource_type resource_name"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Mirror("resources", "responses", "resource_type resource_name"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Mirror("topics", "topics", "name"),
    ApiKey.CREATE_PARTITIONS: Mirror("topics", "results", "name"),
    ApiKey.DELETE_GROUPS: Mirror("groups_names", "results", "group_id"),
    ApiKey.ELECT_LEADERS: Mirror(
        "topic_partitions",
        "replica_election_results",
        "topic",
        Mirror("partitions", "partition_result", "partition_id"),
    ),
    ApiKey.DESCRIBE_PRODUCERS: Mirror(
        "topics", "topics", "name", Mirror("partition_indexes", "partitions", _PARTITIONS)
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Mirror("transactional_ids", "transaction_states", "transactional_id"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Mirror("group_ids", "groups", "group_id"),
    ApiKey.SHARE_GROUP_DESCRIBE: Mirror("group_ids", "groups", "group_id"),
    ApiKey.STREAMS_GROUP_DESCRIBE: Mirror("group_ids", "groups", "group_id"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Mirror("groups", "groups", "group_id"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Mirror(
        "topics", "responses", "name", Mirror("partitions", "partitions", "partition_index")
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Mirror(
        "topics", "topics", "name", Mirror("partition_indexes", "partitions", _PARTITIONS, error_field="")
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Mirror("users", "results", ""),
    **dict.fromkeys(
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        Mirror("topics", "results", "topic_id", Mirror("partitions", "partitions", "partition")),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Mirror(
        "entries", "entries", "", Mirror("entity", "entity", "entity_type entity_name", error_field="")
    ),
}


def error_response(
    request: Any,
    api_version: int,
    error_code: ErrorCode,
    message: str | None = None,
    throttle_time_ms: int = 0,
) -> Any | None:
    """Return the response to `request` with the error; None if the request gets no response (Produce with acks=0)."""
    api_key: int = request.API_KEY
    module = load(api_key)
    response = vars(module)[f"{module.NAME}Response"]()
    _set(response, "throttle_time_ms", throttle_time_ms)
    _set(response, "error_code", int(error_code))
    _set(response, "error_message", message)
    special = _SPECIAL.get(api_key)
    if special is not None:
        return special(module, request, response, api_version, error_code, message)
    mirror = _MIRRORS.get(api_key)
    if mirror is not None:
        _put_mirrored(
            module, mirror, request, response, error_code, message if api_version >= mirror.message_from else None
        )
    if api_key == ApiKey.PRODUCE and request.acks == 0:
        return None
    if api_key == ApiKey.FETCH:
        response.session_id = request.session_id
        if api_version >= 13:
            response.responses = []
    if api_key == ApiKey.ELECT_LEADERS and api_version == 0:
        response.error_code = 0
    return response


def _set(struct: Any, name: str, value: Any) -> None:
    if name in struct.__slots__:
        setattr(struct, name, value)


def _put_mirrored(
    module: Any, mirror: Mirror, source: Any, result: Any, error_code: ErrorCode, message: str | None
) -> None:
    """Add to a result the elements that mirror a list of the request.

    The type of the result determines the type of the elements.
    """
    annotated: str = type(result).__init__.__annotations__[mirror.target]
    struct = vars(module)[annotated.partition("[")[2].partition("]")[0]]
    items = getattr(source, mirror.source) or ()
    setattr(result, mirror.target, [_one(module, mirror, item, struct(), error_code, message) for item in items])


def _one(module: Any, mirror: Mirror, item: Any, result: Any, error_code: ErrorCode, message: str | None) -> Any:
    for name in mirror.copy.split():
        origin, _, target = name.partition(">")
        setattr(result, target or origin, getattr(item, origin) if hasattr(item, "__slots__") else item)
    for name, value in mirror.constants:
        setattr(result, name, value)
    if mirror.nested is not None:
        _put_mirrored(module, mirror.nested, item, result, error_code, message)
    if mirror.error_field:
        _set(result, mirror.error_field, int(error_code))
        _set(result, "error_message", message)
    return result


def _offset_fetch(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    if version >= 8:
        response.error_code = 0
        response.groups = [
            m.OffsetFetchResponseGroup(group_id=g.group_id, error_code=int(error)) for g in request.groups
        ]
    elif version < 2:
        response.topics = [
            m.OffsetFetchResponseTopic(
                topic.name,
                [m.OffsetFetchResponsePartition(p, -1, -1, "", int(error)) for p in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    return response


def _find_coordinator(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    if version < 4:
        response.node_id, response.host, response.port = -1, "", -1
    else:
        response.error_code, response.error_message = 0, None
        response.coordinators = [
            m.Coordinator(key, -1, "", -1, int(error), message) for key in request.coordinator_keys
        ]
    return response


def _delete_topics(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    if version >= 6:
        states = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        states = [(name, bytes(16)) for name in request.topic_names]
    response.responses = [
        m.DeletableTopicResult(name, topic_id, int(error), message if version >= 5 else None)
        for name, topic_id in states
    ]
    return response


def _add_partitions(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    if version < 4:
        response.error_code = 0
        response.results_by_topic_v3_and_below = [
            m.AddPartitionsToTxnTopicResult(
                topic.name,
                [m.AddPartitionsToTxnPartitionResult(partition, int(error)) for partition in topic.partitions],
            )
            for topic in request.v3_and_below_topics
        ]
    return response


def _join_group(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    response.generation_id = -1
    response.protocol_name = None if version >= 7 else ""
    return response


def _metadata(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    response.topics = [
        m.MetadataResponseTopic(int(error), topic.name or "", topic.topic_id) for topic in request.topics or ()
    ]
    return response


def _api_versions(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    if error is ErrorCode.UNSUPPORTED_VERSION:
        response.api_keys = [m.ApiVersion(m.API_KEY, m.VERSIONS.start, m.VERSIONS.stop - 1)]
    return response


def _init_producer_id(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    response.producer_epoch = -1
    return response


def _create_delegation_token(
    m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None
) -> Any:
    response.principal_type, response.principal_name = "User", "ANONYMOUS"
    if version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = "User", "ANONYMOUS"
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def _describe_client_quotas(
    m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None
) -> Any:
    response.entries = None
    return response


def _alter_replica_log_dirs(
    m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None
) -> Any:
    response.results = [
        m.AlterReplicaLogDirTopicResult(
            topic.name, [m.AlterReplicaLogDirPartitionResult(partition, int(error)) for partition in topic.partitions]
        )
        for log_dir in request.dirs
        for topic in log_dir.topics
    ]
    return response


def _alter_user_scram(m: Any, request: Any, response: Any, version: int, error: ErrorCode, message: str | None) -> Any:
    users = dict.fromkeys(item.name for item in [*request.deletions, *request.upsertions])
    response.results = [m.AlterUserScramCredentialsResult(user, int(error), message) for user in sorted(users)]
    return response


_Special = Callable[[Any, Any, Any, int, ErrorCode, str | None], Any]
_SPECIAL: Final[dict[int, _Special]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram,
}
