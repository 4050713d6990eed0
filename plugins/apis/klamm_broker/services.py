"""`BrokerServices`: the parts of a broker that handlers use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm.runtime import Clock, Purgatory
from klamm.shared import Table
from klamm_broker.configs.registry import ConfigRegistry
from klamm_broker.features import FeatureRegistry
from klamm_broker.fetch.sessions import FetchSessionCache
from klamm_broker.groups import GroupCoordinator
from klamm_broker.log import LogManager
from klamm_broker.security.delegation_tokens import DelegationTokens
from klamm_broker.settings import BrokerSettings
from klamm_broker.storage.producer_ids import ProducerIds
from klamm_broker.topics.auto_creation import AutoTopicCreation
from klamm_broker.topics.registry import TopicRegistry


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The open parts of one broker, given to every handler.

    `Broker` opens and closes them. Each guards itself: handlers use them from
    processors and from request handler threads at once.
    """

    settings: BrokerSettings
    node_id: int
    cluster_id: str
    data_dir: Path
    clock: Clock
    logs: LogManager
    topics: TopicRegistry
    auto_creation: AutoTopicCreation
    configs: ConfigRegistry
    features: FeatureRegistry
    groups: GroupCoordinator
    producer_ids: ProducerIds
    scram_credentials: Table
    delegation_tokens: DelegationTokens
    fetch_sessions: FetchSessionCache
    fetch_purgatory: Purgatory
