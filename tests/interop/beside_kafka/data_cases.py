"""Cases of Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch and DescribeProducers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from klamm.wire.compression import Codec
from klamm.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.primitives import ZERO_UUID
from klamm.wire.records import TRANSACTIONAL, Record, batch_checksum, encode_batch
from tests.interop.beside_kafka.comparison import Case, Ids

NOW_MS: Final = int(time.time() * 1000)
DAY_MS: Final = 86_400_000
Make = Callable[[int, Ids], Any]


def batch(*values: bytes | None, timestamps: tuple[int, ...] = (), key: bytes | None = None, **options: Any) -> bytes:
    times = timestamps or (NOW_MS,) * len(values)
    records = [Record(timestamp_ms=each, key=key, value=value) for each, value in zip(times, values, strict=True)]
    return bytes(encode_batch(records, **options))


def changed(data: bytes, position: int, layout: str, value: int, *, sound: bool = True) -> bytes:
    """Return a batch with one changed field, and a correct checksum unless `sound` is false."""
    out = bytearray(data)
    struct.pack_into(layout, out, position, value)
    if sound:
        struct.pack_into(">I", out, 17, batch_checksum(out))
    return bytes(out)


def produce(*data: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None) -> Make:
    def make(version: int, ids: Ids) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for name, partition, records in data:
            topic_id = ids.of(name) if version >= 13 else ZERO_UUID
            wanted = topics.setdefault(name, TopicProduceData(name if version < 13 else "", topic_id))
            wanted.partition_data.append(PartitionProduceData(partition, records))
        return ProduceRequest(transactional_id, acks, 5000, list(topics.values()))

    return make


def old_message(magic: int) -> bytes:
    """Return a message of magic 0 or 1."""
    import zlib

    body = bytes([magic, 0]) + (struct.pack(">q", NOW_MS) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", 1) + b"v"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def produce_cases() -> Iterator[Case]:
    sound = batch(b"one", b"two")
    yield Case("a sound batch", produce(("data", 0, sound)))
    yield Case("a sound batch, acks=1", produce(("data", 0, sound), acks=1))
    for acks in (2, -2, 100):
        yield Case(f"acks={acks}", produce(("data", 0, sound), acks=acks))
        yield Case(f"acks={acks}, unknown topic", produce(("none", 0, sound), acks=acks))
    yield Case("unknown topic", produce(("none", 0, sound)))
    yield Case("unknown partition", produce(("data", 9, sound)))
    yield Case("negative partition", produce(("data", -1, sound)))
    yield Case("a name that cannot be", produce(("a b", 0, sound)), range(3, 13))
    yield Case("an empty name", produce(("", 0, sound)), range(3, 13))
    yield Case("one good, one unknown", produce(("data", 0, sound), ("data", 7, sound), ("none", 0, sound)))
    yield Case("no topics", produce())
    yield Case("no topics, acks=5", produce(acks=5))
    yield Case(
        "a partition twice",
        produce(("spare", 0, sound), ("spare", 0, sound)),
        differs="A partition that is named twice",
    )
    yield Case("no bytes", produce(("data", 0, b"")))
    for size in (1, 11, 12, 16, 17, 60):
        yield Case(f"{size} bytes of a batch", produce(("data", 0, sound[:size])))
    yield Case("cut at the end", produce(("data", 0, sound[:-1])))
    yield Case("bytes behind", produce(("data", 0, sound + b"\0\0\0")))
    yield Case("two batches", produce(("data", 0, sound + sound)))
    yield Case("a wrong checksum", produce(("data", 0, changed(sound, 30, ">b", 9, sound=False))))
    yield from header_cases(sound)
    yield from codec_cases(sound)
    yield from timestamp_cases(sound)
    yield from idempotent_cases()


def header_cases(sound: bytes) -> Iterator[Case]:
    for magic in (0, 1):
        yield Case(f"magic {magic}", produce(("data", 0, old_message(magic))))
    yield Case("magic 3", produce(("data", 0, changed(sound, 16, ">b", 3))))
    yield Case("magic -1", produce(("data", 0, changed(sound, 16, ">b", -1))))
    for count in (0, 1, 3, -1, 2**31 - 1):
        yield Case(f"a count of {count}", produce(("data", 0, changed(sound, 57, ">i", count))))
    for delta in (0, 2, -1):
        yield Case(f"a last offset delta of {delta}", produce(("data", 0, changed(sound, 23, ">i", delta))))
    for base in (5, -1, -7):
        yield Case(f"a base offset of {base}", produce(("data", 0, changed(sound, 0, ">q", base))))
    for length in (0, 13, 48, 49, -1):
        yield Case(f"a length of {length}", produce(("data", 0, changed(sound, 8, ">i", length, sound=False))))
    longest = changed(sound, 8, ">i", 2**31 - 1, sound=False)
    yield Case("a length that overflows", produce(("spare", 0, longest)), differs="whose length overflows")
    yield Case("a leader epoch", produce(("data", 0, changed(sound, 12, ">i", 7))))
    for name, attributes in (("control", 0x20), ("delete horizon", 0x40), ("unused bit", 0x80), ("high byte", 0x100)):
        yield Case(f"attributes: {name}", produce(("data", 0, changed(sound, 21, ">h", attributes))))
    yield Case(
        "attributes: log append time",
        produce(("spare", 0, changed(sound, 21, ">h", 8))),
        differs="LogAppendTime gets INVALID_TIMESTAMP",
    )
    yield Case("attributes: transactional", produce(("spare", 0, changed(sound, 21, ">h", TRANSACTIONAL))))
    yield Case("transactional id without such a batch", produce(("data", 0, sound), transactional_id="t"))


def codec_cases(sound: bytes) -> Iterator[Case]:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = batch(b"one", b"two", codec=codec)
        yield Case(f"{codec.name}", produce(("data", 0, packed)))
        yield Case(f"{codec.name}, cut", produce(("data", 0, packed[:-3])))
        yield Case(f"{codec.name}, a count of 1", produce(("data", 0, changed(packed, 57, ">i", 1))))
        yield Case(f"{codec.name}, a count of 3", produce(("data", 0, changed(packed, 57, ">i", 3))))
        garbage = changed(packed[:61] + b"?" * (len(packed) - 61), 21, ">h", codec)
        yield Case(
            f"{codec.name}, garbage",
            produce(("spare", 0, garbage)),
            differs="Compressed data that cannot be decompressed",
        )
    yield Case(
        "a codec that does not exist",
        produce(("spare", 0, changed(sound, 21, ">h", 5))),
        differs="A codec that does not exist",
    )


def timestamp_cases(sound: bytes) -> Iterator[Case]:
    yield Case("empty batch", produce(("data", 0, bytes(encode_batch([], last_offset=0)))))
    yield Case("null value", produce(("data", 0, batch(None))))
    yield Case("no key, compacted", produce(("compacted", 0, sound)))
    yield Case("key, compacted", produce(("compacted", 0, batch(b"v", key=b"k"))))
    yield Case("no key, compacted, packed", produce(("compacted", 0, batch(b"v", codec=Codec.GZIP))))
    yield Case("a timestamp of tomorrow", produce(("data", 0, batch(b"v", timestamps=(NOW_MS + 2 * DAY_MS,)))))
    yield Case("a timestamp of -1", produce(("data", 0, batch(b"v", timestamps=(-1,)))))
    yield Case("a timestamp of -2", produce(("data", 0, batch(b"v", timestamps=(-2,)))))
    yield Case("a large timestamp", produce(("data", 0, batch(b"v", timestamps=(2**62,)))))
    yield Case("a timestamp of 0", produce(("data", 0, batch(b"v", timestamps=(0,)))))
    for timestamp in (-1, 0, -2, -(2**62)):
        yield Case(
            f"a timestamp of {timestamp}, recompressed",
            produce(("gzipped", 0, batch(b"v", timestamps=(timestamp,)))),
            differs="refuses a record from before 1970" if timestamp < -1 else "",
        )
    yield Case("an old timestamp where that matters", produce(("young", 0, batch(b"v", timestamps=(5,)))))
    yield Case("max timestamp that lies", produce(("spare", 0, changed(sound, 35, ">q", NOW_MS + 500))))
    yield Case("base timestamp -5", produce(("spare", 0, changed(sound, 27, ">q", -5))))
    yield Case("too large", produce(("small", 0, batch(b"v" * 2000))))
    yield Case("to an internal topic", produce(("__consumer_offsets", 0, sound)), range(3, 13))


def idempotent_cases() -> Iterator[Case]:
    def of(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
        return batch(*(values or (b"v",)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    last = range(9, 10)
    for producer_id in (-2, -100, -(2**63)):
        for epoch, sequence in ((-1, -1), (0, 0), (3, 7)):
            name = f"producer {producer_id}, epoch {epoch}, sequence {sequence}"
            yield Case(name, produce(("data", 1, of(producer_id, epoch, sequence))), last)
    for epoch, sequence in ((-1, 0), (0, -1), (-5, 0), (0, -5), (-1, -1)):
        name = f"producer 7, epoch {epoch}, sequence {sequence}"
        yield Case(name, produce(("data", 1, of(7, epoch, sequence))), last)
    yield Case("producer -1, epoch 3, sequence 4", produce(("data", 1, of(-1, 3, 4))), last)
    yield Case("first with sequence 5", produce(("data", 1, of(1001, 0, 5))), last)
    yield Case("first with sequence 0", produce(("data", 1, of(1002, 0, 0))), last)
    yield Case("again", produce(("data", 1, of(1002, 0, 0))), last)
    yield Case("next", produce(("data", 1, of(1002, 0, 1, b"a", b"b"))), last)
    yield Case("a gap", produce(("data", 1, of(1002, 0, 9))), last)
    yield Case("one of before in part", produce(("data", 1, of(1002, 0, 1, b"a"))), last)
    yield Case("an older one", produce(("data", 1, of(1002, 0, 0))), last)
    yield Case("a later epoch with sequence 3", produce(("data", 1, of(1002, 1, 3))), last)
    yield Case("a later epoch", produce(("data", 1, of(1002, 1, 0))), last)
    yield Case("the earlier epoch", produce(("data", 1, of(1002, 0, 3))), last)
    yield Case("the end of sequences", produce(("data", 1, of(1003, 0, 2**31 - 1, b"a", b"b"))), last)
    yield Case("after the end of sequences", produce(("data", 1, of(1003, 0, 1))), last)
    yield Case("a large producer id", produce(("data", 1, of(2**62, 0, 0))), last)
    two = of(1004, 0, 0) + of(1004, 0, 1)
    yield Case("two batches of a producer", produce(("data", 1, two)), last)
    one, other = (
        batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
        for producer_id in (1006, 1007)
    )
    yield Case("transactional without an id, beside another", produce(("data", 0, batch(b"v")), ("data", 1, one)), last)
    yield Case("several producers", produce(("data", 0, one), ("data", 1, other), transactional_id="t"), last)
    yield Case(
        "transactional without being asked",
        produce(
            ("data", 1, batch(b"v", producer_id=1005, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)),
            transactional_id="t",
        ),
        last,
        differs="Transactions",
    )


def fetch(*data: tuple[str, dict[str, Any]], forgotten: tuple[tuple[str, int], ...] = (), **fields: Any) -> Make:
    def make(version: int, ids: Ids) -> FetchRequest:
        topics = []
        for name, wanted in data:
            partition = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 200, **wanted})
            named = FetchTopic(topic_id=ids.of(name)) if version >= 13 else FetchTopic(name)
            named.partitions = [partition]
            topics.append(named)
        gone = [
            ForgottenTopic(topic_id=ids.of(name), partitions=[index])
            if version >= 13
            else ForgottenTopic(name, partitions=[index])
            for name, index in forgotten
        ]
        given = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, **fields}
        return FetchRequest(topics=topics, forgotten_topics_data=gone, **given)

    return make


def fetch_cases() -> Iterator[Case]:
    yield Case("from the start", fetch(("data", {})))
    yield Case("unknown topic", fetch(("none", {})))
    yield Case("unknown partition", fetch(("data", {"partition": 8})))
    yield Case("negative partition", fetch(("data", {"partition": -1})))
    for offset in (-1, -2, 1, 10**9):
        yield Case(f"offset {offset}", fetch(("data", {"fetch_offset": offset})))
    for limit in (0, 1, -1):
        differs = "negative `max_bytes`" if limit < 0 else ""
        yield Case(f"partition_max_bytes {limit}", fetch(("data", {"partition_max_bytes": limit})), differs=differs)
        yield Case(f"max_bytes {limit}", fetch(("data", {}), max_bytes=limit), differs=differs)
        yield Case(f"min_bytes {limit}", fetch(("data", {}), min_bytes=limit))
        yield Case(f"max_wait_ms {limit}", fetch(("empty", {}), max_wait_ms=limit, min_bytes=1))
    yield Case("two partitions, little room", fetch(("data", {}), ("data", {"partition": 1}), max_bytes=10))
    yield Case("a partition twice", fetch(("data", {}), ("data", {})))
    for level in (1, 2, -1):
        yield Case(
            f"isolation level {level}",
            fetch(("data", {}), isolation_level=level),
            differs="an unknown isolation level" if level != 1 else "",
        )
    for epoch in (0, 1, -2, 99):
        yield Case(f"leader epoch {epoch}", fetch(("data", {"current_leader_epoch": epoch})))
    for epoch in (0, 5, -2):
        yield Case(
            f"last fetched epoch {epoch}",
            fetch(("data", {"last_fetched_epoch": epoch})),
            differs="No epoch ever diverges" if epoch > 0 else "",
        )
    yield Case("empty partition", fetch(("empty", {})))
    yield Case("empty partition, offset 1", fetch(("empty", {"fetch_offset": 1})))
    yield Case("nothing", fetch())
    for session_id, epoch in ((0, -1), (0, 0), (77, 0), (77, 3), (0, 5), (77, -1), (-5, 1), (0, -2), (77, -2)):
        yield Case(
            f"session {session_id}, epoch {epoch}", fetch(("data", {}), session_id=session_id, session_epoch=epoch)
        )
    yield Case("forgotten without a session", fetch(("data", {}), forgotten=(("data", 0),)))
    yield Case("a rack", fetch(("data", {}), rack_id="r"))
    yield Case("a name that cannot be", fetch(("a b", {})))
    yield Case("a replica", fetch(("data", {}), replica_id=1), range(4, 15), differs="a follower's fields")
    yield Case("a consumer of -2", fetch(("data", {}), replica_id=-2), range(4, 15))


def offsets(*wanted: tuple[str, int, int, int], **fields: Any) -> Make:
    def make(_version: int, _ids: Ids) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(name, [ListOffsetsPartition(index, epoch, timestamp)])
            for name, index, timestamp, epoch in wanted
        ]
        return ListOffsetsRequest(topics=topics, **fields)

    return make


def offset_cases() -> Iterator[Case]:
    for timestamp in (*range(-8, 0), 0, 1, NOW_MS, NOW_MS + DAY_MS, 2**63 - 1, -(2**63)):
        for topic in ("data", "empty", "timed", "none"):
            yield Case(f"{timestamp} of {topic}", offsets((topic, 0, timestamp, -1)))
    yield Case("unknown partition", offsets(("data", 8, -1, -1)))
    yield Case("negative partition", offsets(("data", -1, -1, -1)))
    yield Case("unknown partition, a timestamp that is none", offsets(("data", 8, -20, -1)))
    yield Case("a partition twice", offsets(("data", 0, -1, -1), ("data", 0, -2, -1)))
    yield Case("a partition twice, unknown", offsets(("none", 0, -1, -1), ("none", 0, -2, -1)))
    for epoch in (0, 1, -2, 50):
        yield Case(f"leader epoch {epoch}", offsets(("data", 0, -1, epoch)))
        yield Case(f"leader epoch {epoch}, empty", offsets(("empty", 0, -2, epoch)))
    for level in (1, 2):
        yield Case(
            f"isolation level {level}",
            offsets(("data", 0, -1, -1), isolation_level=level),
            differs=("an unknown isolation level" if level == 2 else ""),
        )
    yield Case("a replica", offsets(("data", 0, -1, -1), replica_id=1))
    yield Case("a debugger", offsets(("data", 0, -1, -1), replica_id=-2))
    yield Case("no topics", offsets())
    yield Case("a name that cannot be", offsets(("a b", 0, -1, -1)))


def deletion(*wanted: tuple[str, int, int]) -> Make:
    return lambda _version, _ids: DeleteRecordsRequest(
        [DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)]) for name, index, offset in wanted], 5000
    )


def deletion_cases() -> Iterator[Case]:
    for offset in (-2, 10**9, 0, 1, 1):
        yield Case(f"before {offset}", deletion(("timed", 0, offset)))
    yield Case("unknown topic", deletion(("none", 0, 0)))
    yield Case("unknown partition", deletion(("timed", 7, 0)))
    yield Case("negative partition", deletion(("timed", -1, 0)))
    yield Case("compacted", deletion(("compacted", 0, 0)))
    yield Case("both policies", deletion(("both", 0, 0)))
    yield Case("empty", deletion(("empty", 0, -1)))
    yield Case("empty, 1", deletion(("empty", 0, 1)))
    yield Case("internal", deletion(("__consumer_offsets", 0, 0)))
    yield Case("a name that cannot be", deletion(("a b", 0, 0)))
    yield Case("nothing", deletion())
    for timestamp in (*range(-6, 0), 0, NOW_MS):
        yield Case(f"then {timestamp}", offsets(("timed", 0, timestamp, -1)))
    yield Case("all but the last batch", deletion(("timed", 0, 5)))
    for timestamp in (*range(-6, 0), 0, NOW_MS):
        yield Case(f"and then {timestamp}", offsets(("timed", 0, timestamp, -1)))
    yield Case("a fetch before the start", fetch(("timed", {"fetch_offset": 0})))
    yield Case("a fetch at the start", fetch(("timed", {"fetch_offset": 5})))
    yield Case("an epoch's end", epoch_end(("timed", 0, 0, -1)))
    yield Case("everything", deletion(("timed", 0, -1)))
    for timestamp in (*range(-6, 0), 0):
        yield Case(f"at last {timestamp}", offsets(("timed", 0, timestamp, -1)))
    yield Case("an epoch's end at last", epoch_end(("timed", 0, 0, -1)))


def epoch_end(*wanted: tuple[str, int, int, int]) -> Make:
    return lambda _version, _ids: OffsetForLeaderEpochRequest(
        -1,
        [
            OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, now, epoch)])
            for name, index, epoch, now in wanted
        ],
    )


def epoch_cases() -> Iterator[Case]:
    for epoch in (-2, -1, 0, 1, 2**31 - 1):
        for name in ("data", "empty", "none"):
            yield Case(f"epoch {epoch} of {name}", epoch_end((name, 0, epoch, -1)))
    for now in (0, 1, -2, 7):
        yield Case(f"leader epoch {now}", epoch_end(("data", 0, 0, now)))
        yield Case(f"leader epoch {now}, unknown", epoch_end(("none", 0, 0, now)))
    yield Case("unknown partition", epoch_end(("data", 9, 0, -1)))
    yield Case("negative partition", epoch_end(("data", -1, 0, -1)))
    yield Case("a partition twice", epoch_end(("data", 0, 0, -1), ("data", 0, 1, -1)))
    yield Case("nothing", epoch_end())


def producers(*wanted: tuple[str, int]) -> Make:
    return lambda _version, _ids: DescribeProducersRequest([TopicRequest(name, [index]) for name, index in wanted])


def producer_cases() -> Iterator[Case]:
    for name in ("data", "empty", "none", "a b", "", "..", "x" * 250):
        yield Case(f"of {name[:10]!r}", producers((name, 0)))
    yield Case("of a partition with some", producers(("data", 1)))
    yield Case("unknown partition", producers(("data", 9)))
    yield Case("negative partition", producers(("data", -1)))
    yield Case("twice", producers(("empty", 0), ("empty", 0)))
    yield Case("nothing", producers())


def all_cases() -> Iterator[Case]:
    groups = {
        "Produce": produce_cases,
        "Fetch": fetch_cases,
        "ListOffsets": offset_cases,
        "OffsetForLeaderEpoch": epoch_cases,
        "DescribeProducers": producer_cases,
        "DeleteRecords": deletion_cases,
    }
    for api, cases in groups.items():
        for case in cases():
            yield case._replace(name=f"{api}: {case.name}")
