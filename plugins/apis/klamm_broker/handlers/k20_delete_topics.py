"""DeleteTopics, versions 1 to 6.

By name, or from version 6 by id. A topic is removed at once, its files after the file delete delay. Follows
`ControllerApis.deleteTopics` and `ReplicationControlManager.deleteTopics`.

- An entry without name and id, or with both: INVALID_REQUEST.
- A topic that the request names twice: INVALID_REQUEST, and the topic stays. If it is named both by name and by id, the
  answer has one entry, with the name.
- No such name: UNKNOWN_TOPIC_OR_PARTITION; no such id: UNKNOWN_TOPIC_ID.
- `delete.topic.enable` is off: TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST.
- Not started within `timeout_ms`: REQUEST_TIMED_OUT.
- Over `controller_mutation_rate` (KIP-599): THROTTLING_QUOTA_EXCEEDED, before version 5 only a `throttle_time_ms`.

Authorization: DELETE on the cluster, or else DESCRIBE and DELETE on each topic.
"""

from __future__ import annotations

from collections import Counter

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from klamm.wire.primitives import ZERO_UUID
from klamm_broker.handlers.deadline import Deadline
from klamm_broker.security.authorization import may_cluster, require_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Topic

_FIRST_VERSION_WITH_TOPIC_IDS = 6
_FIRST_VERSION_WITH_DELETION_DISABLED = 3
_FIRST_VERSION_WITH_STRICT_QUOTA = 5


def delete_named_topics(
    broker: BrokerServices, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics. Raises KafkaError for the whole request if deletion is off. Runs on a request handler's thread."""
    version = context.api_version
    if not broker.settings.delete_topic_enable:
        disabled = version >= _FIRST_VERSION_WITH_DELETION_DISABLED
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST)
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        wanted = request.topics
    else:
        wanted = [DeleteTopicState(name) for name in request.topic_names]
    deadline = Deadline(broker.clock, request.timeout_ms)
    times = Counter((each.name, each.topic_id) for each in wanted)
    every = may_cluster(context, AclOperation.DELETE, log_if_denied=False)
    ids = {topic_id for name, topic_id in times if name is None}
    named_once = {name for (name, topic_id), count in times.items() if count == 1 and topic_id == ZERO_UUID}
    results = [
        DeletableTopicResult(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "neither a topic name nor an id is given")
        for _ in range(times.pop((None, ZERO_UUID), 0))
    ]
    found: list[Topic] = []
    for (name, topic_id), count in times.items():
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            if name is not None and not every:
                require_topic(context, AclOperation.DESCRIBE, name)
            topic = _find(broker, name, topic_id)
            if name is None and not every:
                # If the client may not describe the topic, the answer does not contain the topic's name.
                require_topic(context, AclOperation.DESCRIBE, topic.name)
            by_id, name = name is None, topic.name
            if not every:
                require_topic(context, AclOperation.DELETE, name)
            if by_id and name in named_once:
                continue
            topic_id = topic.id
            if not by_id and topic_id in ids:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is given both by name and by id")
            context.charge_mutations(len(topic.partitions), strict=version >= _FIRST_VERSION_WITH_STRICT_QUOTA)
            found.append(topic)
            results.append(DeletableTopicResult(name, topic_id))
        except KafkaError as error:
            results.append(DeletableTopicResult(name, topic_id, error.error_code, error.message))
    failures = broker.topics.delete_all(found, deadline.check)
    for result in results:
        if failures and not result.error_code and (failure := failures.get(result.name or "")) is not None:
            result.error_code, result.error_message = failure.error_code, failure.message
    return DeleteTopicsResponse(responses=results)


def _find(broker: BrokerServices, name: str | None, topic_id: bytes) -> Topic:
    if name is None:
        topic = broker.topics.by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return topic
    if topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic name and an id are both given")
    topic = broker.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    return topic
