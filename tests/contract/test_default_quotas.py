"""A server without configuration enforces the quotas that admin clients set. Without quotas it charges nothing."""

import contextlib
import socket
import time

import pytest

from klamm import Provider, Throttle, hookimpl
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
from tests.waiting import wait_until

BATCH = bytes(encode_batch([Record(value=bytes(100_000), timestamp_ms=1)]))
PRODUCE = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, BATCH)])])


@pytest.fixture
def server():
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def admin(server):
    with RawClient(server.address(), client_id="admin") as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        yield client


def set_quota(admin, key, value, entity=("client-id", "app")):
    """Set the quota, or remove it if the value is None."""
    operation = OpData(key, value or 0.0, value is None)
    entry = RequestEntryData([RequestEntityData(*entity)], [operation])
    assert admin.call(AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0


def wait_until_throttled(server, throttled):
    """Wait until the server charges requests to throttles, or until it charges none."""
    wait_until(lambda: bool(server.server.listeners[0].context.throttles) is throttled)


def test_a_producer_is_throttled_from_when_a_quota_is_set_until_it_is_removed(server, admin):
    def throttle_time_ms():
        with RawClient(server.address(), client_id="app") as client:
            return client.call(PRODUCE, 9).throttle_time_ms

    assert throttle_time_ms() == 0
    set_quota(admin, "producer_byte_rate", 1000.0)
    # The quota allows a second's rate over ten seconds. This load is a hundred times the rate of a second.
    assert 80_000 < throttle_time_ms() < 100_000
    set_quota(admin, "producer_byte_rate", None)
    assert throttle_time_ms() == 0


def test_a_throttled_producer_is_held_up_on_its_own_connection(server, admin):
    set_quota(admin, "producer_byte_rate", 9_000.0)
    with RawClient(server.address(), client_id="app") as client:
        started = time.monotonic()
        throttle_time_ms = client.call(PRODUCE, 9).throttle_time_ms
        client.call(MetadataRequest([]), 12)
        waited_ms = (time.monotonic() - started) * 1000
    assert 500 < throttle_time_ms < 2000
    assert waited_ms > throttle_time_ms * 0.8


def test_a_new_quota_charges_from_the_next_request(server, admin):
    def ask():
        return admin.call(MetadataRequest([]), 12).throttle_time_ms

    assert ask() == 0
    wait_until_throttled(server, False)
    set_quota(admin, "request_percentage", 0.0001, ("client-id", "admin"))
    wait_until_throttled(server, True)
    # The server may answer an equal request from its cache, but charges it all the same.
    assert ask() > 0
    with RawClient(server.address(), client_id="other") as other:
        set_quota(other, "request_percentage", None, ("client-id", "admin"))
        wait_until_throttled(server, False)


def test_a_restarted_server_charges_stored_quotas_from_its_start(tmp_path):
    with EmbeddedServer(data_dir=tmp_path) as server, RawClient(server.address()) as admin:
        admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        set_quota(admin, "producer_byte_rate", 1000.0)
    with EmbeddedServer(data_dir=tmp_path) as server, RawClient(server.address(), client_id="app") as client:
        wait_until_throttled(server, True)
        assert client.call(PRODUCE, 9).throttle_time_ms > 0


def test_a_quota_in_the_settings_is_charged_from_the_start():
    setting = "client_quota.clients={app={producer_byte_rate=1000}}"
    with EmbeddedServer([f"listeners.default.{setting}"]) as server, RawClient(server.address()) as admin:
        admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        with RawClient(server.address(), client_id="app") as client:
            assert client.call(PRODUCE, 9).throttle_time_ms > 0


def test_an_empty_list_of_throttles_turns_quotas_off():
    settings = ["listeners.default.throttles=[]", "listeners.default.gates=[]"]
    with EmbeddedServer(settings) as server, RawClient(server.address(), client_id="app") as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        set_quota(client, "producer_byte_rate", 1000.0)
        assert client.call(PRODUCE, 9).throttle_time_ms == 0


class Fickle(Throttle):
    """A throttle that raises when it is asked whether it is active."""

    @property
    def active(self):
        raise RuntimeError("who knows")

    def charge(self, context, size_bytes, seconds):
        return 7


class FicklePlugin:
    @hookimpl
    def klamm_throttles(self):
        yield Provider("fickle", f"{__name__}:Fickle")


def test_a_throttle_whose_active_raises_is_charged():
    settings = ["listeners.default.throttles=fickle"]
    with EmbeddedServer(settings, plugins=[FicklePlugin()]) as server, RawClient(server.address()) as client:
        assert client.call(MetadataRequest([]), 12).throttle_time_ms == 7


def connect_from(server, host, count):
    """Open this many connections at once. Return how many were admitted, and the connections."""
    acceptor = server.server.listeners[0].acceptor

    def seen():
        return acceptor.accepted + sum(acceptor.outcomes.delayed.values())

    before, let_in = seen(), acceptor.accepted
    sockets = [socket.create_connection(server.address(), source_address=(host, 0)) for _ in range(count)]
    wait_until(lambda: seen() == before + count)
    return acceptor.accepted - let_in, sockets


def close_all(sockets):
    for sock in sockets:
        sock.close()


def served(sock):
    """Return True if the server answers on a connection, and False if it closes the connection."""
    sock.settimeout(10)
    with contextlib.suppress(ConnectionError):
        sock.sendall(bytes.fromhex("0000000b0012000000000001000161"))
        return sock.recv(4) != b""
    return False


def test_an_address_may_open_ten_seconds_of_its_rate_at_once_until_the_rate_is_removed(server, admin):
    ip, others = ("ip", "127.0.0.1"), "127.0.0.2"
    set_quota(admin, "connection_creation_rate", 1.0, ip)
    let_in, sockets = connect_from(server, "127.0.0.1", 15)
    assert let_in == 10
    assert sum(map(served, sockets)) == 10
    close_all(sockets)
    let_in, sockets = connect_from(server, others, 15)
    assert let_in == 15, "another address has no rate"
    close_all(sockets)
    set_quota(admin, "connection_creation_rate", None, ip)
    let_in, sockets = connect_from(server, "127.0.0.1", 30)
    assert let_in == 30
    close_all(sockets)


def test_each_address_has_the_default_rate_unless_it_has_its_own(server, admin):
    set_quota(admin, "connection_creation_rate", 1.0, ("ip", None))
    set_quota(admin, "connection_creation_rate", 2.0, ("ip", "127.0.0.3"))
    for host, expected in (("127.0.0.1", 10), ("127.0.0.2", 10), ("127.0.0.3", 20)):
        let_in, sockets = connect_from(server, host, 25)
        assert let_in == expected, host
        close_all(sockets)
    set_quota(admin, "connection_creation_rate", None, ("ip", "127.0.0.3"))
    let_in, sockets = connect_from(server, "127.0.0.3", 5)
    assert let_in == 0, "now the default counts, and twenty have just come"
    close_all(sockets)
    set_quota(admin, "connection_creation_rate", None, ("ip", None))
    let_in, sockets = connect_from(server, "127.0.0.3", 5)
    assert let_in == 5
    close_all(sockets)
