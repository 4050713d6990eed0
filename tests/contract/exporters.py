"""A server with the extension `prometheus`, and what it answers."""

import threading
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from klamm.testing import EmbeddedServer
from tests.contract.api_sets import Plugin

EXPORTER = ("server.extensions=prometheus", "prometheus.bind=127.0.0.1:0")


def servers_with_exporter():
    """The body of a fixture `start`: `start("key=value", …)` → a server, whose handler set the test drives."""
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
    """Status and text of an answer."""
    host, port = exporter(server).address
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(server):
    """Values by name and labels."""
    status, text = get(server, "/metrics")
    assert status == 200
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metric(server, name):
    """Samples of one MBean by labels, as the registry has them."""
    for family in server.server.services.metrics.collect(lambda one: one == name):
        return {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
    return None


def eventually(holds):
    """The last of a request is recorded after its answer has gone out."""
    pause = threading.Event()
    for _ in range(500):
        if holds():
            return True
        pause.wait(0.01)
    return False
