"""Tests of the helpers of `EmbeddedServer`: topics, records, waits, restarts, resets, and a clock that tests move."""

import asyncio
import re
import unittest

import pytest

from klamm import ErrorCode, KafkaError
from klamm.testing import EmbeddedServer, MovingClock, RawClient, SecureServer
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol


class ListTopics:
    """Lists all topics as a user of a `SecureServer`."""

    def __init__(self, user):
        self.user = user

    def __call__(self, server):
        admin = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient(server.client_settings("confluent-kafka", self.user))
        return {name for name in client.list_topics(timeout=20).topics if not name.startswith("__")}


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer() as server:
        yield server


def test_records_are_produced_and_consumed(server):
    topic = server.create_topic(partitions=2, configs={"retention.ms": 3_600_000})
    assert server.produce(topic, "one", b"two", key="k", headers=[("h", b"1")], timestamp_ms=None) == 0
    assert server.produce(topic, "three", partition=1) == 0
    assert server.produce(topic, None) == 2
    values = [(one.partition, one.offset, one.key, one.value, tuple(one.headers)) for one in server.consume(topic)]
    assert values == [
        (0, 0, b"k", b"one", (("h", b"1"),)),
        (0, 1, b"k", b"two", (("h", b"1"),)),
        (0, 2, None, None, ()),
        (1, 0, None, b"three", ()),
    ]
    assert [one.value for one in server.consume(topic, 1, partition=0, offset=1)] == [b"two"]
    assert server.admin.offset(topic) == 3
    assert server.admin.topics()[topic] == 2


def test_wrong_arguments_are_reported(server):
    topic = server.create_topic()
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        server.create_topic(topic)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        server.consume("nowhere")
    with pytest.raises(TimeoutError, match=f"{topic}: 0 records came in 0.2 s, not 1"):
        server.consume(topic, 1, timeout_s=0.2)
    with pytest.raises(TimeoutError, match="not within 0.01 s: a miracle"):
        server.wait_until(lambda: None, "a miracle", timeout_s=0.01)
    assert server.wait_until(lambda: "found") == "found"
    with pytest.raises(TypeError, match=r"make it with clock=MovingClock\(\)"):
        server.advance_ms(1)
    with pytest.raises(LookupError, match='no listener has the part "faults": make the server with faults=True'):
        server.faults  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value": {"id": 1}}, r"a value is bytes, str or None, not dict: encode it, e.g. with json.dumps"),
        ({"key": 7}, "a key is bytes, str or None, not int"),
        ({"headers": {"trace": b"1"}}, r"headers are pairs, e.g. \[\(\"trace\", b\"1\"\)\], not 'trace'"),
        ({"headers": [("trace", "1")]}, "the value of the header trace is bytes or None, not str"),
    ],
)
def test_values_of_a_wrong_type_are_an_error(server, options, message):
    topic = server.create_topic()
    value = options.pop("value", b"")
    with pytest.raises(TypeError, match=message):
        server.produce(topic, value, **options)
    assert server.consume(topic) == []


def test_a_misspelled_right_or_user_is_an_error():
    server = SecureServer()
    with pytest.raises(ValueError, match='there is no operation "RAED"; did you mean "READ"'):
        server.allow("alice", "RAED", "TOPIC", "orders")
    with pytest.raises(ValueError, match='there is no resource type "TOPICS"; did you mean "TOPIC"'):
        server.allow("alice", "READ", "TOPICS", "orders")
    with pytest.raises(KeyError, match='there is no user "alice"; add_user makes one'):
        server.client_settings("java", "alice")
    server.stop()


def test_users_have_the_rights_that_a_test_gives_them():
    alice = ListTopics("alice")
    with SecureServer() as server:
        orders, other = server.create_topic("orders"), server.create_topic("other")
        server.add_user("alice")
        assert alice(server) == set()
        read = server.acls.allow("alice", "READ", "TOPIC", "o", prefix=True)
        assert alice(server) == {orders, other}
        denied = server.acls.deny("*", "DESCRIBE", "TOPIC", orders)
        assert alice(server) == {other}
        assert server.acls.all("alice") == [read]
        assert server.acls.all() == sorted([read, denied])
        server.acls.remove(denied)
        assert alice(server) == {orders, other}
        server.acls.clear("alice")
        assert server.acls.all() == []
        assert alice(server) == set()
    with EmbeddedServer() as server, pytest.raises(KafkaError, match="SECURITY_DISABLED"):
        server.acls.all()


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka", "java", "kafkajs", "go"])
def test_the_configuration_of_each_client_has_its_own_names(server, client):
    (bootstrap,) = (
        value if isinstance(value, str) else value[0]
        for key, value in server.client_settings(client).items()
        if key in ("bootstrap.servers", "bootstrap_servers", "brokers")
    )
    assert bootstrap == server.bootstrap
    with SecureServer() as secure:
        found = secure.client_settings(client)
        text = repr(found)
        assert "secret" in text
        assert re.search("scram-sha-512", text, re.IGNORECASE)
        assert found.keys() > server.client_settings(client).keys()


def test_a_client_of_librdkafka_prints_nothing_about_telemetry(server, capfd):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "log_level": 7})
    assert producer.list_topics(timeout=20).brokers
    producer.produce(server.create_topic(), b"value")
    assert producer.flush(20) == 0
    assert "elemetry" not in capfd.readouterr().err


def test_a_part_is_found_by_its_name(server):
    assert type(server.part("default", "plaintext")).__name__ == "PlaintextTransport"
    with pytest.raises(KeyError, match='listener "default" has no part "plaintxt"; did you mean "plaintext"'):
        server.part("default", "plaintxt")
    with pytest.raises(KeyError, match='there is no listener "other"'):
        server.part("other", "plaintext")


def test_transactions_of_librdkafka_continue_after_a_restart():
    """This requires the setting of docs/clients/librdkafka-restart.md. Without it the second transaction hangs."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with EmbeddedServer() as server:
        source, target = server.create_topic(), server.create_topic()
        server.produce(source, *"abcde")
        settings = {**server.client_settings("confluent-kafka"), "metadata.recovery.strategy": "none"}
        producer = confluent_kafka.Producer({**settings, "transactional.id": "tx"})
        reading = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**settings, **reading})
        consumer.subscribe([source])
        assert len(consumer.consume(5, 60)) == 5
        producer.init_transactions(60)
        for number in range(2):
            producer.begin_transaction()
            if number:
                server.restart()
            producer.produce(target, str(number))
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
        consumer.close()
        assert [record.value for record in server.consume(target)] == [b"0", b"1"]
        assert server.group("g").committed() == {(source, 0): 5}


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_keeps_ports_and_data(tmp_path, kept):
    with EmbeddedServer(["listeners.second.bind=127.0.0.1:0"], data_dir=tmp_path if kept else None) as server:
        before = [server.address(), server.address("second"), server.server.data_dir]
        topic = server.create_topic()
        server.produce(topic, "kept")
        seen = []
        server.restart(lambda: seen.append(server.server.data_dir.exists()))
        assert [server.address(), server.address("second"), server.server.data_dir] == before
        assert [one.value for one in server.consume(topic)] == [b"kept"]
        assert seen == [True]
        server.restart()
        assert server.admin.topics() == {topic: 1}
    assert server.server.data_dir.exists() is kept
    with pytest.raises(RuntimeError, match="the server is stopped: it cannot restart"):
        server.restart()


def test_a_restart_that_fails_leaves_nothing_behind():
    with EmbeddedServer() as server:
        with pytest.raises(ZeroDivisionError):
            server.restart(lambda: 1 // 0)
        assert not server.server.data_dir.exists()


def test_a_reset_removes_everything():
    with EmbeddedServer() as server:
        server.produce(server.create_topic(), "gone")
        server.reset()
        assert (server.admin.topics(), server.admin.groups()) == ({}, {})


def joined(client, session_ms):
    join = JoinGroupRequest("readers", session_ms, session_ms, "", None, "consumer")
    join.protocols = [JoinGroupRequestProtocol("range", b"")]
    first = client.call(join, 5)
    join.member_id = first.member_id
    return client.call(join, 5)


def test_a_clock_that_a_test_moves_ends_sessions_and_sets_timestamps():
    with EmbeddedServer(clock=MovingClock()) as server:
        topic = server.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
        server.produce(topic, "early")
        with RawClient(server.address()) as client:
            member = joined(client, 30_000)
            assert server.admin.groups()["readers"] != "Empty"
            server.advance_ms(31_000)
            server.wait_until(lambda: server.admin.groups()["readers"] == "Empty")
            beat = HeartbeatRequest("readers", member.generation_id, member.member_id)
            assert client.call(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        server.produce(topic, "late")
        early, late = server.consume(topic)
        assert 31_000 <= late.timestamp_ms - early.timestamp_ms < 60_000
    with pytest.raises(ValueError, match="time does not go back"):
        server.advance_ms(-1)


def test_server_works_within_asyncio():
    async def main():
        async with EmbeddedServer() as server:
            return await asyncio.to_thread(server.create_topic, "within")

    assert asyncio.run(main()) == "within"


def test_server_works_within_unittest():
    class Case(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.server = cls.enterClassContext(EmbeddedServer())

        def test_topic(self):
            assert self.server.consume(self.server.create_topic()) == []

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])
