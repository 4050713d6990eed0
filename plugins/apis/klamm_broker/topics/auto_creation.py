"""Creation of topics whose metadata clients request. Follows Kafka's `AutoTopicCreationManager`.

The response reports at once that the topic does not exist, and the client sends the request again. A separate thread
creates the topics, so that neither processors nor timers wait for the disk. It runs only while there are topics to
create.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm import KafkaError, RequestContext, clipped
from klamm.runtime import SYSTEM_THREADS, Joinable, Threads
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.internal_topic_settings import InternalTopicSettings
from klamm_broker.limits.owners import owner_of
from klamm_broker.topics.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE
from klamm_broker.topics.placement import NewTopic
from klamm_broker.topics.topic_registry import KRAFT_METADATA_TOPIC, TopicRegistry


def internal_topic(name: str, settings: InternalTopicSettings) -> NewTopic:
    """Return the settings of one of the broker's internal topics, which belong to no client. Raises KeyError."""
    make = {
        CONSUMER_OFFSETS: _consumer_offsets,
        TRANSACTION_STATE: _transaction_state,
        SHARE_GROUP_STATE: _share_group_state,
    }
    return make[name](settings)


def _consumer_offsets(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    factor = settings.offsets_topic_replication_factor
    return NewTopic(settings.offsets_topic_num_partitions, configs, replication_factor=factor)


def _transaction_state(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    factor = settings.transaction_state_log_replication_factor
    return NewTopic(settings.transaction_state_log_num_partitions, configs, replication_factor=factor)


def _share_group_state(settings: InternalTopicSettings) -> NewTopic:
    configs = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
        "retention.ms": "-1",
        "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
    }
    factor = settings.share_coordinator_state_topic_replication_factor
    return NewTopic(settings.share_coordinator_state_topic_num_partitions, configs, replication_factor=factor)


log = logging.getLogger("klamm.broker.topics")

MAX_WAITING_PARTITIONS: Final = 10_000
"""Maximum number of partitions of all queued topics. Further topics are not queued; the client's next request tries
again.
"""

_NAMES_PER_TRANSACTION: Final = 100


class AutoTopicCreation:
    """The background creation of topics. Any thread may call it; only `wait` and `close` block."""

    def __init__(self, topics: TopicRegistry, settings: BrokerSettings, threads: Threads = SYSTEM_THREADS) -> None:
        self._topics = topics
        self._start = threads.start
        self._settings = settings
        self._max_waiting = max(1, MAX_WAITING_PARTITIONS // settings.num_partitions)
        # Protects the queued names, those being created, and the thread.
        self._lock = threading.Lock()
        self._waiting: dict[str, NewTopic] = {}
        self._creating: Collection[str] = ()
        self._thread: Joinable | None = None

    def request(self, names: Sequence[str], context: RequestContext) -> None:
        """Create these topics in the background, within the client's quota. Topics that are already queued are
        skipped.
        """
        try:
            self._topics.placement.check_replication_factor(self._settings.default_replication_factor)
        except KafkaError:
            return
        topics: dict[str, NewTopic] = {}
        for name in self.not_under_way(names):
            if name == KRAFT_METADATA_TOPIC:
                continue
            topic = self._new_topic(name, owner_of(context))
            try:
                context.charge_mutations(topic.partitions, strict=True)
            except KafkaError:
                break
            topics[name] = topic
            # Metadata is not an administrative request: the change is recorded here, before it is made.
            detail = f"{name}, for {clipped(str(context.principal))} at {context.client_address}"
            listener = context.listener
            listener.services.emit_admin_event("topic_auto_created", detail, listener=listener.name)
        self.create(topics)

    def require_internal(self, name: str) -> None:
        """Queue the creation of an internal topic, unless it exists. Never waits."""
        if self._topics.get(name) is None and self.not_under_way((name,)):
            self.create({name: internal_topic(name, self._settings)})

    def _new_topic(self, name: str, owner: str) -> NewTopic:
        """Return a topic with default settings that counts towards the share of an owner."""
        if name in INTERNAL_TOPICS:
            return internal_topic(name, self._settings)._replace(owner=owner)
        settings = self._settings
        return NewTopic(settings.num_partitions, {}, (), settings.default_replication_factor, owner)

    def not_under_way(self, names: Iterable[str]) -> list[str]:
        """Return the names that are neither queued nor being created, up to the free places of the queue."""
        with self._lock:
            free = max(0, self._max_waiting - len(self._waiting))
            return [name for name in names if name not in self._waiting and name not in self._creating][:free]

    def create(self, topics: Mapping[str, NewTopic]) -> None:
        """Queue these topics. A topic that fails is tried again at the next request."""
        with self._lock:
            self._waiting.update(topics)
            if self._thread is None and self._waiting:
                try:
                    # The new thread first waits for the lock, which is held until `_thread` is set.
                    self._thread = self._start(self._run, "klamm-topic-creation")
                except RuntimeError:
                    log.exception("cannot start a thread: topics are created with the next ones")

    def wait(self) -> None:
        """Wait until no topic is queued or being created."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Wait for the topics that are being created, and drop the queued ones."""
        with self._lock:
            self._waiting.clear()
        self.wait()

    def _run(self) -> None:
        while True:
            with self._lock:
                names = list(self._waiting)[:_NAMES_PER_TRANSACTION]
                if not names:
                    self._creating = ()
                    self._thread = None
                    return
                topics = {name: self._waiting.pop(name) for name in names}
                self._creating = topics.keys()
            try:
                for name, created in self._topics.create_all(topics).items():
                    if isinstance(created, KafkaError):
                        log.debug("topic %s was not created: %s", name, created)
            except Exception:
                log.exception("creation of %d topics failed", len(topics))
            finally:
                # The Metadata response "unknown topic" may be cached; a client must be able to try again.
                self._topics.metadata_changed()
