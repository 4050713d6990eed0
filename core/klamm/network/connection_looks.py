"""`ConnectionLook`: one description of all connections of a processor, made on the processor's own thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from typing import Any, Final, Protocol

from klamm.logs.escaping import clipped
from klamm.network.channel import ChannelState, KafkaChannel, MuteState
from klamm.requests.pending import PendingRequest, RequestStage
from klamm.runtime.clock import Clock

_CONNECTIONS_A_TURN: Final = 100
_SETUP: Final = frozenset({ChannelState.HANDSHAKE, ChannelState.AUTHENTICATE})
_THROTTLED: Final = frozenset(
    {MuteState.MUTED_AND_THROTTLED, MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING},
)


class OneAtATime:
    """A lock that lets only one look take place, because a look uses memory for each connection and processor time."""

    def __init__(self) -> None:
        # Held while a look takes place.
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Wait until no other look takes place. Raises TimeoutError."""
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError("another look takes place: try again")
        try:
            yield
        finally:
            self._lock.release()


class HasChannels(Protocol):
    """The channels of a selector."""

    channels: dict[int, KafkaChannel]
    closing: set[KafkaChannel]


class ConnectionLook:
    """A look at the connections of one processor. Another thread creates it and waits for its end.

    The processor's thread calls `step` once in each turn. A step describes a fixed number of connections, so that
    clients wait only briefly even if there are many.
    """

    def __init__(self, processor: int, clock: Clock) -> None:
        self._processor = processor
        self._clock = clock
        self._left: list[KafkaChannel] | None = None
        self._rows: list[dict[str, Any]] = []
        self._done = threading.Event()
        self._given_up = False

    def step(self, selector: HasChannels) -> bool:
        """Describe some connections; return True after the last one."""
        if self._given_up:
            return True
        if self._left is None:
            self._left = [*selector.channels.values(), *selector.closing]
        now_ns = self._clock.monotonic_ns()
        for _ in range(min(_CONNECTIONS_A_TURN, len(self._left))):
            channel = self._left.pop()
            if channel.state is not ChannelState.CLOSED:
                self._rows.append(described(channel, self._processor, now_ns))
        if self._left:
            return False
        self._done.set()
        return True

    def wait(self, until_s: float) -> list[dict[str, Any]] | None:
        """Return the descriptions; None if they are not complete at `until_s` of the monotonic clock."""
        if self._done.wait(max(0.0, until_s - time.monotonic())):
            return self._rows
        # The processor spends no further turn on this look.
        self._given_up = True
        return None


def described(channel: KafkaChannel, processor: int, now_ns: int) -> dict[str, Any]:
    """Return the description of a connection, as a JSON object."""
    connection, send = channel.connection, channel.send
    return {
        "id": connection.connection_id,
        "listener": connection.listener.name,
        "processor": processor,
        "client_address": str(connection.client_address),
        "client_id": clipped(connection.client_id or ""),
        "software": f"{connection.client_software_name} {connection.client_software_version}",
        "principal": clipped(str(connection.principal)),
        "state": channel.state.name,
        "mute_state": channel.mute_state.name,
        "waits_for": waits_for(channel),
        "age_ms": _ms(now_ns - connection.opened_ns),
        "quiet_ms": _ms(now_ns - channel.last_active_ns),
        "requests": channel.requests,
        "received_bytes": connection.received_bytes,
        "sent_bytes": connection.sent_bytes,
        "processor_ms": _ms(channel.busy_ns),
        "handler_ms": _ms(channel.handler_ns + running_ns(channel, now_ns)),
        "held_bytes": channel.held_bytes,
        "unsent_bytes": send.unsent_bytes if send is not None else 0,
        **_in_flight(channel, now_ns),
    }


def running_ns(channel: KafkaChannel, now_ns: int) -> int:
    """Return the time that a handler has spent on the request in flight. Metrics count it when the request ends.

    Any thread may call this. The time is 0 for a request that is not timed.
    """
    request = channel.in_flight
    if request is None or request.inline or request.stage is not RequestStage.RUNNING:
        return 0
    start_ns = request.handler_start_ns
    return max(0, (request.local_end_ns or now_ns) - start_ns) if start_ns else 0


def waits_for(channel: KafkaChannel) -> str:
    """Return a word for the reason why a connection waits; empty if it waits for its client's next request."""
    request = channel.in_flight
    if channel.send is not None:
        return "client reads"
    if channel.state in _SETUP:
        return "set-up"
    if channel.mute_state in _THROTTLED:
        return "throttle"
    if channel.receive.waiting_for_memory:
        return "memory"
    if request is not None:
        return _stage_of(request)
    return "turn" if channel.waiting_for_turn or channel.receive.frames else ""


def _stage_of(request: PendingRequest) -> str:
    if request.stage is RequestStage.QUEUED:
        return "queue"
    if request.stage is not RequestStage.RUNNING:
        return "processor"
    return "answer" if request.parked or request.inline else "handler"


def _in_flight(channel: KafkaChannel, now_ns: int) -> dict[str, Any]:
    request = channel.in_flight
    if request is None and channel.sending:
        request = channel.sending[0]
    count = len(channel.answers.pending) if channel.answers is not None else int(request is not None)
    if request is None:
        return {"in_flight": count, "api": "", "in_flight_ms": 0}
    # If requests are not timed, the arrival of the last bytes counts as the arrival of the request.
    since_ns = request.received_ns or channel.last_active_ns
    return {"in_flight": count, "api": request.context.api_name, "in_flight_ms": _ms(now_ns - since_ns)}


def _ms(nanoseconds: int) -> float:
    return round(max(0, nanoseconds) / 1e6, 3)


def find_channel(channels: Collection[KafkaChannel], connection_id: str) -> KafkaChannel | None:
    """Return the channel with that connection id; None if there is none."""
    return next((one for one in channels if one.connection.connection_id == connection_id), None)
