"""The settings of a broker that limit what fetch sessions and share sessions keep."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting


# Without slots, as a class may have several bases like this one.
@dataclass(frozen=True, kw_only=True)
class FetchSessionSettings:
    """Part of `BrokerSettings`."""

    max_incremental_fetch_session_cache_slots: int = setting(
        1000,
        minimum=0,
        doc="Most incremental fetch sessions (KIP-227) that are kept.",
    )
    fetch_session_max_partitions: int = setting(
        500_000,
        minimum=0,
        doc="Most partitions of all incremental fetch sessions together, and of all share sessions together."
        " klamm's own key.",
    )
