"""What klamm answers, Apache Kafka answers too: errors, defaults and edge cases of each API, in each version.

What differs on purpose is in docs/deviations.md, and marked in the cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.interop.beside_kafka import admin_cases, data_cases
from tests.interop.beside_kafka.comparison import Target, differences
from tests.interop.beside_kafka.data_cases import NOW_MS, batch, produce
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(1800)]
SETTINGS = {"auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"}
TOPICS = {
    "data": (2, {}),
    "empty": (1, {}),
    "timed": (1, {}),
    "growing": (2, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "both": (1, {"cleanup.policy": "compact,delete"}),
    "young": (1, {"message.timestamp.before.max.ms": "10000"}),
    "small": (1, {"max.message.bytes": "1000"}),
    "configured-topic": (1, {"retention.ms": "12345", "cleanup.policy": "compact"}),
    "__consumer_offsets": (1, {}),
}


def prepare(target: Target) -> None:
    for name, (partitions, configs) in TOPICS.items():
        made = [CreatableTopicConfig(*each) for each in configs.items()]
        answer = target.client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=made)]), 5)
        assert answer.topics[0].error_code == 0, answer
    for times in ((10, 90, 20), (90, 30), (40,), (50, 45)):
        records = batch(*[b"v"] * len(times), timestamps=tuple(NOW_MS - 10_000 + each for each in times))
        target.client.call(produce(("timed", 0, records))(9, target.ids), 9)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    directory = tmp_path_factory.mktemp("beside")
    with KlammServer(directory / "klamm", SETTINGS) as klamm, KafkaServer(directory / "kafka", SETTINGS) as kafka:
        both = Target(klamm), Target(kafka)
        for target in both:
            prepare(target)
        yield both


@pytest.mark.parametrize("cases", [data_cases.all_cases, admin_cases.all_cases], ids=["data", "admin"])
def test_answers_are_kafkas(targets: tuple[Target, Target], cases: object) -> None:
    found = [text for case in cases() if not case.differs for text in differences(case, *targets)]  # type: ignore[operator]
    Path("/tmp/beside.txt").open("a").write("\n".join(found))
    assert not found, "\n".join(found)
