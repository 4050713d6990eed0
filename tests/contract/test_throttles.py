"""Tests of the values with which a throttle is called, and of the delays of throttled clients, over real sockets."""

import time

import pytest

from klamm import ErrorCode, Provider, Throttle, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch

CHARGES = []


class Noting(Throttle):
    """A throttle that records its calls and delays no client."""

    def charge(self, context, size_bytes, seconds):
        CHARGES.append((context.api_key, size_bytes, seconds, context.responder.network_ns))
        return 0


class NotingPlugin:
    @hookimpl
    def klamm_throttles(self):
        yield Provider("noting", f"{__name__}:Noting")


def test_throttles_are_charged_with_the_time_of_the_network_thread(on_channel, client_options):
    CHARGES.clear()
    settings = ["listeners.default.throttles=noting", *on_channel()]
    with (
        EmbeddedServer(settings, plugins=[NotingPlugin()]) as server,
        RawClient(server.address(), **client_options) as client,
    ):
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(8_000_000))])]
        client.call(ProduceRequest(None, 1, 1000, data), 9)
        client.call(MetadataRequest([]), 12)
    (produce, metadata) = CHARGES
    assert produce[:2] > (0, 8_000_000)
    assert produce[3] > 0, "eight megabytes are not read in no time"
    assert produce[2] > produce[3] / 1e9
    assert metadata[3] > 0, "the answer to the request before was written"


@pytest.mark.parametrize("obeys", [True, False])
def test_a_client_above_its_request_time_is_muted_even_if_it_ignores_the_throttle_time(
    obeys, on_channel, client_options
):
    quotas = RequestEntryData(
        [RequestEntityData("user", "ANONYMOUS"), RequestEntityData("client-id", "busy")],
        [OpData("request_percentage", 0.01)],
    )
    with EmbeddedServer(["listeners.default.throttles=client_quota", *on_channel()]) as server:
        with RawClient(server.address(), **client_options, client_id="admin") as admin:
            assert admin.call(AlterClientQuotasRequest([quotas]), 1).entries[0].error_code == 0
        with RawClient(server.address(), **client_options, client_id="busy") as busy:
            for _ in range(1000):
                start = time.monotonic()
                throttle_time_ms = busy.call(MetadataRequest([]), 12).throttle_time_ms
                if throttle_time_ms >= 100:
                    break
            assert 100 <= throttle_time_ms <= 1000
            if obeys:
                time.sleep(throttle_time_ms / 1000)
            busy.call(MetadataRequest([]), 12)
            waited_ms = (time.monotonic() - start) * 1000
            if not obeys:
                assert waited_ms > throttle_time_ms * 0.8
            with RawClient(server.address(), **client_options, client_id="other") as other:
                assert other.call(MetadataRequest([]), 12).throttle_time_ms == 0


def quota(key, value, remove=False):
    return AlterClientQuotasRequest(
        [RequestEntryData([RequestEntityData("client-id", "limited")], [OpData(key, value, remove)])]
    )


@pytest.fixture
def throttling(on_channel, client_options):
    settings = ["listeners.default.throttles=client_quota", "message.max.bytes=10000000", *on_channel()]
    with EmbeddedServer(settings) as server, RawClient(server.address(), **client_options, client_id="admin") as admin:
        yield server, admin


def test_a_tiny_byte_rate_gives_the_longest_possible_throttle_time(throttling, client_options):
    server, admin = throttling
    admin.call(quota("producer_byte_rate", 1.0), 1)
    admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
    batch = bytes(encode_batch([Record(value=bytes(5_000_000), timestamp_ms=1)]))
    produce = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])
    with RawClient(server.address(), **client_options, client_id="limited") as client:
        response = client.call(produce, 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert response.throttle_time_ms == 2**31 - 1


def test_a_tiny_mutation_rate_causes_the_error_throttling_quota_exceeded(throttling, client_options):
    server, admin = throttling
    admin.call(quota("controller_mutation_rate", 1e-7), 1)

    def create(name):
        with RawClient(server.address(), **client_options, client_id="limited") as client:
            return client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7)

    # The bucket is full at first, and one request may take more than it has.
    assert create("a").topics[0].error_code == 0
    response = create("b")
    assert response.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert response.throttle_time_ms == 2**31 - 1


class Eternal(Throttle):
    """A throttle with a longer throttle time than the response's field can have."""

    def charge(self, context, size_bytes, seconds):
        return 2**40


class EternalPlugin:
    @hookimpl
    def klamm_throttles(self):
        yield Provider("eternal", f"{__name__}:Eternal")


def test_a_response_has_at_most_the_longest_throttle_time(on_channel, client_options):
    settings = ["listeners.default.throttles=eternal", *on_channel()]
    with (
        EmbeddedServer(settings, plugins=[EternalPlugin()]) as server,
        RawClient(server.address(), **client_options) as client,
    ):
        assert client.call(MetadataRequest([]), 12).throttle_time_ms == 2**31 - 1
