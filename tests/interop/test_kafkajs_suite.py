"""KafkaJS' own tests that may connect, on three nodes with TLS, PLAIN and SCRAM.

Slow: `KLAMM_KAFKAJS=CHECKOUT pytest -m slow -s tests/interop/test_kafkajs_suite.py`. Needs npm and, once, the network.
The package on npm has no tests: the variable names a checkout of v2.2.4. They name ports, so a copy names those of
this server. What it changes of the broker by a program in a container is done by KafkaJS itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from klamm.sasl import ScramCredential, ScramMechanism
from klamm.testing import EmbeddedServer
from tests.peers.builds import cached
from tests.peers.server import lasting_port
from tests.sasl_client import verifiers
from tests.tls_files import TlsFiles

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(3600)]

VERSION = "2.2.4"
PASSING = 700
PORTS = {"default": (9092, 9095, 9098), "ssl": (9093, 9096, 9099), "sasl": (9094, 9097, 9100)}
"""The ports of each listener, by node, as the tests expect them."""
PACKAGES = (
    *("execa", "glob", "jest", "jest-circus", "jest-extended", "jest-junit"),
    *("jsonwebtoken", "mockdate", "semver", "uuid"),
)
"""The packages that the tests import, in the versions of their package.json."""
ADD_PARTITIONS = """\
#!/usr/bin/env node
const { Kafka } = require('../index')
const { TOPIC, PARTITIONS } = process.env
const admin = new Kafka({ brokers: ['localhost:9092'] }).admin()
const run = async () => {
  await admin.connect()
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: Number(PARTITIONS) }] })
  await admin.disconnect()
}
run()
"""
_NEW_TOPIC = "They want LEADER_NOT_AVAILABLE for a topic that the request creates; Kafka 4.4.0 answers as klamm does."
_NO_TIME = (
    "They join with a rebalance timeout of 0 ms, and are members for as long: if a machine needs longer until the next"
    " request, they fail on Kafka 4.4.0 too."
)
_NO_MESSAGE = "They want null where there is no error; Kafka 4.4.0 sends an empty text too."
LEFT_OUT = {
    "Cluster > BrokerPool #(removeBroker|refreshMetadata|findBroker|withBroker|findConnectedBroker) .*": _NEW_TOPIC,
    "Cluster > BrokerPool #connect does not connect to the seed broker if it has connected brokers": _NEW_TOPIC,
    "Cluster > BrokerPool #disconnect (disconnects all|erases) .*": _NEW_TOPIC,
    "Cluster > BrokerPool #hasConnectedBrokers returns true if any of the brokers are connected": _NEW_TOPIC,
    "Admin fetchTopicMetadata creates a new topic .*": _NEW_TOPIC,
    "Broker > DescribeGroups request": _NEW_TOPIC,
    "Broker > (Heartbeat|LeaveGroup|OffsetCommit|OffsetFetch|SyncGroup) request.*": _NO_TIME,
    "Consumer recovers from offset out of range": _NO_TIME,
    "Broker > (createAcls|describeAcls|describeConfigs) request( without .*)?": _NO_MESSAGE,
    "Broker > ListOffsets v0 .*": "Kafka 4.0 removed this version.",
    "Broker > Produce .* max timestamp difference configured": "Kafka 4.0 removed the config.",
    "Broker > TxnOffsetCommit ignores invalid .*": "Kafka 4.4.0 answers INVALID_PRODUCER_ID_MAPPING too.",
    "Broker > alterPartitionReassignments request": "klamm's nodes reassign at once: nothing is left to list.",
    "Admin alter broker configs": "A broker config that klamm does not know: docs/deviations.md.",
    ".* emits (the )?request timeout.*": "It fails where a broker answers within a millisecond.",
}
"""Tests that are left out or fail, by patterns of their full names."""


def node_modules(checkout: Path) -> Path:
    """Return the folder with the packages that the tests import, installed once."""
    wanted = json.loads((checkout / "package.json").read_text())["devDependencies"]

    def build(folder: Path) -> Path:
        packages = folder / "packages"
        packages.mkdir()
        wants = {"private": True, "dependencies": {name: wanted[name] for name in PACKAGES}}
        (packages / "package.json").write_text(json.dumps(wants))
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"]
        done = subprocess.run(install, cwd=packages, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return packages

    # The packages find each other by the name of this folder.
    return cached(f"kafkajs-tests-{VERSION}", build) / "node_modules"


def copy(checkout: Path, folder: Path, ports: Mapping[int, int], certificate: Path) -> Path:
    """Return the folder of the tests, changed for a server with these ports and this certificate."""
    source = folder / "kafkajs"
    source.mkdir()
    for name in ("index.js", "jest.config.js", "package.json"):
        shutil.copyfile(checkout / name, source / name)
    for name in ("src", "testHelpers"):
        shutil.copytree(checkout / name, source / name, copy_function=shutil.copyfile)
    (source / "scripts").mkdir()
    (source / "scripts" / "addPartitions.sh").write_text(ADD_PARTITIONS)
    (source / "scripts" / "addPartitions.sh").chmod(0o755)
    old = re.compile(rf"\b({'|'.join(map(str, ports))})\b")
    for path in (*(source / "testHelpers").rglob("*.js"), *source.rglob("*.spec.js"), *source.glob("scripts/*")):
        if "protocol" not in path.parts:
            path.write_text(old.sub(lambda found: str(ports[int(found[0])]), path.read_text()))
    shutil.copyfile(certificate, source / "testHelpers" / "certs" / "cert-signed")
    (source / "node_modules").symlink_to(node_modules(checkout))
    return source


def settings(ports: Mapping[int, int], files: TlsFiles) -> list[str]:
    """Return the settings of a server like the brokers for which the tests were written."""
    found = ["node.id=0", "num.partitions=2", "default.replication.factor=2"]
    for name, (first, *others) in PORTS.items():
        found += [
            f"listeners.{name}.bind=127.0.0.1:{ports[first]}",
            f"listeners.{name}.advertise=localhost:{ports[first]}",
            f"listeners.{name}.node_ports={[ports[each] for each in others]}",
            f"listeners.{name}.authorizer=acl",
            f"listeners.{name}.acl.allow_everyone_if_no_acl_found=true",
        ]
    scram = " ".join(
        ScramCredential.from_password(each, f"testtestscram={size}", b"salt of the tests").to_text()
        for each, size in ((ScramMechanism.SCRAM_SHA_256, 256), (ScramMechanism.SCRAM_SHA_512, 512))
    )
    users = {"testscram": scram, **{name: verifiers(name * 2) for name in ("test", "alice", "bob")}}
    table = ", ".join(f'{name} = "{credentials}"' for name, credentials in users.items())
    return [
        *found,
        *files.server_settings("ssl"),
        *files.server_settings("sasl"),
        "listeners.sasl.authenticator=sasl",
        'listeners.sasl.sasl.mechanisms=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]',
        "listeners.sasl.sasl.credential_stores=[]",
        f"listeners.sasl.sasl.users={{ {table} }}",
    ]


def run(source: Path, report: Path) -> tuple[list[Any], str]:
    """Run the tests. Return the report of each, and the output."""
    command = ["node_modules/.bin/jest", "--ci", "--maxWorkers=2", "--forceExit", "--reporters=default"]
    command += ["--testPathIgnorePatterns=/node_modules/", "--testPathIgnorePatterns=/src/protocol/"]
    command += [f"--testNamePattern=^(?!({'|'.join(LEFT_OUT)})$)", "--json", f"--outputFile={report}"]
    environment = {**os.environ, "KAFKA_VERSION": "2.4", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1", "NODE_ENV": "test"}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=3500)
    assert report.exists(), done.stderr
    files = json.loads(report.read_text())["testResults"]
    return [test for file in files for test in file["assertionResults"]], done.stderr[-20_000:]


def test_kafkajs_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if "KLAMM_KAFKAJS" not in os.environ:
        pytest.skip(f"The package on npm has no tests: set KLAMM_KAFKAJS to a checkout of v{VERSION}.")
    ports = {port: lasting_port() for listener in PORTS.values() for port in listener}
    files = TlsFiles(tmp_path / "tls")
    source = copy(Path(os.environ["KLAMM_KAFKAJS"]), tmp_path, ports, files.ca)
    with EmbeddedServer(settings(ports, files), nodes=3):
        tests, output = run(source, tmp_path / "report.json")
    print(dict(Counter(test["status"] for test in tests)))
    assert [test["fullName"] for test in tests if test["status"] == "failed"] == [], output
    assert sum(test["status"] == "passed" for test in tests) >= PASSING, output
