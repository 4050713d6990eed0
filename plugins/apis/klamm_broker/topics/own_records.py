"""`OwnRecords`: lets a part of this server, e.g. the audit, write to a topic without a client and a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.records import Record, encode_batch
from klamm_broker.topics.topic import Topic
from klamm_broker.topics.topic_registry import TopicRegistry

_BATCH_BYTES: Final = 512 * 1024


class OwnRecords:
    """The owner of `append`, which other parts of the server get as the shared service `klamm.records`. Any thread may
    call it while the broker is open.
    """

    def __init__(self, topics: TopicRegistry, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def append(self, name: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Append pairs of key and value to the first partition of a topic. The topic is created if it does not exist.

        The records are not synced. Raises KafkaError; batches that were appended before the failed one stay.
        """
        topic = self._topics.get(name) or self._created(name)
        partition = topic.partition(0)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is being deleted")
        try:
            for batch in _batches(records):
                now_ms = self._clock.wall_ms()
                encoded = encode_batch([Record(timestamp_ms=now_ms, key=key, value=value) for key, value in batch])
                partition.append(encoded, now_ms=now_ms, max_unpacked_bytes=MAX_UNCOMPRESSED_BYTES)
                topic.traffic.bytes_in += len(encoded)
                topic.traffic.messages_in += len(batch)
        finally:
            partition.wake_fetches()

    def _created(self, name: str) -> Topic:
        try:
            return self._topics.create(name, 1, {})
        except KafkaError:
            # A client may have created the topic meanwhile.
            topic = self._topics.get(name)
            if topic is None:
                raise
            return topic


def _batches(records: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    batches: list[list[tuple[bytes, bytes]]] = []
    size = _BATCH_BYTES
    for key, value in records:
        if size >= _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append((key, value))
        size += len(key) + len(value)
    return batches
