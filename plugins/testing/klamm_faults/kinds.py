"""`FaultKind`: the kinds of faults, and the keys that a rule of each kind needs. `filter` applies them."""

from __future__ import annotations

import enum
from typing import Final

from klamm.wire.api_keys import ApiKey
from klamm_faults.partition_errors import APIS as PARTITION_ERROR_APIS


class FaultKind(enum.Enum):
    """The effect of a fault on a request. A kind with `_after` fires after the handler has executed the request."""

    ERROR = "error"
    ERROR_AFTER = "error_after"
    DELAY = "delay"
    SLOW = "slow"
    DISCONNECT = "disconnect"
    DISCONNECT_AFTER = "disconnect_after"
    TRUNCATE = "truncate"
    CORRUPT = "corrupt"
    STALE_METADATA = "stale_metadata"
    COORDINATOR_MOVED = "coordinator_moved"
    THROTTLE = "throttle"
    PARTITION_ERROR = "partition_error"
    REORDER = "reorder"

    @property
    def before(self) -> bool:
        """Return True if the fault takes effect before the handler runs."""
        return self in _BEFORE


_BEFORE: Final = frozenset(
    {FaultKind.ERROR, FaultKind.DELAY, FaultKind.DISCONNECT, FaultKind.COORDINATOR_MOVED, FaultKind.REORDER}
)

NEED_ERROR: Final = frozenset({FaultKind.ERROR, FaultKind.ERROR_AFTER, FaultKind.PARTITION_ERROR})
MAY_HAVE_ERROR: Final = NEED_ERROR | {FaultKind.COORDINATOR_MOVED}
NEED_DELAY: Final = frozenset({FaultKind.DELAY, FaultKind.SLOW, FaultKind.THROTTLE, FaultKind.REORDER})

# Kinds that affect only some APIs. A rule of such a kind that names another API has no effect.
ONLY_FOR_THEIR_APIS: Final = frozenset({FaultKind.STALE_METADATA, FaultKind.PARTITION_ERROR})

# The APIs that a rule of these kinds affects if it names no API.
APIS_OF_KIND: Final = {
    FaultKind.PARTITION_ERROR: PARTITION_ERROR_APIS,
    FaultKind.STALE_METADATA: frozenset({ApiKey.METADATA}),
    FaultKind.COORDINATOR_MOVED: frozenset(
        {
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
        }
    ),
}
