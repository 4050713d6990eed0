"""Tests of a channel with PLAIN, SCRAM and OAUTHBEARER under any order of events.

Bytes arrive in pieces and pipelined, also during a check. Answers cannot be written, checks end late, clients leave,
sessions end, and so does the time for authentication. No unauthenticated client is served, no exception is raised, and
in the end the channel is READY or closed.
"""

import base64
import json
import logging
import struct
from collections import deque

import pytest
import scramp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm import (
    Address,
    AuthenticatorFactory,
    ConnectionContext,
    ListenerContext,
    ServerServices,
    SessionRegistry,
    bind_handlers,
    handles,
)
from klamm.metrics import Counter
from klamm.metrics.connections import ConnectionCounts
from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.expiry import ChannelExpiry
from klamm.network.lifecycle import ChannelLifecycle
from klamm.network.poller import HANG_UP, READ, WRITE
from klamm.network.receive import NetworkReceive
from klamm.network.selector import Selector
from klamm.requests.api_versions import ApiVersionsAnswerer, with_api_versions
from klamm.requests.ledger import RequestLedger
from klamm.requests.pipeline import RequestPipeline
from klamm.sasl import SaslContext
from klamm.testing import ManualClock
from klamm.wire.headers import encode_request_header
from klamm.wire.messages import metadata
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm_sasl.authenticator import SaslServerAuthenticator
from klamm_sasl.oauthbearer import OAuthBearerMechanism
from klamm_sasl.plain import PlainMechanism
from klamm_sasl.sasl_settings import OAuthBearerSettings
from klamm_sasl.scram import ScramSha256
from tests.unit.network.fakes import QuietTransport, request_parts, runtime
from tests.unit.sasl.users import DictStore, credential

log = logging.getLogger("klamm")

DESCRIPTOR, WAKER = 7, 8
SCRAM, PLAIN, OAUTH = "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"
SESSION_MS, SETUP_MS, DELAY_MS, MAX_FIRST_BYTES = 1500, 1000, 20, 5000
ALICE = [("alice", credential("sesame"))]


def unsecured(name):
    claims = {"sub": name, "exp": ManualClock().wall_ms() // 1000 + 3600}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join(parts) + b"."


RIGHT = {PLAIN: b"\0alice\0sesame", OAUTH: b"n,,\x01auth=Bearer " + unsecured("alice") + b"\x01\x01"}
WRONG = [b"\0alice\0wrong", b"\0nobody\0sesame", b"n,,\x01auth=Bearer a.b.c\x01\x01", b"\x01", b"", b"n,,n=alice,r=x",
         b"c=biws,r=x,p=AAAA", b"\xff"]  # fmt: skip


class Wire(QuietTransport):
    """The bytes that have arrived in pieces and were not read, and the written bytes."""

    def __init__(self):
        self.incoming = deque()
        self.written = b""
        self.writable, self.ended, self.closed = True, "", False

    def read_into(self, buffer):
        if self.incoming:
            piece = self.incoming.popleft()
            count = min(len(piece), len(buffer))
            buffer[:count] = piece[:count]
            if piece[count:]:
                self.incoming.appendleft(piece[count:])
            return count
        if self.ended == "reset":
            raise ConnectionResetError("reset by peer")
        return -1 if self.ended else 0

    def write(self, chunks, more=False):
        if self.ended == "reset":
            raise BrokenPipeError("broken pipe")
        if not self.writable:
            return 0
        data = b"".join(bytes(chunk) for chunk in chunks)
        self.written += data
        return len(data)

    def close(self):
        self.closed = True


class OneWire:
    """A poller for one connection."""

    def __init__(self, wire):
        self.wire = wire
        self.masks = {}

    def register(self, descriptor, mask):
        self.masks[descriptor] = mask

    modify = register

    def unregister(self, descriptor):
        del self.masks[descriptor]

    def poll(self, timeout_s):
        wanted, wire = self.masks.get(DESCRIPTOR), self.wire
        if wanted is None:
            return []
        mask = READ if wanted & READ and (wire.incoming or wire.ended) else 0
        mask |= WRITE if wanted & WRITE and (wire.writable or wire.ended) else 0
        mask |= HANG_UP if wire.ended == "reset" else 0
        return [(DESCRIPTOR, mask)] if mask else []


class NoWaker:
    descriptor = WAKER


class ManyMechanisms(AuthenticatorFactory):
    """The real authenticator. Its checks end when the test says so."""

    def __init__(self, listener, blocking):
        super().__init__()
        self.work = deque()
        self.mechanisms = {
            PLAIN: PlainMechanism(),
            SCRAM: ScramSha256(),
            OAUTH: OAuthBearerMechanism(OAuthBearerSettings(unsecured_development_tokens=True)),
        }
        for mechanism in self.mechanisms.values():
            mechanism.open(
                SaslContext(
                    listener,
                    [DictStore(ALICE, blocking=blocking)],
                    SessionRegistry(listener, SaslServerAuthenticator.revoke),
                )
            )

    def authenticator(self, connection, transport):
        limits = dict.fromkeys(self.mechanisms, SESSION_MS)
        return SaslServerAuthenticator(
            connection, transport, self.mechanisms, limits, Counter(), lambda check, _: self.work.append(check)
        )


class Errors(logging.Handler):
    """Keeps the messages that are logged as errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def never(request):
    raise AssertionError("no request waits")


class ChannelMachine(RuleBasedStateMachine):
    @initialize(blocking=st.booleans())
    def begin(self, blocking):
        self.clock = ManualClock()
        services = ServerServices(self.clock)
        address = Address("127.0.0.1", 1)
        listener = ListenerContext("fuzz", address, address, "SASL_PLAINTEXT", services)
        handlers = with_api_versions(list(bind_handlers([self.answer_metadata])))
        listener.answer_api_versions = ApiVersionsAnswerer(handlers)
        self.factory = ManyMechanisms(listener, blocking)
        self.wire, self.calls = Wire(), deque()
        made = runtime(
            context=listener,
            clock=self.clock,
            scheduler=services.scheduler,
            authenticators=self.factory,
            requests=request_parts(listener, self.clock, services.scheduler, handlers),
            counts=(counts := ConnectionCounts()),
            failed_authentication_delay_ms=DELAY_MS,
            connection_setup_timeout_ms=SETUP_MS,
        )
        self.counts = counts
        self.selector = Selector(OneWire(self.wire), NoWaker(), made)
        self.expiry = ChannelExpiry(made.limits, self.selector.channels, self.selector.setup.setting_up)
        ledger = RequestLedger(self.clock, listener, None, None, None)
        pipeline = RequestPipeline(made.requests, ledger, never, never)
        self.lifecycle = ChannelLifecycle(made, self.selector, pipeline, self.call_soon)
        connection = ConnectionContext(
            "c-1", listener, address, Address("127.0.0.1", 2), opened_ns=self.clock.monotonic_ns()
        )
        receive = NetworkReceive(MAX_FIRST_BYTES)
        self.channel = KafkaChannel(DESCRIPTOR, self.wire, connection, receive, (), connection.client_address)
        self.channel.admit(self.wire)
        self.has_proved = False
        self.served = 0
        self.scram = None
        self.errors = Errors()
        log.addHandler(self.errors)
        self.selector.register(self.channel)

    def call_soon(self, channel, callback, argument):
        """Keep a call, as an inbox does."""
        self.calls.append((callback, argument))

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def answer_metadata(self, request, context):
        self.served += 1
        assert self.has_proved, "nothing was sent that proves a name"
        assert context.principal.name == "alice"
        assert self.channel.state in (ChannelState.READY, ChannelState.CLOSING)
        assert self.channel.authenticator.complete
        assert self.selector.now_ns <= self.channel.session_expires_ns, "not after the end of the session"
        return metadata.MetadataResponse()

    # ---- the client

    def send(self, message, version, pieces):
        frame = encode_request_header(message.API_KEY, version, 1, "fuzz") + message.encode(version)
        self.send_frame(frame, pieces)

    def send_frame(self, frame, pieces):
        data = struct.pack(">i", len(frame)) + frame
        step = -(-len(data) // pieces)
        self.wire.incoming.extend(data[at : at + step] for at in range(0, len(data), step))

    def token(self, data, raw, pieces):
        if raw:
            self.send_frame(data, pieces)
        else:
            self.send(SaslAuthenticateRequest(data), 2, pieces)

    PIECES = st.sampled_from([1, 1, 1, 2, 5])

    @rule(version=st.integers(0, 4), pieces=PIECES)
    def asks_for_versions(self, version, pieces):
        self.send(ApiVersionsRequest("fuzz", "1"), version, pieces)

    @rule(mechanism=st.sampled_from([PLAIN, SCRAM, OAUTH, "NONE"]), version=st.sampled_from([1, 1, 0]), pieces=PIECES)
    def names_a_mechanism(self, mechanism, version, pieces):
        self.send(SaslHandshakeRequest(mechanism), version, pieces)

    @rule(mechanism=st.sampled_from(list(RIGHT)), raw=st.booleans(), pieces=PIECES)
    def proves_a_name(self, mechanism, raw, pieces):
        self.has_proved = True
        self.token(RIGHT[mechanism], raw, pieces)

    @rule(data=st.sampled_from(WRONG), raw=st.booleans(), pieces=PIECES)
    def proves_nothing(self, data, raw, pieces):
        self.token(data, raw, pieces)

    @rule(
        mechanism=st.sampled_from([PLAIN, OAUTH]), turns=st.integers(0, 3), right=st.sampled_from([True, True, False])
    )
    def logs_in_at_once(self, mechanism, turns, right):
        """Log in as usual, pipelined with a request."""
        self.send(SaslHandshakeRequest(mechanism), 1, 1)
        if right:
            self.proves_a_name(mechanism, False, 1)
        else:
            self.proves_nothing(b"\0alice\0wrong", False, 1)
        self.wants_to_be_served(1)
        for _ in range(turns):
            self.turn()
            self.a_check_ends()

    @rule(again=st.booleans(), late=st.booleans(), ends=st.booleans())
    def stays_for_a_session(self, again, late, ends):
        """Log in, and send another login or none when the session ends. The end of the session may come first."""
        self.wire.writable = True
        self.logs_in_at_once(PLAIN, 3, True)
        if again:
            # At most once a second.
            self.time_passes(1000)
            self.send(SaslHandshakeRequest(PLAIN), 1, 1)
            self.proves_a_name(PLAIN, True, 1) if late else self.proves_nothing(b"\0alice\0wrong", False, 1)
            self.turn()
        self.time_passes(SESSION_MS + 1 if late else 1)
        if ends:
            self.a_check_ends()
        self.wants_to_be_served(1)
        self.turn()

    @rule(password=st.sampled_from(["sesame", "sesame", "wrong"]), pieces=PIECES)
    def begins_scram(self, password, pieces):
        self.scram = scramp.ScramClient([SCRAM], "alice", password)
        self.scram_password = password
        self.send(SaslHandshakeRequest(SCRAM), 1, pieces)
        first = self.scram.get_client_first().encode()
        self.nonce = first[first.rindex(b"r=") :]
        self.token(first, False, pieces)

    @precondition(lambda self: self.scram is not None)
    @rule(pieces=PIECES)
    def ends_scram(self, pieces):
        """End SCRAM with an answer to the server's last challenge, if there is one."""
        at = self.wire.written.rfind(self.nonce)
        challenge = self.wire.written[at:] if at >= 0 else b""
        end = challenge.find(b",i=4096")
        if end < 0:
            return
        scram, self.scram = self.scram, None
        try:
            scram.set_server_first(challenge[: end + 7].decode())
        except (scramp.ScramException, UnicodeDecodeError):
            return
        self.has_proved = self.has_proved or self.scram_password == "sesame"  # noqa: S105
        self.token(scram.get_client_final().encode(), False, pieces)

    @rule(pieces=PIECES)
    def wants_to_be_served(self, pieces):
        self.send(metadata.MetadataRequest(topics=None), 12, pieces)

    @rule(data=st.binary(max_size=40), pieces=PIECES)
    def talks_garbage(self, data, pieces):
        self.send_frame(data, pieces)

    @rule(size=st.sampled_from([-1, MAX_FIRST_BYTES + 1, 2**31 - 1]))
    def announces_too_much(self, size):
        self.wire.incoming.append(struct.pack(">i", size))

    @rule(how=st.sampled_from(["closed", "reset"]), chance=st.integers(0, 5))
    def leaves(self, how, chance):
        if chance == 0:
            self.wire.ended = how

    @rule(writable=st.booleans())
    def takes_answers_or_not(self, writable):
        self.wire.writable = writable

    # ---- the server

    @rule()
    def a_check_ends(self):
        if self.factory.work:
            self.factory.work.popleft()()

    @rule(ms=st.sampled_from([1, DELAY_MS, 60, 400, SESSION_MS + 1]))
    def time_passes(self, ms):
        self.clock.advance_ms(ms)

    @rule()
    def turn(self):
        """Take a turn, like `Processor.run_once`."""
        lifecycle, selector = self.lifecycle, self.selector
        calls, self.calls = self.calls, deque()
        for callback, argument in calls:
            callback(argument)
        selector.poll(0)
        self.process_completed()
        if selector.setup:
            selector.setup.next_step()
            self.process_completed()
        lifecycle.close_due(selector.now_ns)
        for channel in self.expiry.overdue(selector.now_ns):
            lifecycle.authentication.time_out(channel)
        lifecycle.take_turns()

    def process_completed(self):
        lifecycle, selector = self.lifecycle, self.selector
        for name, do in (
            ("completed_receives", lifecycle.advance),
            ("completed_sends", lifecycle.sent),
            ("disconnected", lambda channel: lifecycle.close(channel, channel.close_reason)),
        ):
            channels = getattr(selector, name)
            setattr(selector, name, [])
            for channel in channels:
                do(channel)
        assert not selector.failed_handshakes

    @invariant()
    def nothing_has_gone_wrong(self):
        if hasattr(self, "channel"):
            assert self.errors.lines == []
            assert self.wire.closed == (self.channel.state is ChannelState.CLOSED)
            if self.channel.state is ChannelState.READY:
                assert self.has_proved

    def teardown(self):
        if not hasattr(self, "channel"):
            return
        log.removeHandler(self.errors)
        self.wire.writable = True
        # Take a turn for each piece and each check, and let all waits end.
        for _ in range(len(self.wire.incoming) + len(self.channel.receive.frames) + 200):
            self.a_check_ends()
            self.turn()
            self.clock.advance_ms(20)
        assert self.channel.state in (ChannelState.READY, ChannelState.CLOSED)
        assert not self.factory.work
        if self.channel.state is ChannelState.READY:
            assert not self.channel.receive.frames
            assert not self.wire.incoming


ChannelMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestChannel = ChannelMachine.TestCase


def test_the_machine_can_authenticate_clients():
    """Otherwise its invariants could hold because no login ever succeeds."""
    for blocking in (False, True):
        for go in ("plain", "scram", "oauth"):
            machine = ChannelMachine()
            machine.begin(blocking)
            if go == "scram":
                machine.begins_scram("sesame", 2)
                for _ in range(12):
                    machine.turn()
                    machine.a_check_ends()
                machine.ends_scram(1)
                machine.wants_to_be_served(1)
            else:
                machine.logs_in_at_once(PLAIN if go == "plain" else OAUTH, 0, True)
            for _ in range(12):
                machine.turn()
                machine.a_check_ends()
            assert machine.channel.state is ChannelState.READY, go
            assert machine.served == 1
            machine.nothing_has_gone_wrong()
            machine.teardown()


@pytest.mark.parametrize("reason", ["the session has expired and was not renewed", "the delegation token has expired"])
def test_a_request_at_the_end_of_its_session_is_recorded_as_an_expiry(reason):
    machine = ready_machine()
    machine.clock.advance_ms(SESSION_MS)
    machine.wants_to_be_served(1)
    # The turn begins before the timer runs, and handles the request after it.
    machine.selector.poll(0)
    machine.channel.authenticator.revoke(reason)
    machine.process_completed()
    assert machine.channel.state is ChannelState.CLOSED
    assert (machine.counts.expired.value, machine.counts.failed_reauthentication.value) == (1, 0)
    machine.teardown()


def test_a_request_during_a_revocation_is_not_a_failed_login():
    machine = ready_machine()
    machine.wants_to_be_served(1)
    machine.selector.poll(0)
    machine.channel.authenticator.revoke("the credential has changed")
    machine.process_completed()
    assert machine.channel.state is ChannelState.CLOSED
    assert (machine.counts.expired.value, machine.counts.failed_reauthentication.value) == (0, 0)
    assert machine.counts.ended() == {"the credential has changed": 1}
    machine.teardown()


def ready_machine():
    """Return a machine whose client has logged in."""
    machine = ChannelMachine()
    machine.begin(False)
    machine.stays_for_a_session(False, False, False)
    assert machine.channel.state is ChannelState.READY
    return machine
