"""klamm and Apache Kafka answer random sequences of requests alike.

A failure shows the smallest number of steps found that ends in the difference. To try other and more sequences:

KLAMM_RANDOM_FIRST=1000 KLAMM_RANDOM_COUNT=50 pytest tests/interop/test_random_requests.py -k transactions
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from klamm.wire.api_keys import SPECS
from tests.interop.beside_kafka.comparison import Target
from tests.interop.beside_kafka.random_known import is_known
from tests.interop.beside_kafka.random_runs import Pair, sequence
from tests.interop.beside_kafka.random_values import FAMILIES
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(900)]
FIRST: Final = int(os.environ.get("KLAMM_RANDOM_FIRST", "1"))
COUNT: Final = int(os.environ.get("KLAMM_RANDOM_COUNT", "8"))
STEPS: Final = 40
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "max.incremental.fetch.session.cache.slots": "100000",
}
OF_KLAMM: Final = {
    "listeners.default.authorizer": "acl",
    "listeners.default.acl.super_users": '["User:ANONYMOUS"]',
}
OF_KAFKA: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "50",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KlammServer, KafkaServer]]:
    directory = tmp_path_factory.mktemp("random")
    with (
        KlammServer(directory / "klamm", SETTINGS | OF_KLAMM) as klamm,
        KafkaServer(directory / "kafka", SETTINGS | OF_KAFKA) as kafka,
    ):
        yield klamm, kafka


@pytest.mark.parametrize("family", FAMILIES)
def test_random_requests_are_answered_as_by_kafka(servers: tuple[KlammServer, KafkaServer], family: str) -> None:
    pair = Pair(*servers, is_known)
    ours, theirs = (Target(server).served for server in servers)
    names = {spec.api_key: spec.name for spec in SPECS}
    both = {
        names[key]: range(max(served[0], theirs[key][0]), min(served[-1], theirs[key][-1]) + 1)
        for key, served in ours.items()
        if key in theirs
    }
    differ = []
    for number in range(FIRST, FIRST + COUNT):
        steps = sequence(family, number, both, STEPS)
        found = pair.first_difference(family, steps)
        if found:
            differ.append(f"sequence {number}:\n{pair.shortened(family, steps, found)}")
    assert not differ, "\n".join(differ)
