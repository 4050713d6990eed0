"""The cost of the pytest fixture: suites whose tests have a topic each, and brokers that serve one test.

python -m bench.fixture            # all rows
python -m bench.fixture --peers    # the same suites on kfake and Apache Kafka, each started once for a suite
python -m bench.fixture --tests 20 # fewer tests a suite
python -m bench.fixture --brokers  # brokers of one test alone
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.peers.kafka_server import KafkaServer
from tests.peers.kfake_server import KfakeServer

_GROUPS = """
import pytest
from confluent_kafka import Consumer, Producer

@pytest.mark.parametrize("number", range({tests}))
def test_round_trip(klamm_server, klamm_topic, number):
    producer = Producer({"bootstrap.servers": klamm_server.bootstrap})
    producer.produce(klamm_topic, b"value")
    producer.flush(10)
    config = {"bootstrap.servers": klamm_server.bootstrap, "group.id": klamm_topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([klamm_topic])
    assert consumer.poll(20).value() == b"value"
    consumer.close()
"""
# The suite _GROUPS, which also prints how long the clients waited for the broker. The rest is the clients' own time.
_WAITS = """
import logging
import re
import pytest
from confluent_kafka import Consumer, Producer

class RoundTrips(logging.Handler):
    total_ms = 0.0

    def emit(self, record):
        if found := re.search(r"rtt ([0-9.]+)ms", record.getMessage()):
            RoundTrips.total_ms += float(found[1])

@pytest.fixture(scope="session")
def client_logger():
    logger = logging.getLogger("clients")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(RoundTrips())
    yield logger
    print(f"waited {RoundTrips.total_ms / 1000:.3f} s")

@pytest.mark.parametrize("number", range({tests}))
def test_round_trip(klamm_server, klamm_topic, client_logger, number):
    config = {"bootstrap.servers": klamm_server.bootstrap, "debug": "protocol"}
    producer = Producer(config, logger=client_logger)
    producer.produce(klamm_topic, b"value")
    producer.flush(10)
    config |= {"group.id": klamm_topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(config, logger=client_logger)
    consumer.subscribe([klamm_topic])
    assert consumer.poll(20).value() == b"value"
    consumer.close()
    producer.poll(0)
"""
_PLAIN = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_round_trip(klamm_server, klamm_topic, number):
    klamm_server.produce(klamm_topic, "value")
    assert [one.value for one in klamm_server.consume(klamm_topic)] == [b"value"]
"""


_PEER = """
import os
import pytest
from klamm import ErrorCode, KafkaError
from klamm.testing import Admin, RawClient

HOST, _, PORT = os.environ["PEER"].rpartition(":")

class Peer(Admin):
    bootstrap = os.environ["PEER"]

    # Kafka answers CreateTopics before its broker knows the topic.
    def produce(self, *arguments):
        while True:
            try:
                return super().produce(*arguments)
            except KafkaError as error:
                if error.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                    raise

@pytest.fixture(scope="session")
def klamm_server():
    peer = Peer(lambda: RawClient((HOST, int(PORT)), client_id="bench"))
    yield peer
    peer.close()

@pytest.fixture
def klamm_topic(klamm_server, request):
    name = f"topic-{request.node.callspec.params['number']}"
    klamm_server.create_topic(name, 1, None)
    return name
"""
# Kafka's default lets each new group wait for 3 s.
_NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


def main() -> None:
    """Print a row for each suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, help="tests of each suite; default: 100 with a client, 1,000 without")
    parser.add_argument("--peers", action="store_true", help="kfake and Apache Kafka in place of klamm")
    parser.add_argument("--brokers", action="store_true", help="only brokers of one test")
    options = parser.parse_args()
    if options.brokers:
        _brokers(60)
        return
    few, many = options.tests or 100, options.tests or 1000
    if options.peers:
        _peers(few, many)
        return
    print(f"{few} tests, confluent-kafka, a group each: {_suite(_GROUPS, few):6.1f} s")
    waited = re.search(r"waited ([\d.]+) s", _suite_output(_WAITS, few))
    print(f"of these, clients waited for the broker:  {float(waited[1]) if waited else 0:6.1f} s")
    print(f"{many} tests, topic, produce, fetch:         {_suite(_PLAIN, many):6.1f} s")
    _brokers(60)


def _peers(few: int, many: int) -> None:
    """Print the rows of the other servers. Each suite gets a new server."""
    for kind in (KfakeServer, KafkaServer):
        for text, tests, what in (
            (_GROUPS, few, "confluent-kafka, a group each"),
            (_PLAIN, many, "topic, produce, fetch"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                server = kind(Path(folder), _NO_DELAY)
                began = time.perf_counter()
                with server:
                    started_s = time.perf_counter() - began
                    seconds = _suite(_PEER + text, tests, peer=server.bootstrap)
            print(f"{kind.name}: {tests} tests, {what}: {seconds:6.1f} s, and {started_s:.1f} s to start", flush=True)


def _suite(text: str, tests: int, peer: str = "") -> float:
    """Return the seconds that pytest reports for a suite."""
    found = re.search(rf"{tests} passed in ([\d.]+)s", _suite_output(text, tests, peer))
    assert found is not None
    return float(found[1])


def _suite_output(text: str, tests: int, peer: str = "") -> str:
    """Return pytest's output for a suite. Exits with the end of the output if a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_suite.py").write_text(text.replace("{tests}", str(tests)))
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environment["PEER"] = peer
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "klamm_pytest",
            "-p",
            "no:cacheprovider",
            "-x",
            "test_suite.py",
        ]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    if not re.search(rf"{tests} passed in ", done.stdout):
        raise SystemExit((done.stdout + done.stderr)[-3000:])
    return done.stdout


def _brokers(count: int) -> None:
    """Print how long a broker in this process takes from its construction until clients can connect, and to stop."""
    from klamm.testing import EmbeddedServer

    taken: list[tuple[float, ...]] = []
    for number in range(-3, count):
        began, began_processor = time.perf_counter(), time.process_time()
        server = EmbeddedServer().start()
        ready, ready_processor = time.perf_counter(), time.process_time()
        server.stop()
        # The first rounds import the modules that the later ones use.
        if number >= 0:
            taken.append((ready - began, ready_processor - began_processor, time.perf_counter() - ready))
    for what, seconds in zip(("start", "start, processor time", "stop"), zip(*taken, strict=True), strict=True):
        low, median, high = (1000 * each for each in statistics.quantiles(seconds, n=4))
        print(f"a broker of one test, {what}: {median:.1f} ms ({low:.1f} to {high:.1f}, the middle half of {count})")


if __name__ == "__main__":
    main()
