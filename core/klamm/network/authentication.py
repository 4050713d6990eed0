"""`ChannelAuthentication`, which brings a channel to READY, and re-authenticates it (KIP-368).

It runs on the processor's thread. If authentication fails, the client gets the error response, and the channel is
closed after a delay (KIP-306).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Protocol

from klamm.api.authentication import AuthenticationStep
from klamm.api.gates import Delay, Refuse
from klamm.api.transport import HandshakeError
from klamm.logs.escaping import clipped, escape_control_characters
from klamm.network.admission import (
    describe_refusal,
    notify_authenticated,
    notify_authentication_failed,
    notify_identified,
)
from klamm.network.channel import ChannelState, KafkaChannel, MuteEvent, describe
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.pending import InvalidRequestError
from klamm.shared.principal import ANONYMOUS
from klamm.wire.chunks import Buffer, Chunk

log = logging.getLogger("klamm.network")

_SIZE: Final = Struct(">i")
SESSION_EXPIRED: Final = "the session has expired and was not renewed"
_REASON_CHARACTERS: Final = 1024
_NOT_READY_IN_TIME: Final = "not ready within connection_setup_timeout_ms"
_READY: Final = ChannelState.READY
_CLOSING: Final = ChannelState.CLOSING
_SERVED: Final = frozenset({_READY, ChannelState.FINISHING})


class ChannelOwner(Protocol):
    """The methods of `ChannelLifecycle` that `ChannelAuthentication` calls."""

    def advance(self, channel: KafkaChannel) -> None: ...

    def proceed(self, channel: KafkaChannel) -> None: ...

    def fail(self, channel: KafkaChannel, error: Exception) -> None: ...

    def close(self, channel: KafkaChannel, reason: str) -> None: ...

    def close_later(self, channel: KafkaChannel, delay_ns: int, reply: list[Chunk]) -> None: ...

    def resume_authentication_soon(self, channel: KafkaChannel) -> Callable[[], None]: ...


class ChannelAuthentication:
    """The authentication of one processor's channels. `ChannelLifecycle` calls it; a failure closes the channel."""

    def __init__(self, runtime: ListenerRuntime, selector: Selector, owner: ChannelOwner) -> None:
        self._listener = runtime.context
        self._authenticators = runtime.authenticators
        self._make_authenticator = runtime.authenticator
        self._observers = runtime.observers
        self._failures = runtime.failures
        self._failure_log = runtime.failure_log
        self._counts = runtime.counts
        self._max_request_bytes = runtime.limits.max_request_bytes
        self._request_limits = runtime.requests.limits
        self._failure_delay_ns = runtime.limits.failed_authentication_delay_ms * 1_000_000
        self._clock = runtime.clock
        self._selector = selector
        self._owner = owner

    def advance(self, channel: KafkaChannel) -> None:
        """Pass the channel's received frames to its authenticator, until authentication is complete or must wait."""
        if channel.authenticator is None:
            channel.connection.transport_details = channel.transport.details
            if self._authenticators is None:
                channel.connection.principal = channel.transport.principal
                self._become_ready(channel)
                return
            channel.authenticator = self._make_authenticator(channel.connection, channel.transport)
        authenticator, receive = channel.authenticator, channel.receive
        while not authenticator.complete:
            if not receive.frames or not channel.can_process:
                return
            frame = receive.frames.popleft()
            receive.release(len(frame))
            reply = self._take_step(channel, authenticator.receive(frame))
            if reply:
                self._selector.send(channel, reply)
        if channel.send is None:
            self._become_ready(channel)

    def intercept(self, channel: KafkaChannel, frame: Buffer) -> list[Chunk] | None:
        """Return the reply to a frame of a re-authentication on a READY channel, or None to serve the frame (KIP-368).

        Raises InvalidRequestError if the session has expired or was ended: the request then closes the channel, as in
        Kafka, and does not count as a failed authentication.
        """
        authenticator = channel.authenticator
        assert authenticator is not None
        if not authenticator.reauthenticates(int.from_bytes(frame[:2], "big", signed=True)):
            if self.has_expired(channel):
                raise InvalidRequestError(SESSION_EXPIRED)
            return None
        if ended := channel.transport.session_end:
            raise InvalidRequestError(f"session ended: {ended}")
        return self._take_step(channel, authenticator.receive(frame))

    def has_expired(self, channel: KafkaChannel) -> bool:
        """Return True if the session of a channel has expired without a renewal."""
        expires_ns = channel.session_expires_ns
        if expires_ns is None:
            return False
        if channel.transport.session_end:
            # A timer may have ended the session since this turn began.
            return self._clock.monotonic_ns() >= expires_ns
        return self._selector.now_ns > expires_ns

    def end_expired(self, channel: KafkaChannel) -> None:
        """Count and report that the session of a channel has expired. Called when the channel closes."""
        channel.session_expires_ns = None
        self._counts.expired.add()
        if self._observers is not None:
            self._observers.session_expired(channel.connection)

    def resume(self, channel: KafkaChannel) -> None:
        """Continue after a pending step whose outcome is known."""
        try:
            if channel.state is _CLOSING:
                self._owner.close(channel, channel.close_reason)
            elif channel.state is not ChannelState.CLOSED:
                self._resume(channel)
        except Exception as error:
            self._owner.fail(channel, error)

    def _resume(self, channel: KafkaChannel) -> None:
        assert channel.authenticator is not None
        channel.on_mute_event(MuteEvent.UNMUTE)
        reply = self._take_step(channel, channel.authenticator.resume())
        if reply:
            self._selector.send(channel, reply)
        if channel.state is ChannelState.AUTHENTICATE:
            self.advance(channel)
        self._owner.proceed(channel)

    def _take_step(self, channel: KafkaChannel, step: AuthenticationStep) -> list[Chunk]:
        """Apply the result of a step of an authentication or re-authentication; return the frames to send at once."""
        reply = with_sizes(step.send)
        if step.failed is not None:
            self._failures.count("authentication_failed")
            self._fail(channel, step.failed, reply)
            return []
        if step.pending is not None:
            channel.on_mute_event(MuteEvent.MUTE)
            self._selector.update_interest(channel)
            step.pending(self._owner.resume_authentication_soon(channel))
        elif step.complete and channel.state in _SERVED:
            self._take_over_session(channel)
            self._counts.reauthenticated.add()
            if self._observers is not None:
                self._observers.authenticated(channel.connection, again=True)
        return reply

    def _become_ready(self, channel: KafkaChannel) -> None:
        if channel.authenticator is not None:
            self._take_over_session(channel)
        channel.receive.max_size_bytes = self._max_request_bytes
        channel.receive.limits = self._request_limits
        channel.transition_to(_READY)
        self._selector.setup.done(channel)
        notify_authenticated(self._listener, channel.gates, channel.accepted_from)
        is_identified = channel.connection.principal is not ANONYMOUS
        if is_identified:
            notify_identified(self._listener, channel.gates, channel.accepted_from)
        if self._listener.security_protocol != "PLAINTEXT":
            self._counts.authenticated.add()
        if self._observers is not None:
            if channel.authenticator is not None or is_identified:
                self._observers.authenticated(channel.connection, again=False)
            self._observers.opened(channel.connection)
        if channel.receive.frames:
            self._owner.advance(channel)

    @staticmethod
    def _take_over_session(channel: KafkaChannel) -> None:
        assert channel.authenticator is not None
        channel.connection.principal = channel.authenticator.principal
        channel.session_expires_ns = channel.authenticator.session_expires_ns

    # ---- failures

    def _log(self, channel: KafkaChannel, level: int, message: str, *arguments: object) -> None:
        self._failure_log.log(channel.connection.client_address.host, level, message, *arguments)

    def fail_handshake(self, channel: KafkaChannel, error: HandshakeError) -> None:
        """Send the TLS alert after a failed handshake, and close after the delay for failed authentications.

        Kafka closes at once, so its peers may see a reset connection instead of the alert.
        """
        self._failures.count(error.reason)
        channel.connection.transport_details = error.details
        self._fail(channel, str(error), [])

    def refuse(self, channel: KafkaChannel, refusal: Refuse | Delay) -> None:
        """Close a channel because a gate does not admit the client of a proxy: at once, or after the gate's delay."""
        self._failures.count(refusal.reason)
        channel.close_reason = f"refused: {refusal.reason}"
        if self._observers is not None:
            self._observers.refused(channel.accepted_from, refusal.reason, describe_refusal(refusal))
        if isinstance(refusal, Refuse):
            line = "%s: refused: %s %s"
            self._log(channel, logging.INFO, line, describe(channel), refusal.reason, refusal.detail)
            self._owner.close(channel, channel.close_reason)
        else:
            self._owner.close_later(channel, refusal.delay_ms * 1_000_000, [])

    def time_out(self, channel: KafkaChannel) -> None:
        """Close a channel whose handshake and authentication have taken too long."""
        if channel.authenticator is not None and self.end_abandoned(channel):
            self._owner.close(channel, _NOT_READY_IN_TIME)
            return
        self._failures.count("timed_out")
        self._log(channel, logging.WARNING, "%s: closing connection: %s", describe(channel), _NOT_READY_IN_TIME)
        notify_authentication_failed(self._listener, channel.gates, channel.accepted_from)
        if self._observers is not None:
            self._observers.authentication_failed(channel.connection, _NOT_READY_IN_TIME, again=False)
        self._owner.close(channel, _NOT_READY_IN_TIME)

    def end_abandoned(self, channel: KafkaChannel) -> bool:
        """If a login has failed in an exchange that has not ended, record the failure and return True.

        Called when the channel closes. E.g. the login was refused, and the client has closed the connection instead of
        sending its last message.
        """
        assert channel.authenticator is not None
        try:
            reason = channel.authenticator.abandoned()
        except Exception:
            log.exception("%s: authenticator.abandoned failed", describe(channel))
            return False
        if reason is None:
            return False
        self.note_failure(channel, reason, again=channel.state in _SERVED or channel.state is _CLOSING)
        return True

    def note_failure(self, channel: KafkaChannel, reason: str, *, again: bool) -> None:
        """Record a failed authentication without closing the channel, e.g. a failed login at another server."""
        self._failures.count("authentication_failed")
        self._record_failure(channel, reason, again=again)
        notify_authentication_failed(self._listener, channel.gates, channel.accepted_from)

    def note_success(self, channel: KafkaChannel, *, again: bool) -> None:
        """Record a successful login at another server, to which the handler set forwards requests."""
        if again:
            self._counts.reauthenticated.add()
        else:
            notify_identified(self._listener, channel.gates, channel.accepted_from)
            # A TLS handshake with a certificate has already been counted.
            if self._listener.security_protocol == "PLAINTEXT":
                self._counts.authenticated.add()
        if self._observers is not None:
            self._observers.authenticated(channel.connection, again=again)

    def _record_failure(self, channel: KafkaChannel, reason: str, *, again: bool) -> str:
        reason = clipped(escape_control_characters(reason), _REASON_CHARACTERS)
        self._log(channel, logging.WARNING, "%s: authentication failed: %s", describe(channel), reason)
        (self._counts.failed_reauthentication if again else self._counts.failed_authentication).add()
        if self._observers is not None:
            self._observers.authentication_failed(channel.connection, reason, again=again)
        return reason

    def _fail(self, channel: KafkaChannel, reason: str, reply: list[Chunk]) -> None:
        again = channel.state in _SERVED or channel.state is _CLOSING
        reason = self._record_failure(channel, reason, again=again)
        if channel.state is _CLOSING:
            self._owner.close(channel, channel.close_reason)
            return
        self._selector.setup.done(channel)
        channel.transition_to(ChannelState.AUTHENTICATION_FAILED)
        notify_authentication_failed(self._listener, channel.gates, channel.accepted_from)
        channel.close_reason = f"authentication failed: {reason}"
        channel.on_mute_event(MuteEvent.MUTE)
        self._selector.update_interest(channel)
        self._owner.close_later(channel, self._failure_delay_ns, reply)


def with_sizes(frames: Sequence[Buffer]) -> list[Chunk]:
    """Return one chunk with all frames, each after its size; an empty list if there are no frames."""
    joined = b"".join(_SIZE.pack(len(frame)) + bytes(frame) for frame in frames)
    return [joined] if joined else []
