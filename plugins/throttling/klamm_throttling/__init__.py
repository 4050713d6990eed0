"""The throttle `client_quota`. klamm imports this module at every start and calls its hook."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_throttles() -> Iterator[Provider]:
    """Yield the throttle `client_quota`: Kafka's client quotas."""
    yield Provider(
        "client_quota",
        "klamm_throttling.client_quota:ClientQuota",
        settings="klamm_throttling.throttling_settings:ClientQuotaSettings",
        summary="Kafka's quotas by user and client id, changed with kafka-configs and admin clients",
    )
