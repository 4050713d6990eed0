"""`LogOpener`: opens the logs of partitions at their first use."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock, Scheduler
from klamm_broker.configs.adopted_configs import write_copy
from klamm_broker.configs.config_registry import ConfigRegistry
from klamm_broker.log.config import LogConfig
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.manager import LogManager
from klamm_broker.topics.topic import Partition, Topic

log = logging.getLogger("klamm.broker.topics")

_PERIOD_MS: Final = 50
_SLICE_NS: Final = 5_000_000
_PAUSE_MS: Final = 1000


class LogOpener:
    """The opener of logs. Any thread may call it."""

    def __init__(self, logs: LogManager, configs: ConfigRegistry, operations: FileOperations) -> None:
        # Held while a log is opened or deleted, or gets changed configs.
        self.lock = threading.Lock()
        self._logs = logs
        self._configs = configs
        self._operations = operations

    def open(self, partition: Partition) -> None:
        """Open the log of a partition, unless it is open. Raises KafkaError: KAFKA_STORAGE_ERROR, and if the partition
        was deleted.
        """
        try:
            self.open_now(partition)
        except OSError as error:
            log.error("%s cannot be opened: %s", partition, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror) from error

    def open_now(self, partition: Partition) -> None:
        """Open a log like `open`, but raise OSError for disk errors."""
        topic = partition.topic
        with self.lock:
            if partition.opened_log is not None:
                return
            if topic.deleted:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            config = self._configs.log_config_in_force(topic.name, topic.overrides)
            opened = self._logs.get_or_create(topic.name, partition.index, topic.id, config)
            if not partition.index and not opened.end_offset:
                # The directory may be new. The copy is not synced: if it is lost with an empty log, no data is lost.
                write_copy(self._operations, opened.directory, topic.overrides, sync=False)
            partition.log = opened

    def open_if_slow(self, topic: Topic) -> None:
        """Open those logs of a topic whose recovery would delay a request. If one fails, only requests for it fail."""
        for partition in topic.partitions:
            with _reported(partition):
                if self._logs.opens_slowly(topic.name, partition.index, topic.id):
                    self.open_now(partition)

    def open_all(self, topic: Topic) -> None:
        """Open the logs of a topic, because new producer ids must be above those in the logs. Failures are logged."""
        for partition in topic.partitions:
            with _reported(partition):
                self.open_now(partition)

    def copy_configs(self, topic: Topic) -> None:
        """Write a copy of changed configs to the directories that exist. Others get the copy when they are created."""
        directory = self._logs.data_dir / f"{topic.name}-0"
        with self.lock:
            if directory.is_dir():
                write_copy(self._operations, directory, topic.overrides, sync=True)

    def update_configs(self, topic: Topic, config: LogConfig) -> None:
        """Apply changed configs to a topic's open logs. Other logs get them when they are opened."""
        with self.lock:
            for partition in topic.partitions:
                opened = partition.opened_log
                if opened is not None:
                    opened.update_config(config)


@contextlib.contextmanager
def _reported(partition: Partition) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("%s cannot be opened: %s", partition, error)


class OpeningInBackground:
    """The background opening of logs that no request has used yet. Retention, compaction and metrics need all logs.

    It uses a tenth of a processor until all logs are open. If a log cannot be opened, the failure is logged, and each
    request for the log tries again. The other logs are opened later, because the disk may be full.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Protects the waiting partitions, and the flag for a scheduled turn.
        self._lock = threading.Lock()
        self._waiting: deque[Partition] = deque()
        self._scheduler: Scheduler | None = None
        self._is_scheduled = False

    def start(self, scheduler: Scheduler, topics: Iterable[Topic]) -> None:
        """Open the logs of these topics and of all partitions added before, on the scheduler's thread."""
        self._scheduler = scheduler
        self.add(each for topic in topics for each in topic.partitions if each.opened_log is None)

    def add(self, partitions: Iterable[Partition]) -> None:
        """Open the logs of these partitions too."""
        with self._lock:
            self._waiting.extend(partitions)
            self._schedule(_PERIOD_MS)

    def _schedule(self, delay_ms: int) -> None:
        if self._waiting and self._scheduler is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.schedule(delay_ms, self._open_some)

    def _open_some(self) -> None:
        deadline_ns = self._clock.monotonic_ns() + _SLICE_NS
        delay_ms = _PERIOD_MS
        while self._waiting and self._clock.monotonic_ns() < deadline_ns:
            try:
                _ = self._waiting.popleft().log
            except KafkaError as error:
                if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    delay_ms = _PAUSE_MS
                    break
        with self._lock:
            self._is_scheduled = False
            self._schedule(delay_ms)
