"""FindCoordinator, versions 0 to 6.

This broker coordinates everything: groups (0), transactions (1), share partitions (2, from v6). The address is that
of the listener that was asked. From v4 many keys at a time. Follows `KafkaApis.handleFindCoordinatorRequest`; an
unknown type of key, or a share key that is none: INVALID_REQUEST.

Deviation: there is no `__consumer_offsets` topic to be created first, so COORDINATOR_NOT_AVAILABLE never occurs.

Asked of the authorizer: DESCRIBE on the group or transactional id, CLUSTER_ACTION on the cluster for share keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from klamm import AclOperation, ErrorCode, KafkaError, ResourceType, handles
from klamm.wire.messages import find_coordinator
from klamm.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from klamm_broker.authorization import may_cluster, may_group

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.broker import Broker

_FIRST_VERSION_WITH_MANY_KEYS = 4
_FIRST_VERSION_WITH_SHARE_KEYS = 6
_GROUP, _TRANSACTION, _SHARE = range(3)
_NO_NODE_ID = -1
_SHARE_KEY = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:[0-9]+")
"""Group id, topic id, partition."""


@handles(find_coordinator, versions=range(0, 7), blocking=False)
def find_coordinators(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name this broker as the coordinator. Raises KafkaError for a single key that is wrong or denied."""
    many = context.api_version >= _FIRST_VERSION_WITH_MANY_KEYS
    address = context.listener.advertised
    if not many:
        code = _error(context, request.key_type, request.key)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return FindCoordinatorResponse(node_id=broker.node_id, host=address.host, port=address.port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, broker.node_id, address.host, address.port)
            if (code := _error(context, request.key_type, key)) is ErrorCode.NONE
            else Coordinator(key, _NO_NODE_ID, "", -1, code)
            for key in request.coordinator_keys
        ]
    )


def _error(context: RequestContext, key_type: int, key: str) -> ErrorCode:
    if key_type == _GROUP and not may_group(context, AclOperation.DESCRIBE, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == _TRANSACTION and not context.authorize(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == _SHARE and not may_cluster(context, AclOperation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE if _is_valid(key_type, key, context.api_version) else ErrorCode.INVALID_REQUEST


def _is_valid(key_type: int, key: str, api_version: int) -> bool:
    if key_type == _SHARE:
        return api_version >= _FIRST_VERSION_WITH_SHARE_KEYS and _SHARE_KEY.fullmatch(key) is not None
    return key_type in (_GROUP, _TRANSACTION)
