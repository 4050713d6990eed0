"""Descriptions of listeners for `OpenConnections.look`: waiting connections, running gates, the filters of each API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klamm.requests.routes import Route
from klamm.server.listener import Listener


def described_listener(listener: Listener, now_ns: int) -> dict[str, Any] | None:
    """Return the description of a listener, as a JSON object; None if it is not open. Any thread may call this.

    `waiting` is the number of connections that wait to be accepted. `gate` is the name of the gate that runs now, empty
    if none runs. `gate_ms` is the time for which gates have run.
    """
    acceptor = listener.acceptor
    if acceptor is None:
        return None
    number, gate_ns = acceptor.running_gate(now_ns)
    several = len(listener.processors) > 1
    return {
        "listener": listener.name,
        "waiting": sum(queue.waiting for queue in acceptor.accept_queues()),
        "accepted_on": f"the thread klamm-acceptor-{listener.name}" if several else "the processor's thread",
        "gate": listener.plan.gates[number].name if number >= 0 else "",
        "gate_ms": round(gate_ns / 1e6, 3),
        "api_set": listener.plan.api_set,
        "authorizer": "" if listener.plan.authorizer is None else listener.plan.authorizer.name,
        "apis": {route.name: _described_api(listener, route) for route in _routes(listener)},
    }


def _routes(listener: Listener) -> Iterator[Route]:
    routes = listener.runtime.requests.routes
    for api_key, _ in routes.served:
        route = routes.find(api_key)
        if route is not None:
            yield route


def _described_api(listener: Listener, route: Route) -> dict[str, Any]:
    """Return the filters that see an API, and `inline`: True if its requests usually run on the processor's thread."""
    seeing = {id(getattr(step, "__self__", None)) for step in route.on_request}
    return {"filters": listener.filter_names(seeing), "inline": route.inline_max_bytes >= 0}
