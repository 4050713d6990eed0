"""Connection quotas: the gates `connection_quota`, `creation_rate`, `handshake_limit`, `authentication_penalty`.

klamm imports this module at every start and calls its hook.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_connection_gates() -> Iterator[Provider]:
    """Yield the connection gates."""
    yield Provider(
        "connection_quota",
        "klamm_quotas.connection_quota:ConnectionQuota",
        settings="klamm_quotas.quota_settings:ConnectionQuotaSettings",
        summary="limits connections per address, per listener and for the server",
    )
    yield Provider(
        "creation_rate",
        "klamm_quotas.creation_rate:CreationRate",
        settings="klamm_quotas.quota_settings:CreationRateSettings",
        summary="limits new connections per second, per address, per listener and for the server",
    )
    yield Provider(
        "handshake_limit",
        "klamm_quotas.handshake_limit:HandshakeLimit",
        settings="klamm_quotas.quota_settings:HandshakeLimitSettings",
        summary="limits concurrent handshakes and authentications",
    )
    yield Provider(
        "authentication_penalty",
        "klamm_quotas.authentication_penalty:AuthenticationPenalty",
        settings="klamm_quotas.quota_settings:AuthenticationPenaltySettings",
        summary="refuses addresses for a while after too many failed authentications",
    )
