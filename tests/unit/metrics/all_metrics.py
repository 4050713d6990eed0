"""Everything that klamm and the plugins it comes with register, found by starting a server that uses them."""

from functools import cache

from klamm import ProviderKind
from klamm.plugins import PluginRegistry
from klamm.testing import EmbeddedServer
from klamm_metrics.names import exposed_name

SETTINGS = (
    "server.queued_max_request_bytes=100000000",
    "listeners.default.authorizer=acl",
    "listeners.default.gates=connection_quota",
)
QUOTAS = "klamm_clientquota_"


@cache
def has_quotas():
    """Whether client quotas are installed."""
    return any(found.provider.name == "client_quota" for found in PluginRegistry().providers(ProviderKind.THROTTLE))


@cache
def registered():
    """Kinds by MBean."""
    settings = [*SETTINGS, "listeners.default.throttles=client_quota"] if has_quotas() else SETTINGS
    with EmbeddedServer(settings) as server:
        return {family.name: family.kind for family in server.server.services.metrics.collect()}


def exposed_names():
    """Kinds by the name that Prometheus has."""
    return {exposed_name(name, kind): kind for name, kind in registered().items()}
