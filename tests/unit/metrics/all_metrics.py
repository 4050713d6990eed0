"""All metrics that klamm and its plugins register. A server that uses everything finds them."""

import tempfile
from functools import cache

from bench.frames import record_batch
from klamm import ConnectionGate, Delay, Provider, Refuse, hookimpl
from klamm.testing import EmbeddedServer, RawClient, SecureServer
from klamm.wire.messages import share_fetch
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.push_telemetry import PushTelemetryRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm.workers.joined_metrics import register_process, register_supervision
from klamm.workers.supervisor import Supervisor
from klamm_gateway.metrics import GatewayMetrics
from klamm_metrics.collector import exposed_name
from tests.registry_client import Rest

SETTINGS = (
    "server.queued_max_request_bytes=100000000",
    "client.telemetry.enable=true",
    "listeners.default.authorizer=acl",
    "listeners.default.acl.allow_everyone_if_no_acl_found=true",
    "listeners.default.gates=moody,connection_quota,creation_rate,handshake_limit,authentication_penalty",
    "listeners.default.throttles=client_quota",
    "listeners.default.filters=deny_apis",
    "listeners.default.deny_apis.deny=Envelope",
)
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


class Moody(ConnectionGate):
    """A gate that treats each of the first connections in another way."""

    def open(self, listener):
        self.answers = [Refuse("moody"), Delay(1, "moody"), Delay(1, "moody", pause_acceptor=True)]

    def admit(self, address):
        return self.answers.pop(0) if self.answers else None

    def release(self, address):
        pass


class MoodyPlugin:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("moody", "tests.unit.metrics.all_metrics:Moody")


def field(number, data):
    """Return a field of a protobuf message."""
    return bytes([number << 3 | 2, len(data)]) + data


def use(client):
    """Send requests that affect every metric with a label for its subject."""
    client.call(ApiVersionsRequest("tests", "1.0"), 3)
    everybody = [RequestEntityData("client-id", None)]
    quotas = [OpData(key, 1e9) for key in QUOTAS]
    client.call(AlterClientQuotasRequest([RequestEntryData(everybody, quotas)]), 1)
    created = client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, record_batch(1, 100))])]
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    asked = client.call(GetTelemetrySubscriptionsRequest(), 0)
    number = field(7, field(1, b"topic") + field(2, field(1, b"t"))) + bytes([4 << 3 | 1]) + bytes(8)
    metrics = field(1, field(2, field(2, field(1, b"m") + field(5, field(1, number)))))
    pushed = PushTelemetryRequest(asked.client_instance_id, asked.subscription_id, metrics=metrics)
    assert client.call(pushed, 0).error_code == 0
    topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)])]
    client.call(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1000, topics=topics), 12)
    join_share_group(client, created.topics[0].topic_id)


def join_share_group(client, topic_id):
    """Join a share group and fetch from a partition."""
    member = "AAAAAAAAAAAAAAAAAAAAAQ"
    joined = client.call(ShareGroupHeartbeatRequest("g", member, 0, None, ["t"]), 1)
    assert joined.error_code == 0
    topics = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
    fetched = client.call(share_fetch.ShareFetchRequest("g", member, 0, 100, 1, max_records=1, topics=topics), 1)
    assert fetched.error_code == 0


@cache
def families():
    """Return all families of a server on which every counted thing has happened."""
    with EmbeddedServer(SETTINGS, plugins=[MoodyPlugin()], schema_registry=True) as server:
        for _ in range(2):
            with RawClient(server.address()) as client:
                assert client.at_end()
        with RawClient(server.address()) as client:
            client.call(ApiVersionsRequest("tests", "1.0"), 3)
            for channel in server.server.listeners[0].processors[0].channels:
                channel.transport.end_session("the credential has changed")
            assert client.at_end()
        with RawClient(server.address()) as client:
            use(client)
            Rest(server.schema_registry_url)("GET", "/subjects")
            gateway = GatewayMetrics()
            gateway.failed("timeout")
            gateway.register(server.server.services.metrics, lambda: 1)
            metrics = server.server.services.metrics
            server.server.services.report_obstacle("a part", "a reason", lambda: False)
            register_supervision(metrics, Supervisor(2, None, server.server.clock, 0))
            register_process(metrics)
            return list(server.server.services.metrics.collect())


@cache
def secure_families():
    """Return the families of TLS, SASL, the audit and traces, which have their own pages."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            'observers=["audit", "otlp_traces"]',
            "filters=audit",
            f"audit.spool={folder}",
            "audit.on_full=refuse",
        ]
        settings.append("otlp_traces.sample_ratio=0")
        with SecureServer([f"listeners.secure.{one}" for one in settings]) as server:
            return list(server.server.services.metrics.collect())


def registered():
    """Return the kind of each MBean."""
    return {family.name: family.kind for family in families()}


def labels():
    """Return the sets of labels of each MBean's samples."""
    return {family.name: {frozenset(sample.labels) for sample in family.samples} for family in families()}


def exposed_names():
    """Return the kind of each name in Prometheus, including TLS, SASL and the audit."""
    return {exposed_name(one.name, one.kind): one.kind for one in (*families(), *secure_families())}
