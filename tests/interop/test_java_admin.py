"""Tests of Kafka's own Admin client: each call has the same result as with Apache Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.clients.java import java_command
from tests.interop.java_programs import programs
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

EXPECTED = {
    "create without acting": "none",
    "created partitions": "2",
    "created retention.ms": "7200000",
    "topic id is the same": "true",
    "create again": "TopicExistsException",
    "create with a bad name": "InvalidTopicException",
    "create with three replicas": "InvalidReplicationFactorException",
    "partitions": "3",
    "shrink": "InvalidPartitionsException",
    "is listed": "true",
    "earliest": "0@-1",
    "latest": "100@-1",
    "max timestamp": "99@99000",
    "at a timestamp": "50@50000",
    "between timestamps": "51@51000",
    "after all timestamps": "-1@-1",
    "deleted up to": "10",
    "earliest after deletion": "10@-1",
    "committed": "42 note",
    "group is listed": "true",
    "group state": "Empty",
    "committed after deletion": "null",
    "delete a group that is not there": "GroupIdNotFoundException",
    "retention.ms": "7200000 DYNAMIC_TOPIC_CONFIG",
    "retention.ms after alteration": "1000 DYNAMIC_TOPIC_CONFIG",
    "retention.ms after deletion": "604800000 DEFAULT_CONFIG",
    "a bad value": "InvalidConfigurationException",
    "compression.type": "producer DEFAULT_CONFIG",
    "max.message.bytes": "1048588 DEFAULT_CONFIG",
    "broker num.partitions": "3",
    "nodes": "1",
    "controller is a node": "true",
    "cluster id length": "22",
    "log dirs have the broker": "true",
    "deleted topic is described as": "UnknownTopicOrPartitionException",
}


def test_admin_calls(server: Server, topic: str, tmp_path: Path) -> None:
    command = java_command("AdminCalls", server.bootstrap, topic, classes=programs())
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    assert found == EXPECTED, done.stderr
