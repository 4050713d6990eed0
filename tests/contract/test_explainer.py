"""The findings of `klamm explain` inside a server, which other parts such as the console can ask for."""

from types import SimpleNamespace

import pytest

from klamm.testing import EmbeddedServer, ManualClock, RawClient
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm_metrics.explainer import EXPLAINER, Explainer
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

SETTINGS = [
    'server.extensions=["prometheus"]',
    "prometheus.bind=127.0.0.1:0",
    "listeners.default.api_set=trying",
    "server.io_threads=1",
    "server.queued_max_requests=2",
]


@pytest.fixture
def services():
    """The services of a server with a full queue, but for the clock, which the test moves."""
    with EmbeddedServer(SETTINGS, plugins=[Plugin()]) as running:
        for _ in range(6):
            RawClient(running.address(), client_id="app").send(HeartbeatRequest(group_id="block"), 4)
        real = running.server.services
        wait_until(lambda: sum(row["waits_for"] == "queue" for row in real.connections.look(60)["connections"]) >= 2)
        assert isinstance(real.shared.find(EXPLAINER), Explainer)
        yield SimpleNamespace(metrics=real.metrics, connections=real.connections, clock=ManualClock())
        running.api_set("trying").release.set()


def test_findings_rest_on_the_time_between_two_calls(services):
    explainer = Explainer(services)
    assert explainer.findings() is None
    services.clock.advance_ms(1_000)
    found = explainer.findings()
    assert found[0]["stage"] == "queue"
    assert "client app of User:ANONYMOUS" in found[0]["look_at"][0]
    services.clock.advance_ms(999)
    assert explainer.findings() is found, "until a second has passed"
    services.clock.advance_ms(1)
    assert explainer.findings() is not found
    services.clock.advance_ms(30_000)
    assert explainer.findings() is None, "the sample before is too old"


class NoMoreLooks:
    """The connections of a server that another caller looks at."""

    def look(self, timeout_s):
        raise TimeoutError("another look takes too long")


def test_a_look_that_is_not_possible_leaves_the_samples_as_they_were(services):
    explainer = Explainer(services)
    assert explainer.findings() is None
    services.clock.advance_ms(2_000)
    connections, services.connections = services.connections, NoMoreLooks()
    with pytest.raises(TimeoutError):
        explainer.findings()
    services.connections = connections
    assert explainer.findings()[0]["stage"] == "queue"
