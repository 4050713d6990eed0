"""`LayoutLearner`: a thread that asks the nodes for the layout of the cluster and for their API versions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from klamm import RateLimitedLog
from klamm.wire.messages import api_versions, metadata
from klamm.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse
from klamm_gateway.layout import Cluster, Layout, Node, with_versions_of
from klamm_gateway.upstream.conversation import Conversation
from klamm_gateway.upstream.security import Security, resolve
from klamm_gateway.upstream.states import UpstreamError

log = logging.getLogger("klamm.gateway")

_API_VERSIONS: Final = 3
_METADATA: Final = 4
_SOFTWARE: Final = "klamm-gateway"
_AT_MOST_EVERY_S: Final = 0.5


class LayoutLearner:
    """`learn_once` asks; the thread does so at the start, every `max_age_s` seconds, and soon after `refresh`.

    Every node that can be reached is asked for its versions. `count_failure` gets the reason of each failed connection.
    """

    def __init__(
        self,
        cluster: Cluster,
        bootstrap: Iterable[tuple[str, int]],
        security: Callable[[], Security],
        timeout_s: float,
        max_age_s: float,
        failures: tuple[RateLimitedLog, Callable[[str], None]],
    ) -> None:
        self._cluster = cluster
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._timeout_s = timeout_s
        self._max_age_s = max_age_s
        self._failure_log, self._count_failure = failures
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self.tried = threading.Event()
        """Set once the nodes were asked for the first time."""
        self._thread = threading.Thread(target=self._run, name="klamm-gateway-learner", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._cluster.refresh = self._wanted.set
        self._thread.start()

    def stop(self) -> None:
        """End; a connection that is being tried is given up on its timeout."""
        self._ending.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wanted.clear()
            try:
                self.learn_once()
            except Exception:
                log.exception("the layout of the cluster cannot be learned")
            self.tried.set()
            known = self._cluster.layout.versions is not None
            if not self._ending.wait(_AT_MOST_EVERY_S):
                self._wanted.wait(self._max_age_s if known else 2 * _AT_MOST_EVERY_S)

    def learn_once(self) -> bool:
        """Ask the known nodes, and then those of `bootstrap`, until one answers. False if none does."""
        known = [(node.host, node.port) for node in self._cluster.layout.nodes.values()]
        for host, port in dict.fromkeys((*known, *self._bootstrap)):
            if self._ending.is_set():
                return False
            found = self._ask(host, port, self._layout_of)
            if found is not None:
                self._cluster.learn(self._complete(found))
                return True
        return False

    def _layout_of(self, conversation: Conversation) -> Layout:
        response: MetadataResponse = conversation.call(MetadataRequest([]), _METADATA, metadata)
        nodes = {}
        for broker in response.brokers:
            try:
                addresses = resolve(broker.host, broker.port)
            except OSError as error:
                self._failed(f"{broker.host}:{broker.port}", UpstreamError("unknown_host", str(error)))
                addresses = ()
            nodes[broker.node_id] = Node(broker.node_id, broker.host, broker.port, addresses)
        return Layout(nodes)

    def _complete(self, layout: Layout) -> Layout:
        """With the versions that all nodes know; of nodes that do not answer, nothing is known."""
        before = self._cluster.layout
        for node in layout.nodes.values():
            response = self._ask(node.host, node.port, _versions_of)
            if response is not None:
                layout = with_versions_of(layout, response)
        if layout.versions is None:
            layout = replace(layout, versions=before.versions, described=before.described)
        if layout.nodes != before.nodes:
            log.info("nodes of the cluster: %s", ", ".join(map(str, layout.nodes.values())) or "none")
        return layout

    def _ask(self, host: str, port: int, question: Callable[[Conversation], Any]) -> Any:
        try:
            with Conversation(host, port, self._security(), _SOFTWARE, self._timeout_s) as conversation:
                return question(conversation)
        except UpstreamError as error:
            self._failed(f"{host}:{port}", error)
        except OSError as error:
            self._failed(f"{host}:{port}", UpstreamError("connection_failed", str(error)))
        return None

    def _failed(self, where: str, error: UpstreamError) -> None:
        self._count_failure(error.reason)
        self._failure_log.log(where, logging.WARNING, "node %s cannot be asked: %s: %s", where, error.reason, error)


def _versions_of(conversation: Conversation) -> ApiVersionsResponse:
    request = ApiVersionsRequest(_SOFTWARE, "1")
    response: ApiVersionsResponse = conversation.call(request, _API_VERSIONS, api_versions)
    if response.error_code:
        raise UpstreamError("invalid_response", f"error {response.error_code} to ApiVersions")
    of_itself = (each.max_version for each in response.api_keys if each.api_key == api_versions.API_KEY)
    if max(of_itself, default=0) > _API_VERSIONS:
        # Features that begin with level 0 are listed from this version on.
        response = conversation.call(request, _API_VERSIONS + 1, api_versions)
    return response
