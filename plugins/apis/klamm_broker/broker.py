"""`Broker`: the state that all handlers share, its opening and closing, and its periodic work.

The server calls `open` and `close`. Handlers get the parts through `BrokerServices`. `open` makes the parts in an order
that matters: each part reads the state of those before it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from klamm import ApiHandler, ApiSet, ConnectionContext, ListenerContext, ServerContext
from klamm.runtime import Clock, Purgatory, Scheduler, Timer, Workers
from klamm.sasl import SCRAM_CREDENTIALS
from klamm.shared import Features, Table
from klamm.wire.api_keys import ApiKey
from klamm_broker import broker_metrics
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.cluster.cluster import Cluster
from klamm_broker.configs.account import ConfigAccount
from klamm_broker.configs.broker_keys import INHERITED_KEYS, server_keys
from klamm_broker.configs.config_registry import ConfigRegistry
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.features import TRANSACTION_VERSION, FeatureRegistry
from klamm_broker.fetch.sessions import FetchSessionCache
from klamm_broker.groups import metrics as group_metrics
from klamm_broker.groups.coordinator import GroupCoordinator, GroupWorld
from klamm_broker.groups.group import GroupLedgers
from klamm_broker.handlers import served_apis
from klamm_broker.internal_topics import InternalTopics
from klamm_broker.limits.tables import CONFIGS, SHARE_PARTITIONS, TOPICS, TRANSACTIONAL_IDS, StateLimits
from klamm_broker.live_settings import DYNAMIC, LiveSettings
from klamm_broker.log.compaction_schedule import BackgroundCompaction
from klamm_broker.log.context import random_below
from klamm_broker.log.file_operations import FileOperations, UnsyncedFileOperations
from klamm_broker.log.manager import LogManager
from klamm_broker.security.token_opening import Tokens, open_delegation_tokens
from klamm_broker.services import BrokerServices
from klamm_broker.share.opening import open_letters, open_shares
from klamm_broker.share.partitions import SharePartitions
from klamm_broker.storage import meta_properties
from klamm_broker.storage.meta_properties import read_boot_id, recover_from_restart
from klamm_broker.storage.producer_ids import ProducerIds
from klamm_broker.storage.shared_tables import SharedTables
from klamm_broker.storage.store import Store
from klamm_broker.telemetry.clients import ClientTelemetry, open_telemetry
from klamm_broker.topics.accounts import TopicAccounts
from klamm_broker.topics.auto_creation import AutoTopicCreation
from klamm_broker.topics.log_opener import OpeningInBackground
from klamm_broker.topics.own_records import OwnRecords
from klamm_broker.topics.topic import Topic
from klamm_broker.topics.topic_registry import TopicRegistry
from klamm_broker.transactions.coordinator import TransactionCoordinator
from klamm_broker.transactions.markers import TransactionMarkers
from klamm_broker.transactions.transaction_registry import TransactionRegistry

log = logging.getLogger("klamm.broker")

STORE_FILE: Final = "klamm.db"
_TELEMETRY_EXPIRY_MS: Final = 60_000
_TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


class Broker(ApiSet):
    """An embedded Kafka broker: node, controller and coordinator of everything, in one data directory.

    Handlers run concurrently, on the threads of processors and of request handlers. Topics, logs, groups, sessions and
    the store each have their own locks; the fields of this class do not change between `open` and `close`. Periodic
    work has its own thread, because a slow disk must not hold up other timers. Compaction has another thread while
    there is work.
    """

    settings: BrokerSettings
    live_keys = frozenset({*DYNAMIC, *(name for name in INHERITED_KEYS if name is not None)})

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        operations: FileOperations | None = None,
        make_store: Callable[[Path, bool], Store] = lambda path, sync: Store(path, sync_submitted=sync),
        boot_id: Callable[[], str] = read_boot_id,
    ) -> None:
        """Tests replace the file calls (`operations`), the store, and the reader of the machine's boot id."""
        super().__init__(settings or BrokerSettings())
        self._operations = operations or FileOperations()
        self._may_skip_syncs = operations is None
        self._make_store = make_store
        self._boot_id = boot_id
        self.node_id = self.settings.node_id
        self.cluster: Cluster
        self._views: dict[int, BrokerServices] = {}
        self.data_dir = Path()
        self.cluster_id = ""
        self.directory_id = ""
        self.clock: Clock
        self.scheduler: Scheduler
        self.store: Store
        self.logs: LogManager
        self.live: LiveSettings
        self.limits: StateLimits
        self.configs: ConfigRegistry
        self.config_account: ConfigAccount
        self.group_configs: GroupConfigs
        self.telemetry: ClientTelemetry
        self.topics: TopicRegistry
        self.groups: GroupCoordinator
        self.producer_ids: ProducerIds
        self.transactions: TransactionCoordinator
        self.transaction_markers: TransactionMarkers
        self.scram_credentials: Table
        self.delegation_tokens: Tokens
        self._random_bytes: Callable[[int], bytes]
        self.fetch_purgatory: Purgatory
        self.shares: SharePartitions
        self.maintenance: Scheduler
        self._recovered_in_ms = 0.0

    def open(self, server: ServerContext) -> None:
        """Open the data directory and recover its contents.

        Raises MetaPropertiesError, DataDirectoryLockedError, StoreError, OSError.
        """
        started_ns = server.clock.monotonic_ns()
        self.data_dir = server.data_dir
        self.clock, self.scheduler = server.clock, server.scheduler
        if server.temporary_data and self._may_skip_syncs:
            self._operations = UnsyncedFileOperations()
        meta_properties.load(server.data_dir, self.node_id)
        limits = server.services.batch_limits = self.settings.batch_limits
        self.logs = LogManager(
            server.data_dir,
            clock=server.clock,
            operations=self._operations,
            validates_records=self.settings.record_validation == "records",
            batch_limits=limits,
            max_producers=self.settings.producer_id_max_entries,
            random_below=partial(random_below, random_bytes=server.random_bytes),
            threads=server.services.threads,
        )
        self._compaction = BackgroundCompaction(self.logs.compaction, server.services.threads)
        # This takes the directory's lock: from here on only this process writes to it.
        self.logs.open()
        try:
            self._open_state(server)
        except BaseException:
            self._give_up()
            raise
        self.logs.flusher.start(server.services.threads)
        self.transactions.resume()
        self._schedule_periodic_work()
        self._recovered_in_ms = (server.clock.monotonic_ns() - started_ns) / 1e6

    def reconfigure(self, settings: BrokerSettings) -> bool:
        """Use the configuration file's new values for keys that AlterConfigs can change too.

        Raises KafkaError if the values contradict other configs.
        """
        self.configs.follow(settings)
        self.settings = settings
        return True

    def _open_state(self, server: ServerContext) -> None:
        settings = self.settings
        properties = meta_properties.load_or_create(self.data_dir, self.node_id, server.random_bytes, self._operations)
        self.cluster_id, self.directory_id = properties.cluster_id, properties.directory_id
        self.store = self._make_store(server.data_dir / STORE_FILE, settings.offsets_commit_fsync)
        self.store.is_temporary = server.temporary_data
        self.store.open()
        self.store.start(server.services.threads)
        self.limits = StateLimits(settings, server.services.metrics)
        server.services.shared.attach(SharedTables(self.store, self.limits.shared()))
        self.registered_features = FeatureRegistry(self.store)
        self.registered_features.load()
        self.live = LiveSettings(settings)
        self.configs = ConfigRegistry(
            self.live,
            self.store,
            lambda: self.topics.broker_configs_changed(),
            lambda: ((topic.name, topic.overrides) for topic in self.topics.all()),
            lambda node_id: server_keys(server, node_id, node_id - self.node_id),
            server.change_configs,
        )
        self.configs.load()
        self.config_account = ConfigAccount(self.limits[CONFIGS], self.store)
        self.fetch_purgatory = Purgatory(server.scheduler)
        self._opening = OpeningInBackground(server.clock)
        self.cluster = Cluster(settings, server.listeners, server.clock)
        self.topics = TopicRegistry(
            self.store,
            self.logs,
            self.configs,
            self._operations,
            server.random_bytes,
            self._partitions_gone,
            self.fetch_purgatory.check_and_complete,
            self.cluster.placement,
            lambda partitions: self.internal_topics.partitions_added(partitions),
        )
        self.internal_topics = InternalTopics(self.store, self.topics, self.logs, server.clock, self._opening.add)
        self.topics.load(server.data_dir, TopicAccounts(self.limits[TOPICS]))
        self.auto_creation = AutoTopicCreation(self.topics, settings, server.services.threads)
        shared = server.services.shared
        broker_metrics.register(
            self.topics, self.logs.producers, self.logs.flusher.times, self._views, server.services.metrics
        )
        self._open_groups(server)
        self.telemetry = open_telemetry(server, self.store, self.settings.telemetry_max_bytes)
        self.producer_ids = ProducerIds(self.store, self.logs.producers.highest_id + 1)
        self._open_transactions(server)
        self.scram_credentials = shared.table(SCRAM_CREDENTIALS)
        self.delegation_tokens = open_delegation_tokens(settings, server)
        self._random_bytes = server.random_bytes
        self.cluster.load(self.topics, self.store, self.groups.coordinator_moved)
        self.cluster.publish(shared, self.topics)
        self.internal_topics.open()
        shared.once("klamm.records", lambda: OwnRecords(self.topics, server.clock).append)

    def _open_transactions(self, server: ServerContext) -> None:
        self.transaction_markers = TransactionMarkers(
            self.topics, self.logs.flusher, server.clock, server.services.threads
        )
        self.transactions = TransactionCoordinator(
            server.clock,
            server.scheduler,
            TransactionRegistry(self.store, self.limits[TRANSACTIONAL_IDS]),
            self.settings,
            self.producer_ids,
            self.transaction_markers,
            self.groups.transactional_offsets,
            lambda: self.registered_features.level(TRANSACTION_VERSION),
        )
        self.transactions.load()
        recover_from_restart(self.store, self._boot_id(), self.transactions.abort_open, is_clean=self.logs.is_clean)

    def _open_groups(self, server: ServerContext) -> None:
        self.group_configs = GroupConfigs(self.settings, self.store)
        self.group_configs.load()
        self.long_work = Workers("klamm-long-work", 2, server.services.threads)
        self.shares = open_shares(
            server, self.store, self.group_configs, self.topics, self.fetch_purgatory, self.limits[SHARE_PARTITIONS]
        )
        self.groups = GroupCoordinator(
            server.clock,
            server.scheduler,
            self.store,
            self.settings,
            server.random_bytes,
            GroupWorld(self.topics, self.group_configs, self.long_work.submit, self.shares),
            lambda: server.services.served_until_ns(),
            GroupLedgers.of(self.limits),
        )
        self.shares.unwritten_group = self.groups.shares.unwritten
        open_letters(self.shares, self.group_configs, self.topics, self.live, self.registered_features, self.long_work)
        self.groups.load()
        group_metrics.register(self.groups, server.services.metrics)

    def _give_up(self) -> None:
        self.logs.close()
        # `open` may have failed before it recovered all logs.
        with contextlib.suppress(OSError):
            self.logs.forget_clean_shutdown()
        if hasattr(self, "store"):
            self.store.close()

    def _schedule_periodic_work(self) -> None:
        settings, logs = self.live.current, self.logs
        self.maintenance = self.scheduler.sibling()

        def every(period_ms: int, work: Callable[[int], None]) -> Timer:
            return self.maintenance.every(period_ms, lambda: work(self.clock.wall_ms()))

        every(settings.log_retention_check_interval_ms, logs.delete_old_segments)
        every(settings.log_flush_scheduler_interval_ms, logs.flush_due)
        every(settings.log_flush_offset_checkpoint_interval_ms, logs.checkpoint)
        every(settings.log_flush_start_offset_checkpoint_interval_ms, logs.checkpoint_start_offsets)
        every(
            settings.producer_id_expiration_check_interval_ms,
            lambda now_ms: logs.producers.expire(now_ms, self.live.current.producer_id_expiration_ms),
        )
        every(settings.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.transactions.abort_timed_out)
        every(settings.transaction_remove_expired_transaction_cleanup_interval_ms, self.transactions.expire)
        every(settings.delegation_token_expiry_check_interval_ms, self.delegation_tokens.remove_expired)
        every(_TELEMETRY_EXPIRY_MS, self.telemetry.expire)
        if settings.log_cleaner_enable:
            self._cleaner_timer = every(settings.log_cleaner_backoff_ms, self._compaction.run)
            self.live.subscribe(self._set_cleaner_backoff)
        self._opening.start(self.maintenance, (each for each in self.topics.all() if not each.is_internal))
        self.internal_topics.start(self.maintenance)
        self.maintenance.start("klamm-log-maintenance")

    def _set_cleaner_backoff(self, settings: BrokerSettings) -> None:
        self._cleaner_timer.cancel()
        backoff_ms = settings.log_cleaner_backoff_ms
        self._cleaner_timer = self.maintenance.every(backoff_ms, lambda: self._compaction.run(self.clock.wall_ms()))

    def close(self) -> None:
        """Close the groups, write everything to disk, and mark the directory as cleanly shut down."""
        self.maintenance.stop()
        self.auto_creation.close()
        self.transactions.close()
        self.groups.close()
        self.shares.close()
        self.long_work.close()
        self._compaction.stop()
        self.internal_topics.close()
        self.logs.close(self.live.current.num_recovery_threads_per_data_dir)
        self.store.close()

    def connection_closed(self, connection: ConnectionContext) -> None:
        """End the connection's share sessions and its waiting fetch. Another thread releases the acquired records."""
        if ended := self.shares.sessions.connection_closed(connection.connection_id):
            self.long_work.submit(partial(self.shares.release, ended), connection.client_address.host)
        self.fetch_purgatory.expire_soon(connection.connection_id)

    def describe(self) -> str:
        """Return a summary, e.g. `node 1, 12 topics, 31 partitions, recovered in 84 ms`."""
        topics = _counted(len(self.topics.all()), "topic")
        partitions = _counted(self.topics.partition_count, "partition")
        return f"{self.cluster.describe()}, {topics}, {partitions}, recovered in {self._recovered_in_ms:.0f} ms"

    def features(self) -> Features:
        """Return the features with their finalized levels."""
        return self.registered_features.published

    def is_meant(self, cluster_id: str, node_id: int, connection: ConnectionContext) -> bool:
        """Return True if the ids name this cluster and the node of the connection's listener."""
        return cluster_id == self.cluster_id and node_id == self.node_id + connection.listener.node

    def topic_names(self) -> Callable[[bytes], str | None]:
        return partial(_name_of, self.topics)

    def handlers(self) -> Iterable[ApiHandler]:
        """Return the first node's handlers: one for each module `klamm_broker.handlers.k…`."""
        return self._handlers(0)

    def handlers_of(self, listener: ListenerContext) -> Iterable[ApiHandler]:
        return self._handlers(listener.node)

    def _handlers(self, node: int) -> Iterable[ApiHandler]:
        left_out = () if self.settings.client_telemetry_enable else _TELEMETRY
        return (one for one in served_apis.handlers(self.services_of(node)) if one.api_key not in left_out)

    def services_of(self, node: int) -> BrokerServices:
        """Return the services for the handlers of the node at a position. Each node has its own view of the cluster."""
        if node not in self._views:
            self._views[node] = self._make_services(node)
        return self._views[node]

    def _make_services(self, node: int) -> BrokerServices:
        return BrokerServices(
            live=self.live,
            cluster=self.cluster.view(node),
            elections=self.cluster.elections,
            cluster_id=self.cluster_id,
            data_dir=self.data_dir,
            log_dir=self.data_dir.resolve(),
            clock=self.clock,
            logs=self.logs,
            topics=self.topics,
            auto_creation=self.auto_creation,
            configs=self.configs,
            config_account=self.config_account,
            group_configs=self.group_configs,
            telemetry=self.telemetry,
            features=self.registered_features,
            groups=self.groups,
            producer_ids=self.producer_ids,
            transactions=self.transactions,
            transaction_markers=self.transaction_markers,
            scram_credentials=self.scram_credentials,
            delegation_tokens=self.delegation_tokens,
            fetch_sessions=FetchSessionCache(self.settings, self.clock, self._random_bytes),
            fetch_purgatory=self.fetch_purgatory,
            run_later=self.long_work.submit,
            shares=self.shares,
        )

    def _partitions_gone(self, topics: Sequence[Topic]) -> None:
        for partition in (each for topic in topics for each in topic.partitions):
            partition.wake_fetches()
        self.groups.offsets.topics_deleted({topic.name for topic in topics})
        self.shares.topics_deleted({topic.id for topic in topics})


def _name_of(topics: TopicRegistry, topic_id: bytes) -> str | None:
    topic = topics.by_id(topic_id)
    return None if topic is None else topic.name


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
