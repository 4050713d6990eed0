"""Tests of the metrics of a real server: the values match the requests, and the names are Kafka's."""

import json
import threading
from pathlib import Path

import pytest

from klamm import Provider, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.sync_group import SyncGroupRequest
from klamm_dispatch.schedulers import Fifo
from tests.contract.api_sets import Plugin
from tests.contract.exporters import eventually, exporter, metric, scrape, servers_with_exporter

# The names are from https://kafka.apache.org/documentation/#monitoring and from the MBeans of a running broker 4.3.1.
# The last part is the name of the MBean, or that of an attribute if the MBean has no name.
KAFKAS = {
    "kafka.network:type=Acceptor,name=AcceptorBlockedPercent": {"listener"},
    "kafka.network:type=Processor,name=IdlePercent": {"networkProcessor"},
    "kafka.network:type=RequestChannel,name=RequestQueueSize": set(),
    "kafka.network:type=RequestChannel,name=ResponseQueueSize": set(),
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec": {"request", "error"},
    "kafka.network:type=RequestMetrics,name=LocalTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=RemoteTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=RequestBytes": {"request"},
    "kafka.network:type=RequestMetrics,name=RequestQueueTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=RequestsPerSec": {"request", "version"},
    "kafka.network:type=RequestMetrics,name=ResponseQueueTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=ResponseSendTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=ThrottleTimeMs": {"request"},
    "kafka.network:type=RequestMetrics,name=TotalTimeMs": {"request"},
    "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount": set(),
    "kafka.network:type=SocketServer,name=MemoryPoolAvailable": set(),
    "kafka.network:type=SocketServer,name=MemoryPoolUsed": set(),
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent": set(),
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": set(),
    "kafka.server:type=socket-server-metrics,name=MemoryPoolAvgDepletedPercent": set(),
    "kafka.server:type=socket-server-metrics,name=MemoryPoolDepletedTimeTotal": set(),
    "kafka.server:type=socket-server-metrics,name=connection-accept-rate": {"listener"},
    "kafka.server:type=socket-server-metrics,name=connection-close-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=connection-count": {"listener", "networkProcessor"},
    "kafka.server:type=socket-server-metrics,name=connection-creation-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=connections": {
        "clientSoftwareName",
        "clientSoftwareVersion",
        "listener",
    },
    "kafka.server:type=socket-server-metrics,name=failed-authentication-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=failed-reauthentication-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=incoming-byte-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=outgoing-byte-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=successful-authentication-total": {"listener"},
    "kafka.server:type=socket-server-metrics,name=successful-reauthentication-total": {"listener"},
    "kafka.server:type=app-info,name=start-time-ms": set(),
}


@pytest.fixture
def start():
    yield from servers_with_exporter()


REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"


@pytest.mark.parametrize("dispatch", ["hybrid", "inline", "pool"])
def test_requests_are_counted_exactly_on_processors_and_handlers(start, dispatch, on_channel, client_options):
    server = start(f"listeners.default.dispatch={dispatch}", *on_channel())
    with RawClient(server.address(), **client_options) as client:
        for _ in range(250):
            client.call(MetadataRequest(topics=None), 12)
        for _ in range(7):
            client.call(HeartbeatRequest(group_id="a"), 4)
        for _ in range(3):
            client.call(HeartbeatRequest(group_id="kafka-error"), 3)
        client.call(ApiVersionsRequest("tests", "1.0"), 3)
        count = (REQUESTS, "request=Heartbeat", "version=3")
        assert eventually(lambda: scrape(server).get(count) == 3)
        seen = scrape(server)
    assert {key[1:]: value for key, value in seen.items() if key[0] == REQUESTS} == {
        ("request=Metadata", "version=12"): 250,
        ("request=Heartbeat", "version=4"): 7,
        ("request=Heartbeat", "version=3"): 3,
        ("request=ApiVersions", "version=3"): 1,
    }
    assert {key[1:]: value for key, value in seen.items() if key[0] == ERRORS} == {
        ("error=NONE", "request=Metadata"): 250,
        ("error=NONE", "request=Heartbeat"): 7,
        ("error=COORDINATOR_NOT_AVAILABLE", "request=Heartbeat"): 3,
        ("error=NONE", "request=ApiVersions"): 1,
    }
    for name, requests in (("Heartbeat", 10), ("Metadata", 250)):
        assert 0 < seen[("kafka_network_requestmetrics_totaltimems_count", f"request={name}")] <= requests


def test_cached_responses_are_counted(start):
    server = start(api_set="broker")
    requests = 400
    with RawClient(server.address()) as client:
        for _ in range(requests):
            client.send(MetadataRequest(topics=[]), 12)
        for _ in range(requests):
            client.receive_frame()
        for _ in range(requests):
            client.call(MetadataRequest(topics=[]), 12)
        count = (REQUESTS, "request=Metadata", "version=12")
        assert eventually(lambda: scrape(server).get(count) == 2 * requests)
        seen = scrape(server)
    assert seen[(ERRORS, "error=NONE", "request=Metadata")] == 2 * requests
    sampled = seen[("kafka_network_requestmetrics_totaltimems_count", "request=Metadata")]
    assert requests <= sampled <= 2 * requests


def test_partitions_and_their_logs_are_reported(start):
    server = start(api_set="broker")
    with RawClient(server.address()) as client:
        client.call(CreateTopicsRequest([CreatableTopic("a", 3, 1)]), 5)
    assert scrape(server)[("kafka_server_replicamanager_partitioncount",)] == 3
    logs = [("kafka_log_log_logendoffset", f"partition={partition}", "topic=a") for partition in range(3)]
    # A log is opened after the response is sent.
    assert eventually(lambda: [scrape(server).get(log) for log in logs] == [0, 0, 0])


def test_errors_of_partitions_are_counted_one_by_one(start):
    server = start(api_set="broker")
    partitions = [PartitionProduceData(index, b"") for index in range(3)]
    with RawClient(server.address()) as client:
        for _ in range(2):
            request = ProduceRequest(None, 1, 1000, [TopicProduceData("nowhere", partition_data=partitions)])
            answer = client.call(request, 9)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == 3
        assert eventually(
            lambda: scrape(server).get((ERRORS, "error=UNKNOWN_TOPIC_OR_PARTITION", "request=Produce")) == 6
        )


def test_a_request_with_an_unsupported_version_is_counted_as_unknown(start):
    server = start()
    with RawClient(server.address()) as client:
        for version in (100, 30_000):
            client.send_frame(b"\x00\x12" + version.to_bytes(2, "big") + b"\0\0\0\1\0\0\0")
            client.receive_frame()
    assert eventually(lambda: scrape(server).get((REQUESTS, "request=ApiVersions", "version=unknown")) == 2)


def test_a_request_that_waits_has_its_remote_time(start):
    server = start()
    trying = server.api_set("trying")
    with RawClient(server.address()) as client:
        client.send(SyncGroupRequest(group_id="later"), 3)
        assert trying.arrived.acquire(timeout=60)
        threading.Event().wait(0.05)
        trying.parked[0].respond(trying.parked[0].no_response())
        key = ("kafka_network_requestmetrics_remotetimems_sum", "request=SyncGroup")
        assert eventually(lambda: scrape(server).get(key, 0) >= 49)


def test_slow_requests_are_timed_among_many_quick_ones(start):
    server = start("listeners.default.dispatch=pool")
    trying = server.api_set("trying")
    slow_requests = 5
    with RawClient(server.address()) as client:
        for _ in range(slow_requests):
            for _ in range(200):
                client.call(HeartbeatRequest(group_id="quick"), 4)
            client.send(HeartbeatRequest(group_id="block"), 4)
            assert trying.arrived.acquire(timeout=60)
            threading.Event().wait(0.02)
            trying.release.set()
            client.receive_frame()
            trying.release.clear()
        key = ("kafka_network_requestmetrics_localtimems_bucket", "le=16.384", "request=Heartbeat")
        count = ("kafka_network_requestmetrics_localtimems_count", "request=Heartbeat")

        def recorded_slow():
            seen = scrape(server)
            return seen.get(count, 0) - seen.get(key, 0)

        assert eventually(lambda: recorded_slow() >= slow_requests)


def test_connections_and_bytes_are_counted(start, on_channel, connect):
    server = start(*on_channel())
    group = "kafka_server_socket_server_metrics"
    with connect(server) as client, connect(server, client_id="other") as other:
        client.call(ApiVersionsRequest("tests", "1.0"), 3)
        client.call(MetadataRequest(topics=None), 12)
        other.call(FindCoordinatorRequest(key="30000"), 1)
        seen = scrape(server)
        assert seen[(f"{group}_connection_count", "listener=default", "networkProcessor=0")] == 2
        software = "clientSoftwareName=tests", "clientSoftwareVersion=1.0", "listener=default"
        assert seen[(f"{group}_connections", *software)] == 1
        who = "host=127.0.0.1", "listener=default", "principal=User:ANONYMOUS"
        assert seen[("klamm_client_requests_total", "client_id=raw", *who)] == 2
        assert seen[("klamm_client_requests_total", "client_id=other", *who)] == 1
        assert seen[("klamm_client_sentbytes_total", "client_id=other", *who)] > 30_000
        out = seen[(f"{group}_outgoing_byte_total", "listener=default")]
        assert out > 30_000
    closed = (f"{group}_connection_close_total", "listener=default")
    assert eventually(lambda: scrape(server)[closed] == 2)
    seen = scrape(server)
    assert seen[(f"{group}_connection_creation_total", "listener=default")] == 2
    assert seen[("klamm_acceptor_connectionsaccepted_total", "listener=default")] == 2
    # Bytes of closed connections stay in the sum.
    assert seen[(f"{group}_outgoing_byte_total", "listener=default")] == out


def test_metrics_name_a_limited_number_of_clients(start):
    server = start("server.metrics_max_clients=2")
    clients = [RawClient(server.address(), client_id=f"client-{number}") for number in range(4)]
    for number, client in enumerate(clients):
        for _ in range(number + 1):
            client.call(MetadataRequest(topics=None), 12)
    for name in ("requests_total", "processorseconds_total", "heldbytes"):
        assert len([key for key in scrape(server) if key[0] == f"klamm_client_{name}"]) == 2
    for client in clients:
        client.close()


def test_metrics_name_the_client_that_uses_most_time_even_if_another_sends_more(start):
    server = start("server.metrics_max_clients=1")
    handlers = server.api_set("trying")
    with (
        RawClient(server.address(), client_id="heavy") as heavy,
        RawClient(server.address(), client_id="light") as light,
    ):
        heavy.send(HeartbeatRequest(group_id="block"), 4)
        assert handlers.arrived.acquire(timeout=60)
        for _ in range(50):
            light.call(MetadataRequest(topics=None), 12)
        busy_s = metric(server, "klamm:type=RequestHandlerPool,name=BusySeconds")[()]
        # The time of a request counts while the request runs.
        running = "klamm_client_handlerseconds_total"
        assert eventually(lambda: only(scrape(server), running)[0][1] == "client_id=heavy")
        assert only(scrape(server), running)[1] > 0
        handlers.release.set()
        heavy.receive_frame()
        (key, handler_s) = only(scrape(server), "klamm_client_handlerseconds_total")
        assert key[1] == "client_id=heavy"
        assert handler_s >= busy_s > 0
    # The time stays in the sum after the connection is closed.
    closed = "kafka.server:type=socket-server-metrics,name=connection-close-total"
    assert eventually(lambda: metric(server, closed) == {(("listener", "default"),): 2})
    (key, still_s) = only(scrape(server), "klamm_client_handlerseconds_total")
    assert key[1] == "client_id=heavy"
    # The handler's thread may have noted its end only after the first look.
    assert still_s >= handler_s


def only(seen, name):
    """Return the only sample with this name, and its key."""
    (found,) = [(key, value) for key, value in seen.items() if key[0] == name]
    return found


def test_the_time_of_a_processor_is_the_sum_of_its_clients_times(start):
    server = start()
    with RawClient(server.address()) as client:
        for _ in range(200):
            client.call(MetadataRequest(topics=None), 12)
        clients_s = only(scrape(server), "klamm_client_processorseconds_total")[1]
        processors_s = sum(metric(server, "klamm:type=Processor,name=BusySeconds").values())
    assert 0 < clients_s < processors_s


def test_refused_connections_are_counted_by_reason(start):
    server = start("listeners.default.gates=fussy", "listeners.default.fussy.say=refuse")
    for _ in range(3):
        with RawClient(server.address()) as client:
            assert client.at_end()
    assert scrape(server)[("klamm_acceptor_connectionsrefused_total", "listener=default", "reason=fussy")] == 3


def test_handlers_and_processors_that_work_are_not_idle(start):
    server = start("server.io_threads=1")
    trying = server.api_set("trying")
    idle = "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
    with RawClient(server.address()) as client:
        before = metric(server, idle)[()]
        client.send(HeartbeatRequest(group_id="block"), 4)
        assert trying.arrived.acquire(timeout=60)
        # The request has not ended, so the busy time must also include the time of running requests.
        assert eventually(lambda: metric(server, idle)[()] < before - 0.05)
        trying.release.set()
        client.receive_frame()
    share = "kafka.network:type=Processor,name=IdlePercent"
    assert eventually(lambda: 0.5 < metric(server, share)[("listener", "default"), ("networkProcessor", "0")] <= 1.0)


def test_connections_that_wait_to_be_accepted_are_counted(start):
    server = start("listeners.default.gates=connection_quota", "listeners.default.connection_quota.max_connections=1")
    clients = [RawClient(server.address())]
    clients[0].call(ApiVersionsRequest("tests", "1.0"), 3)
    # The acceptor holds the first of these, because the gate makes it wait. The system queues the others.
    clients += [RawClient(server.address()) for _ in range(3)]
    queue = "klamm:type=Acceptor,name=AcceptQueue"
    listener = (("listener", "default"),)
    assert eventually(lambda: metric(server, f"{queue}Size") == {listener: 2})
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    limit = metric(server, f"{queue}Limit")
    for client in clients:
        client.close()
    assert limit == {listener: min(1024, most)}
    assert metric(server, "klamm:type=Acceptor,name=ListenOverflows")[()] >= 0


def test_requests_that_wait_for_a_full_queue_are_counted_at_their_processor(start):
    server = start("server.io_threads=1", "server.queued_max_requests=1")
    trying = server.api_set("trying")
    clients = [RawClient(server.address()) for _ in range(4)]
    clients[0].send(HeartbeatRequest(group_id="block"), 4)
    assert trying.arrived.acquire(timeout=60)
    for client in clients[1:]:
        client.send(HeartbeatRequest(group_id="block"), 4)
    processor = (("listener", "default"), ("networkProcessor", "0"))
    waiting = "klamm:type=Processor,name=WaitingRequests"
    assert eventually(lambda: metric(server, waiting) == {processor: 2})
    assert metric(server, "kafka.network:type=RequestChannel,name=RequestQueueSize") == {(): 1}
    trying.release.set()
    for client in clients:
        client.receive_frame()
        client.close()
    assert metric(server, waiting) == {processor: 0}


@pytest.mark.parametrize("settings", [(), ("server.queued_max_request_bytes=100000000",)])
def test_names_and_labels_are_kafkas(start, settings):
    server = start(*settings)
    with RawClient(server.address()) as client:
        client.call(ApiVersionsRequest("tests", "1.0"), 3)
        assert eventually(lambda: metric(server, "kafka.network:type=RequestMetrics,name=TotalTimeMs"))
        missing = {}
        for name, labels in KAFKAS.items():
            samples = metric(server, name)
            assert samples, name
            for sample in samples:
                if not labels <= {key for key, _ in sample}:
                    missing[name] = sample
    assert not missing


def test_with_metrics_off_only_requests_are_not_counted(start):
    server = start("server.metrics=false")
    with RawClient(server.address()) as client:
        for _ in range(3):
            client.call(MetadataRequest(topics=None), 12)
        assert metric(server, "kafka.network:type=RequestMetrics,name=RequestsPerSec") is None
        assert scrape(server)[("kafka_network_requestchannel_requestqueuesize",)] == 0


def test_requests_of_removed_processors_stay_in_the_counts(start, on_channel, connect):
    server = start("listeners.default.processors=3", *on_channel())
    clients = [connect(server) for _ in range(6)]
    for client in clients:
        client.call(MetadataRequest(topics=None), 12)
    server.server.listeners[0].resize(1)
    for client in clients:
        client.call(MetadataRequest(topics=None), 12)
        client.close()
    assert eventually(lambda: scrape(server).get((REQUESTS, "request=Metadata", "version=12")) == 12)


def test_without_a_memory_pool_its_metrics_are_those_of_an_unlimited_pool(start):
    server = start()
    assert metric(server, "kafka.network:type=SocketServer,name=MemoryPoolAvailable") == {(): 2**63 - 1}
    assert metric(server, "kafka.network:type=SocketServer,name=MemoryPoolUsed") == {(): 0}
    assert metric(server, "kafka.server:type=socket-server-metrics,name=MemoryPoolAvgDepletedPercent") == {(): 0}


class ManyLanes(Fifo):
    """A scheduler that reports as many lanes as clients could invent."""

    def lane_sizes(self):
        return {"a" * 99 + "b" * 3: 400, "a" * 99 + "b" * 900: 100} | {f"client-{n}": n for n in range(300)}


class ManyLanesPlugin(Plugin):
    @hookimpl
    def klamm_request_schedulers(self):
        yield Provider("many_lanes", "tests.contract.test_metrics:ManyLanes")


def test_the_number_and_length_of_lane_names_is_limited():
    settings = ("listeners.default.api_set=trying", "server.request_scheduler=many_lanes")
    with EmbeddedServer(settings, plugins=[ManyLanesPlugin()]) as server:
        lanes = metric(server, "klamm:type=RequestChannel,name=LaneSize")
    assert len(lanes) == 51
    sizes = {label: size for ((_, label),), size in lanes.items()}
    assert sizes["a" * 99 + "b"] == 500
    assert sizes["client-299"] == 299
    assert sizes["other"] == sum(range(300)) - sum(range(251, 300))


def test_a_failing_gauge_is_left_out_of_the_page(start):
    server = start()
    server.server.services.metrics.gauge("klamm:type=Test,name=Broken", "Raises.", lambda: 1 / 0)
    seen = scrape(server)
    assert ("kafka_network_requestchannel_requestqueuesize",) in seen
    assert not [key for key in seen if "broken" in key[0]]


def test_a_handler_that_always_fails_does_not_fill_the_log(start, caplog):
    server = start()
    with RawClient(server.address()) as client:
        for _ in range(50):
            client.call(HeartbeatRequest(group_id="raise"), 4)
    lines = [record for record in caplog.records if record.name == "klamm.requests"]
    assert len(lines) == 1
    assert lines[0].exc_info[0] is ZeroDivisionError
    assert eventually(lambda: scrape(server).get((ERRORS, "error=UNKNOWN_SERVER_ERROR", "request=Heartbeat")) == 50)


def test_slow_requests_are_logged(start, caplog):
    server = start("listeners.default.slow_log={ SyncGroup = 20 }")
    trying = server.api_set("trying")
    with RawClient(server.address(), client_id="sleepy") as client:
        client.call(MetadataRequest(topics=None), 12)
        client.send(SyncGroupRequest(group_id="later"), 3)
        assert trying.arrived.acquire(timeout=60)
        threading.Event().wait(0.03)
        context = trying.parked[0]
        context.respond(context.no_response())
        assert eventually(lambda: "slow request" in caplog.text)
    assert "client_id=sleepy api=SyncGroup version=3" in caplog.text
    assert "api=Metadata" not in caplog.text


def test_top_shows_a_running_server(start, capsys):
    from klamm_metrics import top

    server = start()
    host, port = exporter(server).address
    with RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
        assert top.main([f"{host}:{port}", "--once", "--interval", "0.05"]) == 0
    shown = capsys.readouterr().out
    for part in ("Processors", "Request handlers", "APIs", "Clients that use the most time", "raw"):
        assert part in shown


def test_the_dashboard_can_be_printed(capsys):
    from klamm.cli.main import main

    assert main(["metrics", "dashboard"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "klamm"
