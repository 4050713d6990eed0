"""`Layout`: the cluster's nodes as of the last answer. `Cluster` has the current layout, for all threads of a gateway.
Only the learner's thread replaces it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from klamm import ConnectionContext
from klamm.wire.messages.api_versions import ApiVersionsResponse
from klamm_gateway.upstream.security import SocketAddress

MAX_TOPIC_IDS: Final = 200_000
_REFUSED: Final = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One node, and the addresses to which its host name resolves."""

    node_id: int
    host: str
    port: int
    addresses: tuple[SocketAddress, ...] = ()

    def __str__(self) -> str:
        return f"{self.node_id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a cluster. `versions` are the versions that all nodes support, by API; None before the first answer.

    `described` is the ApiVersions response of one node; the features for clients come from it. `cluster_id` is empty if
    the cluster has no id.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    versions: Mapping[int, range] | None = None
    described: ApiVersionsResponse = field(default_factory=ApiVersionsResponse)
    cluster_id: str = ""


class Cluster:
    """The current layout, and the names of topic ids. Any thread may read. `learn` replaces the layout as a whole.

    `node_of` returns the node that a connection is for, as in `NodePlaces`. `refresh` requests a new layout. `renamed`
    is called for a topic id that gets another name. `clients_log_in` is True if SASL requests are forwarded.
    `passing_unknown` has the names of the listeners that forward unknown APIs and versions. `offers` has the prepared
    ApiVersions answers for this layout. The key of an answer is the listener's name and a bool; the bool is True for
    the answer that lists features with minimum level 0 too.
    """

    def __init__(self) -> None:
        self.layout = Layout()
        self.refresh: Callable[[], None] = _no_learner
        self.renamed: Callable[[bytes, str, str], None] = _unreported
        self.node_of: Callable[[ConnectionContext], int | None] = _any
        self.clients_log_in = False
        self.passing_unknown: set[str] = set()
        self.offers: dict[tuple[str, bool], ApiVersionsResponse] = {}
        # Protects `_turn` and `_names`.
        self._lock = threading.Lock()
        self._turn = 0
        self._names: dict[bytes, str] = {}

    def learn(self, layout: Layout) -> None:
        """Replace the layout."""
        self.layout = layout
        # Replaced and not cleared, because another thread may be about to add an answer for the previous layout.
        self.offers = {}

    def any_node(self) -> Node | None:
        """Return a node; the nodes take turns. None if no node is known."""
        nodes = tuple(self.layout.nodes.values())
        if not nodes:
            return None
        with self._lock:
            self._turn += 1
            return nodes[self._turn % len(nodes)]

    def is_meant(self, cluster_id: str, node_id: int, connection: ConnectionContext) -> bool:
        """Return True if the connection is for this node, and the cluster has this id or its id is not known."""
        return cluster_id == (self.layout.cluster_id or cluster_id) and node_id == self.node_of(connection)

    def note_node(self, node_id: int, host: str, port: int) -> None:
        """Note a node that a response names. If the node is new or has another address, request a new layout."""
        known = self.layout.nodes.get(node_id)
        if known is None or (known.host, known.port) != (host, port):
            self.refresh()

    def note_topic(self, topic_id: bytes, name: str) -> None:
        """Note the name of a topic id from a response. If there are too many ids, the oldest is forgotten.

        A topic never changes its name. So an id that comes with another name is suspicious, and has no name from then
        on.
        """
        if self._names.get(topic_id) == name:
            return
        with self._lock:
            known = self._names.get(topic_id, name)
            if known not in (name, _REFUSED):
                self.renamed(topic_id, known, name)
            self._names[topic_id] = name if known == name else _REFUSED
            if len(self._names) > MAX_TOPIC_IDS:
                del self._names[next(iter(self._names))]

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic id from earlier responses; None if it is unknown, or has had two names."""
        return self._names.get(topic_id) or None


def with_versions_of(layout: Layout, response: ApiVersionsResponse) -> Layout:
    """Return the layout with only the versions that this node supports too. `response` is the node's answer."""
    offered = {each.api_key: range(each.min_version, each.max_version + 1) for each in response.api_keys}
    if layout.versions is None:
        return replace(layout, versions=offered, described=response)
    both = {}
    for key, versions in layout.versions.items():
        other = offered.get(key, range(0))
        common = range(max(versions.start, other.start), min(versions.stop, other.stop))
        if common:
            both[key] = common
    return replace(layout, versions=both)


def _any(connection: ConnectionContext) -> int | None:  # noqa: ARG001
    """Return None, which means that a connection is for any node."""
    return None


def _unreported(_topic_id: bytes, _known: str, _name: str) -> None:
    """Do nothing: the default of `renamed` before there is a log."""


def _no_learner() -> None:
    """Do nothing: the default of `refresh` before there is a learner."""
