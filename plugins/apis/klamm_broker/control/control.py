"""`Control`: the handler set `control`. Its listener has a port for each node; a test controls the node through it."""

from __future__ import annotations

from collections.abc import Iterable

from klamm import ApiHandler, ApiSet, ListenerContext, ServerContext, ServerServices, bind_handlers
from klamm_broker.cluster.controlled_nodes import ControlledNodes
from klamm_broker.control.k04_leader_and_isr import become_leader_or_follower
from klamm_broker.control.k05_stop_replica import stop_replicas
from klamm_broker.control.k06_update_metadata import update_metadata
from klamm_broker.control.k07_controlled_shutdown import shut_down

HANDLERS = (become_leader_or_follower, stop_replicas, update_metadata, shut_down)


class Control(ApiSet):
    """The handler set `control`. Each handler gets the node whose port received the request."""

    _services: ServerServices

    def open(self, server: ServerContext) -> None:
        self._services = server.services

    def handlers_of(self, listener: ListenerContext) -> Iterable[ApiHandler]:
        missing = "no listener has the api set broker"
        nodes: ControlledNodes = self._services.shared.needed("klamm.controlled-nodes", missing)
        return bind_handlers(HANDLERS, nodes.at(listener.node))
