"""Opens the share partitions of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.share import metrics
from klamm_broker.share.partitions import SharePartitions

if TYPE_CHECKING:
    from klamm import ServerContext
    from klamm.runtime import Purgatory
    from klamm_broker.configs.group_configs import GroupConfigs
    from klamm_broker.limits import Ledger
    from klamm_broker.storage.store import Store
    from klamm_broker.topics.registry import TopicRegistry


def open_shares(
    server: ServerContext,
    store: Store,
    configs: GroupConfigs,
    topics: TopicRegistry,
    purgatory: Purgatory,
    ledger: Ledger,
) -> SharePartitions:
    """The share partitions of a broker, loaded and with their metrics. Raises StoreError."""
    shares = SharePartitions(
        server.clock,
        server.scheduler,
        store,
        configs,
        topics,
        purgatory,
        configs.max_share_sessions,
        configs.max_share_session_partitions,
        ledger,
    )
    shares.load()
    metrics.register(shares, server.services.metrics)
    return shares
