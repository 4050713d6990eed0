"""Opens the share partitions of a broker. `Broker.open` calls the functions, before the first request."""

from __future__ import annotations

from klamm import ServerContext
from klamm.runtime import Purgatory, Workers
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.features import DEAD_LETTERS_FROM, SHARE_VERSION, FeatureRegistry
from klamm_broker.limits.ledger import Ledger
from klamm_broker.live_settings import LiveSettings
from klamm_broker.share import metrics
from klamm_broker.share.dead_letters import DeadLetterTopics
from klamm_broker.share.partitions import SharePartitions
from klamm_broker.storage.store import Store
from klamm_broker.topics.topic_registry import TopicRegistry


def open_shares(
    server: ServerContext,
    store: Store,
    configs: GroupConfigs,
    topics: TopicRegistry,
    purgatory: Purgatory,
    ledger: Ledger,
) -> SharePartitions:
    """Return the share partitions of a broker, loaded and with their metrics. Raises StoreError."""
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


def open_letters(
    shares: SharePartitions,
    configs: GroupConfigs,
    topics: TopicRegistry,
    live: LiveSettings,
    features: FeatureRegistry,
    workers: Workers,
) -> None:
    """Enable dead letters of share groups, and send the letters that were not sent before a stop."""
    shares.letters = DeadLetterTopics(
        topics,
        configs,
        lambda: live.current,
        shares.clock,
        workers.submit,
        lambda: features.level(SHARE_VERSION) >= DEAD_LETTERS_FROM,
        shares.meters,
    )
    shares.send_letters()
