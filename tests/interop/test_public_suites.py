"""Integration tests of public projects, with `EmbeddedServer` as their broker.

Slow: `pytest -m slow tests/interop/test_public_suites.py`. Needs pip and, once, the network. The tests come from the
sdists on PyPI. The sdists of aiokafka, confluent-kafka and FastStream have no tests, and Quix Streams has no sdist:
`KLAMM_AIOKAFKA`, `KLAMM_FASTSTREAM` and `KLAMM_QUIX` name checkouts. A `Suite` says how each project finds the broker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from klamm.testing import EmbeddedServer
from tests.peers.builds import cache_dir

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1200)]

# The sdist of kafka-python lacks both files. With another broker only this class is used.
_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def dump_logs(self):
        pass


class SpawnedService:
    pass
"""

# The end of aiokafka's conftest.py: a running broker replaces its container.
_AIOKAFKA_FIXTURES = """

@pytest.fixture(scope="session")
def kafka_server():
    host, _, port = os.environ["KAFKA_BOOTSTRAP"].rpartition(":")
    return KafkaServer(host, int(port), 0, 0, 0, None)


@pytest.fixture(scope="class")
def setup_test_class(request, loop, kafka_server):
    request.cls.loop = loop
    request.cls.kafka_host = kafka_server.host
    request.cls.kafka_port = kafka_server.port
    request.cls.kafka_version = os.environ["KAFKA_VERSION"]
    request.cls.hosts = kafka_server.hosts
"""

# The end of Quix's conftest.py: running brokers and a Schema Registry replace its containers. Tests that replicate
# topics between brokers need two.
_QUIX_FIXTURES = """

import os

MAIN, EXTERNAL = os.environ["KAFKA_BOOTSTRAP"], os.environ["KAFKA_BOOTSTRAP_OF_ANOTHER"]


@pytest.fixture(scope="session")
def kafka_container():
    return KafkaContainer(MAIN, MAIN)


@pytest.fixture(scope="session")
def kafka_container_factory():
    def factory():
        yield KafkaContainer(EXTERNAL, EXTERNAL)

    return factory


@pytest.fixture(scope="session")
def schema_registry_container():
    return SchemaRegistryContainer(os.environ["SCHEMA_REGISTRY"])
"""

# The end of FastStream's conftest.py: the default address is port 9092 of localhost, and a busy machine may need longer
# than the 3 s that a test waits.
_FASTSTREAM_DEFAULTS = """

import os

import aiokafka.admin
import faststream.confluent.fastapi
import faststream.kafka.fastapi
from tests.brokers.base.basic import BaseTestcaseConfig

for package in (faststream.confluent, faststream.kafka):
    for connecting in (package.KafkaBroker, package.fastapi.KafkaRouter):
        connecting.__init__.__defaults__ = (os.environ["KAFKA_BOOTSTRAP"],)
aiokafka.admin.AIOKafkaAdminClient.__init__.__kwdefaults__["bootstrap_servers"] = os.environ["KAFKA_BOOTSTRAP"]
BaseTestcaseConfig.timeout = 20.0
"""

_CLIENTS = ("kafka", "confluent")
_FASTSTREAM_SETTINGS = """\
import os
from dataclasses import dataclass


@dataclass
class Settings:
    url: str = os.environ["KAFKA_BOOTSTRAP"]
"""


@dataclass(frozen=True)
class Suite:
    """One project: what to install and to run, and the change it needs.

    `settings` are the broker's. `environment` says where it is. `checkout` is the variable that names a checkout of the
    project, where its sdist has no tests; `copied` is what the tests need of it. `added` are files that the sdist
    lacks, `appended` is text at the end of files. `left_out` are tests that fail on klamm, or at times, with the
    reason. With `two_brokers` the address of a second one, with a Schema Registry, is in the environment too.
    """

    project: str
    version: str
    tests: tuple[str, ...]
    requires: tuple[str, ...]
    environment: Callable[[str], Mapping[str, str]]
    passing: int
    settings: tuple[str, ...] = ()
    checkout: str = ""
    copied: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    appended: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    two_brokers: bool = False


SUITES = (
    Suite(
        "kafka-python",
        "3.0.12",
        tests=("test/integration", "--ignore=test/integration/test_ssl_integration.py"),
        requires=("py", "lz4", "python-snappy", "zstandard", "crc32c"),
        # KAFKA_ROOT must be a directory; nothing is read from it.
        environment=lambda bootstrap: {
            "KAFKA_URI": f"kafka://{bootstrap}",
            "KAFKA_VERSION": "4.3",
            "KAFKA_ROOT": os.getcwd(),
        },
        settings=(
            "num.partitions=4",
            "node.id=0",
            "group.initial.rebalance.delay.ms=1000",
            "group.min.session.timeout.ms=1000",
            "listeners.default.authorizer=acl",
            'listeners.default.acl.super_users=["User:ANONYMOUS"]',
        ),
        added={"test/__init__.py": "", "test/service.py": _SERVICE},
        passing=55,
    ),
    Suite(
        "faust-streaming",
        "0.15.3",
        tests=("tests/integration/broker", "--override-ini=addopts="),
        requires=("pytest<8", "pytest-asyncio<0.24", "confluent-kafka>=2.8"),
        environment=lambda bootstrap: {"FAUST_TEST_BROKER": f"kafka://{bootstrap}"},
        passing=2,
    ),
    Suite(
        "aiokafka",
        "0.14.0",
        # These tests of SASL, Kerberos and TLS run tools inside the container.
        tests=(
            *(f"tests/test_{name}.py" for name in ("admin", "client", "conn", "consumer", "coordinator", "pep492")),
            *(f"tests/test_{name}.py" for name in ("producer", "sender")),
            *(f"tests/test_transactional_{name}.py" for name in ("consumer", "producer")),
            "-m=not ssl",
        ),
        requires=("pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-mock==3.15.1", "docker==7.1.0", "cramjam"),
        environment=lambda bootstrap: {"KAFKA_BOOTSTRAP": bootstrap, "KAFKA_VERSION": "4.3.0"},
        settings=("num.partitions=2", "node.id=0"),
        checkout="KLAMM_AIOKAFKA",
        # The package itself is not copied: the tests import the installed one, which is compiled.
        copied=("tests", "pyproject.toml"),
        appended={"tests/conftest.py": _AIOKAFKA_FIXTURES},
        left_out={
            "tests/test_coordinator.py::TestKafkaCoordinatorIntegration::test_coordinator__heartbeat_routine": (
                "It counts the calls of a mock in real time: a busy machine fails it on any broker."
            ),
        },
        passing=207,
    ),
    Suite(
        "faststream",
        "0.7.4",
        # Tests that connect, through aiokafka and through confluent-kafka.
        tests=(
            *(f"tests/{what}/{client}" for what in ("brokers", "opentelemetry", "prometheus") for client in _CLIENTS),
            # This test imports the client of another broker, and does not connect.
            *(f"--ignore=tests/brokers/{client}/test_misconfigure.py" for client in _CLIENTS),
            # Consumers start at the latest offset, perhaps after the record, so many of these tests are repeated by the
            # project itself.
            *("-m=connected", "--reruns=5", "--reruns-delay=1"),
        ),
        requires=(
            *("aiokafka<0.15", "confluent-kafka<3", "typer", "opentelemetry-sdk<2", "prometheus-client<0.30"),
            *(
                "pytest==9.0.3",
                "pytest-asyncio==1.3.0",
                "pytest-rerunfailures>=15.1",
                "dirty-equals==0.11",
                "freezegun",
                "httpx==0.28.1",
            ),
            *("fastapi==0.140.0", "msgspec", "psutil", "pydantic-settings<3", "uvicorn"),
        ),
        environment=lambda bootstrap: {"KAFKA_BOOTSTRAP": bootstrap},
        checkout="KLAMM_FASTSTREAM",
        copied=("tests", "pyproject.toml"),
        added={f"tests/brokers/{client}/settings.py": _FASTSTREAM_SETTINGS for client in _CLIENTS},
        appended={"tests/conftest.py": _FASTSTREAM_DEFAULTS},
        passing=560,
    ),
    Suite(
        "quixstreams",
        "3.25.0",
        tests=(
            # Tests that need a broker or a Schema Registry. Those with an application take half an hour, and are left
            # out.
            *(f"tests/test_quixstreams/test_{name}" for name in ("models", "kafka", "internal_consumer")),
            *(f"tests/test_quixstreams/test_{name}.py" for name in ("internal_producer", "checkpointing")),
            "tests/test_quixstreams/test_sources/test_core/test_kafka.py",
        ),
        requires=("pytest<9", "testcontainers==4.13.2", "fastavro<2", "protobuf<7", "pandas<3", "pyarrow"),
        environment=lambda bootstrap: {"KAFKA_BOOTSTRAP": bootstrap},
        settings=("node.id=0", "group.initial.rebalance.delay.ms=10", "log.retention.ms=-1"),
        checkout="KLAMM_QUIX",
        copied=("tests", "pyproject.toml"),
        appended={"tests/conftest.py": _QUIX_FIXTURES},
        two_brokers=True,
        passing=518,
    ),
)


def run(*command: str | Path, cwd: Path, timeout_s: float, **environment: str) -> str:
    """Return the output of a command that may fail."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, env=inherited | environment
    )
    return done.stdout + done.stderr


def download(suite: Suite, folder: Path) -> Path:
    """Return the folder of the unpacked sdist."""
    cached = cache_dir() / "sdists"
    cached.mkdir(parents=True, exist_ok=True)
    name = f"{suite.project.replace('-', '_')}-{suite.version}"
    sdist = cached / f"{name}.tar.gz"
    if not sdist.exists():
        wanted = f"{suite.project}=={suite.version}"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", cached, wanted]
        output = run(*pip, cwd=folder, timeout_s=300)
        assert sdist.exists(), output
    shutil.unpack_archive(sdist, folder)
    return folder / name


def copy(suite: Suite, folder: Path) -> Path:
    """Return a folder with the parts of a checkout that the tests need. Skip the test without a checkout."""
    checkout = os.environ.get(suite.checkout)
    if not checkout:
        wanted = f"{suite.project} {suite.version}"
        pytest.skip(f"The sdist of {wanted} has no tests: set {suite.checkout} to a checkout of that version.")
    copied = folder / suite.project
    for name in suite.copied:
        source = Path(checkout) / name
        if source.is_dir():
            shutil.copytree(source, copied / name)
        else:
            shutil.copy(source, copied / name)
    return copied


def sources(suite: Suite, folder: Path) -> Path:
    """Return the folder of the project's tests, with the necessary changes."""
    source = copy(suite, folder) if suite.checkout else download(suite, folder)
    for path, text in suite.added.items():
        (source / path).write_text(text)
    for path, text in suite.appended.items():
        with (source / path).open("a") as end:
            end.write(text)
    return source


def results(report: Path, output: str) -> dict[str, list[str]]:
    """Return the names of tests by outcome."""
    assert report.exists(), output
    found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = {child.tag for child in case}
        kind = "failed" if outcomes & {"failure", "error"} else "skipped" if "skipped" in outcomes else "passed"
        found[kind].append(case.attrib["name"])
    return found


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.project)
def test_its_integration_tests_pass(suite: Suite, tmp_path: Path) -> None:
    source = sources(suite, tmp_path)
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        f"{suite.project}=={suite.version}",
        "pytest",
        "pytest-timeout",
        *suite.requires,
    ]
    installed = run(*install, cwd=tmp_path, timeout_s=600)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=120", *suite.tests]
    command += [f"--deselect={test}" for test in suite.left_out]
    with contextlib.ExitStack() as servers:
        server = servers.enter_context(EmbeddedServer(suite.settings))
        where = dict(suite.environment(os.environ.get("PUBLIC_SUITES_BROKER", server.bootstrap)))
        if suite.two_brokers:
            other = servers.enter_context(EmbeddedServer(suite.settings, schema_registry=True))
            where |= {"KAFKA_BOOTSTRAP_OF_ANOTHER": other.bootstrap, "SCHEMA_REGISTRY": other.schema_registry_url}
        report = tmp_path / "report.xml"
        output = run(*command, f"--junitxml={report}", cwd=source, timeout_s=900, **where)
    found = results(report, installed + output)
    print({kind: len(names) for kind, names in found.items()})
    assert not found["failed"], output
    assert len(found["passed"]) >= suite.passing, output
