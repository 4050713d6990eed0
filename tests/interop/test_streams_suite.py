"""Apache Kafka's own integration tests of Kafka Streams, and of the tools for streams groups.

Slow: `pytest -m slow -s tests/interop/test_streams_suite.py`; `KLAMM_INTEROP_TARGET` is klamm or kafka. Needs a JDK,
and Maven once. The test classes are those of the last release that publishes them; most run with Kafka Streams and
Kafka of the newest. For klamm, `java/streams` stands before the class that starts the cluster.

Not here: classes that start no cluster, and these two, whose cluster klamm cannot be.

- `KafkaStreamsTelemetryIntegrationTest` puts a Java class into the broker, which keeps what clients push.
- `HighAvailabilityTaskAssignorIntegrationTest` gives each broker a rack of its own; klamm's nodes share one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.interop.test_java_suite import SOURCES, Part, command, outcomes, run
from tests.peers.kafka_jars import PUBLISHED_TESTS, VERSION, streams_tests
from tests.peers.target import TARGET

pytestmark = [pytest.mark.interop, pytest.mark.slow]

STREAMS = "org.apache.kafka.streams.integration"
TOOLS = "org.apache.kafka.tools"
STAND_INS = ("KlammBrokers", "KlammInside", "KlammProcess")


@dataclass(frozen=True)
class Suite:
    """A class of tests, how many of them pass at least, and a time that a slow machine keeps.

    `nested` says that a class inside it has the same tests for groups that are assigned at once. `release` is the
    release of Kafka Streams, the tools and Kafka. The tests of tools replace the function that ends the JVM, and later
    releases have this function elsewhere.
    """

    name: str
    passing: int
    budget_s: int = 1200
    nested: bool = False
    release: str = VERSION

    @property
    def part(self) -> Part:
        """Return the suite in the form that the tests of clients use."""
        nested = (f"{self.name}$WithAssignmentBatchingDisabledTest",) if self.nested else ()
        return Part(self.name, (self.name, *nested), self.passing)


SUITES = (
    # With streams groups and without.
    Suite(f"{STREAMS}.EosIntegrationTest", 38, 7200),
    Suite(f"{STREAMS}.HandlingSourceTopicDeletionIntegrationTest", 2),
    Suite(f"{STREAMS}.InternalTopicIntegrationTest", 6),
    Suite(f"{STREAMS}.IQv2EndpointToPartitionsIntegrationTest", 4),
    Suite(f"{STREAMS}.IQv2IntegrationTest", 14),
    # RocksDB's store takes fewer queries in 4.4, with any server.
    Suite(f"{STREAMS}.IQv2StoreIntegrationTest", 200, 3600, release=PUBLISHED_TESTS),
    Suite(f"{STREAMS}.IQv2VersionedStoreIntegrationTest", 2),
    Suite(f"{STREAMS}.JoinWithIncompleteMetadataIntegrationTest", 2),
    Suite(f"{STREAMS}.KStreamRepartitionIntegrationTest", 52, 2400, release=PUBLISHED_TESTS),
    Suite(f"{STREAMS}.MetricsIntegrationTest", 6),
    Suite(f"{STREAMS}.RebalanceProtocolMigrationIntegrationTest", 4, nested=True),
    Suite(f"{STREAMS}.RestoreIntegrationTest", 16, 2400),
    Suite(f"{STREAMS}.RocksDBMetricsIntegrationTest", 2),
    Suite(f"{STREAMS}.SmokeTestDriverIntegrationTest", 2, 2400, nested=True, release=PUBLISHED_TESTS),
    Suite(f"{STREAMS}.StandbyTaskCreationIntegrationTest", 4),
    Suite(f"{STREAMS}.StreamsUncaughtExceptionHandlerIntegrationTest", 16, 2400, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.streams.DeleteStreamsGroupOffsetTest", 12, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.streams.DeleteStreamsGroupTest", 8, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.streams.DescribeStreamsGroupTest", 11, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.streams.ListStreamsGroupTest", 5, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.streams.ResetStreamsGroupOffsetTest", 7, release=PUBLISHED_TESTS),
    # With classic groups.
    Suite(f"{STREAMS}.DeadLetterQueueIntegrationTest", 6),
    Suite(f"{STREAMS}.KafkaStreamsCloseOptionsIntegrationTest", 1),
    Suite(f"{STREAMS}.RebalanceIntegrationTest", 2, nested=True),
    Suite(f"{STREAMS}.TaskMetadataIntegrationTest", 2, release=PUBLISHED_TESTS),
    Suite(f"{TOOLS}.ResetIntegrationTest", 19, 2400, release=PUBLISHED_TESTS),
)

LEFT_OUT = {
    "RestoreIntegrationTest.shouldRecycleStateFromStandbyTaskPromotedToActiveTaskAndNotRestore": (
        "A store is closed once more with streams groups in 4.3.1, whose server took the standby task away first."
    ),
}
"""Tests that fail because 4.4.0 has changed, on klamm and on Kafka."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that returns the class path for a release. For klamm, klamm's classes come before Kafka's."""

    @cache
    def of(release: str) -> str:
        jars = streams_tests(release)
        if TARGET == "kafka":
            return jars
        folder = tmp_path_factory.mktemp("classes")
        sources = [SOURCES / "cluster" / f"{name}.java" for name in STAND_INS]
        sources += (SOURCES / "streams").glob("*.java")
        subprocess.run(["javac", "-cp", jars, "-d", folder, *sources], check=True, timeout=300)
        return f"{folder}:{jars}"

    return of


def parameters() -> list[object]:
    """Return the suites, each with its time limit and the time for JUnit's report."""
    return [
        pytest.param(each, id=each.name.rpartition(".")[2], marks=pytest.mark.timeout(each.budget_s + 60))
        for each in SUITES
    ]


@pytest.mark.parametrize("suite", parameters())
def test_kafkas_own_tests_of_streams_pass(suite: Suite, path: Callable[[str], str], tmp_path: Path) -> None:
    left_out = [f"--exclude-methodname=.*{name.replace('.', '[.#]')}" for name in LEFT_OUT]
    printed = run([*command(suite.part, path(suite.release), tmp_path), *left_out], suite.budget_s)
    report = tmp_path / "TEST-junit-jupiter.xml"
    assert report.exists(), printed[-5000:]
    passed, failed, aborted = outcomes(report)
    print({"passed": len(passed), "failed": len(failed), "aborted": aborted.total()}, dict(aborted))
    assert not failed, "\n\n".join(f"{test}: {why}" for test, why in failed.items())
    assert len(passed) >= suite.passing, passed
