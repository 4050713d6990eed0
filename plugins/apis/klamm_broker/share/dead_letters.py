"""Dead-letter topics of share groups (KIP-1191). If a group has such a topic, records that it gives up are written to
it.

A group gives up a record if a member rejects it or if it was delivered too often. The record is ARCHIVING until the
write of its letter has ended, and then ARCHIVED, even if the write failed. After a restart, letters of records that are
still ARCHIVING are written again. Follows Kafka's `ShareGroupDLQStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from klamm import ErrorCode, KafkaError, clipped
from klamm.runtime import Clock
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.records import HEADER_BYTES, Record, decode_records, encode_batch, iterate_batches
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import DEAD_LETTER_COPY, DEAD_LETTER_TOPIC, SHARE_DELIVERY_COUNT_LIMIT
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.configs.topic_config import DEAD_LETTERS_OF_GROUPS
from klamm_broker.log.files import FileRegion
from klamm_broker.share.meters import ShareMeters
from klamm_broker.share.persistence import SharePartitionKey
from klamm_broker.share.run import Run
from klamm_broker.topics.topic import Partition, Topic
from klamm_broker.topics.topic_registry import TopicRegistry

log = logging.getLogger("klamm.broker.share")

_NO_EPOCH: Final = -1
_BATCH_RECORDS: Final = 500
_READ_BYTES: Final = 1024 * 1024
_NUMBER_BYTES: Final = 5
_REJECTED: Final = "Offset rejected by client."
_EXCEEDED: Final = "Offset delivery count exceeded the threshold."


class Letter(NamedTuple):
    """Adjacent offsets of records that a group has given up, both ends included."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool


class SharePartitionKept(Protocol):
    """The methods of a share partition that `DeadLetters` uses."""

    @property
    def key(self) -> SharePartitionKey: ...

    @property
    def partition(self) -> Partition: ...

    def letters_sent(self, first: int, last: int, /) -> None: ...


class DeadLetters(Protocol):
    """The receiver of share partitions' dead letters."""

    def is_on(self, group_id: str, /) -> bool:
        """Return True if records that this group gives up get letters."""

    def send(self, live: SharePartitionKept, given_up: Sequence[Run], /) -> None:
        """Queue letters without waiting. `letters_sent` is called for each run once its letters are written or have
        failed.
        """


class NoDeadLetters:
    """The `DeadLetters` of a broker that writes none."""

    def is_on(self, _group_id: str) -> bool:
        return False

    def send(self, live: SharePartitionKept, given_up: Sequence[Run]) -> None:
        for run in given_up:
            live.letters_sent(run.first, run.last)


class DeadLetterTopics:
    """The writer of letters, on a thread that may wait. `is_served()` returns True if `share.version` supports
    letters.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        configs: GroupConfigs,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        run_later: Callable[[Callable[[], None]], None],
        is_served: Callable[[], bool],
        meters: ShareMeters,
    ) -> None:
        self._topics = topics
        self._configs = configs
        self._settings = settings
        self._clock = clock
        self._run_later = run_later
        self._is_served = is_served
        self._meters = meters

    def is_on(self, group_id: str) -> bool:
        return bool(self._configs.value(group_id, DEAD_LETTER_TOPIC)) and self._is_served()

    def send(self, live: SharePartitionKept, given_up: Sequence[Run]) -> None:
        limit = self._configs.number(live.key.group_id, SHARE_DELIVERY_COUNT_LIMIT)
        letters = [
            # A restart loses `is_rejected`, but a low delivery count shows that a member has rejected the records.
            Letter(run.first, run.last, run.delivery_count, run.is_rejected or run.delivery_count < limit)
            for run in given_up
        ]
        self._run_later(partial(self._write, live, letters))

    def _write(self, live: SharePartitionKept, letters: Sequence[Letter]) -> None:
        group_id = live.key.group_id
        for letter in letters:
            try:
                self._append(group_id, live.partition, letter)
            except KafkaError as error:
                log.error(
                    "group %s, %r: offsets %d to %d are archived without a dead letter: %s",
                    clipped(group_id),
                    live.partition,
                    letter.first,
                    letter.last,
                    error,
                )
            finally:
                live.letters_sent(letter.first, letter.last)

    def _append(self, group_id: str, source: Partition, letter: Letter) -> None:
        topic = self._topic_of(group_id)
        target = topic.partitions[source.index % len(topic.partitions)]
        try:
            for first in range(letter.first, letter.last + 1, _BATCH_RECORDS):
                last = min(letter.last, first + _BATCH_RECORDS - 1)
                copied = _copied(source, first, last) if self._configs.value(group_id, DEAD_LETTER_COPY) else {}
                for batch in self._batches(group_id, source, letter, range(first, last + 1), copied, topic):
                    self._write_batch(group_id, target, batch)
        finally:
            target.wake_fetches()

    def _write_batch(self, group_id: str, target: Partition, letters: list[Record]) -> None:
        batch, written = bytes(encode_batch(letters)), 0
        try:
            target.append(batch, now_ms=self._clock.wall_ms(), max_unpacked_bytes=MAX_UNCOMPRESSED_BYTES)
            written = len(letters)
        finally:
            self._meters.wrote_letters(group_id, written)

    def _batches(
        self,
        group_id: str,
        source: Partition,
        letter: Letter,
        offsets: range,
        copied: Mapping[int, Record],
        topic: Topic,
    ) -> Iterator[list[Record]]:
        """Yield batches of letters, each as large as the topic allows."""
        now_ms = self._clock.wall_ms()
        most_bytes = topic.partitions[0].log.config.max_message_bytes
        context = _context(group_id, source, letter)
        pending: list[Record] = []
        size_bytes = HEADER_BYTES
        for offset in offsets:
            found = copied.get(offset, _NOTHING)
            headers = (*context[:2], ("__dlq.errors.offset", str(offset).encode()), *context[2:])
            record = Record(-1, now_ms, found.key, found.value, headers)
            record_bytes = _most_bytes_of(record)
            if pending and size_bytes + record_bytes > most_bytes:
                yield pending
                pending, size_bytes = [], HEADER_BYTES
            pending.append(record)
            size_bytes += record_bytes
        yield pending

    def _topic_of(self, group_id: str) -> Topic:
        """Return a group's topic. Create it if the settings allow that. Raises KafkaError(INVALID_CONFIG)."""
        name, settings = self._configs.value(group_id, DEAD_LETTER_TOPIC), self._settings()
        topic = self._topics.get(name)
        if not name.startswith(settings.errors_deadletterqueue_topic_name_prefix):
            raise _invalid(f'the name "{clipped(name)}" does not begin with errors.deadletterqueue.topic.name.prefix')
        if topic is not None:
            if topic.overrides.get(DEAD_LETTERS_OF_GROUPS) != "true":
                raise _invalid(f"the topic {name} does not have {DEAD_LETTERS_OF_GROUPS}=true")
            return topic
        if not settings.errors_deadletterqueue_auto_create_topics_enable:
            raise _invalid(
                f"there is no topic {clipped(name)}, and errors.deadletterqueue.auto.create.topics.enable is false"
            )
        configs = {DEAD_LETTERS_OF_GROUPS: "true", "message.timestamp.type": "CreateTime"}
        try:
            return self._topics.create(name, settings.num_partitions, configs)
        except KafkaError:
            # A client may have created the topic meanwhile.
            topic = self._topics.get(name)
            if topic is None:
                raise
            return topic


_NOTHING: Final = Record()


def _context(group_id: str, source: Partition, letter: Letter) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that all letters of a range share. In a letter, the header with the offset follows the first
    two.
    """
    return (
        ("__dlq.errors.topic", source.topic.name.encode()),
        ("__dlq.errors.partition", str(source.index).encode()),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", str(letter.delivery_count).encode()),
        ("__dlq.errors.message", (_REJECTED if letter.is_rejected else _EXCEEDED).encode()),
    )


def _most_bytes_of(record: Record) -> int:
    """Return an upper bound of the size of a record: its fields, and their length prefixes."""
    headers = sum(len(name) + len(value or b"") + 2 * _NUMBER_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 7 * _NUMBER_BYTES


def _copied(source: Partition, first: int, last: int) -> dict[int, Record]:
    """Return the records of these offsets that the log still has."""
    found: dict[int, Record] = {}
    offset = max(first, source.log.log_start_offset)
    while offset <= last:
        got = source.read(offset, _READ_BYTES, _NO_EPOCH, min_one_message=True, committed_only=False)
        records = got.records
        data = records.read_bytes() if isinstance(records, FileRegion) else records
        if isinstance(records, FileRegion):
            records.close()
        before = offset
        for header, batch in iterate_batches(data):
            if not header.is_control and header.base_offset <= last:
                found.update((each.offset, each) for each in decode_records(batch) if first <= each.offset <= last)
            offset = header.last_offset + 1
        if offset == before:
            break
    return found


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
