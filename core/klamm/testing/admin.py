"""`Admin`, which reads and changes topics, records and groups in tests, without a client library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from klamm.config.problems import did_you_mean
from klamm.runtime.clock import Clock, SystemClock
from klamm.testing.groups import Group
from klamm.testing.outcomes import check_error
from klamm.testing.raw_client import RawClient
from klamm.wire.batch_headers import RecordBatchHeader
from klamm.wire.messages import (
    create_topics,
    delete_groups,
    delete_topics,
    fetch,
    list_groups,
    list_offsets,
    metadata,
    produce,
)
from klamm.wire.records import Record, decode_records, encode_batch, iterate_batches
from klamm.wire.struct_base import Message

HELPER_CLIENT_ID: Final = "klamm.testing"
"""The client id of the helpers. Faults do not affect its requests, and recordings leave them out."""

# In all of these versions topics have names.
_VERSIONS: Final = {
    create_topics.CreateTopicsRequest: 5,
    metadata.MetadataRequest: 8,
    produce.ProduceRequest: 8,
    fetch.FetchRequest: 11,
    list_offsets.ListOffsetsRequest: 5,
    delete_topics.DeleteTopicsRequest: 5,
    list_groups.ListGroupsRequest: 4,
    delete_groups.DeleteGroupsRequest: 2,
}
_TIMEOUT_MS: Final = 30_000
_EARLIEST: Final = -2
_LATEST: Final = -1
_ACKS_ALL: Final = -1
_LIMITED_BYTES: Final = 16 << 20
_SYSTEM_CLOCK: Final = SystemClock()

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
"""The values of a consumer's `isolation.level`: records of committed transactions, or all records."""
_LEVELS: Final[dict[str, int]] = {"read_uncommitted": 0, "read_committed": 1}


class ConsumedRecord(NamedTuple):
    """A record that `consume` returns."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Admin:
    """A client for tests, with one raw connection. Any thread may call it; calls wait for each other.

    Raises KafkaError if the server refuses a request. If the connection is lost between two calls, it connects again,
    because the server may have been restarted.
    """

    def __init__(self, connect: Callable[[], RawClient], clock: Clock = _SYSTEM_CLOCK) -> None:
        """Make an `Admin` that connects with `connect`, and takes the timestamps of records from `clock`.

        `connect` is e.g. `functools.partial(RawClient, address)`. Pass the server's clock if a test moves it.
        """
        self._connect = connect
        self._clock = clock
        self._client: RawClient | None = None
        # Held during a call, because only one call at a time may use the connection.
        self._lock = threading.Lock()

    def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request message and return its response. Only the APIs that this class uses have a default version."""
        chosen = _VERSIONS[type(request)] if version is None else version
        with self._lock:
            if self._client is not None:
                try:
                    return self._client.call(request, chosen)
                except ConnectionError:
                    self._drop()
                except BaseException:
                    # An answer may still arrive, and would be mistaken for the answer to the next request.
                    self._drop()
                    raise
            self._client = self._connect()
            try:
                return self._client.call(request, chosen)
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """Close the connection; a later call opens another one."""
        with self._lock:
            self._drop()

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = 1,
    ) -> None:
        """Create a topic, and return when it can be used."""
        pairs = [create_topics.CreatableTopicConfig(key, str(value)) for key, value in (configs or {}).items()]
        topic = create_topics.CreatableTopic(name, partitions, replication_factor, configs=pairs)
        (result,) = self.call(create_topics.CreateTopicsRequest([topic], _TIMEOUT_MS)).topics
        check_error(result.error_code, result.error_message or name)

    def delete_topics(self, *names: str) -> None:
        """Delete topics."""
        if names:
            response = self.call(delete_topics.DeleteTopicsRequest(topic_names=list(names), timeout_ms=_TIMEOUT_MS))
            for result in response.responses:
                check_error(result.error_code, result.error_message or result.name or "")

    def topics(self) -> dict[str, int]:
        """Return the existing topics, without internal ones, each with its number of partitions."""
        response = self.call(metadata.MetadataRequest(None, allow_auto_topic_creation=False))
        return {topic.name: len(topic.partitions) for topic in response.topics if not topic.is_internal}

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions. Raises KafkaError if there is no topic of that name."""
        asked = [metadata.MetadataRequestTopic(name=topic)]
        (found,) = self.call(metadata.MetadataRequest(asked, allow_auto_topic_creation=False)).topics
        check_error(found.error_code, topic)
        return len(found.partitions)

    # ---- records

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int = 0,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record for each value, in one batch; return the offset of the first record."""
        now_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        pairs = _headers(headers)
        batch = encode_batch(
            Record(timestamp_ms=now_ms, key=_bytes(key, "key"), value=_bytes(value, "value"), headers=pairs)
            for value in values
        )
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, bytes(batch))])
        response = self.call(produce.ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, [data]))
        (result,) = response.responses[0].partition_responses
        check_error(result.error_code, result.error_message or topic)
        offset: int = result.base_offset
        return offset

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        offset: int | None = None,
        isolation: Isolation = "read_committed",
        timeout_s: float = 10.0,
    ) -> list[ConsumedRecord]:
        """Return records of a topic from `offset` on, by default from the beginning; in order within each partition.

        Without `count`, return the records that exist now. With `count`, wait for that many records; raises
        TimeoutError if they do not arrive in time. Records of open or aborted transactions are left out unless
        `isolation` is "read_uncommitted". Raises ValueError for an unknown isolation.
        """
        if isolation not in _LEVELS:
            raise ValueError(f'isolation="{isolation}"{did_you_mean(isolation, _LEVELS)}; {" or ".join(_LEVELS)}')
        level = _LEVELS[isolation]
        wanted = range(self.partitions(topic)) if partition is None else [partition]
        start, end = {}, {}
        for one in wanted:
            start[one] = self.offset(topic, one, _EARLIEST) if offset is None else offset
            end[one] = self.offset(topic, one, _LATEST, isolation=isolation)
        found: list[ConsumedRecord] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count if count is not None else any(start[one] < end[one] for one in wanted):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: {len(found)} records came in {timeout_s:g} s, not {count}")
            found += self._fetch(topic, start, level)
        return found if count is None else found[:count]

    def fetch(
        self, topic: str, partition: int, offset: int, *, limit: int, isolation: Isolation = "read_committed"
    ) -> tuple[list[ConsumedRecord], int]:
        """Return at most `limit` records of one fetch from `offset` on, and the offset after them.

        It returns at most about 16 MiB of records, because a small batch may decompress to many bytes.
        """
        positions = {partition: offset}
        return self._fetch(topic, positions, _LEVELS[isolation], limit), positions[partition]

    def _fetch(
        self, topic: str, positions: dict[int, int], level: int, limit: int | None = None
    ) -> list[ConsumedRecord]:
        partitions = [
            fetch.FetchPartition(one, fetch_offset=position, partition_max_bytes=1 << 20)
            for one, position in positions.items()
        ]
        request = fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 24, session_epoch=-1)
        request.isolation_level = level
        request.topics = [fetch.FetchTopic(topic, partitions=partitions)]
        found: list[ConsumedRecord] = []
        found_bytes = 0
        for data in self.call(request).responses[0].partitions:
            check_error(data.error_code, f"{topic}-{data.partition_index}")
            is_aborted = _Aborted(data.aborted_transactions or ())
            for header, batch in iterate_batches(bytes(data.records or b"")):
                at = positions[data.partition_index]
                if not is_aborted(header) and not header.is_control:
                    for record in decode_records(batch):
                        if record.offset < at:
                            continue
                        found.append(ConsumedRecord(topic, data.partition_index, *_fields(record)))
                        if limit is None:
                            continue
                        found_bytes += len(record.key or b"") + len(record.value or b"")
                        if len(found) >= limit or found_bytes > _LIMITED_BYTES:
                            positions[data.partition_index] = record.offset + 1
                            return found
                positions[data.partition_index] = max(at, header.last_offset + 1)
        return found

    def offset(
        self,
        topic: str,
        partition: int = 0,
        timestamp_ms: int = _LATEST,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> int:
        """Return the first offset at or after a time; -1 means the end of the log, -2 its beginning.

        With `isolation="read_committed"` the end is the beginning of the first open transaction.
        """
        asked = list_offsets.ListOffsetsPartition(partition, timestamp=timestamp_ms)
        request = list_offsets.ListOffsetsRequest(
            -1, _LEVELS[isolation], topics=[list_offsets.ListOffsetsTopic(topic, [asked])]
        )
        (answer,) = self.call(request).topics[0].partitions
        check_error(answer.error_code, f"{topic}-{partition}")
        offset: int = answer.offset
        return offset

    # ---- groups

    def groups(self) -> dict[str, str]:
        """Return the existing groups, each with its state, e.g. `Stable` or `Empty`."""
        return {group.group_id: group.group_state for group in self.call(list_groups.ListGroupsRequest()).groups}

    def group(self, name: str) -> Group:
        """Return a consumer group, which need not exist yet."""
        return Group(self, name)

    def call_group(self, name: str, request: Message, version: int) -> Any:
        """Send a request to the coordinator of a group, and return its response."""
        return self.call(request, version)

    def call_node(self, address: tuple[str, int], request: Message, version: int) -> Any:
        """Send a request to the node with this advertised address, and return its response."""
        return self.call(request, version)

    def delete_groups(self, *names: str) -> None:
        """Delete groups. Raises KafkaError, e.g. for a group that has members."""
        if names:
            for result in self.call(delete_groups.DeleteGroupsRequest(list(names))).results:
                check_error(result.error_code, result.group_id)


class _Aborted:
    """Finds the batches of aborted transactions, as Kafka's consumer does. Call it with the headers in order."""

    def __init__(self, transactions: Iterable[fetch.AbortedTransaction]) -> None:
        self._later = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def __call__(self, header: RecordBatchHeader) -> bool:
        while self._later and self._later[-1].first_offset <= header.last_offset:
            self._producers.add(self._later.pop().producer_id)
        if header.is_control:
            self._producers.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._producers


def _fields(record: Record) -> tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]:
    return (record.offset, record.timestamp_ms, record.key, record.value, record.headers)


def _bytes(content: bytes | str | None, what: str) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    if content is None or isinstance(content, bytes):
        return content
    raise TypeError(f"a {what} is bytes, str or None, not {type(content).__name__}: encode it, e.g. with json.dumps")


def _headers(pairs: Iterable[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
    found = tuple(pairs)
    for pair in found:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f'headers are pairs, e.g. [("trace", b"1")], not {pair!r}: they may repeat, a dict cannot')
        if not (pair[1] is None or isinstance(pair[1], bytes)):
            raise TypeError(f"the value of the header {pair[0]} is bytes or None, not {type(pair[1]).__name__}")
    return found
