"""The topics of a broker: names, ids, partitions and their logs, durable in the store.

The store decides which topics exist. One write creates a topic there. Only this step can fail, so nothing ever has to
be undone. The topic's directories are created afterwards: at the first use of a partition, or soon in the background. A
deletion starts in the store too: a row records it until the topic's directories are removed. If the server stops
before, the next start completes the deletion.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.adopted_configs import read_copy
from klamm_broker.configs.config_registry import ConfigRegistry
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.manager import LogManager
from klamm_broker.storage.config_rows import replace_configs
from klamm_broker.storage.meta_properties import random_uuid
from klamm_broker.storage.store import Store
from klamm_broker.topics.accounts import TopicAccounts
from klamm_broker.topics.directories import finish_deletions, topics_in
from klamm_broker.topics.fair_lock import FairLock
from klamm_broker.topics.leadership import first_leadership
from klamm_broker.topics.log_opener import LogOpener
from klamm_broker.topics.names import check_topic_name, collision_key
from klamm_broker.topics.placement import NewTopic, ReplicaPlacement, Replicas
from klamm_broker.topics.topic import Partition, Topic, TopicTraffic
from klamm_broker.topics.topic_rows import (
    TOPIC_RESOURCE,
    delete_topic,
    directories_gone,
    grow_topic,
    insert_topic,
)

log = logging.getLogger("klamm.broker.topics")

MAX_PARTITIONS_PER_TOPIC: Final = 100_000
_MOST_DELETED: Final = 1000
"""Number of deleted topics whose names are kept, for fetch sessions that still use their ids."""
_CHANGED_AT_ONCE: Final = 250
"""Number of topics that are created or deleted with one write. Changes of other topics wait meanwhile."""
KRAFT_METADATA_TOPIC: Final = "__cluster_metadata"


def _no_deadline() -> None:
    """Do nothing. With this default of `check_turn`, a change waits for its turn without a limit."""


class TopicRegistry:
    """All topics. Look-ups take no lock; changes are made one at a time, and wait for the store, but not for
    directories.

    `log_config` computes the settings of a log from a topic's overrides. `on_partitions_gone` is called with deleted
    topics once look-ups cannot find them. `wake` completes the fetches that wait for a partition. `placement`
    chooses the nodes of replicas. `open_later` gets new partitions, whose directories are to be created.

    A method that makes changes takes a function `check_turn`. It is called when it is the change's turn, and raises
    KafkaError if the change has waited too long.
    """

    # 9 parameters: the parts of the broker that topics belong to.
    def __init__(
        self,
        store: Store,
        logs: LogManager,
        configs: ConfigRegistry,
        operations: FileOperations,
        random_bytes: Callable[[int], bytes],
        on_partitions_gone: Callable[[Sequence[Topic]], None],
        wake: Callable[[Partition], object],
        placement: ReplicaPlacement,
        open_later: Callable[[Sequence[Partition]], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._configs = configs
        self._random_bytes = random_bytes
        self._on_partitions_gone = on_partitions_gone
        self._wake = wake
        self.placement = placement
        self.accounts = TopicAccounts()
        self._open_later = open_later
        # Protects the topics: store and maps change together.
        self._lock = FairLock()
        # The opener's lock is taken after `_lock`.
        self._opener = LogOpener(logs, configs, operations)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        # This map also has the names of topics whose directories are being removed.
        self._by_collision_key: dict[str, str] = {}
        self.partition_count = 0
        self.traffic_of_deleted = TopicTraffic()
        self.generation = 0
        """Increases after each change of the content of Metadata responses."""
        self._deleted: OrderedDict[bytes, tuple[int, str]] = OrderedDict()

    # Look-ups

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this 16-byte id."""
        return self._by_id.get(topic_id)

    def name_of_deleted(self, topic_id: bytes, since: int) -> str | None:
        """Return the name of a deleted topic that existed at generation `since`; None if no such topic is known."""
        deleted_at, name = self._deleted.get(topic_id, (-1, ""))
        return name if deleted_at > since else None

    def all(self) -> list[Topic]:
        """Return every topic, ordered by name."""
        # The copy is made in one step: the names may change while they are sorted.
        by_name = self._by_name.copy()
        return [by_name[name] for name in sorted(by_name)]

    # Start

    def load(self, data_dir: Path, accounts: TopicAccounts) -> None:
        """Read the topics; complete deletions; adopt topics that only have directories.

        Logs are opened at their first use, except those whose recovery would delay a request. Raises StoreError, and
        the errors of opening a log.
        """
        finish_deletions(self._store, self._logs, data_dir)
        overrides: dict[str, dict[str, str]] = {}
        for name, key, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ?", (TOPIC_RESOURCE,)
        ):
            overrides.setdefault(name, {})[key] = value
        for name, topic_id, partitions in self._store.read("SELECT name, id, partitions FROM topics"):
            replicas = self.placement.place(partitions, 1, 0)
            topic = self._topic(name, topic_id, replicas, overrides.get(name, {}))
            self._opener.open_if_slow(topic)
            self._by_name[name] = topic
            self._by_id[topic_id] = topic
            self._by_collision_key[collision_key(name)] = name
            self.partition_count += partitions
        self._adopt_orphans(data_dir)
        accounts.load(self._store, self._by_name)
        self.accounts = accounts

    def _adopt_orphans(self, data_dir: Path) -> None:
        for name, (topic_id, partitions) in topics_in(data_dir, {*self._by_name, KRAFT_METADATA_TOPIC}).items():
            log.warning("topic %s is not in the store, but has directories: it is adopted", name)
            overrides = read_copy(data_dir / f"{name}-0")
            adopted = self.placement.placed(NewTopic(partitions, overrides), 0)
            self._store.write_and_wait(insert_topic(self.placement, name, topic_id, adopted))
            topic = self._topic(name, topic_id, adopted.replicas, adopted.overrides)
            self._opener.open_all(topic)
            self._publish([topic])

    # Changes

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if no topic with this name can be created: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS."""
        check_topic_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        other = self._by_collision_key.get(collision_key(name))
        if other == name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} and the existing topic {other} would have the same metric names",
            )

    def create(
        self, name: str, partitions: int, overrides: Mapping[str, str], replicas: Replicas = (), factor: int = 1
    ) -> Topic:
        """Create a topic, durably.

        Raises KafkaError: the errors of `check_new_name`, and KAFKA_STORAGE_ERROR if the store or the disk fails.
        """
        made = self.create_all({name: NewTopic(partitions, overrides, replicas, factor)})[name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_all(
        self, wanted: Mapping[str, NewTopic], check_turn: Callable[[], None] = _no_deadline
    ) -> dict[str, Topic | KafkaError]:
        """Create topics, several at a time with one wait for the store.

        Returns for each name the topic, or the error that `create` or `check_turn` would raise.
        """
        made: dict[str, Topic | KafkaError] = {}
        names = iter(wanted)
        while some := list(islice(names, _CHANGED_AT_ONCE)):
            with self._lock:
                created = self._create_some({name: wanted[name] for name in some}, check_turn)
            made.update(created)
            for topic in created.values():
                if isinstance(topic, Topic):
                    self._open_later(topic.partitions)
        return made

    def _create_some(
        self, wanted: Mapping[str, NewTopic], check_turn: Callable[[], None]
    ) -> dict[str, Topic | KafkaError]:
        failures: dict[str, KafkaError] = {}
        placed: dict[str, NewTopic] = {}
        keys: set[str] = set()
        for name, topic in wanted.items():
            try:
                check_turn()
                self.check_new_name(name)
                if collision_key(name) in keys:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} collides with another new topic")
                _make_room(self._logs, name, range(topic.partitions))
                with_replicas = self.placement.placed(topic, len(self._by_name) + len(placed))
                self.accounts.admit(name, topic)
                keys.add(collision_key(name))
                placed[name] = with_replicas
            except KafkaError as error:
                failures[name] = error
        ids = {name: random_uuid(self._random_bytes) for name in placed}
        try:
            rows = [insert_topic(self.placement, name, ids[name], each) for name, each in placed.items()]
            self._store.write_and_wait([each for row in rows for each in row])
        except KafkaError as error:
            self.accounts.forget(placed)
            return {name: failures.get(name, error) for name in wanted}
        made = {name: self._topic(name, ids[name], each.replicas, each.overrides) for name, each in placed.items()}
        self._publish([*made.values()])
        return {**failures, **made}

    def metadata_changed(self) -> None:
        """Drop cached metadata responses."""
        with self._lock:
            self.generation += 1

    def add_partitions(
        self, topic: Topic, count: int, replicas: Replicas = (), check_turn: Callable[[], None] = _no_deadline
    ) -> None:
        """Increase the number of the topic's partitions to `count`. `replicas` are those of the new partitions. Raises
        KafkaError like `create`.
        """
        with self._lock:
            check_turn()
            _check_current(self._by_name, topic)
            before = len(topic.partitions)
            if count <= before:
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} already has {before} partitions")
            _make_room(self._logs, topic.name, range(before, count))
            replicas = replicas or self.placement.place_more(count - before, topic.partitions[-1].leadership)
            added = self._partitions(topic, before, replicas)
            partitions = [*topic.partitions, *added]
            with self.accounts.changing(topic, count, topic.overrides):
                self._store.write_and_wait(grow_topic(self.placement, topic, partitions))
            topic.partitions = partitions
            self.generation += 1
            self.partition_count += len(added)
        self._open_later(added)

    def set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own configs, durably, and apply them to its logs. Raises StoreError."""
        with self._lock:
            _check_current(self._by_name, topic)
            config = self._configs.log_config(overrides)
            with self.accounts.changing(topic, len(topic.partitions), overrides):
                self._store.write_and_wait(replace_configs(TOPIC_RESOURCE, topic.name, overrides))
            topic.overrides = dict(overrides)
            self._opener.copy_configs(topic)
            self._opener.update_configs(topic, config)

    def broker_configs_changed(self) -> None:
        """Let all logs follow changed defaults."""
        with self._lock:
            for topic in self._by_name.values():
                self._opener.update_configs(topic, self._configs.log_config_in_force(topic.name, topic.overrides))

    def delete(self, topic: Topic) -> None:
        """Delete the topic durably; its files are removed after the file delete delay. Raises KafkaError."""
        for failure in self.delete_all([topic]).values():
            raise failure

    def delete_all(
        self, topics: Sequence[Topic], check_turn: Callable[[], None] = _no_deadline
    ) -> dict[str, KafkaError]:
        """Delete different topics, several at a time with one wait for the store.

        Their names are free on return. Returns by name the errors that `delete` or `check_turn` would raise.
        """
        failures: dict[str, KafkaError] = {}
        for first in range(0, len(topics), _CHANGED_AT_ONCE):
            gone: list[Topic] = []
            with self._lock:
                for topic in topics[first : first + _CHANGED_AT_ONCE]:
                    try:
                        check_turn()
                        _check_current(self._by_name, topic)
                        gone.append(topic)
                    except KafkaError as error:
                        failures[topic.name] = error
                try:
                    self._store.write_and_wait([each for topic in gone for each in delete_topic(topic)])
                except KafkaError as error:
                    failures.update((topic.name, error) for topic in gone)
                    continue
                for topic in gone:
                    self._drop(topic)
            # Done before the names are free, so that nothing of a new topic with such a name is removed.
            self._on_partitions_gone(gone)
            self._remove_directories(gone)
        return failures

    def _drop(self, topic: Topic) -> None:
        """Remove the topic from look-ups. No topic with its name is created before its directories are removed."""
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        self.generation += 1
        self._deleted[topic.id] = (self.generation, topic.name)
        if len(self._deleted) > _MOST_DELETED:
            self._deleted.popitem(last=False)
        self.partition_count -= len(topic.partitions)
        self.accounts.forget([topic.name])
        self.traffic_of_deleted.add(topic.traffic)
        with self._opener.lock:
            topic.deleted = True

    def _remove_directories(self, gone: Sequence[Topic]) -> None:
        """Remove directories. The next start removes those that could not be removed."""
        failures = self._logs.delete_all([(topic.name, each.index) for topic in gone for each in topic.partitions])
        self._store.submit([directories_gone(topic.id) for topic in gone if topic.name not in failures])
        with self._lock:
            for topic in gone:
                self._by_collision_key.pop(collision_key(topic.name), None)

    def _topic(self, name: str, topic_id: bytes, replicas: Replicas, overrides: Mapping[str, str]) -> Topic:
        """Return a topic whose logs are not open yet."""
        topic = Topic(name, topic_id, dict(overrides))
        topic.partitions = self._partitions(topic, 0, replicas)
        return topic

    def _partitions(self, topic: Topic, first: int, replicas: Replicas) -> list[Partition]:
        return [
            Partition(topic, index, first_leadership(each), self._opener.open, self._wake)
            for index, each in enumerate(replicas, first)
        ]

    def _publish(self, topics: Sequence[Topic]) -> None:
        # Other threads look up topics meanwhile, so each dictionary changes in one step.
        self._by_name.update({topic.name: topic for topic in topics})
        self._by_id.update({topic.id: topic for topic in topics})
        self._by_collision_key.update((collision_key(topic.name), topic.name) for topic in topics)
        self.generation += 1
        self.partition_count += sum(len(topic.partitions) for topic in topics)


def _make_room(logs: LogManager, name: str, partitions: range) -> None:
    """Set aside files that have the names of new directories. The directories are created after the response."""
    try:
        logs.make_room(name, partitions)
    except OSError as error:
        log.error("there is no room for topic %s: %s", name, error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror) from error


def _check_current(by_name: Mapping[str, Topic], topic: Topic) -> None:
    if by_name.get(topic.name) is not topic:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
