"""Tests that a server keeps no data for long names that clients invent. Each name takes 128 KiB of memory."""

import gc
import tracemalloc

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.contract.test_record_filters import batch

MIB = 1 << 20
MANY = 30
SETTINGS = [
    "client.telemetry.enable=true",
    'listeners.default.filters=["client_limits", "record_validation"]',
    'listeners.default.client_limits.client_ids=["*"]',
    'listeners.default.record_validation.rules.some.topics=["some"]',
    "listeners.default.record_validation.rules.some.value=json",
]
BATCH = batch((b"k", b"1"))


def with_topic(name):
    return ProduceRequest(None, 1, 1000, [TopicProduceData(name, partition_data=[PartitionProduceData(0, BATCH)])]), 9


REQUESTS = {
    "Metadata with a client id": (lambda _name: (MetadataRequest([]), 9), True),
    "telemetry of a client id": (lambda _name: (GetTelemetrySubscriptionsRequest(), 0), True),
    "Produce to a topic": (with_topic, False),
}


def long_name(number):
    # With one wide character in the text, Python uses four bytes for each character.
    return f"{number:06}{'a' * 32_000}\N{GRINNING FACE}"


@pytest.fixture(scope="module")
def server():
    """Yield a server with filters and a quota for each client id."""
    with EmbeddedServer(SETTINGS) as started:
        quota = RequestEntryData([RequestEntityData("client-id", None)], [OpData("consumer_byte_rate", 1e9, False)])
        with RawClient(started.address()) as client:
            assert client.call(AlterClientQuotasRequest([quota], False), 1).entries[0].error_code == 0
        yield started


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_server_does_not_keep_long_names(server, kind):
    request_of, is_client_id = REQUESTS[kind]

    def send(numbers):
        for number in numbers:
            name = long_name(number)
            with RawClient(server.address(), client_id=name if is_client_id else "raw") as client:
                client.call(*request_of(name))

    send(range(3))
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        send(range(3, 3 + MANY))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2 * MIB
    finally:
        tracemalloc.stop()
