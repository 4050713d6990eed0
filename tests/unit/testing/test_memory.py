"""Tests of parts without a server: a listener and a channel in memory, a raw client over any socket, certificates."""

import socket
import ssl
import struct
import threading

import pytest

from klamm import ApiSet, KafkaError, KafkaPrincipal, RequestFilter, RequestObserver, RequestOutcome, handles
from klamm.filters import Hold
from klamm.shared.deprecation import warn_deprecated
from klamm.testing import CertificateFiles, MemoryChannel, MemoryListener, RawClient
from klamm.wire.errors import ErrorCode
from klamm.wire.messages import heartbeat, metadata, produce


class Small(ApiSet):
    @handles(metadata, versions=metadata.VERSIONS)
    def metadata(self, request, context):
        return metadata.MetadataResponse(cluster_id=context.principal.name)

    @handles(heartbeat, versions=heartbeat.VERSIONS)
    def heartbeat(self, request, context):
        if request.group_id == "later":
            return context.respond_after(100, heartbeat.HeartbeatResponse)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    @handles(produce, versions=produce.VERSIONS)
    def produce(self, request, context):
        return context.no_response()


class Slow(RequestFilter):
    api_keys = (metadata.API_KEY,)

    def on_request(self, message, context):
        return Hold(message, 50)


class Watching(RequestObserver):
    def open(self, listener):
        self.outcomes = []

    def completed(self, event):
        self.outcomes.append(event.outcome)


def test_requests_pass_as_bytes():
    listener = MemoryListener()
    watching = Watching()
    watching.open(listener.context)
    alice = listener.connection(KafkaPrincipal("alice"))
    channel = MemoryChannel(Small().handlers(), listener=listener, connection=alice, observers=[watching])
    assert channel.call(metadata.MetadataRequest(None), 12).cluster_id == "alice"
    assert channel.call(heartbeat.HeartbeatRequest("g"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert channel.call(produce.ProduceRequest(), 9) is None
    assert watching.outcomes[0] is RequestOutcome.ANSWERED
    assert watching.outcomes[-1] is RequestOutcome.NO_ANSWER
    with pytest.raises(ConnectionError):
        channel.send_frame(b"garbage")


def test_a_delayed_answer_comes_when_the_clock_moves():
    channel = MemoryChannel(Small().handlers())
    with pytest.raises(LookupError):
        channel.call(heartbeat.HeartbeatRequest("later"), 4)
    channel.listener.advance_ms(100)
    assert channel.answer().error_code == 0


def test_a_filter_can_hold_a_message():
    channel = MemoryChannel(Small().handlers(), filters=[Slow()])
    with pytest.raises(LookupError):
        channel.call(metadata.MetadataRequest(None), 12)
    channel.listener.advance_ms(50)
    assert channel.answer().cluster_id == "ANONYMOUS"


def test_a_test_can_answer_a_request_once():
    context = MemoryListener().request(metadata.MetadataRequest(None), 12)
    context.respond("an answer")
    assert context.responder.responses == ["an answer"]
    with pytest.raises(RuntimeError, match="answered twice"):
        context.respond("another")


def test_raw_client_works_over_any_socket():
    ours, theirs = socket.socketpair()
    ours.settimeout(5)

    def answer():
        (size,) = struct.unpack(">i", theirs.recv(4))
        theirs.recv(size)
        body = struct.pack(">iB", 1, 0) + heartbeat.HeartbeatResponse(error_code=25).encode(4)
        theirs.sendall(struct.pack(">i", len(body)) + body)

    thread = threading.Thread(target=answer)
    thread.start()
    with RawClient(ours) as client, theirs:
        assert client.call(heartbeat.HeartbeatRequest("g"), 4).error_code == 25
        thread.join(60)


def test_certificate_files_are_accepted_by_both_sides(tmp_path):
    files = CertificateFiles(tmp_path / "certs")
    alice = files.client("alice")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.server)
    server.load_verify_locations(files.ca)
    server.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    wrapped = []
    thread = threading.Thread(target=lambda: wrapped.append(server.wrap_socket(theirs, server_side=True)))
    thread.start()
    with files.client_context(alice).wrap_socket(ours, server_hostname="localhost"):
        thread.join(60)
        assert wrapped[0].getpeercert()["subject"] == ((("commonName", "alice"),),)
        wrapped[0].close()
    before = alice.read_bytes()
    assert files.client("alice").read_bytes() == before
    with pytest.raises(ValueError, match="cannot be a client's name"):
        files.client("a/b")


def test_a_deprecation_warns_once_for_each_place():
    def old():
        warn_deprecated("klamm.old", "use klamm.new")

    with pytest.warns(DeprecationWarning, match=r"^klamm.old is deprecated: use klamm.new$") as found:
        old()
    assert found[0].filename == __file__
