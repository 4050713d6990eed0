"""Tests of the records that filters get: from buffers and files, of several batches in each codec, within limits."""

import threading
import tracemalloc

import pytest

from klamm import ErrorCode, KafkaError
from klamm.filters import RecordAccess, clear_records
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER
from klamm.testing import MemoryListener
from klamm.wire.batch_headers import HEADER_BYTES, encode_with_checksum, read_header
from klamm.wire.batch_limits import BatchLimits
from klamm.wire.compression import Codec
from klamm.wire.messages import share_fetch
from klamm.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from klamm.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import (
    ControlRecordType,
    Record,
    decode_records,
    encode_batch,
    encode_end_transaction_marker,
    iterate_batches,
    validate_produced,
)
from klamm_filters.records.encryption import RecordEncryption
from klamm_filters.records.encryption_settings import RecordEncryptionSettings
from klamm_filters.records.validation import RecordValidation
from klamm_filters.records.validation_settings import RecordRuleSettings, RecordValidationSettings

MIB = 1024 * 1024
MARKER = bytes(
    encode_end_transaction_marker(
        ControlRecordType.COMMIT, timestamp_ms=1, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
)


class Region:
    """A region of a file that counts how much of it is read."""

    def __init__(self, content):
        self.content, self.position, self.size_bytes = content, 7, len(content)
        self.reads, self.closed = 0, 0

    def read(self, position, size_bytes):
        self.reads += 1
        return self.content[position - 7 : position - 7 + size_bytes]

    def close(self):
        self.closed += 1


def batch(*values, codec=Codec.NONE, **options):
    return bytes(encode_batch([Record(timestamp_ms=5, value=one) for one in values], codec=codec, **options))


@pytest.fixture
def access():
    return RecordAccess(MemoryListener().context)


def values(records):
    return [one.value for _, each in iterate_batches(records) for one in decode_records(each)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("in_file", [False, True])
def test_a_filter_gets_all_records_of_a_fetch_in_order(access, codec, in_file):
    content = batch(b"a", b"b", codec=codec) + MARKER + batch(b"c", codec=codec, base_offset=3) + batch(b"cut")[:-1]
    region = Region(content)
    partition = PartitionData(records=region if in_file else content)
    with access.of(partition) as records:
        assert [(one.offset, one.value) for one in records] == [(0, b"a"), (1, b"b"), (3, b"c")]
        assert records.count == 3
    assert (region.reads, region.closed) == ((1, 1) if in_file else (0, 0))
    assert partition.records == content


@pytest.mark.parametrize("codec", list(Codec))
def test_only_changed_batches_are_encoded_again(access, codec):
    first, last = batch(b"a", b"b", codec=codec), batch(b"c", codec=codec, base_offset=3)
    partition = PartitionData(records=Region(first + MARKER + last))
    with access.of(partition) as records:
        assert records.change(lambda one: one._replace(value=b"B") if one.value == b"b" else one)
    found = list(iterate_batches(partition.records))
    assert [bytes(found[1][1]), bytes(found[2][1])] == [MARKER, last]
    assert found[0][0].codec is codec
    assert [(one.offset, one.value) for one in decode_records(found[0][1])] == [(0, b"a"), (1, b"B")]
    with access.of(partition) as records:
        assert not records.change(lambda one: one)


@pytest.mark.parametrize("dropped", [{b"a"}, {b"b"}, {b"a", b"b"}])
def test_dropping_records_of_a_fetch_does_not_change_offsets(access, dropped):
    partition = PartitionData(records=batch(b"a", b"b", base_offset=7))
    with access.of(partition) as records:
        records.change(lambda one: None if one.value in dropped else one)
    ((header, each),) = iterate_batches(partition.records)
    assert (header.base_offset, header.last_offset) == (7, 8)
    left = [(7, b"a"), (8, b"b")]
    assert [(one.offset, one.value) for one in decode_records(each)] == [one for one in left if one[1] not in dropped]
    with pytest.raises(ValueError, match="only to those of a Produce"), access.of(partition) as records:
        records.change(lambda one: one, append=[Record()])


def test_records_of_a_produce_are_dropped_and_appended(access):
    partition = PartitionProduceData(0, batch(b"a", b"b", b"c"))
    with access.of(partition) as records:
        assert records.change(lambda one: None if one.value == b"b" else one, append=[Record(value=b"d")])
    assert validate_produced(partition.records, 10_000).records_count == 3
    assert [(one.offset, one.value) for one in decode_records(partition.records)] == [(0, b"a"), (1, b"c"), (2, b"d")]
    with pytest.raises(KafkaError, match="no record left"), access.of(partition) as records:
        records.change(lambda one: None)


def test_a_batch_with_sequence_numbers_keeps_its_count(access):
    numbered = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=5)
    partition = PartitionProduceData(0, numbered)
    with pytest.raises(KafkaError, match="sequence numbers"), access.of(partition) as records:
        records.change(lambda one: None if one.value == b"b" else one)
    assert partition.records == numbered
    with access.of(partition) as records:
        records.change(lambda one: one._replace(value=b"x"))
    ((header, _),) = iterate_batches(partition.records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 5)


@pytest.mark.parametrize("appended", [False, True])
def test_records_with_timestamps_too_far_apart_are_invalid(access, appended):
    first, last = Record(timestamp_ms=-(2**63), value=b"a"), Record(timestamp_ms=2**63 - 1, value=b"b")
    with (
        access.of(PartitionProduceData(0, bytes(encode_batch([first])))) as found,
        pytest.raises(KafkaError, match="64 bits") as caught,
    ):
        found.change(lambda record: record if appended else first._replace(value=b"c"), append=[last])
    assert caught.value.error_code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base_ms", [2**63 - 1, -(2**63)])
def test_a_record_with_a_timestamp_beyond_64_bits_is_invalid(access, base_ms):
    records = [Record(timestamp_ms=0, value=b"a"), Record(timestamp_ms=10 if base_ms > 0 else -10, value=b"b")]
    plain = bytes(encode_batch(records))
    header = read_header(plain)._replace(base_timestamp_ms=base_ms)
    with (
        access.of(PartitionProduceData(0, bytes(encode_with_checksum(header, plain[HEADER_BYTES:])))) as found,
        pytest.raises(KafkaError, match="64 bits") as caught,
    ):
        found.change(lambda record: record._replace(value=b"changed"))
    assert caught.value.error_code == ErrorCode.INVALID_RECORD


def test_a_search_finds_bytes_within_a_batch(access):
    for codec in Codec:
        with access.of(PartitionProduceData(0, batch(b"abc", codec=codec))) as records:
            assert records.contains(b"bc")
            assert not records.contains(b"bd")


def test_clearing_records_closes_their_file():
    region = Region(batch(b"a"))
    partition = PartitionData(records=region)
    clear_records(partition)
    assert (partition.records, region.closed, region.reads) == (b"", 1, 0)


@pytest.mark.parametrize("partition", [PartitionProduceData(0), PartitionData()], ids=lambda one: type(one).__name__)
def test_the_limits_for_records_are_the_brokers(partition):
    listener = MemoryListener()
    partition.records = batch(*[b"x"] * 11)
    access = RecordAccess(listener.context)
    with access.of(partition) as records:
        assert len(list(records)) == 11
    listener.services.batch_limits = BatchLimits(max_records=10)
    with pytest.raises(KafkaError) as refused, access.of(partition) as records:
        list(records)
    assert refused.value.error_code is ErrorCode.MESSAGE_TOO_LARGE
    listener.services.batch_limits = BatchLimits(max_unpacked_bytes=MIB)
    partition.records = batch(bytes(2 * MIB), codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as refused, access.of(partition) as records:
        list(records)
    assert refused.value.error_code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("value", "count", "waits"), [(b"x", 100, False), (b"x", 101, True), (bytes(MIB), 1, True)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_large_batches_take_turns(access, value, count, waits, codec):
    partition = PartitionProduceData(0, batch(*[value] * count, codec=codec))
    before = SHARED_INTERPRETER.running
    with access.of(partition) as records:
        iterator = iter(records)
        next(iterator)
        assert SHARED_INTERPRETER.running == before + waits
    assert SHARED_INTERPRETER.running == before


def test_a_thread_that_already_has_a_turn_does_not_wait_for_another(access):
    """A gateway decodes large answers in a turn, and filters run within it."""
    done = threading.Event()

    def run():
        with SHARED_INTERPRETER.turn(lambda delay_ms, call: None, may_wait=False):
            with access.of(PartitionProduceData(0, batch(*[b"x"] * 200))) as records:
                list(records)
            assert SHARED_INTERPRETER.running
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(60)


def encryption(folder, **settings):
    keys = folder / "keys.toml"
    keys.write_text(f'current = "k"\n[keys]\nk = "{"A" * 43}="\n')
    return RecordEncryption(RecordEncryptionSettings(keys_file=keys, **settings))


def validation(_folder):
    rules = {"all": RecordRuleSettings(topics=("*",), value="json")}
    return RecordValidation(RecordValidationSettings(rules))


def bomb():
    """Return a batch of 4,000,000 records of 8 bytes each, in about 3 KB."""
    from klamm.wire.compression import compress
    from tests.unit.log.test_record_check import with_body, with_header

    body = compress(Codec.ZSTD, b"\x0e\x00\x00\x00\x01\x01\x00\x00" * 4_000_000)
    return bytes(with_header(with_body(batch(b"x", codec=Codec.ZSTD), body), records_count=4_000_000))


@pytest.mark.parametrize("make", [validation, encryption], ids=lambda one: one.__name__)
@pytest.mark.parametrize("topics", [("*",), ("others",)])
def test_a_bomb_is_refused_before_it_is_unpacked(make, topics, tmp_path):
    listener = MemoryListener()
    part = make(tmp_path, topics=topics) if make is encryption else make(tmp_path)
    part.open(listener.context)
    made = bomb()
    assert len(made) < 20_000
    request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, made)])])
    context = listener.request(request, 9)
    tracemalloc.start()
    try:
        answer = part.on_request(request, context)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.response.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak_bytes < 2 * MIB


def test_a_topic_that_is_not_encrypted_is_not_read(tmp_path):
    listener = MemoryListener()
    part = encryption(tmp_path, topics=("secret",))
    part.open(listener.context)
    region, secret = Region(bomb()), Region(batch(b"x"))
    topics = [
        FetchableTopicResponse(name, partitions=[PartitionData(records=one)])
        for name, one in (("open", region), ("secret", secret))
    ]
    request = ProduceRequest()
    context = listener.request(request, 9)
    context.api_key = 1
    answer = part.on_response(FetchResponse(responses=topics), context)
    assert answer.responses[0].partitions[0].records is region
    assert (region.reads, region.closed, secret.reads, secret.closed) == (0, 0, 1, 1)


@pytest.mark.parametrize("version", share_fetch.VERSIONS)
def test_share_consumers_get_an_error_instead_of_records_that_cannot_be_decrypted(version, tmp_path):
    """The broker's own errors stay. A response of a deleted topic can also be sent."""
    listener = MemoryListener()
    part = encryption(tmp_path, plain_values="refuse")
    part.open(listener.context)
    context = listener.request(ProduceRequest(), 9)
    context.api_key = share_fetch.API_KEY
    gone, plain, unknown = (bytes([number] * 16) for number in (1, 2, 3))
    part._names.learn(MetadataResponse(topics=[MetadataResponseTopic(0, "plain", plain)]))
    topics = [
        share_fetch.ShareFetchableTopicResponse(topic_id, [share_fetch.PartitionData(0, code, records=records)])
        for topic_id, code, records in ((gone, 3, b""), (plain, 0, batch(b"x")), (unknown, 0, batch(b"x")))
    ]
    answer = part.on_response(share_fetch.ShareFetchResponse(responses=topics), context)
    read = share_fetch.ShareFetchResponse.decode(version, answer.encode(version))
    found = [(one.partitions[0].error_code, one.partitions[0].records or b"") for one in read.responses]
    wanted = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_ID)
    assert found == [(code, b"") for code in wanted]
