"""Every callback of a plugin may raise an exception: only its connection or its request fails."""

import threading
import time
from dataclasses import dataclass

import pytest

from klamm import (
    AuthenticationStep,
    Authenticator,
    AuthenticatorFactory,
    Interest,
    KafkaPrincipal,
    Provider,
    Transport,
    TransportLayer,
    hookimpl,
    setting,
)
from klamm.dispatch import ProcessorAssigner, RequestScheduler
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm_dispatch.schedulers import Fifo
from klamm_plaintext.transport import PlaintextTransportLayer
from tests.waiting import klamm_threads

GOOD, BAD = 1, 2


@dataclass(frozen=True, slots=True)
class FailingSettings:
    """The settings of `Failing`: they select the callback that raises."""

    at: str = setting("", doc="The callback that raises, for every second connection.")
    failing_look: int = setting(1, doc="Which look for buffered data raises; those before it say that there are some.")


class Failing:
    """A part that raises in the callback that its settings name, while `Failing.armed` is true."""

    armed = False

    def maybe_fail(self, callback):
        if Failing.armed and self.settings.at == callback:
            raise ZeroDivisionError(f"{callback}, on purpose")


class FailingTransport(Failing, Transport):
    def wrap(self, sock, peer):
        self.maybe_fail("wrap")
        return FailingLayer(self, PlaintextTransportLayer(sock))


class FailingLayer(TransportLayer):
    def __init__(self, transport, inner):
        self.fail, self.inner = transport.maybe_fail, inner
        self.failing_look, self.looks = transport.settings.failing_look, 0

    def handshake(self):
        self.fail("handshake")
        return Interest.NONE

    def read_into(self, buffer):
        self.fail("read_into")
        return self.inner.read_into(buffer)

    def write(self, chunks, more=False):
        self.fail("write")
        return self.inner.write(chunks, more)

    def send_file(self, descriptor, position, count):
        return self.inner.send_file(descriptor, position, count)

    @property
    def has_buffered_data(self):
        self.looks += Failing.armed
        if self.looks < self.failing_look:
            return True
        self.fail("has_buffered_data")
        return False

    def close(self):
        self.inner.close()
        self.fail("close")


class FailingAuthenticators(Failing, AuthenticatorFactory):
    def authenticator(self, connection, transport):
        self.maybe_fail("authenticator")
        return FailingAuthenticator(self)


class FailingAuthenticator(Authenticator):
    """An authenticator whose first frame is a name, which it sends back."""

    def __init__(self, factory):
        self.fail, self.name = factory.maybe_fail, None

    @property
    def complete(self):
        self.fail("complete")
        return self.name is not None

    @property
    def principal(self):
        self.fail("principal")
        return KafkaPrincipal(self.name)

    def receive(self, frame):
        self.fail("receive")
        self.name = bytes(frame).decode()
        if self.name == "mallory":
            self.name = None
            return AuthenticationStep(send=[b"no"], failed="never heard of")
        return AuthenticationStep(send=[b"welcome ", self.name.encode()], complete=True)

    def reauthenticates(self, api_key):
        self.fail("reauthenticates")
        return False

    def close(self):
        self.fail("close")


class FailingAssigner(Failing, ProcessorAssigner):
    def assign(self, address, loads):
        self.maybe_fail("assign")
        return 0


class FailingScheduler(RequestScheduler):
    """A scheduler that fails in the method that the class attribute `at` names.

    An attribute selects the method, because the settings of a scheduler are not per listener.
    """

    at = ""
    accepted, refused = threading.Semaphore(0), threading.Semaphore(0)

    def __init__(self, settings, capacity):
        super().__init__(settings, capacity)
        self.inner = Fifo(None, capacity)

    def offer(self, request):
        if Failing.armed and self.at == "offer":
            raise ZeroDivisionError("offer, on purpose")
        accepted = self.inner.offer(request)
        (self.accepted if accepted else self.refused).release()
        return accepted

    def take(self):
        taken = self.inner.take()
        if Failing.armed and self.at == "take" and taken is not None:
            self.inner.offer(taken)
            Failing.armed = False
            raise ZeroDivisionError("take, on purpose")
        return taken

    def wake(self):
        self.inner.wake()

    def size(self):
        return self.inner.size()


class FailingPlugin:
    @hookimpl
    def klamm_transports(self):
        yield Provider("failing", f"{__name__}:FailingTransport", settings=FailingSettings)

    @hookimpl
    def klamm_authenticators(self):
        yield Provider("naming", f"{__name__}:FailingAuthenticators", settings=FailingSettings)

    @hookimpl
    def klamm_processor_assigners(self):
        yield Provider("lazy", f"{__name__}:FailingAssigner", settings=FailingSettings)

    @hookimpl
    def klamm_request_schedulers(self):
        yield Provider("moody", f"{__name__}:FailingScheduler")


@pytest.fixture
def serve():
    servers = []

    def start(*settings):
        from tests.contract.api_sets import Plugin

        own = [f"listeners.default.{text}" if not text.startswith("server.") else text for text in settings]
        server = EmbeddedServer(["listeners.default.api_set=trying", *own], plugins=[FailingPlugin(), Plugin()]).start()
        servers.append(server)
        return server

    Failing.armed = False
    yield start
    Failing.armed = False
    for server in servers:
        server.stop()


def talk(client):
    assert client.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1
    assert client.call(HeartbeatRequest(group_id="ok"), 4).error_code == 0


def log_in(client, name="alice"):
    client.send_frame(name.encode())
    assert client.receive_frame() == b"welcome "
    assert client.receive_frame() == name.encode()


@pytest.mark.parametrize("at", ["wrap", "handshake", "read_into", "write", "has_buffered_data", "close"])
def test_a_transport_that_raises_affects_only_its_connection(serve, at):
    # `has_buffered_data` is called after a response, so it may also raise on an earlier connection.
    also_good = at != "has_buffered_data"
    check(
        serve("transport=failing", f"failing.at={at}"), lambda client: None, closes=at != "close", also_good=also_good
    )


@pytest.mark.parametrize("failing_look", range(2, 9))
def test_a_transport_that_raises_in_properties_affects_only_its_connection(serve, caplog, failing_look):
    server = serve("transport=failing", "failing.at=has_buffered_data", f"failing.failing_look={failing_look}")
    # The number of calls depends on how many bytes arrive together.
    check(server, lambda client: None, closes=True, also_good=False, talks=20)
    assert "turn failed" not in caplog.text


@pytest.mark.parametrize("at", ["authenticator", "complete", "principal", "receive", "reauthenticates", "close"])
def test_an_authenticator_that_raises_affects_only_its_connection(serve, at):
    server = serve("authenticator=naming", f"naming.at={at}")
    check(server, log_in, closes=at != "close", also_good=at not in ("reauthenticates",))


def test_an_assigner_that_raises_affects_no_other_connection(serve):
    # A single processor gets all connections.
    check(serve("assigner=lazy", "lazy.at=assign", "processors=2"), lambda client: None, closes=True)


@pytest.mark.parametrize("at", ["offer", "take"])
def test_a_request_scheduler_that_raises_affects_no_other_connection(serve, at):
    FailingScheduler.at = at
    check(serve("server.request_scheduler=moody"), lambda client: None, closes=at == "offer")


def test_a_request_scheduler_that_raises_for_waiting_requests_affects_no_other_connection(serve, caplog):
    FailingScheduler.at = "offer"
    FailingScheduler.accepted, FailingScheduler.refused = threading.Semaphore(0), threading.Semaphore(0)
    server = serve("server.request_scheduler=moody", "server.queued_max_requests=1", "server.io_threads=1")
    trying = server.api_set("trying")
    blocked, queued, waiting, other = (RawClient(server.address(), timeout_s=10) for _ in range(4))
    with blocked, queued, waiting, other:
        first = blocked.send(HeartbeatRequest(group_id="block"), 4)
        assert trying.arrived.acquire(timeout=60)
        second = queued.send(HeartbeatRequest(group_id="ok"), 4)
        assert all(FailingScheduler.accepted.acquire(timeout=60) for _ in range(2))
        waiting.send(HeartbeatRequest(group_id="ok"), 4)
        # Each request is offered twice before it waits.
        assert all(FailingScheduler.refused.acquire(timeout=60) for _ in range(2))
        Failing.armed = True
        trying.release.set()
        assert blocked.receive(HeartbeatRequest.API_KEY, 4, first).error_code == 0
        assert queued.receive(HeartbeatRequest.API_KEY, 4, second).error_code == 0
        assert waiting.at_end(), "its turn to be queued has come, and the scheduler raised"
        assert other.call(MetadataRequest(topics=None), 12).brokers, "on the same thread"
        Failing.armed = False
        talk(other)
    assert "closing connection: the request scheduler failed" in caplog.text
    assert "turn failed" not in caplog.text


@pytest.mark.interpreted
def test_a_thread_with_failing_turns_continues_pauses_and_logs_little(serve, caplog, monkeypatch):
    server = serve()
    (processor, *_) = server.server.listeners[0].processors
    pauses, failures, poll = threading.Semaphore(0), iter(range(20)), processor._reactor.selector.poll

    class Pause:
        wait = staticmethod(lambda seconds: seconds > 0 and pauses.release())

    def failing_poll(timeout_s):
        if next(failures, None) is not None:
            raise ZeroDivisionError("on purpose")
        poll(timeout_s)

    monkeypatch.setattr(processor, "_pause", Pause)
    monkeypatch.setattr(processor._reactor.selector, "poll", failing_poll)
    processor._reactor._waker.wake()
    assert all(pauses.acquire(timeout=60) for _ in range(20)), "a pause after each"
    with RawClient(server.address()) as client:
        talk(client)
    assert [record.exc_info[0] for record in caplog.records if "turn failed" in record.message] == [ZeroDivisionError]


def check(server, begin, *, closes, also_good=True, talks=1):
    """Use a connection from before, one that meets the failure, and one from after it."""
    before = klamm_threads()
    with RawClient(server.address()) as early:
        begin(early)
        talk(early)
        Failing.armed = True
        try:
            with RawClient(server.address(), timeout_s=30) as unlucky:
                begin(unlucky)
                for _ in range(talks):
                    talk(unlucky)
            failed = False
        except ConnectionError:
            failed = True
        assert failed == closes
        Failing.armed = False
        with RawClient(server.address()) as late:
            begin(late)
            talk(late)
        if also_good:
            talk(early)
    assert klamm_threads() == before


def test_a_failed_authentication_is_answered_and_the_connection_closes_after_a_delay(serve, caplog):
    server = serve("authenticator=naming", "connection_failed_authentication_delay_ms=300")
    with RawClient(server.address(), timeout_s=30) as mallory:
        began_s = time.monotonic()
        mallory.send_frame(b"mallory")
        assert mallory.receive_frame() == b"no"
        assert time.monotonic() - began_s >= 0.3, "the answer is delayed too, as in Kafka (KIP-306)"
        assert mallory.at_end()
    assert "authentication failed: never heard of" in caplog.text


def test_frames_before_authentication_are_not_handled_as_requests(serve):
    server = serve("authenticator=naming")
    with RawClient(server.address()) as client:
        client.send(MetadataRequest(topics=None), 12)
        assert client.receive_frame() == b"welcome ", "the frame was the authenticator's, not the handler's"
    assert server.api_set("trying").seen == []


def test_the_principal_reaches_the_handlers(serve):
    server = serve("authenticator=naming")
    with RawClient(server.address()) as client:
        log_in(client, "bob")
        talk(client)
    assert {str(context.principal) for context in server.api_set("trying").seen} == {"User:bob"}


def test_memory_stays_below_its_limit_and_every_request_is_answered(serve):
    server = serve("server.queued_max_request_bytes=300000", "server.io_threads=2")
    padding = bytes(100_000)
    from klamm.wire.headers import encode_request_header

    frame = encode_request_header(12, 0, 1, "raw") + HeartbeatRequest(group_id="ok").encode(0) + padding
    clients = [RawClient(server.address()) for _ in range(20)]
    for client in clients:
        for _ in range(3):
            client.send_frame(frame)
    for client in clients:
        for _ in range(3):
            assert client.receive(12, 0, 1).error_code == 0
        client.close()
    pool = server.server.pool
    assert pool.depletions > 0
    assert pool.used_bytes == 0
