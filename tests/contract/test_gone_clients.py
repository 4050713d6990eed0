"""Tests that nothing remains of a client that leaves while its request waits, however long the request could wait."""

import socket
import struct

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.waiting import wait_until

FOR_EVER_MS = 2**31 - 1
IDLE_MS = 600_000


@pytest.fixture
def broker():
    with EmbeddedServer(clock=MovingClock()) as server:
        server.create_topic("t")
        yield server


def channels(broker):
    selectors = [each._reactor.selector for each in broker.server.listeners[0].processors]
    return [channel for each in selectors for channel in (*each.channels.values(), *each.closing)]


def fetches(broker):
    return broker.api_set("broker").fetch_purgatory.watched()


@pytest.mark.parametrize("resets", [True, False])
def test_a_waiting_fetch_ends_with_its_connection(broker, resets):
    """The server sees a reset at once.

    It does not read from the connection meanwhile, so it closes the others only as idle.
    """
    of_the_helper = channels(broker)
    for _ in range(3):
        client = RawClient(broker.address())
        topics = [FetchTopic("t", partitions=[FetchPartition(0)])]
        client.send(FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=FOR_EVER_MS, topics=topics), 12)
        wait_until(lambda: any(channel.in_flight for channel in channels(broker)))
        wait_until(lambda: fetches(broker))
        if resets:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

        def is_gone():
            if not resets:
                broker.advance_ms(IDLE_MS)
            return not set(channels(broker)) - set(of_the_helper)

        wait_until(is_gone)
        wait_until(lambda: not fetches(broker))
