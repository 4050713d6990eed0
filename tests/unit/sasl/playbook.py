"""A SASL listener without a network: a test passes frames, gets steps, and moves the clock."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from klamm import (
    Address,
    AuthenticationStep,
    ConnectionContext,
    KafkaPrincipal,
    ListenerContext,
    ServerServices,
    SessionRegistry,
)
from klamm.metrics import Counter
from klamm.requests.api_versions import ApiVersionsAnswerer, with_api_versions
from klamm.sasl import (
    SaslAuthenticationError,
    SaslChallenge,
    SaslError,
    SaslEvaluation,
    SaslMechanism,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm.testing import ManualClock
from klamm.wire.api_keys import load
from klamm.wire.headers import encode_request_header, response_header_size
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm_sasl.authenticator import SaslServerAuthenticator
from klamm_sasl.states import SaslState
from tests.unit.network.fakes import QuietTransport

ALICE, BOB = KafkaPrincipal("alice"), KafkaPrincipal("bob")


class ScriptedServer(SaslServer):
    """A SASL server that does what a token says."""

    def __init__(self, mechanism: Scripted) -> None:
        self.mechanism = mechanism
        self.closed = False

    def evaluate(self, token: bytes) -> SaslEvaluation:
        word, _, argument = token.decode(errors="replace").partition(" ")
        if word == "challenge":
            return SaslChallenge(b"and then?")
        if word == "later":
            inner = argument.encode()
            return SaslTask(lambda: self.evaluate(inner))  # type: ignore[arg-type, return-value]
        if word == "tell":
            raise SaslAuthenticationError("wrong on purpose")
        if word == "crash":
            raise ZeroDivisionError("on purpose")
        if word == "until":
            return SaslSuccess(ALICE, b"welcome", expires_ms=int(argument))
        if word == "user":
            return SaslSuccess(KafkaPrincipal(argument), b"welcome")
        raise SaslError("a secret reason")

    def close(self) -> None:
        self.closed = True


class Scripted(SaslMechanism):
    def __init__(self) -> None:
        super().__init__()
        self.servers: list[ScriptedServer] = []

    def server(self, connection: Any, transport: Any) -> ScriptedServer:
        self.servers.append(ScriptedServer(self))
        return self.servers[-1]


class Playbook:
    """A connection to a listener with the mechanisms SCRIPTED and OTHER, or with given ones.

    `beside` is another connection to the same listener. `disconnected` has the connections that were ended.
    """

    def __init__(
        self,
        mechanisms: dict[str, SaslMechanism] | None = None,
        max_reauth_ms: int = 0,
        beside: Playbook | None = None,
    ) -> None:
        if beside is not None:
            self.clock, self.services, self.listener = beside.clock, beside.services, beside.listener
            self.sessions, self.disconnected = beside.sessions, beside.disconnected
        else:
            self.clock = ManualClock()
            self.services = ServerServices(self.clock)
            self.listener = ListenerContext(
                "playbook", Address("127.0.0.1", 1), Address("127.0.0.1", 1), "SASL_PLAINTEXT", self.services
            )
            self.listener.answer_api_versions = ApiVersionsAnswerer(with_api_versions([]))
            self.disconnected: list[tuple[SaslServerAuthenticator, str]] = []
            self.sessions = SessionRegistry(self.listener, self._revoke)
        self.mechanisms = mechanisms or {"SCRIPTED": Scripted(), "OTHER": Scripted()}
        self.connection = ConnectionContext("c-1", self.listener, self.listener.bound, Address("127.0.0.1", 2))
        self.work: deque[Callable[[], Any]] = deque()
        self.passwords_of: list[str | None] = []
        self.dropped: list[Callable[[], Any]] = []
        self.resumed = 0
        self.cannot_reauthenticate = Counter()
        self.authenticator = SaslServerAuthenticator(
            self.connection,
            QuietTransport(),
            self.mechanisms,
            dict.fromkeys(self.mechanisms, max_reauth_ms),
            self.cannot_reauthenticate,
            self._submit,
            self.sessions,
        )
        self._ids = itertools.count(1)

    @property
    def state(self) -> SaslState:
        return self.authenticator.state

    def request(self, message: Any, version: int) -> tuple[AuthenticationStep, Any]:
        """Send a request. Return the step, with its decoded response if there is one."""
        correlation_id = next(self._ids)
        frame = encode_request_header(message.API_KEY, version, correlation_id, "playbook") + message.encode(version)
        step = self.settle(self.authenticator.receive(frame))
        return step, self.decoded(step, message.API_KEY, version, correlation_id)

    def decoded(self, step: AuthenticationStep, api_key: int, version: int, correlation_id: int) -> Any:
        if not step.send:
            return None
        (frame,) = step.send
        assert frame[:4] == correlation_id.to_bytes(4, "big")
        module = load(api_key)
        response = vars(module)[f"{module.NAME}Response"]
        return response.decode(version, bytes(frame), response_header_size(api_key, version))

    def settle(self, step: AuthenticationStep) -> AuthenticationStep:
        """Do all pending work at once, as processor and workers would."""
        if step.pending is None:
            return step
        assert not step.send
        assert not step.complete
        assert self.state is SaslState.EVALUATING
        step.pending(self._note_resumed)
        before = self.resumed
        self.work.popleft()()
        assert self.resumed == before + 1
        return self.authenticator.resume()

    def _submit(self, check: Callable[[], Any], password_of: str | None) -> Callable[[], object]:
        self.work.append(check)
        self.passwords_of.append(password_of)
        return lambda: self.dropped.append(check)

    def _revoke(self, authenticator: SaslServerAuthenticator, reason: str) -> None:
        self.disconnected.append((authenticator, reason))
        authenticator.revoke(reason)

    def pass_time(self, ms: int) -> None:
        """Let time pass, and run the timers at its end."""
        self.clock.advance_ms(ms)
        self.services.scheduler.run_due()

    @property
    def ended(self) -> str | None:
        """Return why the session was ended; None if it was not."""
        return dict(self.disconnected).get(self.authenticator)

    def _note_resumed(self) -> None:
        self.resumed += 1

    def versions(self, version: int = 3, name: str = "playbook") -> tuple[AuthenticationStep, Any]:
        return self.request(ApiVersionsRequest(name, "1.0"), version)

    def handshake(self, mechanism: str = "SCRIPTED", version: int = 1) -> tuple[AuthenticationStep, Any]:
        return self.request(SaslHandshakeRequest(mechanism), version)

    def token(self, token: bytes, version: int = 2) -> tuple[AuthenticationStep, Any]:
        return self.request(SaslAuthenticateRequest(token), version)

    def raw(self, token: bytes) -> AuthenticationStep:
        return self.settle(self.authenticator.receive(token))
