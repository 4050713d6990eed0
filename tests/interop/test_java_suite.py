"""Apache Kafka's own integration tests of its Java clients.

Slow: `pytest -m slow -s tests/interop/test_java_suite.py`; `KLAMM_INTEROP_TARGET` is klamm, kafka or gateway.
Needs a JDK and, once, Maven. The tests come from Kafka's test jars. They start their own cluster in the JVM; for the
gateway, `java/gateway` starts klamm before that cluster. For klamm, `java/cluster` stands before the classes that start
the cluster; there, a test that needs the inside of a broker is aborted and counted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.peers.builds import cache_dir
from tests.peers.kafka_jars import PUBLISHED_TESTS, classpath, tests
from tests.peers.klamm_server import ROOT
from tests.peers.target import TARGET

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(3600)]

SOURCES = Path(__file__).parent / "java"
CLIENTS = "org.apache.kafka.clients"
CORE = "kafka.api"
REQUESTS = "kafka.server"
CHANGING = "org.apache.kafka.common.test.junit.GatewayClasses"
RUN_S = 3000
TEST_S = 180
"""The time after which JUnit fails a test."""


@dataclass(frozen=True)
class Part:
    """Test classes, and the minimum number of their tests that pass on klamm."""

    name: str
    classes: tuple[str, ...]
    passing: int


PARTS = (
    Part(
        "transactions",
        (
            f"{CLIENTS}.TransactionsExpirationTest",
            f"{CLIENTS}.TransactionsWithMaxInFlightOneTest",
            f"{CLIENTS}.admin.AdminFenceProducersTest",
            f"{CLIENTS}.admin.DescribeProducersWithBrokerIdTest",
            f"{CLIENTS}.producer.ProducerIdExpirationTest",
            f"{CLIENTS}.producer.ProducerIntegrationTest",
            f"{CORE}.TransactionsTest",
        ),
        passing=50,
    ),
    Part(
        "consumers",
        (
            f"{CLIENTS}.consumer.ConsumerIntegrationTest",
            f"{CLIENTS}.consumer.PlaintextConsumerAssignTest",
            f"{CLIENTS}.consumer.PlaintextConsumerCommitTest",
            f"{CLIENTS}.consumer.PlaintextConsumerSubscriptionTest",
        ),
        passing=55,
    ),
    Part(
        "producers",
        (f"{CLIENTS}.producer.ProducerFailureHandlingTest", f"{CLIENTS}.producer.ProducerSendWhileDeletionTest"),
        passing=10,
    ),
    Part(
        "admin",
        tuple(
            f"{CLIENTS}.admin.{name}Test"
            for name in (
                "AutoTopicCreation",
                "ConcurrentListOffsetsRequest",
                "DynamicGroupConfigIntegration",
                "ListOffsetsIntegration",
            )
        ),
        passing=10,
    ),
    Part(
        "streams groups",
        (
            f"{REQUESTS}.StreamsGroupDescribeRequestTest",
            f"{REQUESTS}.StreamsGroupHeartbeatRequestTest",
            f"{REQUESTS}.StreamsGroupHeartbeatRequestTest$WithAssignmentBatchingDisabledTest",
        ),
        passing=26,
    ),
)

# Classes and methods that fail. docs/deviations.md explains the differences.
_NO_INTERVAL = "klamm computes an assignment at once and has no `consumer.assignment.interval.ms`."
LEFT_OUT = {
    "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithBrokerSynonym": _NO_INTERVAL,
    "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithStaticBrokerConfig": _NO_INTERVAL,
    "ProducerFailureHandlingTest.testCannotSendToInternalTopic": (
        "It asks for a topic, and at once waits until there is none of that name: klamm has it by then."
    ),
    "ProducerFailureHandlingTest.testNotEnoughReplicasAfterBrokerShutdown": (
        "All nodes share one log: `min.insync.replicas` is not held against the nodes that run."
    ),
    "testFencedMemberCanRejoinWithEpochZero": (
        "Kafka 4.4 answers how often a member of a streams group reports offsets; 4.3.1 does not."
    ),
    "testStreamsGroupHeartbeatIsInaccessibleWhenOffsetTopicNotExist": "Groups do not wait for `__consumer_offsets`.",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the class path. For klamm and the gateway, klamm's classes come before Kafka's."""
    jars = f"{tests()}:{classpath(PUBLISHED_TESTS)}"
    if TARGET == "kafka":
        return jars
    sources = [*(SOURCES / "cluster").glob("*.java")]
    if TARGET == "gateway":
        sources = [*(SOURCES / "gateway").glob("*.java"), SOURCES / "cluster" / "KlammProcess.java"]
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-cp", jars, "-d", folder, *sources], check=True, timeout=300)
    if TARGET == "gateway":
        subprocess.run(["java", "-cp", f"{folder}:{jars}", CHANGING, folder], check=True, timeout=300)
    return f"{folder}:{jars}"


def command(part: Part, path: str, folder: Path) -> list[str]:
    """Return the command of JUnit's console with the classes of `part`. Reports and clusters are below `folder`."""
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1200M", f"-Dklamm.folder={folder}"]
    options += [f"-Dklamm.python={sys.executable}", "-Djunit.jupiter.extensions.autodetection.enabled=true"]
    options += [f"-Djunit.jupiter.execution.timeout.testtemplate.method.default={TEST_S}s"]
    console = ["org.junit.platform.console.ConsoleLauncher", "execute", "--details=none", "--disable-banner"]
    console += [f"--select-class={name}" for name in part.classes]
    if TARGET == "klamm":
        console += [f"--exclude-methodname=.*{name.replace('.', '[.#]')}" for name in LEFT_OUT]
    return ["java", *options, "-cp", path, *console, "--reports-dir", str(folder)]


def environment() -> dict[str, str]:
    """Return an environment in which the tests start the klamm of this checkout, with its bytecode."""
    roots = [entry for entry in sys.path if entry.startswith(str(ROOT)) and "site-packages" not in entry]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(roots), "PYTHONPYCACHEPREFIX": str(cache_dir() / "pycache")}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def run(arguments: Sequence[str], budget_s: float) -> str:
    """Run JUnit's console, and return its output.

    After its time limit it is killed with the servers that it started.
    """
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    ) as console:
        try:
            return console.communicate(timeout=budget_s)[0]
        except BaseException:
            os.killpg(console.pid, signal.SIGKILL)
            raise


def outcomes(report: Path) -> tuple[list[str], dict[str, str], Counter[str]]:
    """Return the passed tests, the failed tests with the cause, and the counted reasons of aborted tests."""
    passed, failed, aborted = [], {}, Counter[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname']}#{case.attrib['name']}"
        problem = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            passed.append(name)
        elif problem.tag == "skipped":
            aborted[(problem.text or "").strip().partition("\n")[0].rpartition("Exception: ")[2]] += 1
        else:
            failed[name] = (problem.text or "")[:3000]
    return passed, failed, aborted


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_kafkas_own_tests_pass(part: Part, path: str, tmp_path: Path) -> None:
    printed = run(command(part, path, tmp_path), RUN_S)
    report = tmp_path / "TEST-junit-jupiter.xml"
    assert report.exists(), printed[-5000:]
    passed, failed, aborted = outcomes(report)
    print({"passed": len(passed), "failed": len(failed), "aborted": aborted.total()}, dict(aborted))
    assert not failed, "\n\n".join(f"{name}: {why}" for name, why in failed.items())
    assert len(passed) >= part.passing, passed
