"""Tests of client telemetry with librdkafka, and with Apache Kafka's own tool."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from klamm.testing import EmbeddedServer
from tests.interop.clients.java import run_tool
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"


def pushed(server: EmbeddedServer) -> dict[str, float]:
    """Return the pushed metrics of `telemetry-test`, by name."""
    return {
        sample.labels["metric"]: sample.value
        for family in server.server.services.metrics.collect()
        if family.name.endswith("ClientTelemetry,name=Value")
        for sample in family.samples
        if sample.labels["client_id"] == "telemetry-test"
    }


def test_a_subscription_of_the_tool_makes_librdkafka_push() -> None:
    with EmbeddedServer(["client.telemetry.enable=true"]) as server:

        def tool(*arguments: str) -> str:
            return run_tool(COMMAND, "--bootstrap-server", server.bootstrap, *arguments)

        wanted = ["--metrics", "org.apache.kafka.producer.", "--interval", "200", "--match", "client_id=telemetry-.*"]
        tool("--alter", "--name", "ours", *wanted)
        assert tool("--list").split() == ["ours"]
        described = tool("--describe", "--name", "ours")
        assert "interval.ms=200" in described
        assert "metrics=org.apache.kafka.producer." in described
        producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "telemetry-test"})

        def has_pushed() -> bool:
            producer.produce("t", b"x")
            producer.flush(10)
            return any(name.startswith("org.apache.kafka.producer.") for name in pushed(server))

        wait_until(has_pushed, "librdkafka pushes nothing", within_s=60)
        tool("--delete", "--name", "ours")
        assert tool("--list").split() == []
