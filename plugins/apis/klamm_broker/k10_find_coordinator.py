"""FindCoordinator, versions 0 to 6.

This broker coordinates everything: groups (0), transactions (1), share partitions (2, from v6). The address is that
of the listener that was asked. From v4 many keys at a time. Follows `KafkaApis.handleFindCoordinatorRequest`; an
unknown type of key, or a share key that is none: INVALID_REQUEST.

Deviation: there is no `__consumer_offsets` topic to be created first, so COORDINATOR_NOT_AVAILABLE never occurs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.wire.messages import find_coordinator
from klamm.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

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
    """Name this broker as the coordinator. Raises KafkaError INVALID_REQUEST for a single key of a wrong type."""
    many = context.api_version >= _FIRST_VERSION_WITH_MANY_KEYS
    address = context.listener.advertised
    if not many:
        if not _is_valid(request.key_type, request.key, context.api_version):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return FindCoordinatorResponse(node_id=broker.node_id, host=address.host, port=address.port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, broker.node_id, address.host, address.port)
            if _is_valid(request.key_type, key, context.api_version)
            else Coordinator(key, _NO_NODE_ID, "", -1, ErrorCode.INVALID_REQUEST)
            for key in request.coordinator_keys
        ]
    )


def _is_valid(key_type: int, key: str, api_version: int) -> bool:
    if key_type == _SHARE:
        return api_version >= _FIRST_VERSION_WITH_SHARE_KEYS and _SHARE_KEY.fullmatch(key) is not None
    return key_type in (_GROUP, _TRANSACTION)
