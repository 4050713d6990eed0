"""`RequestLimits`: a listener's limits by API: bytes and elements of a request, and bytes of its answer.

Elements are array elements and tagged fields. `NetworkReceive` checks the bytes of a request, and
`requests/execution.py` checks the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.metrics.metrics_registry import Counter, Labels
from klamm.wire.api_keys import ApiKey, spec_of

NAME: Final = "klamm:type=Listener,name=LimitedRequests"
DOC: Final = "Requests refused because they, or their answers, exceeded a limit of the listener."
MAX_KEYS: Final = 128
DEFAULT: Final = "default"
CHECKED_FROM_BYTES: Final = 64 * 1024
"""The smallest limit of bytes. Smaller frames are not checked."""

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
DEFAULT_MAX_BYTES: Final = 4 * _MIB
DEFAULT_MAX_ELEMENTS: Final = 100_000
DEFAULT_MAX_ANSWER_BYTES: Final = 32 * _MIB
INLINE_MAX_BYTES: Final = 64 * _KIB
INLINE_MAX_ELEMENTS: Final = 100
"""The maximum number of elements that a processor's thread decodes. A request with more goes to the handlers.

An element may take 10 µs, and other clients wait meanwhile.
"""

_LARGE: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CREATE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""APIs whose requests may name many partitions, or carry bytes or texts of the client."""

_MAX_BYTES: Final = {
    **dict.fromkeys(_LARGE, 16 * _MIB),
    # A large value is copied in one piece, and other clients wait meanwhile. Kafka stores a group in one record of at
    # most message.max.bytes, 1 MiB by default.
    ApiKey.JOIN_GROUP: _MIB,
    ApiKey.SYNC_GROUP: _MIB,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _MIB,
    # Kafka's telemetry.max.bytes is 1 MiB.
    ApiKey.PUSH_TELEMETRY: _MIB + 64 * _KIB,
    # The renewers are stored as long as the token.
    ApiKey.CREATE_DELEGATION_TOKEN: 64 * _KIB,
    ApiKey.RENEW_DELEGATION_TOKEN: 64 * _KIB,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 64 * _KIB,
}
_FILTERS: Final = frozenset(
    {
        ApiKey.LIST_GROUPS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""APIs whose requests list a few states, kinds, features, owners of tokens or renewers of tokens."""

_MAX_ELEMENTS: Final = {
    **dict.fromkeys(_FILTERS, 1_000),
    **dict.fromkeys(
        (
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.LIST_TRANSACTIONS,
            # The elements are sorted in one call, and other clients wait meanwhile.
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            # The handler's data about all elements are freed in one call, and other clients wait meanwhile.
            ApiKey.DELETE_GROUPS,
            ApiKey.LEAVE_GROUP,
            ApiKey.OFFSET_DELETE,
            ApiKey.OFFSET_FETCH,
            # A request may name the same group in each element, and the group is then described each time.
            ApiKey.SHARE_GROUP_DESCRIBE,
        ),
        20_000,
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: 10_000,
}


class LimitCounts:
    """The number of requests that have exceeded each limit. Any thread may call it."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self.counters = {name: Counter() for name in ("request_bytes", "request_elements", "response_bytes")}

    def count(self, limit: str) -> None:
        """Count a request that has exceeded a limit."""
        self.counters[limit].add()

    def read(self) -> Iterable[tuple[Labels, float]]:
        """Return the samples of a metric."""
        return [
            ({"listener": self._listener, "limit": limit}, counter.value) for limit, counter in self.counters.items()
        ]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of requests. Each tuple has `MAX_KEYS` limits, and an API's key is the index of its limit."""

    max_bytes: tuple[int, ...]
    max_elements: tuple[int, ...]
    max_answer_bytes: tuple[int, ...]
    counts: LimitCounts = field(default_factory=lambda: LimitCounts(""))

    def bytes_of(self, api_key: int) -> int:
        """Return the size of the largest allowed frame of an API."""
        return self.max_bytes[api_key] if 0 <= api_key < MAX_KEYS else DEFAULT_MAX_BYTES


def request_limits(
    listener: str = "",
    *,
    socket_max_bytes: int = 100 * _MIB,
    token_max_bytes: int | None = None,
    max_bytes: Mapping[str, int] | None = None,
    max_elements: Mapping[str, int] | None = None,
    max_answer_bytes: Mapping[str, int] | None = None,
) -> RequestLimits:
    """Return the limits of one listener: klamm's defaults, overridden by the listener's tables."""

    def by_key(default: int, own: Mapping[ApiKey, int], set_to: Mapping[str, int]) -> tuple[int, ...]:
        limits = [set_to.get(DEFAULT, default)] * MAX_KEYS
        if DEFAULT not in set_to:
            for key, limit in own.items():
                limits[key] = limit
        for key in ApiKey:
            limits[key] = set_to.get(spec_of(key).name, limits[key])
        return tuple(limits)

    set_bytes = dict(max_bytes or {})
    set_bytes.setdefault("Produce", socket_max_bytes)
    if token_max_bytes is not None:
        set_bytes.setdefault("SaslAuthenticate", token_max_bytes)
    return RequestLimits(
        tuple(max(limit, CHECKED_FROM_BYTES) for limit in by_key(DEFAULT_MAX_BYTES, _MAX_BYTES, set_bytes)),
        by_key(DEFAULT_MAX_ELEMENTS, _MAX_ELEMENTS, max_elements or {}),
        by_key(DEFAULT_MAX_ANSWER_BYTES, {}, max_answer_bytes or {}),
        LimitCounts(listener),
    )
