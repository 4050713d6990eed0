"""Playbooks for `UpstreamProtocol`: bytes of a node, in pieces of any size, and their effect."""

import base64
import hashlib
from functools import partial

import pytest

from klamm.forwarding import STREAMED_FROM_BYTES
from klamm.runtime import IllegalTransitionError
from klamm.sasl import SaslAccount, ScramCredential, ScramMechanism
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.primitives import WireError
from klamm_gateway.upstream.protocol import UpstreamProtocol
from klamm_gateway.upstream.states import TRANSITIONS, UpstreamError, UpstreamState


class Expected:
    """A waiting request. `events` has everything that happens to it."""

    def __init__(self, correlation_id, *, api_key=1, api_version=11, streams=True):
        self.correlation_id, self.api_key, self.api_version, self.streams = (
            correlation_id,
            api_key,
            api_version,
            streams,
        )
        self.events = []

    def completed(self, body):
        self.events.append(body)

    def walk(self, size_bytes):
        return None

    def began(self, body, stream):
        self.events.append(body)
        stream.attach(self.events.append, self.events.append)


def response(correlation_id, body, tags=b""):
    payload = correlation_id.to_bytes(4, "big", signed=True) + tags + body
    return len(payload).to_bytes(4, "big") + payload


def ready(account=None):
    """Return a protocol whose connection is established."""
    calls = []
    protocol = UpstreamProtocol(account, "test", lambda: calls.append("ready"))
    protocol.secured()
    return protocol, calls


def feed(protocol, data, size_bytes):
    for position in range(0, len(data), size_bytes):
        protocol.receive(memoryview(bytearray(data[position : position + size_bytes])))


@pytest.mark.parametrize("size_bytes", [1, 2, 3, 5, 7, 8, 9, 13, 64, 1000])
def test_responses_in_pieces_reach_their_requests_in_order(size_bytes):
    protocol, calls = ready()
    waiting = [Expected(number) for number in (7, 7, 9)]
    for exchange in waiting:
        protocol.send([b"x"], exchange)
    bodies = [b"first", b"", b"third" * 20]
    data = b"".join(response(one.correlation_id, body) for one, body in zip(waiting, bodies, strict=True))
    feed(protocol, data, size_bytes)
    assert [one.events for one in waiting] == [[body] for body in bodies]
    assert calls == ["ready"]
    assert protocol.is_idle is False, "the requests have not left"


def test_the_header_of_a_flexible_response_is_removed_from_its_body():
    protocol, _ = ready()
    plain, tagged = Expected(1, api_version=12), Expected(2, api_version=12)
    protocol.send([b"x"], plain)
    protocol.send([b"x"], tagged)
    feed(protocol, response(1, b"body", tags=b"\0") + response(2, b"more", tags=b"\1\5\2ab"), 1000)
    assert (plain.events, tagged.events) == ([b"body"], [b"more"])


def test_a_large_response_is_passed_on_as_it_arrives():
    protocol, _ = ready()
    large, next_one = Expected(1), Expected(2)
    protocol.send([b"x"], large)
    protocol.send([b"x"], next_one)
    body = bytes(range(256)) * 4096
    data = response(1, body) + response(2, b"small")
    feed(protocol, data[:100_000], 100_000)
    assert len(large.events) == 1, "it starts before it has come whole"
    feed(protocol, data[100_000:], 70_000)
    assert b"".join(large.events) == body
    assert len(large.events) > 10
    assert next_one.events == [b"small"]
    assert protocol.stream is None


@pytest.mark.parametrize("api_version", [11, 12])
@pytest.mark.parametrize("size_bytes", range(1, 18))
def test_the_first_piece_of_a_stream_has_its_throttle_time(api_version, size_bytes):
    protocol, _ = ready()
    exchange = Expected(1, api_version=api_version)
    protocol.send([b"x"], exchange)
    data = response(1, b"z" * 300_000, tags=b"\0" if api_version == 12 else b"")
    feed(protocol, data[:64], size_bytes)
    assert len(exchange.events[0]) >= 4
    feed(protocol, data[64:], 100_000)
    assert b"".join(exchange.events) == b"z" * 300_000


@pytest.mark.parametrize("missing", [1, STREAMED_FROM_BYTES, STREAMED_FROM_BYTES + 1])
def test_a_nearly_complete_response_is_passed_on_as_a_whole(missing):
    protocol, _ = ready()
    exchange = Expected(1)
    protocol.send([b"x"], exchange)
    data = response(1, b"z" * 300_000)
    feed(protocol, data[:-missing], len(data))
    feed(protocol, data[-missing:], len(data))
    assert b"".join(exchange.events) == b"z" * 300_000
    assert len(exchange.events) == (2 if missing > STREAMED_FROM_BYTES else 1)


def test_a_response_that_must_be_decoded_is_passed_on_as_a_whole():
    protocol, _ = ready()
    exchange = Expected(1, streams=False)
    protocol.send([b"x"], exchange)
    feed(protocol, response(1, b"z" * 400_000), 100_000)
    assert exchange.events == [b"z" * 400_000]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (response(2, b""), "correlation id 2 instead of 1"),
        ((3).to_bytes(4, "big") + bytes(8), "declared size 3"),
        ((-1).to_bytes(4, "big", signed=True) + bytes(8), "declared size -1"),
        ((-1).to_bytes(4, "big", signed=True), "declared size -1"),
        ((200_000_000).to_bytes(4, "big") + (1).to_bytes(4, "big"), "too large"),
        # A size that is too small leaves bytes that belong to no request.
        (response(1, b"") + b"extra", "5 bytes came without a request"),
    ],
)
def test_invalid_bytes_of_a_node_close_the_connection(data, text):
    protocol, _ = ready()
    protocol.send([b"x"], Expected(1, streams=False))
    with pytest.raises(UpstreamError, match=text):
        feed(protocol, data, len(data))


def test_a_response_without_a_request_closes_the_connection():
    protocol, _ = ready()
    with pytest.raises(UpstreamError, match="without a request"):
        feed(protocol, response(1, b""), 100)


def test_a_stream_ends_only_after_its_last_byte_is_read():
    """A length that swallows all following bytes must not count as the end of the response."""

    class Walk:
        unread_bytes = 300_000

        def feed(self, data):
            raise WireError("something is missing")

        def passed(self, count):
            self.unread_bytes -= count

    protocol, _ = ready()
    exchange = Expected(1)
    exchange.walk = lambda size_bytes: walk
    walk = Walk()
    walk.feed = lambda data: None
    protocol.send([b"x"], exchange)
    data = response(1, b"z" * 300_000)
    feed(protocol, data[:200_000], 200_000)
    walk.unread_bytes = protocol.stream.remaining
    assert protocol.unread_bytes == protocol.stream.remaining - 1
    del walk.feed
    with pytest.raises(UpstreamError, match="malformed response: something is missing"):
        feed(protocol, data[200_000:], 200_000)
    assert sum(map(len, exchange.events)) < 300_000


def test_requests_wait_for_the_login_and_are_sent_in_order():
    protocol = UpstreamProtocol(None, "test", lambda: None)
    for text in (b"one", b"two"):
        protocol.send([text], Expected(1))
    assert not protocol.outgoing
    assert protocol.has_unsent
    protocol.secured()
    assert b"".join(protocol.outgoing) == b"\0\0\0\3one\0\0\0\3two"


# ---- login


def request_of(protocol, kind):
    frame = b"".join(protocol.outgoing)
    protocol.outgoing.clear()
    key, version, correlation_id, _client, offset = decode_request_header(frame[4:])
    assert key == kind.API_KEY
    return kind.decode(version, frame[4:], offset), correlation_id, version


def answer(protocol, correlation_id, version, message):
    feed(protocol, response(correlation_id, message.encode(version)), 11)


def shake(protocol, error_code=0):
    shaken, correlation_id, version = request_of(protocol, SaslHandshakeRequest)
    answer(protocol, correlation_id, version, SaslHandshakeResponse(error_code, ["PLAIN", "SCRAM-SHA-256"]))
    return shaken.mechanism


def authenticate(protocol, error_code=0, auth_bytes=b""):
    """Answer one message of the client. Return the message."""
    request, correlation_id, version = request_of(protocol, SaslAuthenticateRequest)
    reply = auth_bytes(request.auth_bytes) if callable(auth_bytes) else auth_bytes
    answer(protocol, correlation_id, version, SaslAuthenticateResponse(error_code, "no", reply))
    return request.auth_bytes


def test_plain_sends_user_and_password_before_requests():
    protocol, calls = ready(SaslAccount("PLAIN", "gate", "pass", bytes))
    protocol.send([b"x"], Expected(1))
    assert shake(protocol) == "PLAIN"
    assert calls == []
    assert authenticate(protocol) == b"\0gate\0pass"
    assert calls == ["ready"]
    assert b"".join(protocol.outgoing) == b"\0\0\0\1x"


@pytest.mark.parametrize("step", ["handshake", "authenticate"])
def test_a_refused_login_closes_the_connection(step):
    protocol, calls = ready(SaslAccount("PLAIN", "gate", "pass", bytes))
    refuse = partial(shake, protocol, 33)
    if step == "authenticate":
        shake(protocol)
        refuse = partial(authenticate, protocol, 58)
    with pytest.raises(UpstreamError, match=r"offers the mechanisms PLAIN|refuses the login: no") as refused:
        refuse()
    assert refused.value.reason == "authentication_failed"
    assert calls == []


class ScramNode:
    """A node's side of SCRAM, with its credential."""

    def __init__(self, password="pass", iterations="4096"):
        self.mechanism = ScramMechanism.SCRAM_SHA_256
        self.credential = ScramCredential.from_password(self.mechanism, password, b"salt", 4096)
        self.iterations = iterations

    def first(self, message):
        self.bare = message.removeprefix(b"n,,").decode()
        nonce = self.bare.partition("r=")[2]
        self.challenge = f"r={nonce}xyz,s=c2FsdA==,i={self.iterations}"
        return self.challenge.encode()

    def final(self, message):
        without_proof, _, proof = message.decode().partition(",p=")
        signed = f"{self.bare},{self.challenge},{without_proof}".encode()
        signature = self.mechanism.hmac(self.credential.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.sha256(key).digest() != self.credential.stored_key:
            return b"v=AAAA"
        return b"v=" + base64.b64encode(self.mechanism.hmac(self.credential.server_key, signed))


def test_scram_proves_the_password_and_the_node_that_it_knows_the_account():
    protocol, calls = ready(SaslAccount("SCRAM-SHA-256", "g,a=t", "pass", bytes))
    node = ScramNode()
    assert shake(protocol) == "SCRAM-SHA-256"
    assert authenticate(protocol, auth_bytes=node.first).startswith(b"n,,n=g=2Ca=3Dt,r=")
    authenticate(protocol, auth_bytes=node.final)
    assert calls == ["ready"]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ScramNode(password="other"), "refuses the proof"),
        (ScramNode(iterations="1"), "1 SCRAM iterations"),
        (ScramNode(iterations="16385"), "16385 SCRAM iterations are not accepted, only 4096 to 16384"),
        (ScramNode(iterations="9" * 9), "iterations"),
        (ScramNode(iterations="x"), "not valid"),
        (ScramNode(iterations="\N{SUPERSCRIPT TWO}"), "not valid"),
        (ScramNode(iterations="9" * 5000), "not valid"),
        (ScramNode(iterations="4096,s=\N{LATIN SMALL LETTER E WITH ACUTE}"), "not base64"),
    ],
)
def test_a_node_without_a_proof_of_the_account_is_refused(node, text):
    protocol, calls = ready(SaslAccount("SCRAM-SHA-256", "gate", "pass", bytes))
    shake(protocol)

    def log_in():
        for step in (node.first, node.final):
            authenticate(protocol, auth_bytes=step)

    with pytest.raises(UpstreamError, match=text):
        log_in()
    assert calls == []


@pytest.mark.parametrize("before", UpstreamState)
@pytest.mark.parametrize("after", UpstreamState)
def test_only_transitions_of_the_table_of_states_are_possible(before, after):
    protocol = UpstreamProtocol(None, "test", lambda: None)
    protocol.state = before
    if after in TRANSITIONS[before]:
        protocol.transition_to(after)
        assert protocol.state is after
    else:
        with pytest.raises(IllegalTransitionError):
            protocol.transition_to(after)


def test_the_header_of_the_login_has_the_version_of_the_request():
    protocol, _ = ready(SaslAccount("PLAIN", "gate", "pass", bytes))
    assert b"".join(protocol.outgoing)[4:].startswith(encode_request_header(17, 1, -1, "test"))
