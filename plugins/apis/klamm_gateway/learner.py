"""`LayoutLearner`: a thread that requests the layout of the cluster and the API versions of its nodes."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Final

from klamm.runtime import Clock
from klamm.wire.messages import api_versions, metadata
from klamm.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse
from klamm_gateway.layout import Cluster, Layout, Node, with_versions_of
from klamm_gateway.upstream.conversation import Conversation
from klamm_gateway.upstream.questions import SOFTWARE, Questions
from klamm_gateway.upstream.security import resolve
from klamm_gateway.upstream.states import UpstreamError

log = logging.getLogger("klamm.gateway")

_API_VERSIONS: Final = 3
_METADATA: Final = 4
_AT_MOST_EVERY_S: Final = 0.5
_OLD_AFTER_NS: Final = 5_000_000_000


class LayoutLearner:
    """The learner of the layout. Its thread calls `learn_once` at the start, every `max_age_s` seconds, and after a
    call of `Cluster.refresh`. It calls more often until a node has answered.
    """

    def __init__(
        self,
        cluster: Cluster,
        questions: Questions,
        max_age_s: float,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._questions = questions
        self._clock = clock
        self._answered = False
        self._asked_ns = 0
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self.tried = threading.Event()
        """Set after the first round of requests."""
        self._thread = threading.Thread(target=self._run, name="klamm-gateway-learner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._cluster.refresh = self._wanted.set
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. An attempt to connect goes on until its timeout."""
        self._ending.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wanted.clear()
            try:
                self._answered = self.learn_once() and self._cluster.layout.versions is not None
            except Exception:
                self._answered = False
                log.exception("the layout of the cluster cannot be learned")
            self._asked_ns = self._clock.monotonic_ns()
            self.tried.set()
            if not self._ending.wait(_AT_MOST_EVERY_S):
                self._wanted.wait(self._max_age_s if self._answered else 2 * _AT_MOST_EVERY_S)

    def is_unanswered(self) -> bool:
        """Return True if the last round got no answer. If this round is more than five seconds old, also request
        another; its result is seen by a later call.
        """
        if self._clock.monotonic_ns() - self._asked_ns > _OLD_AFTER_NS:
            self._wanted.set()
        return not self._answered

    def learn_once(self) -> bool:
        """Learn the layout from the first node that answers, and then ask every node for its versions. Return False if
        no node answers.
        """
        found: Layout | None = self._questions.ask_any(self._layout_of, self._ending)
        if found is None:
            return False
        before = self._cluster.layout
        if before.versions is not None:
            # The new nodes apply at once, with the earlier versions, until all nodes were asked for their versions.
            self._cluster.learn(replace(found, versions=before.versions, described=before.described))
        self._cluster.learn(self._complete(found, before))
        return True

    def _layout_of(self, conversation: Conversation) -> Layout:
        response: MetadataResponse = conversation.call(MetadataRequest([]), _METADATA, metadata)
        nodes = {}
        for broker in response.brokers:
            try:
                addresses = resolve(broker.host, broker.port)
            except OSError as error:
                self._questions.failed(f"{broker.host}:{broker.port}", UpstreamError("unknown_host", str(error)))
                addresses = ()
            nodes[broker.node_id] = Node(broker.node_id, broker.host, broker.port, addresses)
        return Layout(nodes, cluster_id=response.cluster_id or "")

    def _complete(self, layout: Layout, before: Layout) -> Layout:
        """Return the layout with the versions that all nodes support. Nodes that do not answer are ignored."""
        for node in layout.nodes.values():
            response = self._questions.ask((node.host, node.port), _versions_of)
            if response is not None:
                layout = with_versions_of(layout, response)
        if layout.versions is None:
            layout = replace(layout, versions=before.versions, described=before.described)
        if layout.nodes != before.nodes:
            log.info("nodes of the cluster: %s", ", ".join(map(str, layout.nodes.values())) or "none")
        return layout


def _versions_of(conversation: Conversation) -> ApiVersionsResponse:
    request = ApiVersionsRequest(SOFTWARE, "1")
    response: ApiVersionsResponse = conversation.call(request, _API_VERSIONS, api_versions)
    if response.error_code:
        raise UpstreamError("invalid_response", f"ApiVersions was answered with error {response.error_code}")
    of_itself = (each.max_version for each in response.api_keys if each.api_key == api_versions.API_KEY)
    if max(of_itself, default=0) > _API_VERSIONS:
        # Features that begin with level 0 are listed from this version on.
        response = conversation.call(request, _API_VERSIONS + 1, api_versions)
    return response
