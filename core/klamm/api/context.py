"""The contexts that plugins get: of the server, a listener, a connection and a request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from klamm.api.part_failures import PartFailures, unfit
from klamm.api.pending import LATER, NO_RESPONSE, AnswerTooLargeError, NotInlineError, Pending
from klamm.metrics.metrics_registry import MetricsRegistry
from klamm.runtime.clock import Clock, SystemClock
from klamm.runtime.rates import MAX_THROTTLE_TIME_MS
from klamm.runtime.scheduler import Scheduler
from klamm.runtime.snapshot_map import SnapshotMap
from klamm.runtime.threads import SYSTEM_THREADS, Threads
from klamm.shared.addresses import UNIX_HOST
from klamm.shared.admin_events import AdminEvents
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.shared.tables import SharedState
from klamm.shared.worker_share import WorkerShare
from klamm.wire.api_keys import find_spec
from klamm.wire.batch_limits import DEFAULT_LIMITS
from klamm.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.api.acl import AclOperation, ResourceType, Verdict
    from klamm.api.described_config import DescribedConfig
    from klamm.api.forwarding import ConnectionLink
    from klamm.wire.chunks import Buffer

log = logging.getLogger("klamm.authorizer")
_OBSTACLES: Final = "klamm:type=Server,name=Obstacles"
_OBSTACLES_DOC: Final = "1 while a part cannot serve clients, for this reason; /ready then says no."
throttle_log = logging.getLogger("klamm.throttles")


class Address(tuple[str, int]):
    """Host and port. For a Unix domain socket the host is `unix:/PATH`, for its clients `unix`; the port is 0."""

    __slots__ = ()

    def __new__(cls, host: str, port: int) -> Address:
        return super().__new__(cls, (host, port))

    @property
    def host(self) -> str:
        """Return the host: an address, or the path of a Unix domain socket."""
        return self[0]

    @property
    def port(self) -> int:
        """Return the port."""
        return self[1]

    def __str__(self) -> str:
        if self[0].startswith(UNIX_HOST) and not self[1]:
            return self[0]
        return f"[{self[0]}]:{self[1]}" if ":" in self[0] else f"{self[0]}:{self[1]}"


class ServerServices:
    """Services that the server offers to every part: one instance per server.

    - `clock` is the only source of time, `random_bytes(count)` the only source of random bytes.
    - `listeners` maps the names of the listeners to their contexts. A reload may add and remove listeners.
    - `shared` has the tables of users, ACLs and quotas that admin APIs write, and objects that parts share.
    - `metrics` is the registry of the metrics of parts. `admin_events` passes administrative events to observers.
    - `scheduler` runs timers on its own thread. `threads` starts the threads of parts.
    - `served_until_ns()` returns a monotonic time in nanoseconds: all requests that had arrived by then have been read
      and handed to their handlers. A timer that removes a silent client compares its deadline with this time, not with
      the clock.
    - `connections` lists, closes and moves the open connections; it can be used from the start of the extensions on.
    - `workers` calls functions in the worker processes. It is None except for extensions that run once, in their
      parent.
    - `worker` identifies this process if `[server] workers` starts several. A part that enforces a limit then enforces
      its share of the limit.
    - `batch_limits` are the limits of one produced batch, taken from the broker if the server has one.
    - `log_levels()` returns the levels of single loggers in the configuration.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self.clock = clock or SystemClock()
        self.scheduler = scheduler or Scheduler(self.clock)
        self.random_bytes = random_bytes
        self.threads = threads
        self.shared = SharedState()
        self.metrics = MetricsRegistry()
        self.admin_events = AdminEvents(self.clock)
        self.listeners: SnapshotMap[str, ListenerContext] = SnapshotMap()
        self.connections: LooksAtConnections | None = None
        self.workers: CallsWorkers | None = None
        self.served_until_ns: Callable[[], int] = self.clock.monotonic_ns
        self.worker = WorkerShare()
        self.batch_limits = DEFAULT_LIMITS
        self.log_levels: Callable[[], Mapping[str, str]] = dict

    def emit_admin_event(self, action: str, detail: str = "", *, listener: str = "", failed: bool = False) -> None:
        """Emit an administrative event, e.g. `certificate_swapped`; it must contain no secrets.

        Any thread may call this. Never raises.
        """
        self.admin_events.emit(action, detail, listener=listener, failed=failed)

    def report_obstacle(self, part: str, reason: str, holds: Callable[[], bool]) -> Callable[[], None]:
        """Register a reason why a part may be unable to serve clients; return a function that removes the reason.

        The server is not ready while `holds()` returns True. Any thread may call `holds`, and it must not wait.
        """
        labels = {"part": part, "reason": reason}
        return self.metrics.register(_OBSTACLES, "gauge", _OBSTACLES_DOC, lambda: [(labels, float(holds()))])


class LooksAtConnections(Protocol):
    """The open connections of a server, for extensions. Any thread but a processor's may call the methods.

    `look` returns a JSON object. `connections` are the open connections. `unanswered` are the processors that did not
    describe their connections in time. `listeners` are the listeners, with their waiting connections, running gates and
    the filters of each API. `close` and `move` return a problem, or an empty text; they take effect soon after the
    call.
    """

    def look(self, timeout_s: float) -> dict[str, Any]: ...

    def close(self, connection_id: str) -> str: ...

    def move(self, connection_id: str, index: int) -> str: ...


class CallsWorkers(Protocol):
    """The workers of a server, for extensions in their parent. Any thread but the parent's loop may call the methods.

    `function` is a dotted name, `package.module:function`. A worker calls it with its `ServerServices` and the
    arguments. Arguments and answer are JSON values. The answer of a worker that does not answer in time is None.
    """

    def call(self, function: str, arguments: Sequence[Any], timeout_s: float) -> dict[int, Any]:
        """Call a function in all workers; return their answers by number."""

    def call_one(self, function: str, arguments: Sequence[Any], timeout_s: float) -> Any:
        """Call a function in one worker, or in the next one if it does not answer; return the answer.

        If the first worker is only slow, both workers may execute the call.
        """


class AuthorizesRequests(Protocol):
    """The methods of `klamm.Authorizer` that requests call.

    This is a protocol, because an import of the contract would be circular.
    """

    def decide(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> Verdict: ...

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool: ...


class ChargesRequests(Protocol):
    """The methods of `klamm.Throttle` that requests call.

    This is a protocol, because an import of the contract would be circular.
    """

    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int: ...

    def max_record_bytes(self, context: RequestContext) -> int | None: ...

    def charge_records(self, context: RequestContext, size_bytes: int) -> int: ...

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int: ...


def _no_api_versions(frame: Buffer, connection: ConnectionContext) -> bytes:
    raise NotImplementedError("this listener has no handler set")


TopicNames: TypeAlias = "Callable[[bytes, RequestContext], str | None]"
"""Returns the name of a topic id in a request, or None if the id is not known."""


def _no_topic_names(part: object) -> TopicNames | None:  # noqa: ARG001
    """Return None: the handler set does not know topic names."""
    return None


_INLINE_MAX_ANSWER_ELEMENTS: Final = 250


@dataclass(slots=True)
class ListenerContext:
    """One listener as its plugins see it. The listener makes it; a part gets it in `open`.

    - `bound` is the address that the listener listens on, with the port resolved if it was 0. `advertised` is the
      address that Metadata gives to clients.
    - `transport` is the name of its transport. `security_protocol` is Kafka's word for its transport and authenticator:
      PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
    - `authorizer` is None if everything is allowed. `throttles` are the active throttles, to which requests are
      charged. Any thread may call `throttles_changed()`, which makes klamm check again which throttles are active.
    - `reads_requests` is True if a filter, an observer or an authorizer of the listener sees requests as messages.
    - `renames_topics` is True if a filter changes names or ids of topics: clients then see only some of the topics.
    - `max_answer_bytes` maps API keys to the limits of their answers; empty means no limit.
    - `answer_api_versions(frame, connection)` returns the frame that answers an ApiVersions request. It is for
      authenticators, which get the request before the handler set does. It raises ValueError for a frame that cannot be
      parsed.
    - `close_least_recently_used()` closes the least recently used connection of this listener, and returns False if
      there is none. Any thread may call it.
    - `resume_accepting()` ends the pause of an acceptor that a gate has delayed, so that the acceptor calls the gate
      again now.
    - `failures` logs exceptions of parts, once a minute for each method.
    - `api_set` is the name of its handler set. `parts` describes its parts, e.g. `transport ssl of klamm 1.0`.
    - `settings_of_parts()` returns each part as JSON: `kind`, `name`, `distribution`, `version`, the `settings` in use
      without secrets, and its own `parts`. The list is empty in the parent of workers, because the workers have the
      parts. Any thread may call it.
    - `node` is the position of the listener's node, 0 unless the handler set has several nodes in one process.
      `configured_as` is the name in the configuration, which the listeners of all nodes share.
    - `go_offline()` closes the port and all connections of the listener. `go_online()` opens the port again, and raises
      OSError if it is taken. Any thread but a processor's may call the two.
    - `topic_names(filter)` returns a function that maps topic ids to the names that this filter sees, or None if the
      handler set knows no names. A filter may call it in `open` or later.
    """

    name: str
    bound: Address
    advertised: Address
    security_protocol: str = "PLAINTEXT"
    services: ServerServices = field(default_factory=ServerServices)
    authorizer: AuthorizesRequests | None = None
    throttles: tuple[ChargesRequests, ...] = ()
    answer_api_versions: Callable[[Buffer, ConnectionContext], bytes] = _no_api_versions
    close_least_recently_used: Callable[[], bool] = lambda: False
    resume_accepting: Callable[[], None] = lambda: None
    throttles_changed: Callable[[], None] = lambda: None
    transport: str = ""
    max_answer_bytes: tuple[int, ...] = ()
    node: int = 0
    configured_as: str = ""
    go_offline: Callable[[], None] = lambda: None
    go_online: Callable[[], None] = lambda: None
    reads_requests: bool = False
    renames_topics: bool = False
    api_set: str = ""
    parts: tuple[str, ...] = ()
    settings_of_parts: Callable[[], list[dict[str, Any]]] = list
    topic_names: Callable[[object], TopicNames | None] = _no_topic_names
    failures: PartFailures = field(init=False)

    def __post_init__(self) -> None:
        self.configured_as = self.configured_as or self.name
        self.failures = PartFailures(self.name, self.services.scheduler.schedule)


class ChangesConfigs(Protocol):
    """The function `ServerContext.change_configs`."""

    def __call__(
        self,
        values: Mapping[str, str],
        validate_only: bool,
        of_nodes: Mapping[int, Mapping[str, str]] | None = None,
        /,
    ) -> None: ...


def _no_dynamic_configs(
    values: Mapping[str, str], validate_only: bool, of_nodes: Mapping[int, Mapping[str, str]] | None = None
) -> None:
    names = {*values, *(name for own in (of_nodes or {}).values() for name in own)}
    if names:
        raise ValueError(f"{', '.join(sorted(names))}: this server cannot change settings while it runs")


@dataclass(slots=True)
class ServerContext:
    """The server as a handler set sees it: the argument of its `open`.

    `data_dir`       the directory for the set's data; it exists, and the set may write to it.
    `name`           the name that listeners use for this handler set.
    `listeners`      the listeners by name; all of them exist when `open` is called. A reload
                     may add and remove some later.
    `scheduler`      runs timers and periodic work on its own thread.
    `random_bytes`   the source of randomness: `os.urandom` unless a test gives another.
    `temporary_data` True if the directory is deleted when the server stops.
    `services`       the services that every part gets: shared tables, metrics.
    `configs()`      returns the server's own settings as the file and the command line have them, for DescribeConfigs
                     of a broker.

    `change_configs(values, validate_only, of_nodes)` changes dynamic settings (see `klamm.setting`), and undoes all
    earlier changes. `values` maps Kafka's names to values as text. `of_nodes` has further changes for the listeners of
    single nodes, by position. It raises ValueError with the problems, and then changes nothing. The changes take effect
    soon after the call, on another thread.
    """

    data_dir: Path
    clock: Clock
    scheduler: Scheduler
    listeners: Mapping[str, ListenerContext]
    random_bytes: Callable[[int], bytes]
    temporary_data: bool = False
    services: ServerServices = field(default_factory=ServerServices)
    configs: Callable[[], Sequence[DescribedConfig]] = tuple
    change_configs: ChangesConfigs = _no_dynamic_configs
    name: str = ""


@dataclass(slots=True, eq=False)
class ConnectionContext:
    """One connection. It is made once, and all requests of the connection share it.

    - `connection_id` is Kafka's `localHost:localPort-remoteHost:remotePort-processor-index`.
    - `client_address` is the peer, or behind a trusted proxy the real client; `proxy_address` is then the proxy.
    - `principal` is ANONYMOUS until authentication has finished. `sasl_mechanism` is empty if the client did not use
      SASL. `attempted_principal` is the name that the client claimed in its latest failed login, e.g. `User:alice`;
      empty if it claimed none.
    - `client_software_name` and `client_software_version` come from ApiVersions v3 (KIP-511), else they are "unknown".
      `client_id` is the client id of the first request.
    - `transport_details` are the facts that the transport reports after its handshake, e.g. `tls_version`, and
      `tls_server_name`, the host that the client named (SNI). After a failed handshake they are the facts known by
      then, e.g. `tls_client_subject`, `tls_client_issuer` and `tls_client_serial_number` of a refused certificate.
    - `received_bytes` and `sent_bytes` count the transport's bytes.
    - `state` belongs to the handler set, e.g. for data of the connection.
    - `link` is the connection's loop: a `pipelined` handler set sends and receives with it, from the first request on.
    """

    connection_id: str
    listener: ListenerContext
    local_address: Address
    client_address: Address
    principal: KafkaPrincipal = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    opened_ns: int = 0
    transport_details: Mapping[str, str] = field(default_factory=dict)
    sasl_mechanism: str = ""
    proxy_address: Address | None = None
    received_bytes: int = 0
    sent_bytes: int = 0
    client_id: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    attempted_principal: str = ""
    link: ConnectionLink | None = None


class Responder(Protocol):
    """Accepts the response of a request whose handler returned `RequestContext.later()`."""

    def respond(self, context: RequestContext, response: Any) -> None: ...

    def close_connection(self, context: RequestContext, reason: str) -> None: ...


Decision: TypeAlias = "tuple[AclOperation, ResourceType, str, bool, Verdict | None]"
"""An item of `RequestContext.decisions`."""

ChangedValue: TypeAlias = tuple[str, str, str, str | None, str | None]
"""The arguments of `RequestContext.note_change`."""


class RequestContext:
    """One request, as plugins see it: its header, its connection, and the way to answer it.

    A handler returns the response. Or it returns `context.later()`, and any thread calls `respond` once. A filter that
    keeps data from a request to its response uses a `weakref.WeakKeyDictionary` with the context as key: the data is
    freed with the request, however the request ends.

    - `connection` is the `ConnectionContext` that all requests of the connection share.
    - `api_key`, `api_version`, `correlation_id` and `client_id` come from the header. `size_bytes` is the size of the
      frame without its length field.
    - `responder` takes the answer of `respond`.
    - `throttle_time_ms` is the longest delay that quotas have set so far (KIP-219).
    - `decisions` lists the authorizer's decisions about this request: operation, type and name of the resource, whether
      it was granted, and the `klamm.acl.Verdict`, which is None e.g. if the authorizer raised. `decisions` is None if
      there were none. `denied` is True after the first denied operation.
    - `changed_values` lists the changes noted with `note_change`; None if there are none.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "changed_values",
        "client_id",
        "connection",
        "correlation_id",
        "decisions",
        "denied",
        "responder",
        "size_bytes",
        "throttle_time_ms",
        "__weakref__",
    )

    def __init__(
        self,
        connection: ConnectionContext,
        responder: Responder,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        size_bytes: int = 0,
    ) -> None:
        self.connection = connection
        self.responder = responder
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size_bytes = size_bytes
        self.throttle_time_ms = 0
        self.decisions: list[Decision] | None = None
        self.denied = False
        self.changed_values: list[ChangedValue] | None = None

    @property
    def listener(self) -> ListenerContext:
        """Return the listener of the request's connection."""
        return self.connection.listener

    @property
    def principal(self) -> KafkaPrincipal:
        """Return the client's principal."""
        return self.connection.principal

    @property
    def client_address(self) -> Address:
        """Return the client's address."""
        return self.connection.client_address

    @property
    def api_name(self) -> str:
        """Return Kafka's name of the API, e.g. `Produce`; `Unknown` for a key that the protocol does not have."""
        spec = find_spec(self.api_key)
        return spec.name if spec is not None else "Unknown"

    def authorize(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        """Return True if the listener's authorizer grants the operation on the resource, or if it has no authorizer.

        Use `log_if_denied=False` if one of several rights suffices, because the request may be granted after a denial.
        Use `log_if_allowed=False` as well if a list is filtered and the client did not name its elements; observers do
        not see such decisions. If the authorizer raises, the operation is denied.
        """
        authorizer = self.connection.listener.authorizer
        if authorizer is None:
            return True
        verdict: Verdict | None = None
        try:
            # A request that names many resources causes one log line, about the first denied resource.
            log_it = log_if_denied and not self.denied
            verdict = authorizer.decide(self, operation, resource_type, resource_name, log_if_denied=log_it)
            granted = verdict.granted
            if granted is None:
                raise unfit(granted, "True", "False")
        except Exception as error:
            self.listener.failures.log(log, authorizer, "authorize", error)
            granted = False
        if log_if_allowed if granted else log_if_denied:
            self.denied = self.denied or not granted
            _note_decision(self, (operation, resource_type, resource_name, granted, verdict))
        return granted

    def note_change(self, kind: str, resource: str, key: str, old: str | None, new: str | None) -> None:
        """Record for observers that a value of a resource was changed; None means that the value is not set.

        `kind` is the name of a `ConfigResource.Type`, e.g. `TOPIC`, with the resource's name and a config's key;
        `CLIENT_QUOTA` with `klamm.shared.client_quota_key` and a quota's key; or `SCRAM_CREDENTIAL` with
        `ScramMechanism.row_key` and `iterations`. A handler calls this after the change. Observers hide the values of
        keys that are secret.
        """
        if self.changed_values is None:
            self.changed_values = []
        self.changed_values.append((kind, resource, key, old, new))

    def authorize_by_resource_type(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return True if the authorizer grants the operation on at least one resource of the type (KIP-679)."""
        authorizer = self.connection.listener.authorizer
        if authorizer is None:
            return True
        try:
            granted = authorizer.authorize_by_resource_type(self, operation, resource_type)
        except Exception as error:
            self.listener.failures.log(log, authorizer, "authorize_by_resource_type", error)
            granted = False
        # The pattern of all resources of the type.
        _note_decision(self, (operation, resource_type, "*", granted, None))
        return granted

    @property
    def max_record_bytes(self) -> int | None:
        """Return the maximum bytes of records that quotas let the response carry; None if there is no limit."""
        limits = self._call_throttles("max_record_bytes")
        return min((limit for limit in limits if limit is not None), default=None)

    def may_send_records(self, size_bytes: int) -> bool:
        """Return True if quotas allow records of this size now; otherwise the response must carry none (KIP-219)."""
        times_ms = self._call_throttles("charge_records", size_bytes)
        self._throttle(times_ms)
        return not any(times_ms)

    def charge_mutations(self, count: int, *, strict: bool) -> None:
        """Charge the creation or deletion of `count` partitions (KIP-599).

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if `strict` and the quota is exhausted: the partitions must then
        not be changed."""
        times_ms = self._call_throttles("charge_mutations", count, strict)
        self._throttle(times_ms)
        if strict and any(times_ms):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def _throttle(self, times_ms: list[int]) -> None:
        self.throttle_time_ms = min(max(self.throttle_time_ms, *times_ms, 0), MAX_THROTTLE_TIME_MS)

    def _call_throttles(self, method: str, *arguments: Any) -> list[Any]:
        listener, answers = self.connection.listener, []
        for throttle in listener.throttles:
            try:
                answers.append(getattr(throttle, method)(self, *arguments))
            except Exception as error:
                # If a throttle raises, it limits nothing, and the request is served.
                listener.failures.log(throttle_log, throttle, method, error)
        return answers

    @property
    def on_processor(self) -> bool:
        """Return True if the handler runs on a processor's thread: other clients then wait until it returns."""
        return getattr(self.responder, "inline", False)

    def leave_processor(self) -> None:
        """Move the request to a handler thread. A handler whose work turns out to be large calls this first.

        On a processor's thread this raises an exception that ends the handler; klamm then calls the handler again. So
        call it before the handler changes anything. On any other thread it does nothing.
        """
        if self.on_processor:
            raise NotInlineError

    def expect_answer(self, elements: int, bytes_each: int = 0) -> None:
        """Announce an answer of `elements` elements, each of at least `bytes_each` bytes, before it is built.

        Raises AnswerTooLargeError like `check_answer_bytes`. A request with an answer of more than 250 elements waits
        for the turn of large requests: this raises an exception that ends the handler, and klamm calls the handler
        again when the turn comes.
        """
        self.check_answer_bytes(elements * bytes_each)
        if elements > _INLINE_MAX_ANSWER_ELEMENTS and not getattr(self.responder, "large", True):
            raise NotInlineError(large=True)

    def check_answer_bytes(self, size_bytes: int) -> None:
        """Check the approximate size of an unfinished answer. Call it while an answer grows far beyond its request.

        Raises AnswerTooLargeError above the listener's `response_max_bytes` of the API. Handlers must not catch it:
        klamm answers the request with INVALID_REQUEST.
        """
        limits = self.connection.listener.max_answer_bytes
        if limits and size_bytes > limits[self.api_key]:
            raise AnswerTooLargeError(limits[self.api_key])

    @property
    def response_wanted(self) -> bool:
        """Return True if a filter or an observer needs the response of an opaque request as a message."""
        return getattr(self.responder, "response_wanted", False)

    @property
    def response_filtered(self) -> bool:
        """Return True if a filter needs the response of an opaque request as a message, and may change it."""
        return getattr(self.responder, "response_filtered", False)

    def later(self) -> Pending:
        """Return the result of a handler that will call `respond` later; the connection's next request waits."""
        return LATER

    def no_response(self) -> Pending:
        """Return the result of a handler for a request that gets no response."""
        return NO_RESPONSE

    def respond(self, response: Any) -> None:
        """Answer a request whose handler returned `later()`: a response message, NO_RESPONSE, or an exception.

        Call it once, from any thread; a second call raises RuntimeError. An exception is answered as if the handler had
        raised it. If the connection is already lost, the answer is dropped.
        """
        self.responder.respond(self, response)

    def answer(self, make: Callable[[], Any]) -> None:
        """Call `make`, and answer a deferred request with the result, or with the exception that `make` raises.

        Use it on other threads, because an exception there would leave the client without an answer. Otherwise like
        `respond`.
        """
        try:
            response = make()
        except Exception as error:
            response = error
        self.respond(response)

    def respond_after(self, delay_ms: float, make: Callable[[], Any]) -> Pending:
        """Call `answer(make)` after `delay_ms` milliseconds, on the scheduler's thread; `make` must not block.

        A handler ends with `return context.respond_after(100, lambda: response)`.
        """
        self.connection.listener.services.scheduler.schedule(delay_ms, lambda: self.answer(make))
        return LATER

    def close_connection(self, reason: str) -> None:
        """Close the connection instead of answering; `reason` goes to the log. Does nothing after an answer."""
        self.responder.close_connection(self, reason)


def _note_decision(context: RequestContext, decision: Decision) -> None:
    if context.decisions is None:
        context.decisions = []
    context.decisions.append(decision)
