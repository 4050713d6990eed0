"""What a throttle is told over real sockets, and what becomes of a client that it throttles."""

import time

import pytest

from klamm import Provider, Throttle, hookimpl
from klamm.network.selector import Selector, TimedSelector
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CHARGES = []


class Noting(Throttle):
    """Throttles nobody."""

    def charge(self, context, size_bytes, seconds):
        CHARGES.append((context.api_key, size_bytes, seconds, context.network_ns))
        return 0


class NotingPlugin:
    @hookimpl
    def klamm_throttles(self):
        yield Provider("noting", f"{__name__}:Noting")


def selector_types(server):
    return {type(processor._selector) for listener in server.server.listeners for processor in listener.processors}


def test_time_of_the_network_thread_is_charged_and_measured_only_then():
    CHARGES.clear()
    with EmbeddedServer() as server:
        assert selector_types(server) == {Selector}
    with EmbeddedServer(["listeners.default.throttles=noting"], plugins=[NotingPlugin()]) as server:
        assert selector_types(server) == {TimedSelector}
        with RawClient(server.address()) as client:
            data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(8_000_000))])]
            client.call(ProduceRequest(None, 1, 1000, data), 9)
            client.call(MetadataRequest([]), 12)
    (produce, metadata) = CHARGES
    assert produce[:2] > (0, 8_000_000)
    assert produce[3] > 0, "eight megabytes are not read in no time"
    assert produce[2] > produce[3] / 1e9
    assert metadata[3] > 0, "the answer to the request before was written"


@pytest.mark.parametrize("obeys", [True, False])
def test_a_client_over_its_request_time_waits_whether_it_wants_or_not(obeys):
    quotas = RequestEntryData(
        [RequestEntityData("user", "ANONYMOUS"), RequestEntityData("client-id", "busy")],
        [OpData("request_percentage", 0.01)],
    )
    with EmbeddedServer(["listeners.default.throttles=client_quota"]) as server:
        with RawClient(server.address(), client_id="admin") as admin:
            assert admin.call(AlterClientQuotasRequest([quotas]), 1).entries[0].error_code == 0
        with RawClient(server.address(), client_id="busy") as busy:
            for _ in range(1000):
                throttle_time_ms = busy.call(MetadataRequest([]), 12).throttle_time_ms
                if throttle_time_ms >= 100:
                    break
            assert 100 <= throttle_time_ms <= 1000
            if obeys:
                time.sleep(throttle_time_ms / 1000)
            start = time.monotonic()
            busy.call(MetadataRequest([]), 12)
            waited_ms = (time.monotonic() - start) * 1000
            if not obeys:
                assert waited_ms > throttle_time_ms * 0.8
            with RawClient(server.address(), client_id="other") as other:
                assert other.call(MetadataRequest([]), 12).throttle_time_ms == 0
