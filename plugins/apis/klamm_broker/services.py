"""`BrokerServices`: the parts of a broker that handlers use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from klamm.runtime import Clock, Purgatory
from klamm.shared import Table
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.view import ClusterView
from klamm_broker.configs.account import ConfigAccount
from klamm_broker.configs.config_registry import ConfigRegistry
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.features import FeatureRegistry
from klamm_broker.fetch.sessions import FetchSessionCache
from klamm_broker.groups.coordinator import GroupCoordinator
from klamm_broker.live_settings import LiveSettings
from klamm_broker.log.manager import LogManager
from klamm_broker.security.token_opening import Tokens
from klamm_broker.share.partitions import SharePartitions
from klamm_broker.storage.producer_ids import ProducerIds
from klamm_broker.telemetry.clients import ClientTelemetry
from klamm_broker.topics.auto_creation import AutoTopicCreation
from klamm_broker.topics.topic_registry import TopicRegistry
from klamm_broker.transactions.coordinator import TransactionCoordinator
from klamm_broker.transactions.markers import TransactionMarkers


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BrokerServices:
    """The open parts of one broker, which every handler gets.

    `Broker` opens and closes the parts. Each part is thread-safe: handlers use it from processors and request handler
    threads concurrently.
    """

    live: LiveSettings
    cluster: ClusterView
    elections: Elections
    cluster_id: str
    data_dir: Path
    log_dir: Path
    """The data directory as clients see it: its absolute path, without symbolic links."""
    clock: Clock
    logs: LogManager
    topics: TopicRegistry
    auto_creation: AutoTopicCreation
    configs: ConfigRegistry
    config_account: ConfigAccount
    group_configs: GroupConfigs
    telemetry: ClientTelemetry
    features: FeatureRegistry
    groups: GroupCoordinator
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    transaction_markers: TransactionMarkers
    scram_credentials: Table
    delegation_tokens: Tokens
    fetch_sessions: FetchSessionCache
    fetch_purgatory: Purgatory
    run_later: Callable[[Callable[[], object], str], None]
    """A function that runs long work on another thread. Its second argument names the client: clients take turns on
    that thread.
    """
    shares: SharePartitions

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force."""
        return self.live.current
