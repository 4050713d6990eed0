"""Tests of the command-line tools of Apache Kafka, which operators use: they must work without changes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop.clients.java import TOPIC_COMMAND, java_command, run_tool
from tests.interop.inspection import wait_for_stable_group
from tests.interop.workload import PARTITIONS
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
COUNT = 10_000
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"
OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"


def topics(server: Server, *arguments: str) -> str:
    return run_tool(TOPIC_COMMAND, "--bootstrap-server", server.bootstrap, *arguments)


def groups(server: Server, *arguments: str) -> str:
    return run_tool(GROUP_COMMAND, "--bootstrap-server", server.bootstrap, *arguments)


def create(server: Server, topic: str) -> None:
    topics(server, "--create", "--topic", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1")


def produce_verified(server: Server, topic: str, count: int = COUNT) -> dict[str, int]:
    """Produce the numbers from 0 to `count` as text, with acks=all. Return the tool's summary."""
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--acks", "-1", "--max-messages", str(count)]
    output = run_tool("org.apache.kafka.tools.VerifiableProducer", *arguments)
    summary: dict[str, int] = json.loads(output.splitlines()[-1])
    return summary


def end_offsets(server: Server, topic: str, time: str = "latest") -> list[int]:
    """Return the end offsets by partition, as GetOffsetShell prints them."""
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--time", time]
    lines = run_tool(OFFSET_SHELL, *arguments).splitlines()
    return [int(line.split(":")[2] or -1) for line in sorted(lines)]


def lag(server: Server, topic: str) -> int:
    """Return the lag of the group with the name of its topic, over all partitions with a committed offset."""
    lines = [line.split() for line in groups(server, "--describe", "--group", topic).splitlines()]
    lags = [int(fields[5]) for fields in lines if fields and fields[0] == topic]
    assert lags, lines
    return sum(lags)


def test_topics_are_created_described_altered_and_deleted(server: Server, topic: str) -> None:
    create(server, topic)
    assert topic in topics(server, "--list").split()
    assert f"PartitionCount: {PARTITIONS}" in topics(server, "--describe", "--topic", topic)
    topics(server, "--alter", "--topic", topic, "--partitions", str(PARTITIONS + 2))
    described = topics(server, "--describe", "--topic", topic)
    assert f"PartitionCount: {PARTITIONS + 2}" in described
    assert described.count("Leader: 1") == PARTITIONS + 2, described
    with pytest.raises(RuntimeError, match="already"):
        create(server, topic)
    topics(server, "--delete", "--topic", topic)
    assert topic not in topics(server, "--list").split()


def test_verifiable_producer_and_consumer_agree(server: Server, topic: str, tmp_path: Path) -> None:
    create(server, topic)
    summary = produce_verified(server, topic)
    assert (summary["sent"], summary["acked"]) == (COUNT, COUNT)
    assert sum(end_offsets(server, topic)) == COUNT
    assert end_offsets(server, topic, "earliest") == [0] * PARTITIONS
    newest = [offset for offset in end_offsets(server, topic, "max-timestamp") if offset >= 0]
    assert newest, "no partition has a newest record"
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--group-id", topic]
    arguments += ["--reset-policy", "earliest", "--max-messages", str(COUNT), "--verbose"]
    events = [
        json.loads(line) for line in run_tool("org.apache.kafka.tools.VerifiableConsumer", *arguments).splitlines()
    ]
    values = sorted(int(event["value"]) for event in events if event["name"] == "record_data")
    assert values == list(range(COUNT))
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_groups_are_listed_described_reset_and_deleted(server: Server, topic: str, tmp_path: Path) -> None:
    create(server, topic)
    produce_verified(server, topic, 300)
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--group-id", topic]
    command = java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments, "--reset-policy", "earliest")
    with (tmp_path / "consumer").open("wb") as output, subprocess.Popen(command, stdout=output) as consumer:
        wait_for_stable_group(server, topic, 1)
        assert topic in groups(server, "--list").split()
        assert "Stable" in groups(server, "--describe", "--group", topic, "--state")
        members = groups(server, "--describe", "--group", topic, "--members")
        assert "127.0.0.1" in members, members
        consumer.terminate()
    assert lag(server, topic) == 0
    groups(server, "--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    assert lag(server, topic) == 300
    groups(server, "--delete", "--group", topic)
    assert topic not in groups(server, "--list").split()


def test_configs_are_described_and_changed(server: Server, topic: str) -> None:
    create(server, topic)
    entity = ["--bootstrap-server", server.bootstrap, "--entity-type", "topics", "--entity-name", topic]
    run_tool(CONFIG_COMMAND, *entity, "--alter", "--add-config", "retention.ms=3600000")
    described = run_tool(CONFIG_COMMAND, *entity, "--describe")
    assert "retention.ms=3600000" in described
    everything = run_tool(CONFIG_COMMAND, *entity, "--describe", "--all")
    assert "cleanup.policy=delete" in everything
    assert "segment.bytes=1073741824" in everything
    run_tool(CONFIG_COMMAND, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=3600000" not in run_tool(CONFIG_COMMAND, *entity, "--describe")
    broker = ["--bootstrap-server", server.bootstrap, "--entity-type", "brokers", "--entity-name", "1"]
    assert "num.partitions=3" in run_tool(CONFIG_COMMAND, *broker, "--describe", "--all")


def test_producer_performance_runs(server: Server, topic: str) -> None:
    create(server, topic)
    arguments = ["--topic", topic, "--num-records", "50000", "--record-size", "500", "--throughput", "-1"]
    arguments += ["--producer-props", f"bootstrap.servers={server.bootstrap}", "acks=all", "compression.type=zstd"]
    output = run_tool("org.apache.kafka.tools.ProducerPerformance", *arguments)
    assert output.splitlines()[-1].startswith("50000 records sent"), output
    assert sum(end_offsets(server, topic)) == 50_000


def test_cluster_and_api_versions_are_shown(server: Server) -> None:
    shown = run_tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", server.bootstrap)
    assert shown.startswith("Cluster ID: "), shown
    versions = run_tool("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", server.bootstrap)
    assert "Produce(0)" in versions
    assert "Fetch(1)" in versions
    assert "(id: 1 rack: null" in versions


def test_a_throttled_reassignment_is_carried_out_and_verified(server: Server, topic: str, tmp_path: Path) -> None:
    create(server, topic)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}), encoding="utf-8"
    )
    command = ["--bootstrap-server", server.bootstrap, "--reassignment-json-file", str(plan)]
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    executed = run_tool(tool, *command, "--execute", "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in executed
    broker = ["--bootstrap-server", server.bootstrap, "--entity-type", "brokers", "--entity-name", "1", "--describe"]
    assert "leader.replication.throttled.rate=1000000" in run_tool(CONFIG_COMMAND, *broker)
    assert "is completed" in run_tool(tool, *command, "--verify")
    assert "throttled.rate" not in run_tool(CONFIG_COMMAND, *broker)


def test_features_are_upgraded_to_the_release(server: Server) -> None:
    command = ["--bootstrap-server", server.bootstrap, "upgrade", "--release-version", "4.4"]
    run_tool("org.apache.kafka.tools.FeatureCommand", *command)
    shown = run_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", server.bootstrap, "describe")
    assert "Feature: streams.version" in shown
