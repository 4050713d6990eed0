"""Everything that klamm and the plugins it comes with register, found by starting a server that uses them."""

from functools import cache

from klamm.testing import EmbeddedServer
from klamm_metrics.names import exposed_name

SETTINGS = (
    "server.queued_max_request_bytes=100000000",
    "listeners.default.authorizer=acl",
    "listeners.default.gates=connection_quota,creation_rate,handshake_limit,authentication_penalty",
    "listeners.default.throttles=client_quota",
)


@cache
def registered():
    """Kinds by MBean."""
    with EmbeddedServer(SETTINGS) as server:
        return {family.name: family.kind for family in server.server.services.metrics.collect()}


def exposed_names():
    """Kinds by the name that Prometheus has."""
    return {exposed_name(name, kind): kind for name, kind in registered().items()}
