"""`KafkaChannel`: a transport layer and an authenticator, with the states of one connection.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import enum
import logging
from typing import Final

from klamm.api.authentication import Authenticator
from klamm.api.context import Address, ConnectionContext
from klamm.api.gates import ConnectionGate
from klamm.api.transport import TransportLayer
from klamm.logs.escaping import LogFields, clipped, escape_control_characters
from klamm.network.answer_queue import AnswerQueue
from klamm.network.poller import READ, WRITE
from klamm.network.receive import NetworkReceive
from klamm.network.send import NetworkSend
from klamm.requests.pending import PendingRequest
from klamm.runtime.transitions import IllegalTransitionError

log = logging.getLogger("klamm.network")


class ChannelState(enum.Enum):
    """The state of a connection: Kafka's `ChannelState` from a server's view.

    ```
                                     ┌──► FINISHING ──┐ (not a request: earlier answers are to be sent)
                                     │        ▼       │
    HANDSHAKE ──► AUTHENTICATE ──► READY ──► CLOSING ─┴► CLOSED
        │              │             │     (disconnected, received frames left)
        ▼              ▼             ▼ (re-authentication)
       AUTHENTICATION_FAILED ──(delay)──► CLOSED            (any state may end there)
    ```
    In FINISHING and CLOSING no bytes are read. FINISHING still sends answers, CLOSING does not.
    """

    # Members are looked up for every request; `Enum.__hash__` is Python code.
    __hash__ = object.__hash__

    HANDSHAKE = enum.auto()
    AUTHENTICATE = enum.auto()
    READY = enum.auto()
    AUTHENTICATION_FAILED = enum.auto()
    FINISHING = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


_S = ChannelState
CHANNEL_TRANSITIONS: Final[dict[ChannelState, frozenset[ChannelState]]] = {
    _S.HANDSHAKE: frozenset({_S.AUTHENTICATE, _S.AUTHENTICATION_FAILED, _S.CLOSED}),
    _S.AUTHENTICATE: frozenset({_S.READY, _S.AUTHENTICATION_FAILED, _S.CLOSED}),
    _S.READY: frozenset({_S.AUTHENTICATION_FAILED, _S.FINISHING, _S.CLOSING, _S.CLOSED}),
    _S.AUTHENTICATION_FAILED: frozenset({_S.CLOSED}),
    _S.FINISHING: frozenset({_S.AUTHENTICATION_FAILED, _S.CLOSING, _S.CLOSED}),
    _S.CLOSING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


class MuteState(enum.Enum):
    """The reason why a channel's next request waits: Kafka's `ChannelMuteState` (KIP-219).

    ```
    NOT_MUTED ─► MUTED ─► MUTED_AND_RESPONSE_PENDING ─► MUTED ─► NOT_MUTED
                                  │  ▲                    ▲
                throttle started  ▼  │ throttle ended     │ throttle ended
           MUTED_AND_THROTTLED_AND_RESPONSE_PENDING ─► MUTED_AND_THROTTLED
                                        response sent
    ```
    A channel is not muted for a request that the processor's thread answers at once.
    """

    # Members are looked up for every request; `Enum.__hash__` is Python code.
    __hash__ = object.__hash__

    NOT_MUTED = enum.auto()
    MUTED = enum.auto()
    MUTED_AND_RESPONSE_PENDING = enum.auto()
    MUTED_AND_THROTTLED = enum.auto()
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = enum.auto()


class MuteEvent(enum.Enum):
    """An event that changes a `MuteState`: Kafka's `ChannelMuteEvent`, and two more for muting and unmuting."""

    # Members are looked up for every request; `Enum.__hash__` is Python code.
    __hash__ = object.__hash__

    MUTE = enum.auto()
    REQUEST_RECEIVED = enum.auto()
    RESPONSE_SENT = enum.auto()
    THROTTLE_STARTED = enum.auto()
    THROTTLE_ENDED = enum.auto()
    UNMUTE = enum.auto()


_M, _E = MuteState, MuteEvent
MUTE_TRANSITIONS: Final[dict[tuple[MuteState, MuteEvent], MuteState]] = {
    (_M.NOT_MUTED, _E.MUTE): _M.MUTED,
    (_M.MUTED, _E.REQUEST_RECEIVED): _M.MUTED_AND_RESPONSE_PENDING,
    (_M.MUTED, _E.THROTTLE_STARTED): _M.MUTED_AND_THROTTLED,
    (_M.MUTED_AND_RESPONSE_PENDING, _E.RESPONSE_SENT): _M.MUTED,
    (_M.MUTED_AND_RESPONSE_PENDING, _E.THROTTLE_STARTED): _M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (_M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _E.RESPONSE_SENT): _M.MUTED_AND_THROTTLED,
    (_M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _E.THROTTLE_ENDED): _M.MUTED_AND_RESPONSE_PENDING,
    (_M.MUTED_AND_THROTTLED, _E.THROTTLE_ENDED): _M.MUTED,
    (_M.MUTED, _E.UNMUTE): _M.NOT_MUTED,
}


class KafkaChannel:
    """One connection, owned by one processor thread.

    - `receive` holds incoming bytes, `send` the outgoing answer (one at a time).
    - Requests are taken from `receive.frames` only while `can_process` is True, so that answers keep their order.
    - `in_flight` is the request that is executed on another thread, or waits. `sending` are the requests whose answers
      `send` holds. `answering` is True if `send` ends with the answer to a request that was in flight.
    - `accepted_from` is the peer that the gates have decided about. Until `admitted`, only a proxy's header is read.
    - `migrating` is True if the channel will move to another processor when no request or response is in flight.
    - `last_bytes` are sent at the end of FINISHING.
    - `requests` is the number of requests that have started.
    - `busy_ns` is the time of the processor's thread that the channel has used. `network_ns` is the part for reading
      and writing since the last request; it is counted only for throttles. `handler_ns` is the time of handler threads
      that answered requests have used.
    """

    __slots__ = (
        "accepted_from",
        "admitted",
        "answering",
        "answers",
        "authenticator",
        "busy_ns",
        "close_reason",
        "connection",
        "descriptor",
        "gates",
        "handler_ns",
        "in_flight",
        "interest",
        "last_active_ns",
        "last_bytes",
        "may_buffer",
        "migrating",
        "mute_state",
        "network_ns",
        "receive",
        "requests",
        "send",
        "sending",
        "session_expires_ns",
        "state",
        "transport",
        "waiting_for_turn",
    )

    def __init__(
        self,
        descriptor: int,
        transport: TransportLayer,
        connection: ConnectionContext,
        receive: NetworkReceive,
        gates: tuple[ConnectionGate, ...],
        accepted_from: Address,
    ) -> None:
        self.descriptor = descriptor
        self.transport = transport
        self.connection = connection
        self.receive = receive
        self.requests = 0
        self.gates = gates
        self.accepted_from = accepted_from
        self.may_buffer = False
        self.admitted = False
        self.authenticator: Authenticator | None = None
        self.state = ChannelState.HANDSHAKE
        self.mute_state = MuteState.NOT_MUTED
        self.send: NetworkSend | None = None
        self.in_flight: PendingRequest | None = None
        self.interest = READ
        self.last_active_ns = 0
        self.network_ns = 0
        self.session_expires_ns: int | None = None
        self.sending: list[PendingRequest] | None = None
        self.answering = False
        self.answers: AnswerQueue | None = None
        self.close_reason = ""
        self.last_bytes = b""
        self.waiting_for_turn = False
        self.migrating = False
        self.busy_ns = self.handler_ns = 0

    @property
    def can_process(self) -> bool:
        """Return True if the next received frame may be processed."""
        return self.send is None and self.mute_state is MuteState.NOT_MUTED

    @property
    def may_read(self) -> bool:
        """Return True if more bytes may be read from the transport."""
        return (
            self.can_process
            and not self.waiting_for_turn
            and not self.receive.waiting_for_memory
            and self.state is not ChannelState.FINISHING
        )

    @property
    def has_requests(self) -> bool:
        """Return True if requests wait to be processed, or are being answered.

        If the client has disconnected, a request that waits for data or time does not count, because the client may
        have chosen a long waiting time.
        """
        if self.receive.frames or self.waiting_for_turn:
            return True
        request = self.in_flight
        if request is None:
            return False
        return self.state is not ChannelState.CLOSING or self.answers is not None or not request.waits

    @property
    def has_answers(self) -> bool:
        """Return True if answers wait to be sent, or a step of a re-authentication needs an answer."""
        return (
            self.send is not None
            or self.mute_state is MuteState.MUTED
            or (self.answers is not None and bool(self.answers.pending))
        )

    @property
    def held_bytes(self) -> int:
        """Return the bytes of requests and answers that the channel holds in memory. Any thread may call this."""
        send, answers, request = self.send, self.answers, self.in_flight
        held_bytes = self.receive.held_bytes + (send.held_bytes if send is not None else 0)
        if answers is not None:
            return held_bytes + answers.held_bytes
        return held_bytes + (request.size_bytes if request is not None else 0)

    def admit(self, transport: TransportLayer) -> None:
        """Use this transport from now on, because the gates have admitted the client."""
        self.admitted = True
        self.transport = transport
        self.may_buffer = transport.may_buffer

    @property
    def is_quiet(self) -> bool:
        """Return True if the channel may migrate: it has no request, no answer, no throttle and no wait.

        Bytes of the next request may have arrived; they migrate with the channel.
        """
        return (
            self.state is ChannelState.READY
            and self.can_process
            and self.answers is None
            and self.in_flight is None
            and not self.waiting_for_turn
            and not self.receive.waiting_for_memory
        )

    def transition_to(self, state: ChannelState) -> None:
        """Change the state. Raises IllegalTransitionError for a transition that is not in the table."""
        if state not in CHANNEL_TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"channel {self.connection.connection_id}: {self.state} to {state}")
        self.state = state

    def on_mute_event(self, event: MuteEvent) -> None:
        """Change the mute state. Raises IllegalTransitionError for a transition that is not in the table."""
        state = MUTE_TRANSITIONS.get((self.mute_state, event))
        if state is None:
            raise IllegalTransitionError(f"channel {self.connection.connection_id}: {event} while {self.mute_state}")
        self.mute_state = state

    def request_received(self, request: PendingRequest) -> None:
        """Mute the channel, because a request runs on another thread or waits: its response must be sent first."""
        self.in_flight = request
        self.on_mute_event(MuteEvent.MUTE)
        self.on_mute_event(MuteEvent.REQUEST_RECEIVED)

    def response_sent(self) -> None:
        """Note that the answer has been sent, or that the request has none."""
        self.in_flight = None
        self.on_mute_event(MuteEvent.RESPONSE_SENT)
        self.maybe_unmute()

    def maybe_unmute(self) -> None:
        """Unmute the channel if no response is pending and no throttle is active."""
        if self.mute_state is MuteState.MUTED:
            self.on_mute_event(MuteEvent.UNMUTE)

    @property
    def wanted_interest(self) -> int:
        """Return the events that the poller should watch for."""
        if self.send is not None:
            return WRITE
        return READ if self.may_read else 0


def describe(channel: KafkaChannel) -> LogFields:
    """Return the fields with which log lines about a channel start."""
    connection = channel.connection
    principal = clipped(escape_control_characters(str(connection.principal)))
    return LogFields(listener=connection.listener.name, connection_id=connection.connection_id, principal=principal)


def close_transport(channel: KafkaChannel) -> None:
    """Close the transport of a channel, and log its exceptions."""
    try:
        channel.transport.close()
    except Exception:
        log.exception("%s: transport.close failed", describe(channel))
