"""Tests of the filters `record_validation` and `record_encryption`, before a broker and before a gateway."""

import base64
import json

import pytest

from klamm.testing import RawClient
from klamm.wire.compression import Codec
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, decode_records, encode_batch, iterate_batches
from tests.contract.filtered import API_SETS, refusals, served

INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
UNKNOWN_SERVER_ERROR = -1
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def batch(*records, codec=Codec.NONE, **options):
    return bytes(
        encode_batch([Record(timestamp_ms=5, key=key, value=value) for key, value in records], codec=codec, **options)
    )


def produce(client, topic, *batches, version=9, acks=1, topic_id=bytes(16)):
    """Produce one batch to each partition, from partition 0 on. Return the partitions of the response."""
    data = [PartitionProduceData(number, one) for number, one in enumerate(batches)]
    request = ProduceRequest(None, acks, 10_000, [TopicProduceData(topic, topic_id, data)])
    if acks == 0:
        client.send(request, version)
        return []
    (answer,) = client.call(request, version).responses
    assert (answer.name, answer.topic_id) == (topic, topic_id)
    return sorted(answer.partition_responses, key=lambda one: one.index)


def fetch(client, topic, version=11, topic_id=bytes(16)):
    """Fetch partition 0 from its beginning. Return the partition of the response."""
    partition = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
    request = FetchRequest(None, -1, None, 100, 0, 1 << 20, 0, 0, -1, [FetchTopic(topic, topic_id, [partition])])
    return client.call(request, version).responses[0].partitions[0]


def records_of(partition):
    return [record for _, one in iterate_batches(partition.records or b"") for record in decode_records(one)]


def topic_id_of(client, topic):
    (found,) = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics
    return found.topic_id


def connect(server):
    return RawClient(server.address(), timeout_s=20)


# ---- record_validation


@pytest.fixture(scope="module", params=API_SETS)
def validating(request, tmp_path_factory):
    schema = tmp_path_factory.mktemp("schema") / "order.json"
    schema.write_text(json.dumps(SCHEMA))
    rule = "listeners.default.record_validation.rules."
    settings = [
        'listeners.default.filters=["record_validation"]',
        f'{rule}orders.topics=["orders*"]',
        f"{rule}orders.value_schema={schema}",
        f"{rule}orders.null_key=false",
        f'{rule}texts.topics=["texts"]',
        f"{rule}texts.value=json",
        f"{rule}texts.key=utf8",
        f"{rule}texts.null_value=false",
    ]
    with served(request.param, settings) as (broker, front):
        for name in ("orders", "texts", "free"):
            broker.admin.create_topic(name, 2)
        with connect(front) as client:
            yield broker, front, client


@pytest.mark.parametrize(
    ("topic", "key", "value", "problem"),
    [
        ("orders", b"k", b'{"id": 1}', None),
        ("orders", b"k", None, None),
        ("orders", None, b'{"id": 1}', "key: no key"),
        ("orders", b"k", b'{"id": "1"}', "value: $.id: '1' is not of type 'integer'"),
        ("orders", b"k", b"{}", "value: $: 'id' is a required property"),
        ("orders", b"k", b"{", "value: not JSON: Expecting property name enclosed in double quotes"),
        ("orders", b"k", b'{"id": 1} x', "value: not JSON: Extra data"),
        ("texts", None, b'"text"', None),
        ("texts", b"k", b"[NaN]", "value: not JSON: NaN is not JSON"),
        ("texts", b"k", b"\xff", "value: not JSON: not UTF-8"),
        ("texts", b"k", '"x"'.encode("utf-16"), "value: not JSON: not UTF-8"),
        ("texts", b"k", b"[" * 100_000, "value: not JSON: nested too deep"),
        ("texts", b"k", b"", "value: not JSON: Expecting value"),
        ("orders", b"k", b'{"id": "evil", "id": 1}', "value: not JSON: a name occurs twice in an object"),
        ("texts", b"k", b"[-1e999]", "value: not JSON: a number is too large"),
        ("texts", b"k", b"1" * 5_000, "value: not JSON: a number has too many digits"),
        ("texts", b"k", None, "value: no value"),
        ("texts", b"\xff", b"1", "key: not UTF-8"),
        ("free", b"\xff", b"\xff", None),
    ],
)
def test_invalid_records_are_refused_with_a_reason(validating, topic, key, value, problem):
    _broker, _front, client = validating
    (partition,) = produce(client, topic, batch((key, value)))
    if problem is None:
        assert (partition.error_code, partition.error_message, partition.record_errors) == (0, None, [])
    else:
        assert (partition.error_code, partition.error_message) == (
            INVALID_RECORD,
            "One or more records have been rejected",
        )
        assert [(one.batch_index, one.batch_index_error_message) for one in partition.record_errors] == [(0, problem)]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_invalid_records_is_not_written_and_each_of_them_is_named(validating, codec):
    broker, front, client = validating
    ends = broker.admin.offset("orders", 0), broker.admin.offset("orders", 1)
    before = refusals(front)["record_validation"]
    good, bad = (b"k", b'{"id": 1}'), (b"k", b"x")
    wrong, right = produce(client, "orders", batch(good, bad, good, bad, codec=codec), batch(good, codec=codec))
    assert [one.batch_index for one in wrong.record_errors] == [1, 3]
    assert (right.index, right.error_code, right.base_offset) == (1, 0, ends[1])
    assert broker.admin.offset("orders", 0) == ends[0]
    assert broker.admin.offset("orders", 1) == ends[1] + 1
    assert refusals(front)["record_validation"] == before + 1


@pytest.mark.parametrize("element", [b"[]", b"{}", b'""', b"1"])
@pytest.mark.parametrize("topic", ["texts", "orders"])
def test_the_number_of_json_elements_in_a_batch_is_limited(validating, topic, element):
    """A few KiB can contain a JSON value with tens of millions of elements, which would take gigabytes and minutes."""
    broker, _front, client = validating
    end = broker.admin.offset(topic, 0)
    large = b"[" + b",".join([element] * 90_000) + b"]"
    value = large if topic == "texts" else b'{"id": 1, "more": ' + large + b"}"
    (partition,) = produce(client, topic, batch((b"k", value), (b"k", value), (b"k", value), codec=Codec.ZSTD))
    few = 1 if element in (b"[]", b"{}") else 2
    assert partition.error_code == MESSAGE_TOO_LARGE
    assert broker.admin.offset(topic, 0) == end
    (partition,) = produce(client, topic, batch(*[(b"k", value)] * few, codec=Codec.ZSTD))
    assert partition.error_code == 0


def test_values_that_no_rule_reads_may_have_any_number_of_elements(validating):
    (partition,) = produce(validating[2], "free", batch((b"k", b"[" * 300_000), codec=Codec.ZSTD))
    assert partition.error_code == 0


def test_a_response_names_at_most_a_thousand_invalid_records(validating):
    (partition,) = produce(validating[2], "texts", batch(*[(b"k", b"x")] * 1500))
    assert len(partition.record_errors) == 1000


@pytest.mark.parametrize("content", [b"", b"x" * 100, batch((b"k", b"1"))[:-1], batch((b"k", b"1"))[:-1] + b"x"])
def test_batches_that_cannot_be_decompressed_are_refused(validating, content):
    (partition,) = produce(validating[2], "texts", content)
    assert partition.error_code in (INVALID_RECORD, CORRUPT_MESSAGE)
    assert partition.record_errors == []


def test_an_invalid_produce_that_wants_no_response_closes_the_connection(validating):
    broker, front, _client = validating
    end = broker.admin.offset("texts")
    with connect(front) as client:
        produce(client, "texts", batch((b"k", b"x")), acks=0)
        assert client.at_end()
    assert broker.admin.offset("texts") == end


def test_rules_apply_to_topics_that_requests_name_by_id(validating):
    broker, _front, client = validating
    topic = broker.create_topic("orders-by-id")
    with connect(broker) as direct:
        topic_id = topic_id_of(direct, topic)
    if broker is not validating[1]:
        (partition,) = produce(client, "", batch((b"k", b"x")), version=13, topic_id=topic_id)
        assert partition.error_code == UNKNOWN_TOPIC_ID, "the filter has not seen its name"
    assert topic_id_of(client, topic) == topic_id
    (partition,) = produce(client, "", batch((b"k", b"x")), version=13, topic_id=topic_id)
    assert partition.error_code == INVALID_RECORD
    (partition,) = produce(client, "", batch((b"k", b'{"id": 1}')), version=13, topic_id=topic_id)
    assert partition.error_code == 0


def test_pipelined_requests_get_their_own_refusals(validating):
    _broker, _front, client = validating
    sent = []
    for number in range(20):
        wrong = batch((b"k", b"x" if number % 3 == 0 else b"1"))
        data = [
            TopicProduceData(
                "texts", partition_data=[PartitionProduceData(0, wrong), PartitionProduceData(1, batch((b"k", b"1")))]
            )
        ]
        sent.append(client.send(ProduceRequest(None, 1, 10_000, data), 9))
    for number, correlation_id in enumerate(sent):
        codes = {
            partition.index: partition.error_code
            for topic in client.receive(0, 9, correlation_id).responses
            for partition in topic.partition_responses
        }
        assert codes == {0: INVALID_RECORD if number % 3 == 0 else 0, 1: 0}


# ---- record_encryption


def keys_file(folder, current, *names):
    path = folder / "keys.toml"
    keys = "".join(f'{name} = "{base64.b64encode(name.encode() * 16).decode()}"\n' for name in names)
    path.write_text(f'current = "{current}"\n[keys]\n{keys}')
    path.chmod(0o600)
    return path


def encrypting(path, *more):
    settings = [
        'listeners.default.filters=["record_encryption"]',
        f"listeners.default.record_encryption.keys_file={path}",
    ]
    return [*settings, *(f"listeners.default.record_encryption.{one}" for one in more), *PLAIN_DOOR]


PLAIN_DOOR = ["listeners.plain.bind=127.0.0.1:0"]


@pytest.mark.parametrize(("api_set", "codec"), [*(("broker", one) for one in Codec), ("gateway", Codec.NONE)])
def test_the_broker_stores_ciphertext_and_consumers_get_plaintext(api_set, codec, tmp_path):
    settings = encrypting(keys_file(tmp_path, "k1", "k1"))
    settings = settings if api_set == "broker" else settings[:-1]
    sent = [(b"key", b"secret-value"), (None, b""), (b"gone", None), (b"key", b"x" * 5000)]
    with served(api_set, settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        (written,) = produce(client, "t", batch(*sent, codec=codec))
        assert written.error_code == 0
        with RawClient(broker.address("plain" if api_set == "broker" else None)) as door:
            stored = records_of(fetch(door, "t"))
        assert [one.key for one in stored] == [key for key, _ in sent]
        assert [one.value is None for one in stored] == [value is None for _, value in sent]
        assert not any(b"secret" in (one.value or b"") or one.value in (b"", b"x" * 5000) for one in stored)
        assert [[name for name, _ in one.headers] for one in stored] == [["klamm-encryption"]] * 2 + [
            [],
            ["klamm-encryption"],
        ]
        read = records_of(fetch(client, "t"))
        assert [(one.offset, one.timestamp_ms, one.key, one.value, list(one.headers)) for one in read] == [
            (offset, 5, key, value, []) for offset, (key, value) in enumerate(sent)
        ]


def test_keys_rotate_and_records_of_a_missing_key_cause_an_error(tmp_path):
    path = keys_file(tmp_path, "k1", "k1")
    with served("broker", encrypting(path)) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        produce(client, "t", batch((b"k", b"one")))
        keys_file(tmp_path, "k2", "k1", "k2")
        front.server.reload()
        produce(client, "t", batch((b"k", b"two")))
        assert [one.value for one in records_of(fetch(client, "t"))] == [b"one", b"two"]
        with RawClient(broker.address("plain")) as door:
            ids = [dict(one.headers)["klamm-encryption"][3:5] for one in records_of(fetch(door, "t"))]
        assert ids == [b"k1", b"k2"]
        keys_file(tmp_path, "k2", "k2")
        front.server.reload()
        partition = fetch(client, "t")
        assert (partition.error_code, partition.records or b"") == (UNKNOWN_SERVER_ERROR, b"")
        path.write_text("nonsense")
        front.server.reload()
        produce(client, "t", batch((b"k", b"three")))
        assert broker.admin.offset("t") == 3, "the keys stay as they were"


def test_consumers_get_an_error_for_a_changed_ciphertext(tmp_path):
    with served("broker", encrypting(keys_file(tmp_path, "k1", "k1"))) as (broker, front), connect(front) as client:
        for topic in ("from", "changed", "moved", "cut", "header"):
            broker.admin.create_topic(topic)
        produce(client, "from", batch((b"k", b"one")))
        with RawClient(broker.address("plain")) as door:
            (stored,) = records_of(fetch(door, "from"))
            ((name, header),) = stored.headers
            for topic, record in (
                ("changed", stored._replace(value=stored.value[:-1] + bytes([stored.value[-1] ^ 1]))),
                ("moved", stored._replace(key=b"other")),
                ("cut", stored._replace(value=b"short")),
                ("header", stored._replace(headers=[(name, header[:-1] + bytes([header[-1] ^ 1]))])),
            ):
                produce(door, topic, bytes(encode_batch([record])))
        for topic in ("changed", "moved", "cut", "header"):
            partition = fetch(client, topic)
            assert (partition.error_code, partition.records or b"") == (CORRUPT_MESSAGE, b""), topic
        assert refusals(front)["record_encryption"] == 4


def with_header(content, codec=Codec.NONE, value=b"x"):
    return bytes(
        encode_batch([Record(timestamp_ms=1, value=value, headers=[("klamm-encryption", content)])], codec=codec)
    )


def test_consumers_get_records_with_a_header_whose_name_is_no_text(tmp_path):
    strange = [("\udcff\udcfe", b"x")]
    sent = bytes(encode_batch([Record(timestamp_ms=5, key=b"k", value=b"v", headers=strange)]))
    with served("broker", encrypting(keys_file(tmp_path, "k1", "k1"))) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        assert produce(client, "t", sent)[0].error_code == 0
        with RawClient(broker.address("plain")) as door:
            assert produce(door, "t", sent)[0].error_code == 0
        read = records_of(fetch(client, "t"))
        assert [(one.value, list(one.headers)) for one in read] == [(b"v", strange)] * 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("topic", ["secret-1", "open"])
def test_a_producer_cannot_send_the_encryption_header(topic, codec, tmp_path):
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), 'topics=["secret-*"]')
    with served("broker", settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic(topic)
        (partition,) = produce(client, topic, with_header(b"", codec))
        assert partition.error_code == INVALID_RECORD
        assert broker.admin.offset(topic) == 0
        (partition,) = produce(client, topic, batch((b"klamm-encryption", b"klamm-encryption"), codec=codec))
        assert partition.error_code == 0, "these are no headers"


@pytest.mark.parametrize("api_set", API_SETS)
def test_the_error_says_if_a_batch_is_too_large_because_of_encryption(api_set, tmp_path):
    """The ciphertext of small values is several times as large as the values."""
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), 'topics=["secret-*"]')[: 3 if api_set == "gateway" else None]
    with served(api_set, settings) as (broker, front), connect(front) as client:
        for topic in ("secret-1", "open"):
            broker.admin.create_topic(topic, configs={"max.message.bytes": "2000"})
        small, large = batch(*[(b"k", b"v")] * 50), batch((b"k", bytes(2000)))
        (partition,) = produce(client, "secret-1", small)
        assert partition.error_code == MESSAGE_TOO_LARGE
        assert "when it is encrypted" in partition.error_message
        (partition,) = produce(client, "open", large)
        assert partition.error_code == MESSAGE_TOO_LARGE
        assert "when it is encrypted" not in (partition.error_message or "")
        assert produce(client, "open", small)[0].error_code == 0


@pytest.mark.parametrize("topics", ['["secret-*", "own"]', '["secret-*"]'])
def test_a_ciphertext_is_not_decrypted_in_another_topic(topics, tmp_path):
    """A client may copy a ciphertext into its own topic, but gets no plaintext there."""
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), f"topics={topics}")
    with served("broker", settings) as (broker, front), connect(front) as client:
        for topic in ("secret-1", "own"):
            broker.admin.create_topic(topic)
        produce(client, "secret-1", batch((b"k", b"plain")))
        with RawClient(broker.address("plain")) as door:
            stolen = bytes(encode_batch(records_of(fetch(door, "secret-1"))))
            (refused,) = produce(client, "own", stolen)
            assert refused.error_code == INVALID_RECORD
            (written,) = produce(door, "own", stolen)
            assert written.error_code == 0
        read = fetch(client, "own")
        assert b"plain" not in bytes(read.records or b"")
        assert read.error_code == (CORRUPT_MESSAGE if "own" in topics else 0)
        assert [one.value for one in records_of(fetch(client, "secret-1"))] == [b"plain"]


def test_a_recreated_topic_can_decrypt_records_of_its_earlier_namesake(tmp_path):
    with served("broker", encrypting(keys_file(tmp_path, "k1", "k1"))) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        produce(client, "t", batch((b"k", b"plain")))
        with RawClient(broker.address("plain")) as door:
            kept = bytes(encode_batch(records_of(fetch(door, "t"))))
            client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 3)
            broker.admin.create_topic("t", 2)
            produce(door, "t", batch((b"k", b"other")), kept)
        request = FetchRequest(
            None,
            -1,
            None,
            100,
            0,
            1 << 20,
            0,
            0,
            -1,
            [FetchTopic("t", partitions=[FetchPartition(1, -1, 0, -1, -1, 1 << 20)])],
        )
        partition = client.call(request, 11).responses[0].partitions[0]
        assert [one.value for one in records_of(partition)] == [b"plain"], "and in another partition"


@pytest.mark.parametrize("content", [None, b"", b"junk", bytes(200)])
def test_consumers_of_a_plain_topic_get_records_with_a_broken_encryption_header(content, tmp_path):
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), 'topics=["secret-*"]', "plain_values=refuse")
    with served("broker", settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic("open")
        with RawClient(broker.address("plain")) as door:
            produce(door, "open", with_header(content, value=b"x" * 50))
        produce(client, "open", batch((b"k", b"next")))
        partition = fetch(client, "open")
        assert partition.error_code == 0
        assert [one.value for one in records_of(partition)] == [b"x" * 50, b"next"]


@pytest.mark.parametrize(("plain", "code"), [("pass", 0), ("refuse", CORRUPT_MESSAGE)])
def test_plain_values_from_before_encryption_are_sent_or_refused(plain, code, tmp_path):
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), 'topics=["secret-*"]', f"plain_values={plain}")
    with served("broker", settings) as (broker, front), connect(front) as client:
        with RawClient(broker.address("plain")) as door:
            for topic in ("secret-1", "open"):
                broker.admin.create_topic(topic)
                produce(door, topic, batch((b"k", b"plain")))
            produce(client, "open", batch((b"k", b"as it is")))
            assert [one.value for one in records_of(fetch(door, "open"))] == [b"plain", b"as it is"]
        assert fetch(client, "secret-1").error_code == code
        assert fetch(client, "open").error_code == 0


def test_encryption_keeps_transactions_and_sequence_numbers(tmp_path):
    with served("broker", encrypting(keys_file(tmp_path, "k1", "k1"))) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        for _ in range(2):
            sent = batch((b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0)
            (partition,) = produce(client, "t", sent)
            assert (partition.error_code, partition.base_offset) == (0, 0), "the second one is the first again"
        ((header, _batch),) = iterate_batches(fetch(client, "t").records)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)


def test_a_data_key_is_replaced_after_a_number_of_records(tmp_path):
    settings = encrypting(keys_file(tmp_path, "k1", "k1"), "data_key_max_records=2")
    with served("broker", settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        for _ in range(4):
            produce(client, "t", batch((b"k", b"v")))
        with RawClient(broker.address("plain")) as door:
            headers = [dict(one.headers)["klamm-encryption"] for one in records_of(fetch(door, "t"))]
        assert headers[0] == headers[1] != headers[2] == headers[3]


def keys_for_tests():
    return {"current": "k", "keys": {"k": bytes(32)}}


def test_a_function_may_supply_the_keys():
    settings = [
        'listeners.default.filters=["record_encryption"]',
        f"listeners.default.record_encryption.keys_function={__name__}:keys_for_tests",
    ]
    with served("broker", settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        produce(client, "t", batch((b"k", b"v")))
        assert [one.value for one in records_of(fetch(client, "t"))] == [b"v"]
