"""Measures client quotas over real sockets: limited clients get their rate, and do not slow down other clients.

One limited client obeys the throttle time, and one ignores it. Kafka spreads a first burst over all windows of a quota,
so a rate holds only over their whole time. Therefore the windows are as long as the measurement.
"""

import socket
import threading
import time
from statistics import median

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from klamm.wire.records import Record, encode_batch

MB = 1_000_000
LIMIT = 1.0 * MB
TURN_S = 0.4
VERSION = {0: 9, 1: 12}


def produce_request(size_bytes):
    batch = bytes(encode_batch([Record(value=b"x" * size_bytes, timestamp_ms=1_700_000_000_000)]))
    return ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])


def frame_of(request, client_id):
    version = VERSION[request.API_KEY]
    body = encode_request_header(request.API_KEY, version, 1, client_id) + request.encode(version)
    return len(body).to_bytes(4, "big") + body


class Load(threading.Thread):
    """A connection that sends the same request again and again for some seconds, and counts the bytes."""

    def __init__(self, address, request, client_id, seconds, obeys=True):
        super().__init__()
        self.may_send = threading.Event()
        self.may_send.set()
        self._address = address
        self._request = request
        self._client_id = client_id
        self._seconds = seconds
        self._obeys = obeys
        self.bytes = 0
        self.requests = 0
        self.throttled_ms = 0
        self.start()

    def run(self):
        frame = frame_of(self._request, self._client_id)
        fetches = isinstance(self._request, FetchRequest)
        response_class = FetchResponse if fetches else ProduceResponse
        version = VERSION[self._request.API_KEY]
        with socket.create_connection(self._address) as sock:
            reader = sock.makefile("rb")
            end = time.monotonic() + self._seconds
            sock.settimeout(self._seconds)
            while (left_s := end - time.monotonic()) > 0:
                self.may_send.wait()
                sock.sendall(frame)
                sock.settimeout(max(left_s, 0.01))
                try:
                    answer = reader.read(int.from_bytes(reader.read(4), "big"))
                except TimeoutError:
                    # The connection is muted beyond the end of the measurement.
                    return
                response = response_class.decode(version, answer, 5)
                if fetches:
                    self.bytes += sum(
                        len(part.records or b"") for topic in response.responses for part in topic.partitions
                    )
                else:
                    self.bytes += len(frame) - 4
                self.requests += 1
                self.throttled_ms += response.throttle_time_ms
                if self._obeys and response.throttle_time_ms:
                    time.sleep(min(response.throttle_time_ms / 1000, max(0.0, end - time.monotonic())))


@pytest.fixture
def start(tmp_path):
    servers = []

    def start_one(windows):
        file = tmp_path / "klamm.toml"
        file.write_text(
            '[listeners.default]\nbind = "127.0.0.1:0"\nthrottles = ["client_quota"]\n'
            f"[client_quota]\nquota_window_num = {windows}\n"
        )
        server = EmbeddedServer(file=file).start()
        servers.append(server)
        with RawClient(server.address()) as admin:
            admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
            quotas = [OpData("producer_byte_rate", LIMIT), OpData("consumer_byte_rate", LIMIT)]
            entries = [RequestEntryData([RequestEntityData("client-id", name)], quotas) for name in ("good", "bad")]
            response = admin.call(AlterClientQuotasRequest(entries), 1)
            assert [entry.error_code for entry in response.entries] == [0, 0]
        return server

    yield start_one
    for server in servers:
        server.stop()


def limited_pair(server, seconds, request):
    address = server.address()
    return [Load(address, request, "good", seconds), Load(address, request, "bad", seconds, obeys=False)]


def rates_of(loads, seconds):
    """Return the rates of the loads, as multiples of the limit."""
    for load in loads:
        load.join()
        assert load.throttled_ms > 0
    return [load.bytes / seconds / LIMIT for load in loads]


def share_of_neighbour(server, request, turns):
    """Return the share of its rate alone that an unlimited client keeps beside limited ones.

    Turns with and without the limited clients alternate, because the load of other programs changes all the time.
    """
    warm_up_s = 1.0
    seconds = warm_up_s + 2 * turns * TURN_S
    limited = limited_pair(server, seconds, request)
    # The quotas' first burst must be over before the neighbour is measured.
    time.sleep(warm_up_s)
    neighbour = Load(server.address(), produce_request(500), "neighbour", seconds - warm_up_s)
    counts = {True: [], False: []}
    for turn in range(2 * turns):
        beside = turn % 2 == 0
        for load in limited:
            (load.may_send.set if beside else load.may_send.clear)()
        before = neighbour.requests
        time.sleep(TURN_S)
        counts[beside].append(neighbour.requests - before)
    for load in (*limited, neighbour):
        load.may_send.set()
        load.join()
    assert neighbour.throttled_ms == 0
    assert all(load.throttled_ms > 0 for load in limited)
    return median(counts[True]) / median(counts[False])


def fetch_request():
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=16 * 1024)
    return FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])], session_epoch=-1
    )


REQUESTS = {"produce": lambda: produce_request(16_000), "fetch": fetch_request}


def fill(server):
    with RawClient(server.address()) as client:
        for _ in range(4):
            client.call(produce_request(8_000), 9)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_limited_client_gets_its_rate(start, kind):
    server = start(4)
    fill(server)
    rates = rates_of(limited_pair(server, 4.0, REQUESTS[kind]()), 4.0)
    assert rates == [pytest.approx(1.0, abs=0.1)] * 2


def test_limited_clients_do_not_slow_down_a_neighbour(start):
    # Other work on the machine can cost as much as this limit. The slow test checks the share closely.
    assert share_of_neighbour(start(2), produce_request(16_000), 4) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", REQUESTS)
def test_limited_clients_get_their_rate_over_ten_seconds_beside_a_neighbour(start, kind):
    server = start(10)
    fill(server)
    rates = rates_of(limited_pair(server, 10.0, REQUESTS[kind]()), 10.0)
    share = share_of_neighbour(server, REQUESTS[kind](), 20)
    print(f"{kind}: {rates[0]:.3f} of the limit obeying, {rates[1]:.3f} not; the neighbour keeps {share:.0%}")
    assert rates == [pytest.approx(1.0, abs=0.1)] * 2
    assert share >= 0.9
