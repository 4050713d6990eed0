"""Tests of the observer `audit` in a running server. Its counts must be the counts of the clients."""

import itertools
import os
import threading
from collections import Counter
from pathlib import Path

import jsonschema
import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from klamm_spark.events.event import json_schema
from klamm_spark.spool.layout import Seal
from tests.audit_spool import assert_numbered, events_of, lines_of
from tests.contract.api_sets import Plugin
from tests.sasl_client import log_in, users_setting
from tests.waiting import wait_until

NO_ROOM = 'retention_bytes = 1\non_limit = "stop"\naggregate_above_per_second = -1'


def count(events, kind="request", **wanted):
    return sum(
        event.get("repeat_count", 1)
        for event in events
        if event["kind"] == kind and all(event.get(key) == value for key, value in wanted.items())
    )


@pytest.fixture
def serve(tmp_path):
    """Yield `serve(audit settings, listener settings)`, which returns a server and the folder of its audit spool.

    The server is a broker with two listeners, `front` and `back`.
    """
    servers = []

    def start(audit="", front="", **options):
        file = tmp_path / "klamm.toml"
        file.write_text(
            f"""
            [listeners.front]
            bind = "127.0.0.1:0"
            filters = ["audit"]
            observers = ["audit"]
            {front}
            [listeners.back]
            bind = "127.0.0.1:0"
            filters = ["audit"]
            observers = ["audit"]
            [audit]
            spool = "spool"
            node = "node-1"
            flush_interval_ms = 5
            {audit}
            """
        )
        server = EmbeddedServer(file=file, **options).start()
        servers.append(server)
        return server, tmp_path / "spool"

    yield start
    for server in servers:
        server.stop()


def batch(count=3):
    return encode_batch(
        [Record(offset, 0, b"secret key", b"secret value", [("h", b"secret header")]) for offset in range(count)]
    )


def call_many(client, times):
    for _ in range(times):
        client.call(ApiVersionsRequest("test", "1"), 3)


def metadata(name, create=False):
    return MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)


@pytest.mark.parametrize("above", [-1, 0, 10])
def test_events_count_what_clients_did(serve, above):
    server, spool = serve(f"aggregate_above_per_second = {above}")
    done = Counter()
    for listener in ("front", "back"):
        for _ in range(3):
            with RawClient(server.address(listener)) as client:
                call_many(client, 70)
                client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
                for _ in range(50):
                    client.call(metadata("t"), 12)
                for _ in range(20):
                    client.call(metadata("missing"), 12)
                for _ in range(20):
                    data = [PartitionProduceData(0, batch())]
                    client.call(ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=data)]), 9)
                topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])]
                client.call(FetchRequest(max_bytes=1 << 20, topics=topics), 12)
                done.update(ApiVersions=70, CreateTopics=1, Metadata=50, missing=20, Produce=20, Fetch=1, connections=1)
    server.stop()
    events = events_of(spool)
    assert [
        error.message for event in events for error in jsonschema.Draft202012Validator(json_schema()).iter_errors(event)
    ] == []
    assert_numbered(events)
    assert len({event["event_id"] for event in events}) == len(events)
    for listener in ("front", "back"):
        for api in ("ApiVersions", "CreateTopics", "Produce", "Fetch"):
            assert 2 * count(events, listener=listener, api_name=api) == done[api], (listener, api)
    assert count(events, api_name="Metadata", outcome="ok") == done["Metadata"]
    assert count(events, api_name="Metadata", error_name="UNKNOWN_TOPIC_OR_PARTITION") == done["missing"]
    assert count(events, api_name="CreateTopics", error_name="TOPIC_ALREADY_EXISTS") == done["CreateTopics"] - 1
    for action in ("opened", "closed"):
        assert count(events, "connection", action=action) == done["connections"]
    produced = [one for event in events if event.get("api_name") == "Produce" for one in event["resources"]]
    assert sum(one["records"] for one in produced) == 3 * done["Produce"]
    assert sum(one["bytes"] for one in produced) == len(batch()) * done["Produce"]
    if above < 0:
        assert not any("repeat_count" in event for event in events)
    assert b"secret" not in b"".join(lines_of(spool))


@pytest.mark.parametrize("above", [-1, 0, 10])
def test_client_ids_of_one_connection_are_distinguished(serve, above):
    """Send requests of many clients over one connection, as some proxies do."""
    server, spool = serve(f'aggregate_above_per_second = {above}\nexclude_client_ids = ["probe"]')
    requests = ((ApiVersionsRequest("test", "1"), 3), (metadata("missing"), 12), (HeartbeatRequest("g", 1, "m"), 4))
    done = Counter()
    with RawClient(server.address("front")) as client:
        names = [None, *["first"] * 50, *["first", "second", "probe", "first", None] * 30, *["second"] * 50]
        for number, name in enumerate(names):
            for request, version in requests:
                header = encode_request_header(request.API_KEY, version, number, name)
                client.send_frame(header + request.encode(version))
            for _ in requests:
                client.receive_frame()
            done[name] += 1
    server.stop()
    del done["probe"]
    events = [event for event in events_of(spool) if event["kind"] == "request"]
    for api in ("ApiVersions", "Metadata", "Heartbeat"):
        recorded = Counter()
        for event in events:
            if event["api_name"] == api:
                recorded[event.get("client_id")] += event.get("repeat_count", 1)
        assert recorded == done, api
    if above == 0:
        assert max(event.get("repeat_count", 1) for event in events) >= 50


def test_events_count_the_bytes_that_the_socket_carried(serve):
    server, spool = serve()
    with RawClient(server.address("front")) as client:
        client.call(ApiVersionsRequest("test", "1"), 3)
        frame = 4 + len(client.receive_frame()) if client.send(metadata("t"), 12) else 0
    (processors,) = (each.processors for each in server.server.listeners if each.name == "front")
    wait_until(lambda: not any(processor.connection_count for processor in processors))
    server.stop()
    (closed,) = [event for event in events_of(spool) if event["action"] == "closed"]
    requests = [event for event in events_of(spool) if event["kind"] == "request"]
    assert closed["request_bytes"] == sum(event["request_bytes"] + 4 for event in requests)
    assert closed["response_bytes"] > frame
    assert closed["reason"] == "closed by peer"


def test_administrative_events_are_reported(serve):
    server, spool = serve()
    server.server.reload()
    server.stop()
    admin = [(event["action"], event["outcome"]) for event in events_of(spool) if event["kind"] == "admin"]
    loaded = [event["detail"] for event in events_of(spool) if event["action"] == "plugin_loaded"]
    assert [action for action in admin if action[0] != "plugin_loaded"] == [
        ("server_started", "ok"),
        ("config_reloaded", "ok"),
        ("server_stopping", "ok"),
    ]
    assert any(detail.startswith("transport plaintext of klamm") for detail in loaded)


def test_a_topic_that_metadata_creates_is_recorded(serve):
    server, spool = serve('level = "off"')
    with RawClient(server.address("front")) as client:
        for name in ("t", "t", "there"):
            client.call(metadata(name, create=True), 12)
        wait_until(lambda: not client.call(metadata("there"), 12).topics[0].error_code)
    server.stop()
    made = [event["detail"] for event in events_of(spool) if event["action"] == "topic_auto_created"]
    assert [detail.partition(":")[0] for detail in made] == ["t, for User", "there, for User"]


def test_refused_connections_are_reported_with_the_reason(serve):
    server, spool = serve(
        front='gates = ["connection_quota"]\n[listeners.front.connection_quota]\nmax_connections_per_ip = 1'
    )
    with RawClient(server.address("front")) as first:
        first.call(ApiVersionsRequest("test", "1"), 3)
        with RawClient(server.address("front")) as second:
            assert second.at_end()
    server.stop()
    (event,) = [event for event in events_of(spool) if event["action"] == "refused"]
    assert (event["outcome"], event["reason"], event["listener"]) == ("refused", "per_ip", "front")
    assert event["client_address"] == "127.0.0.1"


def test_failed_authentication_is_reported(serve):
    server, spool = serve(front='authenticator = "endless"\nconnection_setup_timeout_ms = 100', plugins=[Plugin()])
    with RawClient(server.address("front")) as client:
        assert client.at_end()
    server.stop()
    (event,) = [event for event in events_of(spool) if event["kind"] == "authentication"]
    assert (event["action"], event["outcome"], event["principal"]) == ("failure", "denied", "User:ANONYMOUS")
    assert count(events_of(spool), "connection", action="opened") == 0


def test_authentication_is_reported_with_principal_and_mechanism(serve):
    server, spool = serve(
        front=f"""
            authenticator = "sasl"
            [listeners.front.sasl]
            mechanisms = ["PLAIN", "SCRAM-SHA-256"]
            connections_max_reauth_ms = 3600000
            {users_setting(alice="sesame").removeprefix("sasl.")}
            """
    )
    with RawClient(server.address("front")) as client:
        assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
        assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
    with RawClient(server.address("front")) as client:
        assert log_in(client, "SCRAM-SHA-256", "alice", "guessed").error_code == 58
        assert client.at_end()
    server.stop()
    recorded = [event for event in events_of(spool) if event["kind"] == "authentication"]
    assert [(event["action"], event["outcome"], event["principal"], event["sasl_mechanism"]) for event in recorded] == [
        ("success", "ok", "User:alice", "PLAIN"),
        ("reauthentication", "ok", "User:alice", "PLAIN"),
        ("failure", "denied", "User:ANONYMOUS", "SCRAM-SHA-256"),
    ]
    assert {event["security_protocol"] for event in recorded} == {"SASL_PLAINTEXT"}
    assert b"sesame" not in b"".join(lines_of(spool))
    assert b"guessed" not in b"".join(lines_of(spool))


def test_the_segments_of_a_second_run_continue_the_chain_of_the_first(serve):
    for _ in range(2):
        server, spool = serve("segment_bytes = 2048")
        with RawClient(server.address("front")) as client:
            for _ in range(10):
                client.call(ApiVersionsRequest("test", "1"), 3)
        server.stop()
    seals = [Seal.read(path) for path in sorted((spool / "node-1").rglob("*.seal"))]
    assert len({seal.boot for seal in seals}) == 2
    assert [seal.index for seal in seals] == list(range(len(seals)))
    assert all(after.previous_chain == before.chain for before, after in itertools.pairwise(seals))
    assert not [event for event in events_of(spool) if event["kind"] == "audit_gap"]


def test_with_on_full_refuse_clients_get_a_retriable_error_while_the_disk_is_full(serve, caplog):
    server, spool = serve(f'on_full = "refuse"\nqueue_capacity = 30\n{NO_ROOM}')
    heartbeat = HeartbeatRequest("group", 1, "member")
    with RawClient(server.address("front")) as client:
        answers = [client.call(heartbeat, 4).error_code for _ in range(60)]
        # New clients must be able to find out the server's API versions.
        assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == 0
    assert answers[0] == 25
    assert answers[-1] == 15
    server.stop()
    assert "on_limit is stop" in caplog.text
    assert "events are lost" in caplog.text
    assert {event["kind"] for event in events_of(spool)} == {"admin"}, "the administration has a folder of its own"


def test_with_on_full_block_clients_wait_until_the_server_stops(serve):
    server, _spool = serve(f'on_full = "block"\nqueue_capacity = 20\n{NO_ROOM}')
    with RawClient(server.address("front"), timeout_s=0.5) as client:
        with pytest.raises(TimeoutError):
            call_many(client, 100)
        stopped = threading.Thread(target=server.stop)
        stopped.start()
        stopped.join(60)
        assert not stopped.is_alive()


def test_a_server_with_audit_imports_no_pyspark_and_starts_no_jvm(tmp_path):
    import subprocess
    import sys

    (tmp_path / "klamm.toml").write_text(
        '[listeners.front]\nbind = "127.0.0.1:0"\nobservers = ["audit"]\n[audit]\nspool = "spool"\nnode = "node-1"\n'
    )
    code = """
import sys
from pathlib import Path
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
with EmbeddedServer(file=Path("klamm.toml")) as server, RawClient(server.address("front")) as client:
    client.call(ApiVersionsRequest("a", "1"), 3)
    children = Path("/proc/self/task").glob("*/children")
    print([child for path in children for child in path.read_text().split()])
print([name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "pyarrow")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment(), cwd=tmp_path
    )
    assert done.stdout == "[]\n[]\n"
    assert count(events_of(tmp_path / "spool")) == 1


def _environment():
    import klamm
    import klamm_spark

    roots = [str(Path(package.__file__).parents[1]) for package in (klamm, klamm_spark)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots)}
