"""`ClientSession`: the connection to the node that serves one client. `Gateway` makes it and calls it on the loop's
thread of the client's connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from klamm import ConnectionContext, RateLimitedLog, RequestContext
from klamm.forwarding import ConnectionLink, note_upstream_node
from klamm.runtime import Scheduler, Timer
from klamm.wire.chunks import Buffer
from klamm_gateway.forwarded_request import ForwardedRequest
from klamm_gateway.layout import Cluster, Node
from klamm_gateway.metrics import GatewayMetrics
from klamm_gateway.node_ports import NodePlaces
from klamm_gateway.upstream.connection import INTERNAL_ERROR, UpstreamConnection
from klamm_gateway.upstream.protocol import Exchange, UpstreamProtocol
from klamm_gateway.upstream.questions import SOFTWARE
from klamm_gateway.upstream.security import Security
from klamm_gateway.upstream.states import UpstreamError

log = logging.getLogger("klamm.gateway")


@dataclass(slots=True)
class SessionParts:
    """The objects that the sessions of one gateway share. `security` is replaced as a whole when files are read
    again.
    """

    cluster: Cluster
    places: NodePlaces
    security: Security
    scheduler: Scheduler
    setup_timeout_ms: int
    metrics: GatewayMetrics
    failure_log: RateLimitedLog


class ClientSession:
    """One client's connection to the node that its port or host name stands for.

    The gateway makes a session for a connection's first request. Only the loop of the client's connection uses it.

    The first request opens the connection to the node. If the node closes this connection while it is idle, the next
    request opens another. If this connection fails, the session closes the client's connection with all waiting
    requests. The session never sends a request again.
    """

    def __init__(self, parts: SessionParts, connection: ConnectionContext, link: ConnectionLink) -> None:
        self._parts = parts
        self._connection = connection
        self._link = link
        self._upstream: UpstreamConnection | None = None
        self._node: Node | None = None
        self._setup: Timer | None = None
        self._closed = False

    @property
    def node(self) -> Node | None:
        """The node that serves this client."""
        return self._node

    def forward(self, context: RequestContext, frame: list[Buffer], request: ForwardedRequest | None) -> None:
        """Send a request to the node. Without a `ForwardedRequest` no response is expected."""
        if self._closed:
            note_upstream_node(context, None)
            if request is not None:
                request.lose("the connection is closed", sent=False)
            return
        upstream, is_new = self._upstream, self._upstream is None
        if upstream is None:
            try:
                upstream = self._open()
            except UpstreamError as error:
                self._report(error)
                note_upstream_node(context, None)
                self._give_up(request, f"no connection to a node: {error.reason}: {error}")
                return
        assert self._node is not None
        note_upstream_node(context, self._node.node_id)
        upstream.send(frame, request)
        if is_new:
            # Called after `send`: connecting may fail at once, and then the request must be among the lost ones.
            upstream.connect(self._node.addresses)

    @property
    def has_unsent(self) -> bool:
        """Return True if the node has not accepted all forwarded bytes."""
        return self._upstream is not None and self._upstream.protocol.has_unsent

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call back once the node has accepted all forwarded bytes, unless the client's connection ends before that."""
        if self._upstream is None:
            callback()
        else:
            self._upstream.when_sent(callback)

    def closed(self) -> None:
        """Note that the client's connection was closed."""
        self._closed = True
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            waiting = [*upstream.protocol.exchanges]
            was_ready = upstream.protocol.was_ready
            upstream.finish()
            self._ended()
            _lose(waiting, "the connection is closed", sent=was_ready)

    # ---- the connection to the node

    def _open(self) -> UpstreamConnection:
        parts = self._parts
        node_id = parts.places.node_of(self._connection)
        cluster = parts.cluster
        node = cluster.any_node() if node_id is None else cluster.layout.nodes.get(node_id)
        if node is None or not node.addresses:
            cluster.refresh()
            what = "no node of the cluster is known" if node_id is None else f"node {node_id} is not known"
            raise UpstreamError("unknown_node", what)
        self._node = node
        protocol = UpstreamProtocol(parts.security.account_of(self._connection.principal), SOFTWARE, self._ready)
        upstream = UpstreamConnection(self._link, protocol, parts.security.context, node.host, self._lost)
        self._upstream = upstream
        parts.metrics.opened()
        self._link.on_drained = upstream.resume
        self._start_setup(upstream)
        return upstream

    def _start_setup(self, upstream: UpstreamConnection) -> None:
        self._setup = self._parts.scheduler.schedule(
            self._parts.setup_timeout_ms, lambda: self._link.call_soon(lambda: self._time_out(upstream))
        )

    def _ready(self) -> None:
        if self._setup is not None:
            self._setup.cancel()
            self._setup = None

    def _time_out(self, upstream: UpstreamConnection) -> None:
        if self._upstream is upstream and self._setup is not None:
            upstream.fail(UpstreamError("timeout", "connecting and logging in took too long"))
            if self._upstream is upstream:
                # After this failure the next address is tried.
                self._start_setup(upstream)

    def _ended(self) -> None:
        self._ready()
        self._link.on_drained = None
        self._parts.metrics.closed()

    def _lost(self, error: UpstreamError) -> None:
        """Handle the end of the connection to the node: it has failed, or the node has closed it."""
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        self._ended()
        protocol = upstream.protocol
        if error.reason == "closed_by_node" and protocol.is_idle:
            if self._parts.security.passes_login:
                # The client has logged in on that connection.
                self._link.close(f"node {self._node} closed the connection on which the client had logged in")
            # Otherwise, the next request opens another connection.
            return
        self._report(error)
        reason = f"node {self._node}: {error.reason}: {error}"
        if protocol.stream is not None:
            protocol.stream.abort(reason)
        waiting = [*protocol.exchanges]
        _lose(waiting, reason, sent=protocol.was_ready)
        # In two cases no `ForwardedRequest` has closed the client's connection: a request that caused an internal
        # error has stopped waiting, and a Produce without a response never waits.
        if error.reason == INTERNAL_ERROR or (not waiting and protocol.has_unsent):
            self._link.close(reason)

    def _report(self, error: UpstreamError) -> None:
        parts = self._parts
        parts.metrics.failed(error.reason)
        parts.cluster.refresh()
        parts.failure_log.log(
            (error.reason, str(self._node)),
            logging.WARNING,
            "listener=%s connection_id=%s node=%s: upstream connection failed: %s: %s",
            self._connection.listener.name,
            self._connection.connection_id,
            self._node,
            error.reason,
            error,
        )

    def _give_up(self, request: ForwardedRequest | None, reason: str) -> None:
        if request is None:
            self._link.close(reason)
        else:
            request.lose(reason, sent=False)


def _lose(waiting: list[Exchange], reason: str, *, sent: bool) -> None:
    """Close the client's connection, because no responses will come. `sent` is True if the node may have the
    requests.
    """
    for request in waiting:
        assert isinstance(request, ForwardedRequest)
        request.lose(reason, sent=sent)
