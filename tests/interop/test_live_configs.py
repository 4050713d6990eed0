"""Tests of configs of a running broker that Kafka's own tool and confluent-kafka change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from klamm.testing import EmbeddedServer
from tests.interop.clients.java import run_tool
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"


@pytest.fixture
def embedded() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


def configs(server: EmbeddedServer, kind: str, *arguments: str, name: str = "1") -> str:
    entity = ["--entity-name", name] if name else ["--entity-default"]
    return run_tool(CONFIG_COMMAND, "--bootstrap-server", server.bootstrap, "--entity-type", kind, *entity, *arguments)


def test_kafka_configs_changes_brokers(embedded: EmbeddedServer) -> None:
    configs(embedded, "brokers", "--alter", "--add-config", "num.network.threads=2,max.connections.per.ip=500")
    configs(embedded, "brokers", "--alter", "--add-config", "num.network.threads=4", name="")
    wait_until(lambda: len(embedded.server.listeners[0].processors) == 2)
    described = configs(embedded, "brokers", "--describe")
    (line,) = [line for line in described.splitlines() if line.strip().startswith("num.network.threads=")]
    layers = "DYNAMIC_BROKER_CONFIG:num.network.threads=2, DYNAMIC_DEFAULT_BROKER_CONFIG:num.network.threads=4"
    assert layers in line
    assert "max.connections.per.ip=500" in described
    configs(embedded, "brokers", "--alter", "--delete-config", "num.network.threads")
    wait_until(lambda: len(embedded.server.listeners[0].processors) == 4)
    with pytest.raises(RuntimeError, match="must be at least 1"):
        configs(embedded, "brokers", "--alter", "--add-config", "num.network.threads=0")


def test_kafka_configs_changes_levels_of_loggers(embedded: EmbeddedServer) -> None:
    configs(embedded, "broker-loggers", "--alter", "--add-config", "klamm.broker.topics=ERROR")
    assert "klamm.broker.topics=ERROR" in configs(embedded, "broker-loggers", "--describe")
    configs(embedded, "broker-loggers", "--alter", "--delete-config", "klamm.broker.topics")
    assert "klamm.broker.topics=ERROR" not in configs(embedded, "broker-loggers", "--describe")


def test_confluent_kafka_changes_brokers(embedded: EmbeddedServer) -> None:
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})

    def alter(**values: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)

    alter(num_io_threads="3", log_retention_ms="1234")
    resource = ConfigResource(ResourceType.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result(30)
    assert (described["num.io.threads"].value, described["num.io.threads"].is_read_only) == ("3", False)
    assert ConfigSource(described["num.io.threads"].source) is ConfigSource.DYNAMIC_BROKER_CONFIG
    with pytest.raises(KafkaException, match="must be an integer"):
        alter(log_retention_ms="5", num_io_threads="many")
    assert admin.describe_configs([resource])[resource].result(30)["log.retention.ms"].value == "1234"
