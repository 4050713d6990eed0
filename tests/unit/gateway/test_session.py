"""Tests of `ClientSession` with a node that cannot be reached. Link, clock and timers belong to the test."""

import errno
import logging
import select
import socket
from types import SimpleNamespace

import pytest

from klamm import Address, ConnectionContext, Interest, RateLimitedLog
from klamm.forwarding import ConnectionLink
from klamm.runtime import Scheduler
from klamm.testing import MovingClock
from klamm_gateway.forwarded_request import ForwardedRequest
from klamm_gateway.layout import Cluster, Layout, Node
from klamm_gateway.metrics import GatewayMetrics
from klamm_gateway.session import ClientSession, SessionParts
from klamm_gateway.upstream.security import Security

TIMEOUT_MS = 1000
NO_ROUTE = (socket.AF_INET, ("255.255.255.255", 9))
"""An address at which connecting fails at once."""


class Link(ConnectionLink):
    """A link whose descriptors are never ready. `watched` has the callbacks, `closed_because` the reasons."""

    can_send = on_loop = True

    def __init__(self):
        self.watched = {}
        self.closed_because = []

    def watch(self, descriptor, interest, ready):
        self.watched[descriptor] = ready

    def forget(self, descriptor):
        del self.watched[descriptor]

    def close(self, reason):
        self.closed_because.append(reason)

    def login_failed(self, reason, *, again):
        raise AssertionError

    def login_succeeded(self, *, again):
        raise AssertionError

    def call_soon(self, callback):
        callback()


class Front:
    """A session whose node has these addresses."""

    def __init__(self, *addresses):
        self.clock = MovingClock()
        self.scheduler = Scheduler(self.clock)
        self.cluster, self.metrics, self.link = Cluster(), GatewayMetrics(), Link()
        self.cluster.learn(Layout({1: Node(1, "node", 9, addresses)}))
        connection = ConnectionContext(
            "1", SimpleNamespace(name="front"), Address("127.0.0.1", 1), Address("127.0.0.1", 2)
        )
        parts = SessionParts(
            self.cluster,
            SimpleNamespace(node_of=lambda _connection: 1),
            Security(None, None),
            self.scheduler,
            TIMEOUT_MS,
            self.metrics,
            RateLimitedLog(logging.getLogger("klamm.gateway"), self.scheduler.schedule),
        )
        self.session = ClientSession(parts, connection, self.link)
        self.lost = []

    def forward(self, kind=ForwardedRequest):
        context = SimpleNamespace(
            api_key=12, api_version=4, correlation_id=1, responder=None, close_connection=self.lost.append
        )
        self.session.forward(context, [b"frame"], kind(context, None))

    def later(self, ms):
        self.clock.advance_ms(ms)
        self.scheduler.run_due()


@pytest.fixture
def silent():
    """Return `silent()`, which returns an address whose connections never open."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield lambda: (socket.AF_INET, listening.getsockname())


def test_a_request_is_lost_if_connecting_fails_at_once():
    front = Front(NO_ROUTE, NO_ROUTE)
    front.forward()
    assert len(front.lost) == 1
    assert "connection_failed" in front.lost[0]
    assert (front.metrics.connections, front.link.watched) == (0, {})


def test_a_request_without_response_closes_the_client_if_connecting_fails_at_once():
    front = Front(NO_ROUTE)
    front.session.forward(SimpleNamespace(responder=None), [b"frame"], None)
    assert len(front.link.closed_because) == 1


def test_the_next_request_connects_again():
    front = Front(NO_ROUTE)
    front.forward()
    front.forward()
    assert len(front.lost) == 2


def test_each_address_has_its_own_time_to_connect(silent):
    front = Front(silent(), silent())
    front.forward()
    front.later(TIMEOUT_MS + 1)
    assert front.lost == [], "the second address is tried"
    front.later(TIMEOUT_MS - 10)
    assert front.lost == []
    front.later(20)
    assert len(front.lost) == 1
    assert "timeout" in front.lost[0]
    assert (front.metrics.connections, front.link.watched) == (0, {})
    front.later(2 * TIMEOUT_MS)
    assert len(front.lost) == 1


@pytest.mark.parametrize("descriptors_for", [0, 1])
def test_a_request_is_lost_if_no_descriptor_is_free(monkeypatch, silent, descriptors_for):
    """The request is also lost at the second address, when another file has the descriptor of the first connection."""
    front = Front(silent(), silent(), silent())
    opened = []

    def refuse(*arguments):
        if len(opened) == descriptors_for:
            raise OSError(errno.EMFILE, "Too many open files")
        opened.append(make(*arguments))
        return opened[-1]

    make = socket.socket
    with monkeypatch.context() as patched:
        patched.setattr("klamm_gateway.upstream.connection.socket.socket", refuse)
        front.forward()
        front.later(TIMEOUT_MS + 1)
    assert len(front.lost) == 1
    assert "Too many open files" in front.lost[0]
    assert (front.metrics.connections, front.link.watched) == (0, {})
    front.session.closed()


def wait_for(descriptor, event):
    # `select` accepts no descriptor above 1,023, and other tests of the process may have files open.
    poll = select.poll()
    poll.register(descriptor, event)
    assert poll.poll(20_000)


class Failing(ForwardedRequest):
    """A request whose response causes an unexpected error."""

    __slots__ = ()

    def completed(self, body):
        raise LookupError("a bug")


def test_an_unexpected_error_closes_the_client(caplog):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        front = Front((socket.AF_INET, listening.getsockname()))
        front.forward(Failing)
        node, _ = listening.accept()
        ((descriptor, ready),) = front.link.watched.items()
        with node:
            wait_for(descriptor, select.POLLOUT)
            ready(Interest.WRITE)
            node.sendall(b"\0\0\0\7\0\0\0\1\0\0\0")
            wait_for(descriptor, select.POLLIN)
            ready(Interest.READ)
    assert len(front.link.closed_because) == 1
    assert "LookupError" in front.link.closed_because[0]
    assert (front.metrics.connections, front.link.watched) == (0, {})
    assert any(record.exc_info for record in caplog.records)
