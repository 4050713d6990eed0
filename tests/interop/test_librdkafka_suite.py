"""librdkafka's own tests that need a broker.

Slow: `pytest -m slow -s tests/interop/test_librdkafka_suite.py`; `KLAMM_INTEROP_TARGET` is klamm, kafka or gateway.
Each has three nodes. Needs cargo, make, gcc and, once, the network: a crate carries the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients.java import java_command
from tests.peers.librdkafka import librdkafka_tests
from tests.peers.target import TARGET, target_cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(2400)]

RUN_S = 1500
BROKER_VERSION = "4.1.0"
OF_KLAMM = {
    "num.partitions": "4",
    "listeners.default.authorizer": '"acl"',
    "listeners.default.acl.allow_everyone_if_no_acl_found": "true",
}
OF_KAFKA = {
    "num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
LEFT_OUT = {
    "0077_compaction": "sets segment.bytes below the minimum that Kafka has since 4.0",
    "0129_fetch_aborted_msgs": "sets segment.bytes below the minimum that Kafka has since 4.0",
    "0098_consumer_txn": "writes with a Java program that is compiled against the folder of a Kafka release",
}
LEFT_OUT_ON_KLAMM = {"0081_admin": "changes a broker config that klamm does not know: docs/deviations.md"}
PASSING = 80
CUTTING = ("0049", "0068", "0075", "0076", "0088", "0094")
"""Tests that cut their connections. They may close a file descriptor that another test uses, so they run alone."""
ROUNDS: tuple[tuple[list[str], dict[str, str]], ...] = (
    (["-p3", "-E"], {}),
    (["-p1"], {"TESTS": ",".join(CUTTING)}),
)
"""Options and environment variables of the runner."""
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


def tools(folder: Path) -> Path:
    """Return a folder like that of a Kafka release, with the scripts that the tests call."""
    (folder / "bin").mkdir(parents=True)
    for name, main_class in TOOLS.items():
        script = folder / "bin" / name
        command = " ".join(f"'{word}'" for word in java_command(main_class))
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    return folder


def run(bootstrap: str, folder: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Run the tests. Return the report of each test by its name, and the end of the output."""
    tests = librdkafka_tests()
    config, report, printed = folder / "test.conf", folder / "report.json", folder / "output"
    config.write_text(f"metadata.broker.list={bootstrap}\ntest.timeout.multiplier=3\n")
    environment = {
        **os.environ,
        "BROKERS": bootstrap,
        "KAFKA_PATH": str(tools(folder / "kafka")),
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "TEST_REPORT": str(report),
        "TESTS_SKIP": ",".join(LEFT_OUT | (LEFT_OUT_ON_KLAMM if TARGET == "klamm" else {})),
    }
    reports: dict[str, dict[str, Any]] = {}
    for options, chosen in ROUNDS:
        report.unlink(missing_ok=True)
        command = [tests / "test-runner", "-L", "-Q", *options]
        with printed.open("ab") as output:
            ended = subprocess.run(
                command, cwd=tests, env=environment | chosen, stdout=output, stderr=output, timeout=RUN_S, check=False
            )
        end = printed.read_text(errors="replace")[-20_000:]
        assert report.exists(), f"ended with {ended.returncode}\n{end}"
        found = json.loads(report.read_text())["tests"]
        reports |= {name: each for name, each in found.items() if name not in reports or each["state"] != "SKIPPED"}
    return reports, end


def test_librdkafka_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    with target_cluster(tmp_path / "cluster", OF_KLAMM if TARGET == "klamm" else OF_KAFKA) as cluster:
        reports, output = run(cluster.bootstrap, tmp_path)
    print(dict(Counter(report["state"] for report in reports.values())))
    failed = {name: report["report"] for name, report in reports.items() if report["state"] == "FAILED"}
    assert not failed, output
    assert sum(report["state"] == "PASSED" for report in reports.values()) >= PASSING, output
