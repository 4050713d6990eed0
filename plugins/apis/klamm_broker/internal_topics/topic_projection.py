"""`TopicProjection`: keeps one internal topic equal to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from klamm.runtime import Clock
from klamm_broker.internal_topics.record_source import RecordSource, Row
from klamm_broker.internal_topics.store_changes import StoreChanges
from klamm_broker.internal_topics.topic_log import TopicLog
from klamm_broker.storage.store import Store
from klamm_broker.topics.topic import Partition, Topic
from klamm_broker.topics.topic_registry import TopicRegistry

_Owned = tuple["RecordSource", "Row"]


class TopicProjection:
    """The writer of one topic's missing records. It first compares the whole topic, and then follows the store's
    changes.

    One thread at a time may call it. If `work` raises KafkaError, the caller calls `compare_again`.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[RecordSource],
        store: Store,
        topics: TopicRegistry,
        clock: Clock,
        has_records: Callable[[Partition], bool],
    ) -> None:
        self.name = name
        self._sources = sources
        self._changes = StoreChanges(store, sources)
        self._topics = topics
        self._clock = clock
        self._has_records = has_records
        self._log: TopicLog | None = None
        self._comparison: Iterator[None] | None = None

    @property
    def agrees(self) -> bool:
        """True if the topic has all changes up to the last call of `work`."""
        return self._log is not None and self._comparison is None

    def begin(self, topic: Topic, *, agrees: bool) -> None:
        """Follow the store for a topic that agrees with it or is to be compared. Raises StoreError."""
        self.end()
        self._changes.follow()
        self._log = TopicLog(topic, self._clock)
        if not agrees:
            self.compare_again()

    def end(self) -> None:
        """Stop following the store. Raises StoreError."""
        self._log = self._comparison = None
        self._changes.ignore()

    def compare_again(self) -> None:
        """Compare the topic with the store again."""
        if self._log is not None:
            self._comparison = self._compare(self._log)

    def work(self, has_time: Callable[[], bool]) -> bool:
        """Write data that is due while `has_time` returns True. Return True if there may be more. Raises KafkaError."""
        topic = self._topics.get(self.name)
        if topic is None:
            if self._log is not None:
                self.end()
            return False
        if self._log is None or self._log.topic is not topic or len(self._log.partitions) != len(topic.partitions):
            self.begin(topic, agrees=False)
        log = self._log
        assert log is not None
        if self._comparison is not None:
            for _ in self._comparison:
                if not has_time():
                    return True
            self._comparison = None
        for source, rows in self._changes.take():
            log.append(source.to_records(rows, self._topic_id))
            if not has_time():
                return True
        if "delete" in topic.overrides.get("cleanup.policy", ""):
            self._shorten(log)
        return False

    def _shorten(self, log: TopicLog) -> None:
        """Append the present state of a long partition again and delete its earlier records, because the topic is not
        compacted.
        """
        for index in log.long_partitions():
            start_offset = log.partitions[index].log.end_offset
            for source in self._sources:
                for row in self._changes.owners(source):
                    if log.partition_for(source.owner(row)) == index:
                        log.append(source.to_records(self._changes.rows_of(source, row), self._topic_id))
            log.delete_before(index, start_offset)

    def _compare(self, log: TopicLog) -> Iterator[None]:
        owned: dict[int, list[_Owned]] = {}
        for source in self._sources:
            for row in self._changes.owners(source):
                owned.setdefault(log.partition_for(source.owner(row)), []).append((source, row))
        yield
        for index, partition in enumerate(log.partitions):
            of_partition = owned.get(index, ())
            last: dict[bytes, bytes | None] = {}
            if self._has_records(partition):
                yield from log.last_values(index, last)
            for source, row in of_partition:
                wanted = source.to_records(self._changes.rows_of(source, row), self._topic_id)
                log.append([each for each in wanted if last.pop(each.key, None) != each.value])
                yield
            log.append_to(index, [(key, None) for key, value in last.items() if value is not None])
            yield

    def _topic_id(self, name: str) -> bytes:
        topic = self._topics.get(name)
        return bytes(16) if topic is None else topic.id
