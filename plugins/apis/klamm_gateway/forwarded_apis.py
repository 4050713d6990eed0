"""APIs that the gateway forwards, with their versions. A new API between brokers must be added to `_BETWEEN_BROKERS`,
because every other API is forwarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klamm.wire.api_keys import SPECS, ApiKey, ApiSpec
from klamm_gateway.rewriting import REWRITES

_BETWEEN_BROKERS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
_ANSWERED_HERE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_NOT_OFFERED: Final = frozenset(
    {
        # The cluster would create tokens for the gateway's own account.
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
_LATEST: Final = {
    # From version 16 on, a response names nodes at its end (KIP-951). By the time the end arrives, the records before
    # it are already sent to the client, so the gateway cannot change the response.
    ApiKey.FETCH: 15,
}


_NAMES_NODES: Final = frozenset({*REWRITES, ApiKey.FETCH})
_UNKNOWN_VERSIONS: Final = 10
"""With `unknown`, this many versions above the latest known one are forwarded too."""
_MAX_KEY: Final = 127


def forwarded_apis(*, unknown: bool = False) -> Iterator[tuple[ApiSpec, range]]:
    """Yield every forwarded API with its versions.

    With `unknown`, also yield APIs and versions that klamm does not know. APIs whose responses name nodes get no newer
    versions, because responses that klamm cannot rewrite would lead clients past the gateway.
    """
    for spec in SPECS:
        if spec.api_key in _BETWEEN_BROKERS or spec.api_key in _ANSWERED_HERE or spec.api_key in _NOT_OFFERED:
            continue
        latest = min(spec.max_version, _LATEST.get(ApiKey(spec.api_key), spec.max_version))
        if unknown and spec.api_key not in _NAMES_NODES:
            latest += _UNKNOWN_VERSIONS
        yield spec, range(spec.min_version, latest + 1)
    if unknown:
        for api_key in range(max(ApiKey) + 1, _MAX_KEY + 1):
            yield (
                ApiSpec(api_key, f"Api{api_key}", "", 0, _UNKNOWN_VERSIONS, 0, _UNKNOWN_VERSIONS, 0),
                range(_UNKNOWN_VERSIONS + 1),
            )
