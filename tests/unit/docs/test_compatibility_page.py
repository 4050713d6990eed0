"""docs/compatibility.md has the versions that the tests use, and names the tests of the clients."""

import ast
import json
import re
from pathlib import Path

import pytest
import tomli

from klamm.config.server_settings import AS_VERSIONS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
ROWS = {cells[0]: cells[1:] for cells in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)}
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORDS = {
    "confluent-kafka (librdkafka)": r"confluent_kafka|CLIENTS",
    "kafka-python": r"kafka_python|KafkaConsumer|KafkaProducer|CLIENTS",
    "aiokafka": r"aiokafka|CLIENTS",
    "kcat": r"kcat|CLIENTS",
}
"""For each client, a text by which a test shows that it uses the client."""


def constant(file, name):
    """Return the value of a constant of a module, which may require packages that are not installed."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return node.value
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("client", "package"),
    [("confluent-kafka (librdkafka)", "confluent-kafka"), ("kafka-python", "kafka-python"), ("aiokafka", "aiokafka")],
)
def test_versions_of_python_are_those_of_the_environment(client, package):
    needed = PROJECT["optional-dependencies"]["dev"]
    least = next(found[1] for one in needed if (found := re.match(rf"{package}(?:\[.*\])?>=([\d.]+)", one)))
    assert ROWS[client][0] == f"{least} and later"


def test_versions_of_java_are_those_of_the_tests():
    newest = ast.literal_eval(constant("tests/peers/kafka_jars.py", "VERSION"))
    old = constant("tests/interop/test_old_java_clients.py", "RELEASES").elts
    releases = [one.value if isinstance(one, ast.Constant) else newest for one in old]
    assert ROWS["Apache Kafka's Java clients"][0] == ", ".join(releases)
    assert ROWS["Kafka Streams, Kafka Connect"][0] == newest
    assert ROWS["Apache Flink"][0] == ast.literal_eval(constant("tests/peers/kafka_jars.py", "FLINK_VERSION"))
    assert f"klamm follows Apache Kafka {newest}." in PAGE


def test_versions_of_other_languages_are_those_of_the_examples():
    modules = (ROOT / "examples/testing/go/go.mod").read_text(encoding="utf-8")
    assert f"twmb/franz-go v{ROWS['franz-go'][0]}\n" in modules
    assert f"segmentio/kafka-go v{ROWS['kafka-go'][0]}\n" in modules
    package = json.loads((ROOT / "examples/testing/node/package.json").read_text(encoding="utf-8"))
    assert package["dependencies"]["kafkajs"] == f"^{ROWS['KafkaJS'][0]}"


def test_versions_of_python_and_kafka_are_those_of_the_project():
    versions = [found[1] for one in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", one))]
    assert f"\n{', '.join(versions)}. A [compiled]" in PAGE
    *most, last = AS_VERSIONS
    assert f"serves: {', '.join(most)} or {last}." in PAGE


@pytest.mark.parametrize("client", WORDS)
def test_the_tests_of_a_client_use_it(client):
    for file in re.findall(r"`(tests/[\w/.]+)`", ROWS[client][2]):
        assert re.search(WORDS[client], (ROOT / file).read_text(encoding="utf-8")), file
