"""FindCoordinator, versions 0 to 6.

Finds the coordinator of groups (0), transactions (1) and share partitions (2, from v6) by Kafka's hash of the key. The
address is that of the request's listener. From v4 on a request may have several keys. An unknown type of key, or a
malformed share key: INVALID_REQUEST. Follows `KafkaApis.handleFindCoordinatorRequest`.

If the coordinator's internal topic does not exist, it is created in the background.

Deviation: a coordinator does not wait for its topic, so COORDINATOR_NOT_AVAILABLE never occurs.

Authorization: DESCRIBE on the group or transactional id, CLUSTER_ACTION on the cluster for share keys.
"""

from __future__ import annotations

import re

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from klamm_broker.security.authorization import denial, require_cluster, require_group
from klamm_broker.services import BrokerServices
from klamm_broker.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_FIRST_VERSION_WITH_MANY_KEYS = 4
_FIRST_VERSION_WITH_SHARE_KEYS = 6
_GROUP, _TRANSACTION, _SHARE = range(3)
_TOPICS = {_GROUP: CONSUMER_OFFSETS, _TRANSACTION: TRANSACTION_STATE, _SHARE: SHARE_GROUP_STATE}
"""The internal topics of coordinators."""
_NO_NODE_ID = -1
_NO_ERROR = "NONE"
"""The error message that Kafka sends in versions 1 to 3 with error code 0."""
_SHARE_KEY = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:-?[0-9]+")
"""A share key: group id, topic id and partition."""


def find_coordinators(
    broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Return the coordinator of each key. Raises KafkaError if the request has a single key, and it is wrong or denied.
    Runs on the processor's thread, so it must not block.
    """
    many = context.api_version >= _FIRST_VERSION_WITH_MANY_KEYS
    if not many:
        found = _find(broker, request.key_type, request.key, context)
        return FindCoordinatorResponse(error_message=_NO_ERROR, node_id=found.node_id, host=found.host, port=found.port)
    coordinators = []
    for key in request.coordinator_keys:
        try:
            coordinators.append(_find(broker, request.key_type, key, context))
        except KafkaError as error:
            coordinators.append(Coordinator(key, _NO_NODE_ID, "", -1, error.error_code, error.message or ""))
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(broker: BrokerServices, key_type: int, key: str, context: RequestContext) -> Coordinator:
    """Return the coordinator of a key, and start to create its topic if the topic does not exist. Raises KafkaError."""
    _check(context, key_type, key)
    name = _TOPICS.get(key_type)
    if name is not None and broker.topics.get(name) is None:
        broker.auto_creation.require_internal(name)
    found = broker.cluster.coordinator(key, context.listener)
    return Coordinator(key, found.node_id, found.host, found.port)


def _check(context: RequestContext, key_type: int, key: str) -> None:
    if key_type == _GROUP:
        require_group(context, AclOperation.DESCRIBE, key)
    elif key_type == _TRANSACTION:
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif key_type == _SHARE and context.api_version >= _FIRST_VERSION_WITH_SHARE_KEYS:
        require_cluster(context, AclOperation.CLUSTER_ACTION)
        if _SHARE_KEY.fullmatch(key) is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a share key must be GROUP:TOPIC_ID:PARTITION")
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"version {context.api_version} has no coordinator of type {key_type}"
        )
