"""What a plugin implements: transports, authenticators, gates, throttles, observers, assigners, schedulers.

Each contract fits on a screen. A *provider's instance* (`Transport`, `AuthenticatorFactory`, `ConnectionGate` …) is
made once per listener with its settings, opened before the listener accepts, and closed if and only if `open`
returned. What it makes per connection (`TransportLayer`, `Authenticator`) lives on one processor thread and needs no
locks. Authorizers are in `klamm.security.authorizer`, handler sets in `klamm.api_set`.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from klamm.security.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from klamm.api_set import ApiHandler
    from klamm.context import Address, ConnectionContext, ListenerContext, RequestContext, ServerServices
    from klamm.wire.errors import KafkaError

Buffer: TypeAlias = bytes | bytearray | memoryview


class ListenerPart:
    """Lifecycle that all per-listener providers share."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def open(self, listener: ListenerContext) -> None:
        """Get ready. May block. Raising stops the start, with the provider's name and the cause."""

    def reload(self) -> None:
        """SIGHUP: read files again. Raising keeps what was there, and is logged."""

    def reconfigure(self, settings: Any) -> bool:
        """SIGHUP found other settings: take them, now, for what follows. False: they count from the next start.

        Raising keeps what was there, and is logged.
        """
        return False

    def close(self) -> None:
        """Give back what `open` took. Called exactly once if `open` returned."""


class Interest(IntFlag):
    """What a transport waits for; the values are epoll's, which every poller here speaks."""

    NONE = 0
    READ = 1
    WRITE = 4


WOULD_BLOCK: Final = 0
END_OF_STREAM: Final = -1


class HandshakeError(Exception):
    """The peer did something in the handshake that it may not; Kafka's `SslAuthenticationException`.

    `reason` is a metric label: few values, lower_snake_case. The message goes to the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class TransportLayer(ABC):
    """The bytes of one connection: Kafka's interface of that name, over a non-blocking socket.

    All calls come from the thread of the processor that owns the channel, but see `Transport.computes_handshake`. None
    blocks. An `OSError` means that the connection is lost; any other exception closes it too, and is logged with its
    traceback.
    """

    @abstractmethod
    def handshake(self) -> Interest:
        """Carry the handshake on; NONE once it is done, else what must become possible before the next call.

        Raises HandshakeError, which counts as failed authentication, when the peer is at fault.
        """

    @abstractmethod
    def read_into(self, buffer: memoryview) -> int:
        """Read at most `len(buffer)` bytes: how many, WOULD_BLOCK (0) or END_OF_STREAM (-1)."""

    @abstractmethod
    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Write what goes at once, in order; how many bytes went (0: would block). `chunks` is never empty.

        `more` says that further bytes follow at once, so that it is no use to send a packet of these alone.
        """

    @abstractmethod
    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Write up to `count` bytes of a file from `position`; how many went (0: would block)."""

    @property
    def has_buffered_data(self) -> bool:
        """Whether bytes wait inside the transport, so that the socket alone may never become readable again."""
        return False

    @property
    def principal(self) -> KafkaPrincipal:
        """The identity that the transport itself proves, e.g. by certificate; asked once the handshake is done."""
        return ANONYMOUS

    @property
    def details(self) -> Mapping[str, str]:
        """What logs and observers are told of it once the handshake is done, e.g. `tls_version`, `tls_cipher`."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Close the socket. Never raises, never blocks, may be called twice."""


class Transport(ListenerPart, ABC):
    """Makes a `TransportLayer` of each accepted socket."""

    security_protocol: str = "PLAINTEXT"
    """Kafka's name for the transport: PLAINTEXT or SSL."""
    computes_handshake: bool = False
    """Whether `TransportLayer.handshake` takes the processor longer than a request does, e.g. by cryptography.

    It is called on a thread for that then (`handshake_threads`), first when the peer has sent something; no other
    method of the layer is called meanwhile."""

    @abstractmethod
    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        """Take over a connected, non-blocking socket. Must not do I/O: the acceptor or a processor calls it."""


@dataclass(slots=True)
class AuthenticationStep:
    """What comes of one frame.

    `send`      frames to send back, without their length.
    `complete`  the principal is known; further frames are requests.
    `failed`    the reason; after the failed-authentication delay `send` goes out and the channel closes (KIP-306).
    `pending`   what comes of it is not known yet: called at once with a function that, called once from any thread,
                has the channel's processor call `Authenticator.resume`. Nothing is read from the channel until then.
    """

    send: Sequence[Buffer] = ()
    complete: bool = False
    failed: str | None = None
    pending: Callable[[Callable[[], None]], None] | None = None


class Authenticator(ABC):
    """Finds out who one connection is: frames in, frames out, no I/O of its own. Kafka's interface of that name."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether requests may pass. True from the start where nothing is asked."""

    @property
    @abstractmethod
    def principal(self) -> KafkaPrincipal:
        """The identity; meaningful once complete."""

    @abstractmethod
    def receive(self, frame: Buffer) -> AuthenticationStep:
        """One frame of a channel that is not READY."""

    def resume(self) -> AuthenticationStep:
        """What came of a step that was pending; on the processor's thread."""
        raise NotImplementedError("no step of this authenticator is ever pending")

    def reauthenticates(self, api_key: int) -> bool:
        """Whether a frame of this API on a READY channel goes to `receive` again (KIP-368); asked for every frame."""
        return False

    @property
    def session_expires_ns(self) -> int | None:
        """Monotonic time at which the session ends unless renewed; None never (KIP-368)."""
        return None

    def close(self) -> None:
        """The channel is closed."""


class AuthenticatorFactory(ListenerPart, ABC):
    """Makes one `Authenticator` per connection."""

    security_protocol: str = ""
    """`SASL_` if the listener's security protocol gets that prefix, else empty."""
    max_receive_bytes: int | None = None
    """Largest frame of a channel that is not READY; None: as large as requests may be."""

    def handlers(self) -> Iterable[ApiHandler]:
        """APIs that ApiVersions of the listener lists for the authenticator's sake, unless its handler set serves them.

        They are asked only for requests that the authenticator leaves to them.
        """
        return ()

    @abstractmethod
    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> Authenticator:
        """For a connection whose transport handshake is done."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A gate's No: the connection is closed at once. `reason` is a metric label: few values, lower_snake_case."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Delay:
    """A gate's Not yet.

    `pause_acceptor=True`: the whole listener waits `delay_ms`, or until `ListenerContext.resume_accepting` is called,
    and asks the gate again for the same connection (Kafka's listener rate limit).
    Otherwise this connection is closed after `delay_ms` without being served (Kafka's per-IP rate limit, KIP-612).
    """

    delay_ms: int
    reason: str
    pause_acceptor: bool = False


Admission: TypeAlias = Refuse | Delay | None


class ConnectionGate(ListenerPart, ABC):
    """Says which connections may come in; asked on the acceptor thread, in the order of the TOML.

    `release` follows exactly once for each connection that this gate admitted, from any thread, even if a later gate
    refused it.
    """

    @abstractmethod
    def admit(self, address: Address) -> Admission:
        """None admits. Must not block: waiting is said with `Delay`."""

    @abstractmethod
    def release(self, address: Address) -> None:
        """An admitted connection is closed."""

    def authenticated(self, address: Address) -> None:
        """An admitted connection became READY: its handshakes are over. On a processor's thread."""

    def authentication_failed(self, address: Address) -> None:
        """An admitted connection failed its handshake or authentication; `release` follows."""


class Throttle(ListenerPart, ABC):
    """Charges requests to quotas (KIP-13, KIP-124, KIP-219, KIP-599). Called from any thread."""

    @property
    def active(self) -> bool:
        """Whether it limits anybody now. While it does not, it is not asked at all, and requests cost nothing more.

        One that changes its mind calls `throttles_changed` of its ListenerContext. Must not block.
        """
        return True

    @abstractmethod
    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        """Record a request of `size_bytes` that took `seconds` of thread time; the `throttle_time_ms` it earns.

        The answer goes out at once and tells the client; klamm keeps the channel muted for that long. `seconds` are
        those of handlers and of the network thread, and 0 for a request without an answer (Produce with acks=0), which
        Kafka exempts.
        """

    def max_record_bytes(self, context: RequestContext) -> int | None:
        """How many bytes of records a fetch may bring at once without being sure to be throttled; None any number."""
        return None

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        """Records of `size_bytes` are about to be sent; 0 records that, anything else is the `throttle_time_ms`.

        Then they are not sent and not recorded: the answer is empty, and the client comes again.
        """
        return 0

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        """So many partitions are about to be created or deleted; the `throttle_time_ms` that this earns.

        If `strict`, anything but 0 means that they are not to be, and are not recorded.
        """
        return 0


@dataclass(slots=True)
class RequestEvent:
    """A completed request, for observers; stage times are nanoseconds. Names after KIP-673.

    `repeat_count` above 1 stands for that many equal requests of a connection, see `RequestObserver.repeats_after`.
    """

    context: RequestContext
    error_code: int
    response_bytes: int
    request_queue_time_ns: int
    local_time_ns: int
    remote_time_ns: int
    throttle_time_ms: int
    response_queue_time_ns: int
    send_time_ns: int
    total_time_ns: int
    repeat_count: int = 1

    @staticmethod
    def of(request: RequestContext, end_ns: int) -> RequestEvent:
        """The event of a request whose answer was out at `end_ns`."""
        return RequestEvent(
            context=request,
            error_code=request.error_code,
            response_bytes=request.response_bytes,
            request_queue_time_ns=max(0, request.handler_start_ns - request.received_ns),
            local_time_ns=max(0, request.local_end_ns - request.handler_start_ns),
            remote_time_ns=max(0, request.completed_ns - request.local_end_ns),
            throttle_time_ms=request.throttle_time_ms,
            response_queue_time_ns=max(0, request.dequeued_ns - request.completed_ns) if request.dequeued_ns else 0,
            send_time_ns=max(0, end_ns - (request.dequeued_ns or request.completed_ns)),
            total_time_ns=max(0, end_ns - request.received_ns),
        )


class RequestObserver(ListenerPart):
    """Is told what happened. Calls must not block: they come from processor threads, refusals from the acceptor's.

    `repeats_after`    None: every request is told of by itself. A number: of one connection's requests of an API that
                       are answered at once and without an error, so many within a second are told of by themselves,
                       and then a sample, first every sixteenth and later fewer, down to every 256th; the others
                       together by `repeated`. Requests that are answered without a look at them, because equal ones
                       were, are told of likewise, but for the sample. Those that `repeated` tells of have one client
                       id; what comes under another in that second is told of by itself.

    The decoded request is in `RequestContext.frame` and what the handler answered in `response`. They may hold views of
    large frames: an observer that keeps a request drops them soon.
    """

    repeats_after: int | None = None

    def refuse(self, request: RequestContext) -> KafkaError | None:
        """Asked before the handler, if overridden: the error to answer the request with instead, or None.

        Comes from processor and handler threads. ApiVersions is never refused.
        """
        return None

    def connection_refused(self, address: Address, reason: str, detail: str) -> None:
        """A gate refused a connection, or had it closed after a delay; `reason` is one of few words."""

    def authenticated(self, connection: ConnectionContext, reauthentication: bool) -> None:
        """The client has proved who it is, or has again (KIP-368). Not told where nobody is asked."""

    def authentication_failed(self, connection: ConnectionContext, reason: str, reauthentication: bool) -> None:
        """It could not; the channel is going to be closed."""

    def session_expired(self, connection: ConnectionContext) -> None:
        """The client did not authenticate again in time; the channel is going to be closed (KIP-368)."""

    def connection_opened(self, connection: ConnectionContext) -> None:
        """A channel became READY."""

    def connection_closed(self, connection: ConnectionContext, reason: str) -> None:
        """A channel, READY or not, is gone."""

    def completed(self, event: RequestEvent) -> None:
        """A response has been handed to the socket whole, or the request needed none."""

    def completed_many(self, requests: Sequence[RequestContext], end_ns: int) -> None:
        """The same for requests of one connection whose answers left together at `end_ns`, as `completed` by default.

        To be overridden where an event object for each request would be too much. Nobody changes `requests` later.
        """
        for request in requests:
            self.completed(RequestEvent.of(request, end_ns))

    def may_repeat(self, api_key: int) -> bool:
        """Whether requests of an API may be told of by `repeated`; asked once, where `repeats_after` is a number."""
        return True

    def repeated(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        """`count` requests without an error, of which `request` was the first, were answered until `last_ns`.

        The bytes are sums. The request may be without times (`received_ns` 0), and without messages if they are large.
        """
        event = RequestEvent.of(request, request.completed_ns)
        event.repeat_count = count
        event.response_bytes = response_bytes
        self.completed(event)


class ServerExtension(ABC):
    """Something that stands beside the listeners, e.g. an exporter of metrics; `[server] extensions` names it."""

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    @abstractmethod
    def open(self, server: ServerServices) -> None:
        """Every listener is bound and its parts are open; no request has come. Raising stops the start."""

    def ready(self) -> None:
        """Every listener answers from now on."""

    def stopping(self) -> None:
        """The server begins to stop: it accepts no more."""

    def describe(self) -> str:
        """What `klamm serve` says of it once the server is ready, e.g. the address it listens on."""
        return ""

    def reload(self) -> None:
        """SIGHUP: read files again. Raising keeps what was there, and is logged."""

    @abstractmethod
    def close(self) -> None:
        """Give back what `open` took. Called exactly once if `open` returned; requests have ended."""


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """What one processor has to do.

    `connections` it has or is about to have; `bytes_per_s` read and sent by those it has now, `busy` the share of time,
    0 to 1, in which it did not wait for something to happen; both over the last second or so, 0 where nobody measures
    (`ProcessorAssigner.rebalance_interval_ms`).
    """

    connections: int
    bytes_per_s: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionLoad:
    """What one connection gives its processor to do; units as in `ProcessorLoad`."""

    connection_id: str
    bytes_per_s: float
    busy: float


@dataclass(frozen=True, slots=True)
class Move:
    """A connection is to go to another processor, as soon as it has no request and no answer under way."""

    connection_id: str
    processor: int


class ProcessorAssigner(ListenerPart, ABC):
    """Chooses the processor of a new connection; Kafka's acceptor goes round. May move connections later."""

    @property
    def rebalance_interval_ms(self) -> int:
        """How often loads are measured and `rebalance` is asked; 0, the default, does neither. Read once, after
        `open`."""
        return 0

    @abstractmethod
    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        """Index of the processor; `loads` has one entry for each. On the acceptor's thread."""

    def rebalance(
        self, loads: Sequence[ProcessorLoad], connections: Sequence[Sequence[ConnectionLoad]]
    ) -> Sequence[Move]:
        """Which connections shall move; both arguments have one entry per processor. On the scheduler's thread."""
        return ()


class RequestScheduler(ABC):
    """The order in which queued requests reach the handlers; a bounded multi-lane queue.

    Used by all processors and handlers at once. One instance per server.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        self.settings = settings
        self.capacity = capacity

    @abstractmethod
    def offer(self, request: RequestContext) -> bool:
        """Queue a request; False when there is no room for it. Never blocks."""

    @abstractmethod
    def take(self) -> RequestContext | None:
        """The next request, waiting for it; None after `wake` for one waiting thread."""

    @abstractmethod
    def wake(self) -> None:
        """Let one `take` return None."""

    @abstractmethod
    def size(self) -> int:
        """How many requests wait; the metric RequestQueueSize."""

    def lane(self, request: RequestContext) -> Hashable:
        """What a request waits with: when `offer` has no room for it, later ones of its lane wait behind it, and those
        of other lanes do not."""
        return None

    def handled(self, request: RequestContext, busy_ns: int) -> None:
        """A handler is done with a request that `take` gave it, which took that long. On the handler's thread."""

    def resized(self, handlers: int) -> None:
        """There are now so many handlers."""

    def lane_sizes(self) -> Mapping[str, int]:
        """How many requests wait, by lane."""
        return {"all": self.size()}
