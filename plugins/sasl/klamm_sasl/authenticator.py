"""`SaslServerAuthenticator`: authenticates one client by SASL. Follows Kafka's class of that name.

The connection's processor calls it on its thread, except `revoke`, which any thread may call, and `_work`, which runs
on a thread for checks.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from klamm import (
    ANONYMOUS,
    AuthenticationStep,
    Authenticator,
    Buffer,
    ConnectionContext,
    ErrorCode,
    KafkaPrincipal,
    SessionRegistry,
    TransportLayer,
    clipped,
)
from klamm.metrics import Counter
from klamm.runtime import IllegalTransitionError
from klamm.sasl import (
    SaslAuthenticationError,
    SaslChallenge,
    SaslError,
    SaslMechanism,
    SaslProof,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.error_responses import error_response
from klamm.wire.headers import decode_request_header, response_header_size
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.primitives import TooManyElementsError, WireError, decode_limited
from klamm_sasl.credential_checks import Check
from klamm_sasl.states import SaslState, moved

log = logging.getLogger("klamm.sasl")

_MIN_REAUTH_INTERVAL_NS: Final = 1_000_000_000
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
_COMPLETE: Final = SaslState.COMPLETE
_NOT_A_CLIENT: Final = (
    "the first request is neither ApiVersions nor SaslHandshake: "
    "a client without SASL, of another protocol, or older than KIP-43"
)
_MAX_FRAME_BYTES: Final = 8 * 1024
"""Largest frame in bytes before authentication. `sasl.server.max.receive.size` limits frames with tokens instead."""
_MAX_ELEMENTS: Final = 1000
"""Maximum number of array elements and tagged fields in one frame before authentication."""
_LASTING: Final = SaslProof(None, lambda: None)
"""The proof of a session that only its time limit ends."""


class AuthenticationFailedError(Exception):
    """Raised if a client failed to authenticate. The text goes to the log, and the frames in `send` to the client."""

    def __init__(self, reason: str, send: Sequence[Buffer] = ()) -> None:
        super().__init__(reason)
        self.send = send


class _Request:
    """A request frame with its parsed header."""

    __slots__ = ("api_key", "body_offset", "correlation_id", "frame", "version")

    def __init__(self, frame: Buffer) -> None:
        self.frame = frame
        self.api_key, self.version, self.correlation_id, _, self.body_offset = decode_request_header(frame)

    @property
    def name(self) -> str:
        """Kafka's name of the API, e.g. METADATA."""
        return ApiKey(self.api_key).name if self.api_key in ApiKey._value2member_map_ else f"key {self.api_key}"

    def answer(self, response: Any) -> bytes:
        """Return the frame with a response to this request."""
        head = self.correlation_id.to_bytes(4, "big", signed=True)
        body: bytes = response.encode(self.version)
        return head + (b"\0" if response_header_size(self.api_key, self.version) == 5 else b"") + body


class SaslServerAuthenticator(Authenticator):
    """The authentication of one client. `SaslState` has the states, and Kafka's class the answers in each state.

    A re-authentication on the same connection (KIP-368) uses the same object. `submit(check, password_of)` runs a check
    on a thread for checks, see `CredentialChecks.submit`. `cannot_reauthenticate` counts clients that are too old to
    re-authenticate.
    """

    def __init__(
        self,
        connection: ConnectionContext,
        transport: TransportLayer,
        mechanisms: Mapping[str, SaslMechanism],
        max_reauth_ms: Mapping[str, int],
        cannot_reauthenticate: Counter,
        submit: Callable[[Check, str | None], Callable[[], object] | None],
        sessions: SessionRegistry[Any] | None = None,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._cannot_reauthenticate = cannot_reauthenticate
        self._submit = submit
        self._sessions = sessions
        self._drop: Callable[[], object] | None = None
        self._run: Callable[[], SaslChallenge | SaslSuccess] | None = None
        self._clock = connection.listener.services.clock
        self._state = SaslState.INITIAL_REQUEST
        self._principal = ANONYMOUS
        self._mechanism = self._refused_mechanism = self._revoked = ""
        self._server: SaslServer | None = None
        self._with_headers = False
        self._request: _Request | None = None
        self._outcome: Callable[[], SaslChallenge | SaslSuccess] | None = None
        self._expires_ns: int | None = None
        self._reauthentication_began_ns = 0
        self._authenticated_before = False
        self._knows_sessions = False

    @property
    def state(self) -> SaslState:
        """The state of the authentication."""
        return self._state

    @property
    def complete(self) -> bool:
        return self._state is _COMPLETE

    @property
    def principal(self) -> KafkaPrincipal:
        return self._principal

    @property
    def session_expires_ns(self) -> int | None:
        return self._expires_ns

    def reauthenticates(self, api_key: int) -> bool:
        if self._state is not _COMPLETE:
            return True
        # As in Kafka, a SaslHandshake goes to its handler if the session has no end, or if the last SaslHandshake was
        # less than a second ago.
        if api_key != _HANDSHAKE or self._expires_ns is None:
            return False
        now_ns = self._clock.monotonic_ns()
        began_ns = self._reauthentication_began_ns
        return not began_ns or now_ns - began_ns >= _MIN_REAUTH_INTERVAL_NS

    def receive(self, frame: Buffer) -> AuthenticationStep:
        try:
            if self._state is _COMPLETE:
                self._reauthentication_began_ns = self._clock.monotonic_ns()
                if self._sessions is not None:
                    self._sessions.renewing(self)
                self._move(SaslState.REAUTH_PROCESS_HANDSHAKE)
            return self._receive(frame)
        except AuthenticationFailedError as error:
            return self._fail(str(error), error.send)
        except WireError as error:
            first = self._state is SaslState.INITIAL_REQUEST
            return self._fail(f"{_NOT_A_CLIENT if first else 'a frame cannot be parsed'}: {error}")

    def resume(self) -> AuthenticationStep:
        outcome, self._outcome, self._drop = self._outcome, None, None
        assert outcome is not None
        try:
            return self._answer(self._evaluated(outcome))
        except AuthenticationFailedError as error:
            return self._fail(str(error), error.send)

    def abandoned(self) -> str | None:
        server = self._server
        if server is None or not server.refusal:
            return None
        self._connection.attempted_principal = _claimed_by(server)
        self._end_exchange()
        return f"mechanism={self._mechanism} {server.refusal}"

    def close(self) -> None:
        self._end_exchange()
        self._request = None
        if self._sessions is not None:
            self._sessions.remove(self)

    def _end_exchange(self) -> None:
        # A queued check would keep its data, e.g. a large token, until a thread runs it. So drop the data now.
        self._run = None
        server, self._server = self._server, None
        drop, self._drop = self._drop, None
        if drop is not None:
            drop()
        if server is not None:
            server.close()

    def revoke(self, reason: str) -> None:
        """End the session. Any thread may call it. Frames that have arrived, and a re-authentication, are refused."""
        self._revoked = reason
        # Set it first: when the session ends, a refused frame reads the reason from here.
        self._transport.end_session(reason)
        with contextlib.suppress(IllegalTransitionError):
            self._move(SaslState.REVOKED)

    # ---- requests

    def _receive(self, frame: Buffer) -> AuthenticationStep:
        state = self._state
        if state is SaslState.AUTHENTICATE:
            return self._receive_token(frame)
        if state is SaslState.REAUTH_BAD_MECHANISM:
            raise AuthenticationFailedError(
                f"re-authentication of {self._mechanism} may not use the mechanism {self._refused_mechanism}"
            )
        if state is SaslState.REVOKED:
            raise AuthenticationFailedError(f"the session has ended: {self._revoked}")
        if state in (SaslState.FAILED, SaslState.EVALUATING):
            raise IllegalTransitionError(f"a frame in state {state.name}")
        if len(frame) > _MAX_FRAME_BYTES:
            raise AuthenticationFailedError(f"a frame of {len(frame)} bytes before authentication")
        request = _Request(frame)
        if request.api_key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
            if state is SaslState.INITIAL_REQUEST:
                raise AuthenticationFailedError(f"{_NOT_A_CLIENT}: {request.name}")
            raise AuthenticationFailedError(f"{request.name} before authentication")
        if state is SaslState.INITIAL_REQUEST:
            self._move(SaslState.HANDSHAKE_OR_VERSIONS_REQUEST)
        if request.api_key == ApiKey.API_VERSIONS:
            return self._api_versions(frame)
        return self._handshake(request)

    def _api_versions(self, frame: Buffer) -> AuthenticationStep:
        if self._state is not SaslState.HANDSHAKE_OR_VERSIONS_REQUEST:
            raise AuthenticationFailedError(f"ApiVersions in state {self._state.name}")
        try:
            answer = self._connection.listener.answer_api_versions(frame, self._connection)
        except ValueError as error:
            raise AuthenticationFailedError(str(error)) from error
        # After an error response, e.g. UNSUPPORTED_VERSION, the client may send ApiVersions again.
        if int.from_bytes(answer[4:6], "big", signed=True) == ErrorCode.NONE:
            self._move(SaslState.HANDSHAKE_REQUEST)
        return AuthenticationStep([answer])

    def _handshake(self, request: _Request) -> AuthenticationStep:
        self._request = None
        name = SaslHandshakeRequest.decode(request.version, request.frame, request.body_offset).mechanism
        self._with_headers = request.version >= 1
        mechanism = self._mechanisms.get(name)
        known = list(self._mechanisms)
        if mechanism is None:
            response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, known)
            raise AuthenticationFailedError(f"unsupported SASL mechanism {clipped(name)!r}", [request.answer(response)])
        answer = request.answer(SaslHandshakeResponse(ErrorCode.NONE, known))
        if self._authenticated_before and name != self._mechanism:
            self._refused_mechanism = name
            self._move(SaslState.REAUTH_BAD_MECHANISM)
            return AuthenticationStep([answer])
        self._mechanism = self._connection.sasl_mechanism = name
        self._end_exchange()
        self._server = self._evaluated(lambda: mechanism.server(self._connection, self._transport))
        self._move(SaslState.AUTHENTICATE)
        return AuthenticationStep([answer])

    def _receive_token(self, frame: Buffer) -> AuthenticationStep:
        server = self._server
        assert server is not None
        self._request = None
        if not self._with_headers:
            token = bytes(frame)
        else:
            request = self._request = _Request(frame)
            if request.api_key != ApiKey.SASL_AUTHENTICATE:
                raise _unexpected(request)
            token = _decoded(request, SaslAuthenticateRequest).auth_bytes
            self._knows_sessions = self._knows_sessions or request.version > 0
        result = self._evaluated(lambda: server.evaluate(token))
        if not isinstance(result, SaslTask):
            return self._answer(result)
        self._move(SaslState.EVALUATING)
        return AuthenticationStep(pending=lambda resume: self._begin(result, resume))

    # ---- outcomes

    def _begin(self, task: SaslTask, resume: Callable[[], None]) -> None:
        self._run = task.run
        if task.submit is not None:
            task.submit(lambda: self._work(resume))
        else:
            self._drop = self._submit(lambda: self._work(resume), task.password_of)

    def _work(self, resume: Callable[[], None]) -> bool | None:
        """Compute the outcome of a check and store it for `resume`. A thread for checks calls this."""
        run, self._run = self._run, None
        if run is None:
            # The channel was closed meanwhile.
            return None
        proved = None
        try:
            result = run()
        except Exception as error:
            failure = error

            def fail() -> SaslChallenge | SaslSuccess:
                raise failure

            self._outcome = fail
            proved = False if isinstance(error, SaslError) else None
        else:
            self._outcome = lambda: result
            proved = isinstance(result, SaslSuccess) or None
        resume()
        return proved

    def _evaluated(self, evaluate: Callable[[], Any]) -> Any:
        """Call `evaluate`. Its exceptions become AuthenticationFailedError with the response that Kafka sends."""
        try:
            return evaluate()
        except SaslAuthenticationError as error:
            raise self._refused(error.reason, str(error)) from error
        except SaslError as error:
            raise self._refused(str(error), _invalid_credentials(self)) from error
        except Exception as error:
            connection, failed = self._connection, "listener=%s connection_id=%s: SASL mechanism %s failed"
            log.exception(failed, connection.listener.name, connection.connection_id, self._mechanism)
            reason = f"mechanism {self._mechanism} failed: {error!r}"
            raise self._refused(reason, _invalid_credentials(self)) from error

    def _refused(self, reason: str, message: str) -> AuthenticationFailedError:
        reason = f"mechanism={self._mechanism} {reason}"
        response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        return AuthenticationFailedError(reason, [] if self._request is None else [self._request.answer(response)])

    def _answer(self, result: SaslChallenge | SaslSuccess) -> AuthenticationStep:
        lifetime_ms = 0
        complete = isinstance(result, SaslSuccess)
        if isinstance(result, SaslSuccess):
            if self._authenticated_before and result.principal != self._principal:
                message = _changed_principal(self._principal, result.principal)
                raise self._refused(message, message)
            lifetime_ms = self._start_session(result)
            self._move(_COMPLETE)
            if not self._authenticated_before and not self._knows_sessions:
                self._cannot_reauthenticate.add()
            self._authenticated_before = True
            self._end_exchange()
        elif self._state is SaslState.EVALUATING:
            self._move(SaslState.AUTHENTICATE)
        if self._request is None:
            return AuthenticationStep([result.token], complete=complete)
        response = SaslAuthenticateResponse(auth_bytes=result.token, session_lifetime_ms=lifetime_ms)
        return AuthenticationStep([self._request.answer(response)], complete=complete)

    def _start_session(self, result: SaslSuccess) -> int:
        """Record the client's identity and the end of its session. Return the session's lifetime in milliseconds.

        All times come from one reading of the clocks.
        """
        self._principal = result.principal
        wall_ms, now_ns = self._clock.wall_ms(), self._clock.monotonic_ns()
        lifetime_ms = _lifetime_ms(result, self._max_reauth_ms.get(self._mechanism, 0), wall_ms)
        self._expires_ns = None if lifetime_ms is None else now_ns + lifetime_ms * 1_000_000
        self._register_session(result, wall_ms, now_ns)
        return lifetime_ms or 0

    def _register_session(self, result: SaslSuccess, wall_ms: int, now_ns: int) -> None:
        if self._sessions is None:
            return
        proof = result.proof or _LASTING
        # As in Kafka, a session that only `connections.max.reauth.ms` limits ends with the next request.
        token_ends_ns = None if result.expires_ms is None else now_ns + (result.expires_ms - wall_ms) * 1_000_000
        changed = self._sessions.add(self, proof.key, proof.revoked_because, token_ends_ns)
        if changed is not None:
            raise self._refused(
                f"{changed} while the client authenticated",
                _invalid_credentials(self),
            )

    def _fail(self, reason: str, send: Sequence[Buffer] = ()) -> AuthenticationStep:
        self._connection.attempted_principal = _claimed_by(self._server)
        self._move(SaslState.FAILED)
        self._end_exchange()
        return AuthenticationStep(send, failed=reason)

    def _move(self, state: SaslState) -> None:
        self._state = moved(self._state, state)


def _invalid_credentials(authenticator: SaslServerAuthenticator) -> str:
    which = f"{'re-' * authenticator._authenticated_before}authentication"
    mechanism = authenticator._mechanism
    return f"Authentication failed during {which} due to invalid credentials with SASL mechanism {mechanism}"


def _changed_principal(before: KafkaPrincipal, after: KafkaPrincipal) -> str:
    names = f"{before.type}.{before.name}: {after.type}.{after.name}"
    return f"Cannot change principals during re-authentication from {names}"


def _claimed_by(server: SaslServer | None) -> str:
    """Return the principal that a client claimed in a failed exchange."""
    return f"User:{server.claimed}" if server is not None and server.claimed else ""


def _decoded(request: _Request, message_class: Any) -> Any:
    decode = message_class.decode
    return decode_limited(decode, request.version, request.frame, request.body_offset, _MAX_ELEMENTS)


def _unexpected(request: _Request) -> AuthenticationFailedError:
    message = f"Unexpected Kafka request of type {request.name} during SASL authentication."
    if request.api_key not in ApiKey._value2member_map_ or len(request.frame) > _MAX_FRAME_BYTES:
        # A response to a large request costs as much as the request, so send none.
        return AuthenticationFailedError(message)
    module = load(request.api_key)
    try:
        body = _decoded(request, vars(module)[f"{module.NAME}Request"])
    except TooManyElementsError:
        return AuthenticationFailedError(message)
    response = error_response(body, request.version, ErrorCode.ILLEGAL_SASL_STATE, message)
    return AuthenticationFailedError(message, [request.answer(response)] if response is not None else ())


def _lifetime_ms(result: SaslSuccess, max_reauth_ms: int, now_ms: int) -> int | None:
    """Return the lifetime of a session in milliseconds; None if the session has no end."""
    limits_ms = [] if result.expires_ms is None else [result.expires_ms - now_ms]
    if max_reauth_ms > 0:
        limits_ms.append(max_reauth_ms)
    return max(0, min(limits_ms)) if limits_ms else None
