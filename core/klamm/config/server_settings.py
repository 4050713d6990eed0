"""The settings of the server and of a listener. Plugins define the settings of their own parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm.api.provider import ProviderKind
from klamm.config.checks import check_networks
from klamm.config.setting import CLUSTER_WIDE, setting
from klamm.logs.output import LOG_FORMATS
from klamm.wire.api_keys import ApiKey, spec_of

AS_VERSIONS: Final = ("2.8", "3.9", "4.0", "4.3", "4.4")
"""The releases of Apache Kafka whose API versions a server can be restricted to, from `klamm.wire.releases`."""
_MAX_PORT: Final = 65535
ALL_CORES: Final = "cores"
ROOT_LOGGER: Final = "root"
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def check_slow_log(thresholds: Mapping[str, int]) -> str | None:
    """Return the problem with `[listeners.NAME.slow_log]`, or None."""
    for name, milliseconds in thresholds.items():
        if milliseconds < 0:
            return f'the threshold of "{name}" must not be negative'
    return _check_api_names(thresholds)


def _check_log_levels(levels: Mapping[str, str]) -> str | None:
    for logger, level in levels.items():
        if logger in ("", ROOT_LOGGER):
            return f'"{logger}" is the root logger, whose level is log_level'
        if level not in LOG_LEVELS:
            return f'the level of "{logger}" must be one of {", ".join(LOG_LEVELS)}, not "{level}"'
    return None


def _workers_problem(value: object) -> str | None:
    if value == ALL_CORES or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return None
    return f'must be at least 1, or "{ALL_CORES}", not {value!r}'


def check_api_limits(limits: Mapping[str, int]) -> str | None:
    """Return the problem with a table of limits by API name, or None."""
    for name, limit in limits.items():
        if limit < 1:
            return f'the limit of "{name}" must be at least 1'
    return _check_api_names(limits)


def _node_ports_problem(ports: tuple[int, ...]) -> str | None:
    wrong = [port for port in ports if not 0 <= port <= _MAX_PORT]
    return f"{wrong[0]} is not a port" if wrong else None


def _octal_mode_problem(text: str) -> str | None:
    if len(text) in (3, 4) and set(text) <= set("01234567"):
        return None
    return f'must be a mode in octal, e.g. "0660", not "{text}"'


def _check_api_names(table: Mapping[str, int]) -> str | None:
    names = {spec_of(key).name for key in ApiKey}
    for name in table:
        if name != "default" and name not in names:
            return f'"{name}" is not an API; write it as Kafka does, e.g. Produce, or "default" for all others'
    return None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The table `[server]`."""

    data_dir: Path | None = setting(
        None,
        doc="Directory for the data of handler sets; unset is a temporary directory, which is deleted at the stop.",
        kafka="log.dirs",
        private=True,
    )
    authorizer: str | None = setting(
        None,
        doc='The authorizer of every listener that names none; `authorizer = "none"` of a listener opts out.',
        kafka="authorizer.class.name",
    )
    workers: Any = setting(
        1,
        doc="Processes that serve, or `cores`: one for each core that the server may use. From 2 on they share the"
        " listening sockets, and a parent process starts them.",
        check=_workers_problem,
    )
    io_threads: int = setting(
        8,
        doc="Request handler threads, which run handlers that may block.",
        kafka="num.io.threads",
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    queued_max_requests: int = setting(
        500,
        doc="Maximum number of requests that wait for a handler; when it is reached, connections wait.",
        kafka="queued.max.requests",
        minimum=1,
    )
    queued_max_request_bytes: int = setting(
        -1, doc="Bytes of requests that may be held at once; -1 is no limit.", kafka="queued.max.request.bytes"
    )
    queued_max_request_bytes_strict: bool = setting(
        False,
        doc="Close connections that send a request larger than half of queued.max.request.bytes; otherwise one such "
        "request at a time may exceed the limit.",
    )
    request_scheduler: str | None = setting(
        None, doc="Order in which waiting requests reach the handlers.", provider=ProviderKind.REQUEST_SCHEDULER
    )
    extensions: tuple[str, ...] = setting((), doc="Services in addition to the listeners, e.g. an exporter of metrics.")
    metrics: bool = setting(
        True,
        doc="Count requests and time their stages. Metrics that cost nothing until they are read are always available.",
    )
    metrics_max_clients: int = setting(
        20, doc="Number of clients in metrics: those that used the most time.", minimum=0
    )
    as_version: str | None = setting(
        None,
        doc="Serve only the APIs and versions of this release of Apache Kafka, and report its features: for tests "
        "of old clients and of upgrades. Unset: all of them.",
        choices=AS_VERSIONS,
    )
    shutdown_deadline_ms: int = setting(30_000, doc="Time that a stop waits for requests in flight.", minimum=0)
    log_level: str = setting(
        "WARNING",
        doc="Lowest level of log lines to write.",
        choices=LOG_LEVELS,
    )
    log_levels: dict[str, str] = setting(
        {},
        doc='Levels of single loggers and those below them, e.g. `{ "klamm.authorizer" = "DEBUG" }`.',
        check=_check_log_levels,
    )
    log_format: str = setting(
        "text", doc="Format of log lines: text, or json with one object a line.", choices=LOG_FORMATS
    )
    log_file: Path | None = setting(
        None,
        doc="File of log lines, which may be moved away while the server runs, as logrotate does; unset is standard "
        "error.",
    )

    @property
    def levels_of_loggers(self) -> dict[str, str]:
        """Return the levels of all loggers that have one. The root logger comes last."""
        return {**self.log_levels, ROOT_LOGGER: self.log_level}

    @property
    def worker_count(self) -> int:
        """Return the number of serving processes."""
        if self.workers != ALL_CORES:
            count: int = self.workers
            return count
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class PluginsSettings:
    """The table `[plugins]`."""

    block: tuple[str, ...] = setting(
        (),
        doc="Entry points not to load, as with `-p no:NAME`, and parts to leave out: `KIND:NAME`, or "
        "`KIND:NAME@DISTRIBUTION` for one of several of that name.",
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """A table `[listeners.NAME]`."""

    bind: str = setting(
        "127.0.0.1:9092",
        doc="HOST:PORT to listen on; port 0 takes any free one. Or unix:/PATH, a Unix domain socket.",
        kafka="listeners",
    )
    unix_socket_mode: str = setting(
        "0600",
        doc="Mode of the Unix domain socket, in octal: users with write permission may connect.",
        check=_octal_mode_problem,
    )
    advertise: str | None = setting(
        None,
        doc="HOST:PORT that clients connect to, as Metadata returns it; unset is the bound address.",
        kafka="advertised.listeners",
    )
    node_ports: tuple[int, ...] = setting(
        (),
        doc="Ports of the nodes after the first, if the handler set has several; unset are the next ports.",
        check=_node_ports_problem,
    )
    transport: str | None = setting(
        None,
        doc="Transport of bytes, e.g. with TLS.",
        kafka="listener.security.protocol.map",
        provider=ProviderKind.TRANSPORT,
    )
    authenticator: str | None = setting(
        None, doc="Authenticator of clients; unset is no authentication.", kafka="listener.security.protocol.map"
    )
    authorizer: str | None = setting(
        None,
        doc='Authorizer of requests. Unset is that of `[server]`; "none", or unset in both, allows everything.',
        kafka="authorizer.class.name",
    )
    gates: tuple[str, ...] | None = setting(
        None,
        doc="Connection gates, called in this order; unset are the defaults of the api set.",
    )
    throttles: tuple[str, ...] | None = setting(
        None,
        doc="Throttles that charge requests to quotas; unset are the defaults of the api set.",
    )
    filters: tuple[str, ...] = setting(
        (), doc="Filters that requests pass in this order before the handler, and responses in reverse order."
    )
    observers: tuple[str, ...] = setting((), doc="Observers that are notified of connections and requests.")
    assigner: str | None = setting(
        None, doc="Assigner that chooses the processor of a new connection.", provider=ProviderKind.PROCESSOR_ASSIGNER
    )
    api_set: str | None = setting(
        None,
        doc="The handler set that answers: a provider, or a table that names one.",
        provider=ProviderKind.API_SET,
    )
    dispatch: str = setting(
        "hybrid",
        doc="Threads that run handlers: the processor's (inline), request handlers (pool), or as each handler "
        "declares (hybrid).",
        choices=("hybrid", "inline", "pool"),
    )
    processors: int = setting(
        1,
        doc="Network threads of the listener. One is faster than Kafka's three, because threads share an interpreter.",
        kafka="num.network.threads",
        minimum=1,
        dynamic=CLUSTER_WIDE,
    )
    handshake_threads: int = setting(
        1,
        doc="Threads for TLS handshakes; 0 runs them on the processors, as Kafka does.",
        minimum=0,
    )
    max_incoming: int = setting(
        20,
        doc="New connections that may wait for one of several processors. A single processor accepts connections "
        "itself, and none waits.",
        minimum=1,
    )
    backlog: int = setting(
        1024,
        doc="Connections that the operating system queues until klamm accepts them, up to its own limit "
        "(net.core.somaxconn).",
        kafka="socket.listen.backlog.size",
        minimum=1,
    )
    socket_send_buffer_bytes: int = setting(
        102_400, doc="SO_SNDBUF; -1 leaves it to the system.", kafka="socket.send.buffer.bytes", minimum=-1
    )
    socket_receive_buffer_bytes: int = setting(
        102_400, doc="SO_RCVBUF; -1 leaves it to the system.", kafka="socket.receive.buffer.bytes", minimum=-1
    )
    socket_request_max_bytes: int = setting(
        104_857_600,
        doc="Largest request; a larger one closes its connection.",
        kafka="socket.request.max.bytes",
        minimum=1,
    )
    request_max_bytes: dict[str, int] = setting(
        {},
        doc="Largest request by API name, or `default`; a larger one closes its connection. Unset is "
        "`socket_request_max_bytes` for Produce and 4 MiB for most others, with exceptions from 64 KiB to 16 MiB "
        "(docs/protection.md). 64 KiB is the least.",
        check=check_api_limits,
    )
    request_max_elements: dict[str, int] = setting(
        {},
        doc="Maximum number of array elements and tagged fields in one request, by API name or `default`. Unset is "
        "100,000, and 20,000, 10,000 or 1,000 for APIs whose requests never need more (docs/protection.md).",
        check=check_api_limits,
    )
    response_max_bytes: dict[str, int] = setting(
        {},
        doc="Largest answer without its records, by API name or `default`. Unset is 32 MiB.",
        check=check_api_limits,
    )
    connections_max_idle_ms: int = setting(
        600_000,
        doc="Idle connections are closed after this time; -1 never.",
        kafka="connections.max.idle.ms",
    )
    max_connection_age_ms: int = setting(
        -1,
        doc="Older connections are closed as soon as they have no request in flight; -1 never.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        100,
        doc="A connection that failed to authenticate is closed after this delay.",
        kafka="connection.failed.authentication.delay.ms",
        minimum=0,
    )
    failure_log_lines_per_minute: int = setting(
        10,
        doc="Log lines a minute about failed connections of one address (for IPv6 one /64): failed handshakes and "
        "authentications, refusals, malformed requests. At the end of the minute one line has the number of "
        "further failures.",
        minimum=1,
    )
    connection_setup_timeout_ms: int = setting(
        30_000,
        doc="Longest time for handshake and authentication together; then the connection is closed. 0 is no limit.",
        minimum=0,
    )
    proxy_protocol: str = setting(
        "off",
        doc="Requirement that trusted proxies send a PROXY header (v1 or v2) with the address of their client: "
        "off, optional or required.",
        choices=("off", "optional", "required"),
    )
    trusted_proxies: tuple[str, ...] = setting(
        (), doc="Addresses or CIDR networks of proxies whose PROXY header is trusted.", check=check_networks
    )
    poller: str = setting(
        "auto",
        doc="Poller of sockets: auto is epoll if the system has it, and otherwise Python's module selectors.",
        choices=("auto", "epoll", "selectors"),
    )
    slow_log: dict[str, int] = setting(
        {},
        doc="Milliseconds above which a request is logged, by API name or `default`. All its requests are timed.",
        check=check_slow_log,
    )
    send_file: bool = setting(True, doc="Send records straight from files if the transport can.")
