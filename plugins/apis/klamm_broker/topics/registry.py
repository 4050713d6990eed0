"""The topics of a broker: names, ids, partitions and their logs, durable in the store.

The store decides what exists. A topic is created there first and gets its directories afterwards (at the next start, if
the process dies in between). It is deleted there first too; a row that records the deletion stays until its directories
are gone, and a start finishes deletions that have such a row.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.adopted_configs import read_copy, write_copy
from klamm_broker.storage.meta_properties import random_uuid
from klamm_broker.topics.directories import partition_directories, topic_id_of, topics_in
from klamm_broker.topics.leadership import (
    delete_leaderships,
    first_leadership,
)
from klamm_broker.topics.log_opener import LogConfigs, LogOpener
from klamm_broker.topics.names import check_topic_name, collision_key
from klamm_broker.topics.placement import NewTopic, Replicas
from klamm_broker.topics.topic import Partition, Topic, TopicTraffic

if TYPE_CHECKING:
    from klamm_broker.log import FileOperations, LogConfig, LogManager
    from klamm_broker.storage.store import Statement, Store
    from klamm_broker.topics.placement import ReplicaPlacement

log = logging.getLogger("klamm.broker.topics")

TOPIC_RESOURCE: Final = 2
"""`ConfigResource.Type.TOPIC`, as in the store's table `configs`."""

MAX_PARTITIONS_PER_TOPIC: Final = 100_000
_DELETION: Final = "deleted-topic/"
_MOST_DELETED: Final = 1000
"""How many deleted topics are known by name, for fetch sessions that go on with their ids."""
_DELETED_AT_ONCE: Final = 100
"""Topics that are deleted with one write. Changes of other topics wait meanwhile."""
KRAFT_METADATA_TOPIC: Final = "__cluster_metadata"


class TopicRegistry:
    """All topics. Look-ups take no lock; changes are made one at a time, and wait for the store.

    `log_config` makes the settings of a log from a topic's overrides. `on_partitions_gone` is called with deleted
    topics when look-ups do not find them any more. `wake` completes the fetches that wait for a partition. `placement`
    says where replicas go.
    """

    def __init__(
        self,
        store: Store,
        logs: LogManager,
        configs: LogConfigs,
        operations: FileOperations,
        random_bytes: Callable[[int], bytes],
        on_partitions_gone: Callable[[Sequence[Topic]], None],
        wake: Callable[[Partition], object],
        placement: ReplicaPlacement,
    ) -> None:
        self._store = store
        self._logs = logs
        self._configs = configs
        self._operations = operations
        self._random_bytes = random_bytes
        self._on_partitions_gone = on_partitions_gone
        self._wake = wake
        self.placement = placement
        # Protects the topics: store, logs and maps change together.
        self._lock = threading.Lock()
        # Its lock is taken after `_lock`.
        self._opener = LogOpener(logs, configs)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_collision_key: dict[str, str] = {}
        self.partition_count = 0
        self.traffic_of_deleted = TopicTraffic()
        self.generation = 0
        """A higher number after each change to what Metadata returns."""
        self._deleted: OrderedDict[bytes, tuple[int, str]] = OrderedDict()

    # Look-ups

    def get(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this 16-byte id."""
        return self._by_id.get(topic_id)

    def name_of_deleted(self, topic_id: bytes, since: int) -> str | None:
        """The name of a deleted topic that existed at generation `since`; None if that is unknown."""
        deleted_at, name = self._deleted.get(topic_id, (-1, ""))
        return name if deleted_at > since else None

    def all(self) -> list[Topic]:
        """Every topic, ordered by name."""
        # A copy is made in one step; the names may change while they are sorted.
        by_name = self._by_name.copy()
        return [by_name[name] for name in sorted(by_name)]

    # Start

    def load(self, data_dir: Path) -> None:
        """Read the topics; finish deletions; adopt topics that only their directories mention.

        Logs are opened at their first use, but for those whose recovery would hold up a request.
        Raises StoreError, and what opening a log raises.
        """
        self._finish_deletions(data_dir)
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

    def _finish_deletions(self, data_dir: Path) -> None:
        """Remove the directories of topics whose deletion was started; one without a topic id is set aside."""
        rows = self._store.read("SELECT key, value FROM cluster WHERE key LIKE ?", (_DELETION + "%",))
        names = {bytes.fromhex(key.removeprefix(_DELETION)): name for key, name in rows}
        if not names:
            return
        failed = False
        gone = set(names.values())
        for directory, name, index in partition_directories(data_dir):
            topic_id = topic_id_of(directory)
            try:
                if topic_id in names:
                    self._logs.delete(name, index)
                elif topic_id is None and name in gone:
                    self._logs.set_aside(name, index)
            except OSError as error:
                log.error("%s cannot be removed: %s", directory, error)
                failed = True
        if not failed:
            self._store.write_and_wait([("DELETE FROM cluster WHERE key = ?", (key,)) for key, _name in rows])

    def _adopt_orphans(self, data_dir: Path) -> None:
        for name, (topic_id, partitions) in topics_in(data_dir, {*self._by_name, KRAFT_METADATA_TOPIC}).items():
            log.warning("topic %s is not in the store, but has directories: taking it in", name)
            overrides = read_copy(data_dir / f"{name}-0")
            adopted = self.placement.placed(NewTopic(partitions, overrides), 0)
            self._store.write_and_wait(_insert(self.placement, name, topic_id, adopted))
            topic = self._topic(name, topic_id, adopted.replicas, adopted.overrides)
            self._opener.open_all(topic)
            self._publish([topic])

    # Changes

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if no topic of this name can be created: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS."""
        check_topic_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        other = self._by_collision_key.get(collision_key(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} and the existing topic {other} would have the same metric names",
            )

    def create(
        self, name: str, partitions: int, overrides: Mapping[str, str], replicas: Replicas = (), factor: int = 1
    ) -> Topic:
        """Create a topic; it is durable and has its directories on return.

        Raises KafkaError: as `check_new_name`, KAFKA_STORAGE_ERROR when store or disk refuse.
        """
        made = self.create_all({name: NewTopic(partitions, overrides, replicas, factor)})[name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_all(self, wanted: Mapping[str, NewTopic]) -> dict[str, Topic | KafkaError]:
        """Create topics, by name, with one wait for the store. Returns each topic, or what `create` would raise."""
        made: dict[str, Topic | KafkaError] = {}
        with self._lock:
            ids = {}
            keys: set[str] = set()
            for name in wanted:
                try:
                    self.check_new_name(name)
                    if collision_key(name) in keys:
                        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} collides with another new topic")
                    keys.add(collision_key(name))
                    ids[name] = random_uuid(self._random_bytes)
                except KafkaError as error:
                    made[name] = error
            placed = {name: self.placement.placed(wanted[name], len(self._by_name) + at) for at, name in enumerate(ids)}
            try:
                rows = [_insert(self.placement, name, ids[name], each) for name, each in placed.items()]
                self._store.write_and_wait([each for row in rows for each in row])
                for name, topic_id in ids.items():
                    made[name] = self._open_created(name, topic_id, placed[name])
            except KafkaError as error:
                made.update((name, error) for name in ids if name not in made)
            self._publish([topic for topic in made.values() if isinstance(topic, Topic)])
        return made

    def _open_created(self, name: str, topic_id: bytes, wanted: NewTopic) -> Topic | KafkaError:
        try:
            topic = self._open(name, topic_id, wanted, is_new=True)
            _copy_configs(self._operations, self._logs, topic)
            self._logs.sync_directory()
            return topic
        except (KafkaError, OSError) as error:
            try:
                _undo_create(self._store, self._logs, name, topic_id, wanted.partitions)
            except KafkaError as failure:
                return failure
            return _storage_error(error)

    def metadata_changed(self) -> None:
        """Drop cached metadata responses."""
        with self._lock:
            self.generation += 1

    def add_partitions(self, topic: Topic, count: int, replicas: Replicas = ()) -> None:
        """Increase the topic's partitions to `count`; `replicas` are those of the new ones. Raises KafkaError as
        `create`."""
        with self._lock:
            _check_current(self._by_name, topic)
            before = len(topic.partitions)
            if count <= before:
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} has {before} partitions already")
            config = self._configs.log_config_in_force(topic.name, topic.overrides)
            try:
                replicas = replicas or self.placement.place_more(count - before, topic.partitions[-1].leadership)
                added = [self._new_partition(topic, before + at, config, each) for at, each in enumerate(replicas)]
                self._logs.sync_directory()
                update: Statement = ("UPDATE topics SET partitions = ? WHERE name = ?", (count, topic.name))
                leaderships = [each.leadership for each in (*topic.partitions, *added)]
                self._store.write_and_wait([update, *self.placement.put(topic.id, leaderships)])
            except (KafkaError, OSError) as error:
                self._logs.delete_all(topic.name, range(before, count))
                raise _storage_error(error) from error
            topic.partitions = [*topic.partitions, *added]
            self.generation += 1
            self.partition_count += len(added)

    def set_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own configs, durably, and let its logs follow. Raises StoreError."""
        with self._lock:
            _check_current(self._by_name, topic)
            config = self._configs.log_config(overrides)
            self._store.write_and_wait([_delete_configs(topic.name), *_insert_configs(topic.name, overrides)])
            topic.overrides = dict(overrides)
            _copy_configs(self._operations, self._logs, topic)
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

    def delete_all(self, topics: Sequence[Topic]) -> dict[str, KafkaError]:
        """Delete different topics, some at a time with one wait for the store.

        Returns by name what `delete` would raise.
        """
        failures: dict[str, KafkaError] = {}
        for first in range(0, len(topics), _DELETED_AT_ONCE):
            gone: list[Topic] = []
            with self._lock:
                for topic in topics[first : first + _DELETED_AT_ONCE]:
                    try:
                        _check_current(self._by_name, topic)
                        gone.append(topic)
                    except KafkaError as error:
                        failures[topic.name] = error
                try:
                    self._store.write_and_wait([each for topic in gone for each in _delete(topic)])
                except KafkaError as error:
                    failures.update((topic.name, error) for topic in gone)
                    continue
                for topic in gone:
                    self._drop(topic)
            self._on_partitions_gone(gone)
        return failures

    def _drop(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        self._by_collision_key.pop(collision_key(topic.name), None)
        self.generation += 1
        self._deleted[topic.id] = (self.generation, topic.name)
        if len(self._deleted) > _MOST_DELETED:
            self._deleted.popitem(last=False)
        self.partition_count -= len(topic.partitions)
        self.traffic_of_deleted.add(topic.traffic)
        with self._opener.lock:
            topic.deleted = True
            failure = self._logs.delete_all(topic.name, range(len(topic.partitions)))
        if failure is None:
            self._store.submit([("DELETE FROM cluster WHERE key = ?", (_DELETION + topic.id.hex(),))])
        # What could not be removed, the next start removes.

    def _open(self, name: str, topic_id: bytes, wanted: NewTopic, *, is_new: bool = False) -> Topic:
        topic = self._topic(name, topic_id, wanted.replicas, wanted.overrides)
        config = self._configs.log_config_in_force(name, wanted.overrides)
        for partition in topic.partitions:
            partition.log = self._logs.get_or_create(name, partition.index, topic_id, config, is_new=is_new)
        return topic

    def _topic(self, name: str, topic_id: bytes, replicas: Replicas, overrides: Mapping[str, str]) -> Topic:
        """A topic whose logs are not open yet."""
        topic = Topic(name, topic_id, dict(overrides))
        topic.partitions = [
            Partition(topic, index, first_leadership(each), self._opener.open, self._wake)
            for index, each in enumerate(replicas)
        ]
        return topic

    def _new_partition(self, topic: Topic, index: int, config: LogConfig, replicas: tuple[int, ...]) -> Partition:
        partition = Partition(topic, index, first_leadership(replicas), self._opener.open, self._wake)
        partition.log = self._logs.get_or_create(topic.name, index, topic.id, config, is_new=True)
        return partition

    def _publish(self, topics: Sequence[Topic]) -> None:
        # Other threads look topics up meanwhile: each dictionary changes in one step.
        self._by_name.update({topic.name: topic for topic in topics})
        self._by_id.update({topic.id: topic for topic in topics})
        self._by_collision_key.update((collision_key(topic.name), topic.name) for topic in topics)
        self.generation += 1
        self.partition_count += sum(len(topic.partitions) for topic in topics)


def _copy_configs(operations: FileOperations, logs: LogManager, topic: Topic) -> None:
    write_copy(operations, logs.data_dir / f"{topic.name}-0", topic.overrides)


def _undo_create(store: Store, logs: LogManager, name: str, topic_id: bytes, partitions: int) -> None:
    log.error("topic %s: its logs cannot be created, giving up", name)
    store.write_and_wait([("DELETE FROM topics WHERE id = ?", (topic_id,)), _delete_configs(name)])
    logs.delete_all(name, range(partitions))


def _check_current(by_name: Mapping[str, Topic], topic: Topic) -> None:
    if by_name.get(topic.name) is not topic:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _insert(placement: ReplicaPlacement, name: str, topic_id: bytes, wanted: NewTopic) -> list[Statement]:
    return [
        _insert_topic(name, topic_id, wanted.partitions),
        _delete_configs(name),
        *_insert_configs(name, wanted.overrides),
        *placement.put(topic_id, map(first_leadership, wanted.replicas)),
    ]


def _delete(topic: Topic) -> list[Statement]:
    return [
        ("DELETE FROM topics WHERE name = ?", (topic.name,)),
        _delete_configs(topic.name),
        ("DELETE FROM offsets WHERE topic = ?", (topic.name,)),
        ("DELETE FROM pending_offsets WHERE topic = ?", (topic.name,)),
        delete_leaderships(topic.id),
        ("INSERT INTO cluster (key, value) VALUES (?, ?)", (_DELETION + topic.id.hex(), topic.name)),
    ]


def _insert_topic(name: str, topic_id: bytes, partitions: int) -> Statement:
    return ("INSERT INTO topics (name, id, partitions) VALUES (?, ?, ?)", (name, topic_id, partitions))


def _insert_configs(name: str, overrides: Mapping[str, str]) -> list[Statement]:
    return [
        (
            "INSERT INTO configs (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)",
            (TOPIC_RESOURCE, name, key, value),
        )
        for key, value in overrides.items()
    ]


def _delete_configs(name: str) -> Statement:
    return ("DELETE FROM configs WHERE resource_type = ? AND resource_name = ?", (TOPIC_RESOURCE, name))


def _storage_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
