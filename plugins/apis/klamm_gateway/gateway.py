"""`Gateway`: the handler set `gateway`.

A request is forwarded on the loop's thread of its client's connection. The handler of a large decoded request runs on
another thread, so `_send` and `_send_unanswered` switch to the loop. The sessions with the nodes belong to the loop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from klamm import (
    ApiHandler,
    ApiSet,
    ConnectionContext,
    ListenerContext,
    RateLimitedLog,
    RequestContext,
    ServerContext,
    bind_handlers,
    clipped,
    escape_control_characters,
)
from klamm.acl import ClusterAcls
from klamm.config import Finding, parse_host_port
from klamm.forwarding import OpaqueRequest, note_upstream_node
from klamm.runtime import Workers
from klamm.wire.api_keys import ApiKey, ApiSpec, load
from klamm.wire.chunks import Buffer
from klamm.wire.headers import encode_request_header
from klamm_gateway.as_it_came import frame_as_it_came, wants_no_response
from klamm_gateway.authorization.checks import LocalAnswer
from klamm_gateway.client_login import LOGIN_HANDLERS
from klamm_gateway.cluster_acl_learner import ClusterAclLearner
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.forwarded_request import UNCHANGED, Change, ForwardedRequest
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.layout import Cluster
from klamm_gateway.learner import LayoutLearner
from klamm_gateway.local_answers import LATE_LOGIN_HANDLERS, versions_of_cluster
from klamm_gateway.metrics import GatewayMetrics
from klamm_gateway.rewriting import REWRITES, NodeAddresses, Rewrite
from klamm_gateway.session import ClientSession, SessionParts
from klamm_gateway.upstream.questions import Questions
from klamm_gateway.upstream.security import load_security

log = logging.getLogger("klamm.gateway")

_STATE: Final = "gateway"
_MARGIN_S: Final = 1.0


class Gateway(ApiSet):
    """A handler set that forwards requests to the nodes of a Kafka cluster. `cluster` has the known nodes."""

    pipelined = True

    settings: GatewaySettings

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self.cluster = Cluster()
        self.cluster.clients_log_in = settings.login == "client"
        self.cluster.node_of = settings.places.node_of
        self._metrics = GatewayMetrics()
        self._parts: SessionParts
        self._learner: LayoutLearner
        self._acls: ClusterAcls
        self._acl_learner: ClusterAclLearner | None = None
        self._addresses: dict[str, NodeAddresses] = {}
        self._workers: Workers
        self._random_bytes: Any = None
        self._failure_log: RateLimitedLog

    def open(self, server: ServerContext) -> None:
        """Read certificates and password, and ask the cluster for its nodes. Raises OSError for a file.

        The start succeeds even if no node answers. The learner goes on asking.
        """
        settings = self.settings
        self._workers = Workers("klamm-gateway-responses", 1, server.services.threads)
        self._random_bytes = server.random_bytes
        self._failure_log = RateLimitedLog(log, server.scheduler.schedule, burst=5)
        self.cluster.renamed = self._report_renamed
        self._parts = SessionParts(
            self.cluster,
            settings.places,
            load_security(settings, server.random_bytes),
            server.scheduler,
            settings.socket_connection_setup_timeout_ms,
            self._metrics,
            self._failure_log,
        )
        self._metrics.gateway = server.name or self._metrics.gateway
        self._metrics.register(server.services.metrics, lambda: len(self.cluster.layout.nodes))
        timeout_s = settings.socket_connection_setup_timeout_ms / 1000
        self._learner = LayoutLearner(
            self.cluster, self._questions(timeout_s), settings.metadata_max_age_ms / 1000, server.clock
        )
        server.services.report_obstacle(
            f"[{self._metrics.gateway}]", "no node of the cluster answers", self._learner.is_unanswered
        )
        self._acls = ClusterAcls.of(server.services.shared, server.name)
        self._learner.start()
        if not self._learner.tried.wait(timeout_s + _MARGIN_S) or self.cluster.layout.versions is None:
            log.warning("no node of %s has answered yet", ", ".join(settings.bootstrap))

    def listener_opened(self, listener: ListenerContext) -> None:
        """Note the addresses that the listener's clients get for the nodes. Raises ValueError for a listener that
        cannot be served.
        """
        if self.settings.nodes == "sni" and not listener.security_protocol.endswith("SSL"):
            raise ValueError('nodes = "sni" needs TLS: clients name the node in their TLS handshake')
        if self.settings.login == "client":
            if listener.security_protocol.startswith("SASL"):
                raise ValueError(
                    'upstream.login = "client" passes SASL on: the listener must not have an authenticator'
                )
            if listener.authorizer is not None:
                raise ValueError(
                    'upstream.login = "client" lets the cluster authorize: the listener must not have an authorizer'
                )
        if self._acls.is_watched:
            self._learn_acls()
        self._addresses[listener.name] = NodeAddresses(
            listener.advertised, self._parts.places, self.cluster, self._report_unreachable
        )

    def _learn_acls(self) -> None:
        if self._acl_learner is not None:
            return
        # Imported here, because other gateways do not need it.
        from klamm_gateway.cluster_acl_learner import ClusterAclLearner

        settings = self.settings
        max_age_s = settings.acls_max_age_ms / 1000
        timeout_s = min(settings.socket_connection_setup_timeout_ms / 1000, max_age_s / 4)
        self._acl_learner = ClusterAclLearner(self._acls, self._questions(timeout_s), self._parts.scheduler, max_age_s)
        self._acl_learner.start()
        self._acl_learner.tried.wait(timeout_s + _MARGIN_S)

    def _questions(self, timeout_s: float) -> Questions:
        return Questions(
            self.cluster,
            [parse_host_port(each, to_connect=True) for each in self.settings.bootstrap],
            lambda: self._parts.security,
            timeout_s,
            (self._failure_log, self._metrics.failed),
        )

    def _report_unreachable(self, node_id: int) -> None:
        self._failure_log.log(
            ("no port", node_id),
            logging.WARNING,
            "node %d has no port: node_ports are %s, beginning with node %d",
            node_id,
            self.settings.node_ports,
            self.settings.first_node_id,
        )

    def _report_renamed(self, topic_id: bytes, known: str, name: str) -> None:
        # One response may have any number of ids.
        self._failure_log.log(
            "renamed",
            logging.ERROR,
            "the topic id %s had the name %s and now has the name %s: requests with it are refused",
            topic_id.hex(),
            clipped(escape_control_characters(known)),
            clipped(escape_control_characters(name)),
        )

    def examine(self, listeners: Sequence[ListenerContext]) -> Iterator[Finding]:
        """Try every node. Yield findings about the nodes and their addresses for clients."""
        # Imported here, because a running server does not need it.
        from klamm_gateway.doctor import examine

        return examine(self.settings, listeners, os.urandom)

    def describe(self) -> str:
        """Return a text with the known nodes."""
        nodes = self.cluster.layout.nodes.values()
        return f"gateway to {', '.join(map(str, nodes))}" if nodes else "gateway, no node has answered yet"

    def reload(self) -> None:
        """Read certificates and the password again. They apply to new connections."""
        self._parts.security = load_security(self.settings, self._random_bytes)

    def close(self) -> None:
        """End the threads."""
        self._workers.close()
        self._learner.stop()
        if self._acl_learner is not None:
            self._acl_learner.stop()

    def connection_closed(self, connection: ConnectionContext) -> None:
        """Close the connection to the node."""
        session: ClientSession | None = connection.state.pop(_STATE, None)
        if session is not None:
            session.closed()

    # ---- requests

    def handlers_of(self, listener: ListenerContext) -> Iterator[ApiHandler]:
        """Yield every API that clients use. ApiVersions offers those that the nodes support too.

        APIs and versions that klamm does not know are forwarded if no part of the listener has to decode them.
        """
        unknown = self.settings.unknown_apis == "pass" and not listener.reads_requests
        self.cluster.passing_unknown.discard(listener.name)
        if unknown:
            self.cluster.passing_unknown.add(listener.name)
        elif self.settings.unknown_apis == "pass":
            log.warning(
                "listener=%s: APIs and versions that klamm does not know are refused: its filters, observers or"
                " authorizer could not see them",
                listener.name,
            )
        yield from self.handlers(unknown=unknown)

    def topic_names(self) -> Callable[[bytes], str | None]:
        """Return a function that returns the name of a topic id, if a response of the cluster has named the topic."""
        return self.cluster.topic_name

    def handlers(self, *, unknown: bool = False) -> Iterator[ApiHandler]:
        """Yield every API that clients use, in the versions that klamm knows; with `unknown` in other versions too."""
        yield from bind_handlers((versions_of_cluster,), self.cluster)
        if self.settings.login == "client":
            yield from bind_handlers(LOGIN_HANDLERS, self)
        else:
            yield from bind_handlers(LATE_LOGIN_HANDLERS, self.cluster)
        for spec, versions in forwarded_apis(unknown=unknown):
            yield ApiHandler(
                api_key=spec.api_key,
                name=spec.name,
                min_version=versions.start,
                max_version=versions.stop - 1,
                load=partial(self._load, spec),
                blocking=False,
                opaque=True,
            )

    def _load(self, spec: ApiSpec) -> tuple[Any, Any]:
        first_version, rewrite = REWRITES.get(spec.api_key, (0, None))
        return load(spec.api_key) if spec.module else None, partial(self._forward, first_version, rewrite)

    def _forward(self, first_version: int, rewrite: Rewrite | None, message: Any, context: RequestContext) -> Any:
        changes: list[Change] = []
        unchanged = True
        if context.listener.authorizer is not None:
            # Imported here, because only listeners with an authorizer need it.
            from klamm_gateway.authorization.rules import authorize

            verdict = authorize(message, context, self.cluster)
            if isinstance(verdict, LocalAnswer):
                return verdict.response
            unchanged = verdict.message is message
            message = verdict.message
            if verdict.change is not None:
                changes.append(verdict.change)
        frame = _frame_of(message, context, unchanged=unchanged)
        if context.api_key == ApiKey.PRODUCE and wants_no_response(message, context.api_version):
            return self._send_unanswered(context, frame)
        if rewrite is not None and context.api_version >= first_version:
            # Applied first: the gateway learns nodes and topics from the response, also those that the verdict's change
            # hides from this client.
            changes.insert(0, partial(_rewritten, rewrite, self._addresses[context.listener.name]))
        self._send(context, frame, ForwardedRequest(context, self._workers, tuple(changes)))
        return context.later()

    def forward(self, message: Any, context: RequestContext, change: Change) -> Any:
        """Forward a request without applying its API's rule. `change` gets the response."""
        self._send(context, _frame_of(message, context), ForwardedRequest(context, self._workers, (change,)))
        return context.later()

    def _send_unanswered(self, context: RequestContext, frame: list[Buffer]) -> Any:
        """Forward a request without a response. It is complete when the node has accepted the bytes; until then the
        client's next requests wait.
        """
        link = context.connection.link
        assert link is not None
        if link.on_loop:
            self._send(context, frame, None)
            session: ClientSession = context.connection.state[_STATE]
            if not session.has_unsent:
                return context.no_response()
            session.when_sent(lambda: context.respond(context.no_response()))
            return context.later()

        def send() -> None:
            self._send(context, frame, None)
            session: ClientSession = context.connection.state[_STATE]
            session.when_sent(lambda: context.respond(context.no_response()))

        note_upstream_node(context, None)
        link.call_soon(send)
        return context.later()

    def _send(self, context: RequestContext, frame: list[Buffer], request: ForwardedRequest | None) -> None:
        connection = context.connection
        link = connection.link
        assert link is not None
        if not link.on_loop:
            # The handler of a large decoded request, or of a request that an observer must see first, runs on another
            # thread.
            note_upstream_node(context, None)
            link.call_soon(lambda: self._send(context, frame, request))
            return
        session: ClientSession | None = connection.state.get(_STATE)
        if session is None:
            session = connection.state[_STATE] = ClientSession(self._parts, connection, link)
        session.forward(context, frame, request)


def _frame_of(message: Any, context: RequestContext, *, unchanged: bool = False) -> list[Buffer]:
    """Return the bytes of the request for the node, without the size in front. `unchanged` is True if the message is
    still as it was decoded.
    """
    if type(message) is OpaqueRequest:
        return [message.frame]
    version = context.api_version
    if context.api_key == ApiKey.PRODUCE and unchanged:
        frame = frame_as_it_came(message, context)
        if frame is not None:
            return [frame]
    header = encode_request_header(context.api_key, version, context.correlation_id, context.client_id)
    if context.api_key == ApiKey.PRODUCE:
        # The records are not copied: they are views of the client's frame.
        return [header, *message.encode_chunks(version)]
    body = message.encode(version)
    # Old versions of some requests have no body. Empty pieces are not sent.
    return [header, body] if body else [header]


def _rewritten(rewrite: Rewrite, addresses: NodeAddresses, response: Any) -> Any:
    return response if rewrite(response, addresses) else UNCHANGED
