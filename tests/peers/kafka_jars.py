"""Published jars of Apache Kafka and others, for comparison in tests and benchmarks. Maven fetches them once into a
cache.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from tests.peers.builds import alone

VERSION = "4.4.0"
PUBLISHED_TESTS = "4.3.1"
"""The last release whose own tests and file connectors Maven finds."""
FLINK_VERSION = "2.0.1"
FLINK_CONNECTOR_VERSION = "4.0.1-2.0"
FLINK_REGISTRY_VERSION = "2.1.0"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klamm</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_CLASSIFIER = "<classifier>{}</classifier>"
_TESTED = ("kafka-clients-integration-tests", "kafka-clients", "kafka-server-common", "kafka_2.13")
_TEST_CLUSTER = ("kafka-test-common-runtime", "kafka-test-common-internal-api")
_TEST_HARNESS = (*_TEST_CLUSTER, "kafka-test-common-util")
_JUNIT = (
    ("org.junit.platform", "junit-platform-console-standalone", "1.13.1"),
    ("org.mockito", "mockito-core", "5.20.0"),
    ("net.bytebuddy", "byte-buddy", "1.17.7"),
    ("net.bytebuddy", "byte-buddy-agent", "1.17.7"),
    ("org.objenesis", "objenesis", "3.3"),
    ("org.hamcrest", "hamcrest", "3.0"),
)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    return _DEPENDENCY.format(group, artifact, version, classifier and _CLASSIFIER.format(classifier))


def _fetch(
    folder: Path, dependencies: Sequence[tuple[str, ...]], *, transitive: bool = True, timeout_s: float = 600
) -> None:
    complete = folder / ".complete"
    if complete.exists():
        return
    # One lock for all, because two processes must not write to Maven's own repository at once.
    with alone("maven"):
        if complete.exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(dependencies="".join(_dependency(*parts) for parts in dependencies)))
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={folder}", *([] if transitive else ["-DexcludeTransitive=true"])]
        subprocess.run(command, check=True, timeout=timeout_s)
        complete.touch()


def folder(version: str = VERSION) -> Path:
    """Return the folder with the server, the tools and the clients of a release. `KAFKA_JARS` may name another for
    `VERSION`.
    """
    if version == VERSION and os.environ.get("KAFKA_JARS"):
        return Path(os.environ["KAFKA_JARS"])
    for name in (f"kafka-jars-{version}", f"klamm-test-jars-{version}"):
        if (_cache() / name / ".complete").exists():
            return _cache() / name
    target = _cache() / f"klamm-test-jars-{version}"
    _fetch(
        target,
        [
            ("org.apache.kafka", "kafka_2.13", version),
            ("org.apache.kafka", "kafka-tools", version),
            ("org.slf4j", "slf4j-nop", "1.7.36"),
        ],
    )
    return target


def classpath(version: str = VERSION) -> str:
    """Return the class path of a release for `java -cp`."""
    return str(folder(version) / "*")


def client(version: str) -> str:
    """Return the class path of a release's Java clients alone, with their dependencies."""
    target = _cache() / f"klamm-test-jars-{version}-client"
    _fetch(target, [("org.apache.kafka", "kafka-clients", version), ("org.slf4j", "slf4j-nop", "1.7.36")])
    return str(target / "*")


def streams() -> str:
    """Return the class path of Kafka Streams and RocksDB, to be used with `classpath()`: 75 MB."""
    target = _cache() / f"klamm-test-jars-{VERSION}-streams"
    _fetch(target, [("org.apache.kafka", "kafka-streams", VERSION)])
    return str(target / "*")


def flink() -> str:
    """Return the class path of Flink, its connector for Kafka and the connector's client: 150 MB, not to be used with
    `classpath()`.
    """
    target = _cache() / f"klamm-test-jars-flink-{FLINK_VERSION}"
    dependencies = [
        ("org.apache.flink", "flink-streaming-java", FLINK_VERSION),
        ("org.apache.flink", "flink-clients", FLINK_VERSION),
        ("org.apache.flink", "flink-connector-base", FLINK_VERSION),
        ("org.apache.flink", "flink-connector-kafka", FLINK_CONNECTOR_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    _fetch(target, dependencies)
    return str(target / "*")


def flink_registry() -> str:
    """Return the jar of Flink's Avro format for a Schema Registry, which contains Confluent's client: 35 MB."""
    target = _cache() / f"klamm-test-jars-flink-registry-{FLINK_REGISTRY_VERSION}"
    names = ("flink-core", "flink-sql-avro-confluent-registry")
    dependencies = [("org.apache.flink", name, FLINK_REGISTRY_VERSION) for name in names]
    _fetch(target, [*dependencies, ("org.slf4j", "slf4j-nop", "1.7.36")])
    return str(target / "*")


def file_connectors() -> str:
    """Return the class path of Kafka Connect's file connectors, for use with `classpath()`, because
    `classpath()` has Connect itself.
    """
    target = _cache() / f"klamm-test-jars-{PUBLISHED_TESTS}-connect-file"
    _fetch(target, [("org.apache.kafka", "connect-file", PUBLISHED_TESTS)], transitive=False)
    return str(target / "*")


def tests() -> str:
    """Return the class path of Kafka's own integration tests of its clients, and JUnit, to be used with
    `classpath(PUBLISHED_TESTS)`.
    """
    target = _cache() / f"klamm-test-jars-{PUBLISHED_TESTS}-tests"
    tested = [("org.apache.kafka", name, PUBLISHED_TESTS, "test") for name in _TESTED]
    harness = [("org.apache.kafka", name, PUBLISHED_TESTS) for name in _TEST_HARNESS]
    _fetch(target, [*tested, *harness, *_JUNIT], transitive=False)
    return str(target / "*")


def streams_tests(version: str) -> str:
    """Return the class path of Kafka's own tests of Kafka Streams and of its tools, with Streams itself: 100 MB more.

    Streams, the tools and the cluster in the JVM are of `version`. The tests are always of `PUBLISHED_TESTS`. Classes
    that they need and a later version lacks are at the end of the path.
    """
    target = _cache() / f"klamm-test-jars-{version}-streams-suite"
    tests = ("kafka-streams-integration-tests", "kafka-streams", "kafka-tools", "kafka-clients", "kafka-server-common")
    dependencies: list[tuple[str, ...]] = [("org.apache.kafka", name, PUBLISHED_TESTS, "test") for name in tests]
    dependencies += [("org.apache.kafka", name, version) for name in (*_TEST_CLUSTER, "kafka-streams")]
    dependencies += [
        ("org.apache.kafka", "kafka-test-common-util", PUBLISHED_TESTS),
        ("org.rocksdb", "rocksdbjni", "10.1.3"),
        # Some tests read the log, and Kafka 4.4's cluster has certificates.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        *(("org.bouncycastle", f"{name}-jdk18on", "1.80.2") for name in ("bcprov", "bcutil")),
        ("org.bouncycastle", "bcpkix-jdk18on", "1.80"),
    ]
    _fetch(target, [*dependencies, *_JUNIT], transitive=False)
    releases = dict.fromkeys((version, PUBLISHED_TESTS))
    return ":".join((f"{target}/*", *map(classpath, releases)))


def newest() -> str:
    """Return the newest release that Maven finds: `VERSION` or a later one."""
    target = _cache() / "klamm-test-jars-newest"
    rmtree(target, ignore_errors=True)
    _fetch(target, [("org.apache.kafka", "kafka-clients", f"[{VERSION},)")], transitive=False, timeout_s=120)
    return next(target.glob("kafka-clients-*.jar")).stem.removeprefix("kafka-clients-")


def jar(artifact: str, version: str = VERSION) -> Path:
    """Return one jar of `org.apache.kafka`."""
    if version == VERSION:
        return folder() / f"{artifact}-{version}.jar"
    target = _cache() / f"klamm-test-jars-{version}-{artifact}"
    _fetch(target, [("org.apache.kafka", artifact, version)], transitive=False)
    return target / f"{artifact}-{version}.jar"
