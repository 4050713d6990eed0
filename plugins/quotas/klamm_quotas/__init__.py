"""Connection quotas: the gates `connection_quota`, `creation_rate`, `handshake_limit`, `authentication_penalty`."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_connection_gates() -> Iterator[Provider]:
    """Limits on who may connect how often."""
    yield Provider(
        "connection_quota",
        "klamm_quotas.connection_quota:ConnectionQuota",
        settings="klamm_quotas.settings:ConnectionQuotaSettings",
        summary="at most so many connections per address, per listener and for the server",
    )
    yield Provider(
        "creation_rate",
        "klamm_quotas.creation_rate:CreationRate",
        settings="klamm_quotas.settings:CreationRateSettings",
        summary="at most so many new connections a second per address, per listener and for the server",
    )
    yield Provider(
        "handshake_limit",
        "klamm_quotas.handshake_limit:HandshakeLimit",
        settings="klamm_quotas.settings:HandshakeLimitSettings",
        summary="at most so many handshakes and authentications at once",
    )
    yield Provider(
        "authentication_penalty",
        "klamm_quotas.authentication_penalty:AuthenticationPenalty",
        settings="klamm_quotas.settings:AuthenticationPenaltySettings",
        summary="who fails to authenticate too often is not served for a while",
    )
