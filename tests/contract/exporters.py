"""Functions that start servers with the extension `prometheus`, and that read the extension's pages."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from klamm.testing import EmbeddedServer
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

EXPORTER = ("server.extensions=prometheus", "prometheus.bind=127.0.0.1:0")


def servers_with_exporter():
    """Yield a function, as the body of a fixture: `start("key=value", …)` starts a server and returns it.

    The handler set is `trying`. The servers are stopped at the end of the test.
    """
    servers = []

    def start_one(*settings, api_set="trying"):
        server = EmbeddedServer([f"listeners.default.api_set={api_set}", *EXPORTER, *settings], plugins=[Plugin()])
        servers.append(server)
        return server.start()

    yield start_one
    for server in servers:
        server.stop()


def exporter(server):
    return server.server.extensions[0]


def get(server, path, **headers):
    """Return status and text of a page."""
    host, port = exporter(server).address
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(server):
    """Return the values of all samples on the page `/metrics`, by name and labels."""
    status, text = get(server, "/metrics")
    assert status == 200
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metric(server, name):
    """Return the values of an MBean's samples by their labels, from the server's registry."""
    for family in server.server.services.metrics.collect(lambda one: one == name):
        return {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
    return None


def eventually(holds):
    """Wait for a condition, because the last metrics of a request are recorded after its response is sent."""
    wait_until(holds)
    return True
