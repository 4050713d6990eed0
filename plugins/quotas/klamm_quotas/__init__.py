"""Connection quotas: the gate `connection_quota`."""

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
        summary="at most so many connections per address",
    )
