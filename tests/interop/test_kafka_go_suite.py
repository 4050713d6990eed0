"""kafka-go's own tests of its connections, its clients, its readers and its writers.

Slow: `pytest -m slow -s tests/interop/test_kafka_go_suite.py`. Needs Go and, once, the network: a Go module carries its
tests. They name ports, as the client does by default, so a copy names those of this server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer
from tests.interop.test_franz_go_suite import go, outcomes
from tests.peers.server import lasting_port
from tests.sasl_client import users_setting

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(2400)]

MODULE = "github.com/segmentio/kafka-go"
VERSION = "v0.4.51"
PASSING = 550
LEFT_OUT = {
    "TestReaderConsumerGroup$/^(verify_offset_committed.*|consumer_group_commits_on_close)": (
        "They look for the coordinator with a function that they leave nil: the program crashes on any broker."
    ),
    "TestReaderConsumerGroup$/^consumer_group_rebalance": "It fails on Apache Kafka 4.4.0 too.",
    "TestRebalanceTooManyConsumers": "It fails on Apache Kafka 4.4.0 too.",
    "TestReaderReadCompactedMessage": "It sets `segment.bytes` below Kafka's minimum since 4.0.",
    "TestConsumerGroupWith(Topic|GroupTopicsSingle)": (
        "They pass on a broker that needs longer to create a topic: klamm has it before the group's watcher looks for"
        " the first time, so that it sees no change after the assignment, which was made without the topic."
    ),
}


def program(folder: Path, ports: dict[str, int]) -> Path:
    """Return the program of the tests. These ports replace the ports of the suite's own broker."""
    (folder / "go.mod").write_text("module kafka.example\n")
    found = json.loads(go("mod", "download", "-json", f"{MODULE}@{VERSION}", cwd=folder, timeout_s=300))
    source = folder / "kafka-go"
    shutil.copytree(found["Dir"], source, copy_function=shutil.copyfile)
    for path in source.glob("*.go"):
        text = path.read_text()
        for old, new in ports.items():
            text = text.replace(old, str(new))
        path.write_text(text)
    go("test", "-mod=mod", "-c", "-vet=off", "-o", "tests", ".", cwd=source, timeout_s=900)
    return source / "tests"


def test_kafka_go_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    ports = {"9092": lasting_port(), "9093": lasting_port()}
    settings = [
        f"listeners.default.bind=127.0.0.1:{ports['9092']}",
        f"listeners.default.advertise=localhost:{ports['9092']}",
        "listeners.default.authorizer=acl",
        'listeners.default.acl.super_users=["User:ANONYMOUS"]',
        f"listeners.login.bind=127.0.0.1:{ports['9093']}",
        f"listeners.login.advertise=localhost:{ports['9093']}",
        "listeners.login.authenticator=sasl",
        'listeners.login.sasl.mechanisms=["PLAIN"]',
        "listeners.login.sasl.credential_stores=[]",
        f"listeners.login.{users_setting(adminplain='admin-secret')}",
        "group.initial.rebalance.delay.ms=0",
        "message.max.bytes=200000000",
    ]
    tests = program(tmp_path, ports)
    # A switch of the tests for brokers after 2.3 leaves out the tests of `net.Conn`.
    environment = {**os.environ, "KAFKA_VERSION": "4.4.0", "KAFKA_SKIP_NETTEST": "1"}
    command = [str(tests), "-test.v", "-test.timeout=1200s", f"-test.skip={'|'.join(f'^{name}$' for name in LEFT_OUT)}"]
    with EmbeddedServer(settings):
        done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True, timeout=1260)
    found = outcomes(done.stdout)
    print(dict(Counter(found.values())))
    output = (done.stdout + done.stderr)[-20_000:]
    assert [name for name, outcome in found.items() if outcome == "FAIL"] == [], output
    assert list(found.values()).count("PASS") >= PASSING, output
