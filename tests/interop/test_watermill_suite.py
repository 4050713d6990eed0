"""The tests of watermill-kafka, a Go library for messages on top of Sarama.

Slow: `pytest -m slow -s tests/interop/test_watermill_suite.py`; `KLAMM_INTEROP_TARGET` is klamm, kafka or gateway.
Needs Go and, once, the network: a Go module carries its tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.test_franz_go_suite import go, outcomes
from tests.peers.builds import cached
from tests.peers.target import target_server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1500)]

MODULE = "github.com/ThreeDotsLabs/watermill-kafka/v3"
VERSION = "v3.0.6"
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TESTS = {
    "TestCtxValues",
    "TestCtxValuesAfterRetry",
    "TestNoGroupSubscriber",
    "TestPublishSubscribe",
    "TestPublishSubscribe_AutoCommitDisabled",
    "TestPublishSubscribe_ordered",
}
"""Tests that need a broker. Each has subtests, which create topics with 50 partitions."""


def program(folder: Path) -> Path:
    """Return the program of the tests, built once."""
    (folder / "go.mod").write_text("module watermill.example\n")
    found = json.loads(go("mod", "download", "-json", f"{MODULE}@{VERSION}", cwd=folder, timeout_s=300))

    def build(target: Path) -> Path:
        source = Path(found["Dir"]) / "pkg" / "kafka"
        go("test", "-c", "-vet=off", "-o", str(target / "tests"), ".", cwd=source, timeout_s=600)
        return target / "tests"

    return cached(f"watermill-kafka-tests-{VERSION}", build)


def test_watermill_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    command = [program(tmp_path), "-test.v", "-test.timeout=800s", f"-test.run=^({'|'.join(sorted(TESTS))})$"]
    with target_server(tmp_path / "server", SETTINGS) as server:
        environment = {**os.environ, "WATERMILL_TEST_KAFKA_BROKERS": server.bootstrap}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=860)
    found = outcomes(done.stdout)
    print(dict(Counter(found.values())))
    output = (done.stdout + done.stderr)[-20_000:]
    assert [name for name, outcome in found.items() if outcome == "FAIL"] == [], output
    assert {name for name, outcome in found.items() if outcome == "PASS"} >= TESTS, output
