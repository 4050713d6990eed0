"""A listener with filters before a broker, with the handler set `broker` or through a `gateway`, for their tests."""

import contextlib

import klamm_filters
from klamm.testing import EmbeddedServer
from tests.contract.gateway_nodes import gateway

API_SETS = ("broker", "gateway")


@contextlib.contextmanager
def served(api_set, settings):
    """The broker, and the server whose listeners have the settings: the same, or a gateway before it.

    `BROKER` in a setting becomes the address of the broker behind the gateway.
    """
    with contextlib.ExitStack() as stack:
        if api_set == "broker":
            front = broker = stack.enter_context(EmbeddedServer(settings, plugins=[klamm_filters]))
        else:
            broker = stack.enter_context(EmbeddedServer())
            settings = [one.replace("BROKER", broker.bootstrap) for one in settings]
            front = stack.enter_context(gateway(broker.bootstrap, settings, plugins=[klamm_filters]))
        yield broker, front


def refusals(server):
    """How many requests the filters of a server have refused, by filter."""
    found = server.server.services.metrics.collect(lambda name: name.endswith("name=RefusalsTotal"))
    counts = {}
    for family in found:
        for sample in family.samples:
            name = sample.labels["filter"]
            counts[name] = counts.get(name, 0) + sample.value
    return counts
