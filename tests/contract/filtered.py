"""A server whose listener has filters: over the handler set `broker`, or over a `gateway` before a second server."""

import contextlib

import klamm_filters
from klamm.testing import EmbeddedServer
from tests.contract.gateway_nodes import gateway

API_SETS = ("broker", "gateway")


@contextlib.contextmanager
def served(api_set, settings):
    """Yield the broker, and the server whose listeners have the settings.

    With the handler set `broker` both are the same server. With `gateway` the second is a gateway before the broker,
    and the text `BROKER` in a setting becomes the broker's address.
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
    """Return how many requests each filter of a server has refused."""
    found = server.server.services.metrics.collect(lambda name: name.endswith("name=RefusalsTotal"))
    counts = {}
    for family in found:
        for sample in family.samples:
            name = sample.labels["filter"]
            counts[name] = counts.get(name, 0) + sample.value
    return counts
