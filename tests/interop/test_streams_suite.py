"""Apache Kafka's own integration tests of Kafka Streams, those that run with streams groups too.

Slow: `pytest -m slow -s tests/interop/test_streams_suite.py`; `KLAMM_INTEROP_TARGET` is klamm or kafka. Needs a JDK,
and Maven once. For klamm, `java/streams` stands before the class that starts the cluster.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.test_java_suite import RUN_S, SOURCES, Part, command, environment, outcomes
from tests.peers import kafka_jars
from tests.peers.target import TARGET

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(3600)]

PACKAGE = "org.apache.kafka.streams.integration"
PASSING = {
    "HandlingSourceTopicDeletionIntegrationTest": 2,
    "InternalTopicIntegrationTest": 6,
    "JoinWithIncompleteMetadataIntegrationTest": 2,
    "SmokeTestDriverIntegrationTest": 2,
    "StandbyTaskCreationIntegrationTest": 4,
}
"""How many tests of a class pass at least."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path: on klamm with our classes before Kafka's."""
    jars = f"{kafka_jars.streams_tests()}:{kafka_jars.tests()}:{kafka_jars.classpath(kafka_jars.PUBLISHED_TESTS)}"
    if TARGET == "kafka":
        return jars
    folder = tmp_path_factory.mktemp("classes")
    sources: Sequence[Path] = [*(SOURCES / "cluster").glob("*.java"), *(SOURCES / "streams").glob("*.java")]
    subprocess.run(["javac", "-cp", jars, "-d", folder, *sources], check=True, timeout=300)
    return f"{folder}:{jars}"


@pytest.mark.parametrize("name", PASSING)
def test_kafkas_own_tests_of_streams_pass(name: str, path: str, tmp_path: Path) -> None:
    part = Part(name, (f"{PACKAGE}.{name}",), PASSING[name])
    done = subprocess.run(
        command(part, path, tmp_path), capture_output=True, text=True, timeout=RUN_S, env=environment(), check=False
    )
    report = tmp_path / "TEST-junit-jupiter.xml"
    assert report.exists(), done.stdout[-5000:] + done.stderr[-5000:]
    passed, failed, aborted = outcomes(report)
    print({"passed": len(passed), "failed": len(failed), "aborted": aborted.total()}, dict(aborted))
    assert not failed, "\n\n".join(f"{test}: {why}" for test, why in failed.items())
    assert len(passed) >= part.passing, passed
