"""Client quotas with the tools that come with Apache Kafka: set, described, enforced, and kept over a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.interop.clients.java import TOPIC_COMMAND, run_tool
from tests.peers.server import Server
from tests.peers.target import target_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with target_server(tmp_path_factory.mktemp("quotas")) as running:
        yield running


def configs(server: Server, *arguments: str) -> str:
    return run_tool(CONFIG_COMMAND, "--bootstrap-server", server.bootstrap, *arguments)


ENTITIES = {
    "default user": (["--entity-type", "users", "--entity-default"], "the default user-principal"),
    "both": (
        ["--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default"],
        "user-principal 'bob', the default client-id",
    ),
}


def test_quotas_are_set_described_kept_and_deleted(server: Server) -> None:
    for entity, _text in ENTITIES.values():
        configs(server, *entity, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    address = ["--entity-type", "ips", "--entity-name", "192.0.2.1"]
    configs(server, *address, "--alter", "--add-config", "connection_creation_rate=7")
    server.restart()
    for entity, entity_text in ENTITIES.values():
        described = configs(server, *entity, "--describe")
        assert f"for {entity_text} are" in described, described
        assert "producer_byte_rate=1024.0" in described
        assert "request_percentage=12.5" in described
    assert "connection_creation_rate=7.0" in configs(server, *address, "--describe")
    with pytest.raises(RuntimeError, match="InvalidRequestException"):
        configs(server, *address, "--alter", "--add-config", "connection_creation_rate=-1")
    entity, _text = ENTITIES["default user"]
    configs(server, *entity, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs(server, *entity, "--describe")


def test_a_producer_is_slowed_down_and_gets_the_throttle_time(server: Server) -> None:
    run_tool(TOPIC_COMMAND, "--bootstrap-server", server.bootstrap, "--create", "--topic", "slow")
    client = ["--entity-type", "users", "--entity-name", "ANONYMOUS"]
    client += ["--entity-type", "clients", "--entity-name", "slow-producer"]
    # The quota lets ten windows pass at once: a megabyte. The rest is delayed.
    configs(server, *client, "--alter", "--add-config", "producer_byte_rate=100000")
    arguments = ["--topic", "slow", "--num-records", "1400", "--record-size", "1000", "--throughput", "-1"]
    arguments += ["--print-metrics", "--producer-props", f"bootstrap.servers={server.bootstrap}"]
    arguments += ["client.id=slow-producer", "batch.size=16384"]
    output = run_tool("org.apache.kafka.tools.ProducerPerformance", *arguments)
    records_a_second = float(re.search(r"1400 records sent, ([\d.]+) records/sec", output)[1])  # type: ignore[index]
    throttled_ms = float(re.search(r"produce-throttle-time-max:.*: ([\d.]+)", output)[1])  # type: ignore[index]
    assert records_a_second < 600, output
    assert throttled_ms > 100, output
