"""Compares klamm's answers with Apache Kafka's: errors, defaults and edge cases of each API, in each version.

Deliberate differences are in docs/deviations.md, and the cases name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from klamm import ErrorCode
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.metadata import MetadataRequest
from tests.interop.beside_kafka import admin_cases, data_cases
from tests.interop.beside_kafka.comparison import Case, Target, differences
from tests.interop.beside_kafka.consumer_steps import PARTITIONS, ConsumerSteps
from tests.interop.beside_kafka.consumer_steps import TOPIC as EPOCHS_TOPIC
from tests.interop.beside_kafka.data_cases import NOW_MS, batch, produce
from tests.interop.beside_kafka.letter_steps import LetterSteps
from tests.interop.beside_kafka.share_steps import TOPIC, ShareSteps
from tests.interop.beside_kafka.streams_steps import OTHER, UNCONFIGURED, StreamsSteps
from tests.interop.beside_kafka.streams_steps import PARTITIONS as STREAMED_PARTITIONS
from tests.interop.beside_kafka.streams_steps import TOPIC as STREAMED
from tests.interop.beside_kafka.transaction_steps import Steps, settled
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.unit.broker.group_config_errors import GROUP_CONFIG_ERRORS
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(1800)]
Cases: TypeAlias = Callable[[], Iterator[Case]]
ALL: list[Cases] = [data_cases.all_cases, admin_cases.all_cases]
DIFFERING = [*(case for cases in ALL for case in cases() if case.differs), UNCONFIGURED]
DEVIATIONS = Path(__file__).resolve().parents[2] / "docs" / "deviations.md"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
OF_EACH_SERVER = {
    "advertised.listeners",
    "auto.create.topics.enable",
    "group.coordinator.rebalance.protocols",
    "group.streams.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "min.insync.replicas",
    "node.id",
    "num.network.threads",
    "socket.listen.backlog.size",
}
"""Configs that `KlammServer` and `KafkaServer` set, or that differ as docs/deviations.md says."""
TOPICS = {
    "data": (2, {}),
    "empty": (1, {}),
    "timed": (1, {}),
    "growing": (2, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "gzipped": (1, {"compression.type": "gzip"}),
    "both": (1, {"cleanup.policy": "compact,delete"}),
    "young": (1, {"message.timestamp.before.max.ms": "10000"}),
    "small": (1, {"max.message.bytes": "1000"}),
    "configured-topic": (1, {"retention.ms": "12345", "cleanup.policy": "compact"}),
    "spare": (1, {}),
}


def prepare(target: Target) -> None:
    for name, (partitions, configs) in TOPICS.items():
        made = [CreatableTopicConfig(*each) for each in configs.items()]
        answer = target.client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=made)]), 5)
        assert answer.topics[0].error_code == 0, answer
    for times in ((10, 90, 20), (90, 30), (40,), (50, 45)):
        records = batch(*[b"v"] * len(times), timestamps=tuple(NOW_MS - 10_000 + each for each in times))
        target.client.call(produce(("timed", 0, records))(9, target.ids), 9)


def find_coordinator(target: Target) -> None:
    """Find a coordinator, so that a broker creates `__consumer_offsets`."""

    def found() -> bool:
        answer = target.client.call(FindCoordinatorRequest("group"), 3)
        topics = target.client.call(MetadataRequest(None), 8).topics
        return bool(answer.error_code == ErrorCode.NONE and "__consumer_offsets" in {each.name for each in topics})

    wait_until(found, within_s=60)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    directory = tmp_path_factory.mktemp("beside")
    with KlammServer(directory / "klamm", SETTINGS) as klamm, KafkaServer(directory / "kafka", SETTINGS) as kafka:
        both = Target(klamm), Target(kafka)
        for target in both:
            prepare(target)
            find_coordinator(target)
        yield both


def found(cases: Iterable[Case], targets: tuple[Target, Target]) -> list[str]:
    return [text for case in cases for text in differences(case, *targets)]


@pytest.mark.parametrize("cases", ALL, ids=["data", "admin"])
def test_answers_are_kafkas(targets: tuple[Target, Target], cases: Cases) -> None:
    differ = found((case for case in cases() if not case.differs), targets)
    assert not differ, "\n".join(differ)


@pytest.mark.parametrize("case", DIFFERING, ids=lambda case: case.name)
def test_documented_differences_exist_and_no_others(targets: tuple[Target, Target], case: Case) -> None:
    assert case.differs in " ".join(DEVIATIONS.read_text(encoding="utf-8").split())
    assert found([case], targets)


def described(target: Target, kind: int, name: str) -> dict[str, tuple[object, ...]]:
    resource = DescribeConfigsResource(kind, name, None)
    (result,) = target.client.call(DescribeConfigsRequest([resource], include_synonyms=True), 4).results
    return {
        each.name: (
            each.value,
            each.read_only,
            each.config_source,
            each.is_sensitive,
            each.config_type,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in result.configs
    }


@pytest.mark.parametrize(("kind", "name"), [(2, "configured-topic"), (4, "1"), (16, "none"), (32, "group")])
def test_configs_that_both_have_are_described_alike(targets: tuple[Target, Target], kind: int, name: str) -> None:
    ours, kafkas = (described(target, kind, name) for target in targets)
    both = ours.keys() & kafkas.keys() - OF_EACH_SERVER
    assert {key: ours[key] for key in both} == {key: kafkas[key] for key in both}


@pytest.mark.parametrize(("name", "value", "message"), GROUP_CONFIG_ERRORS, ids=lambda each: each[:40])
def test_errors_for_invalid_group_configs_have_kafkas_text(
    targets: tuple[Target, Target], name: str, value: str, message: str
) -> None:
    wanted = AlterConfigsResource(32, "worded", [AlterableConfig(name, 0, value)])
    said = []
    for target in targets:
        (result,) = target.client.call(IncrementalAlterConfigsRequest([wanted]), 1).responses
        said.append((result.error_code, result.error_message))
    assert said == [(ErrorCode.INVALID_CONFIG, message)] * 2


def test_transactions_have_the_same_outcomes_as_in_kafka(targets: tuple[Target, Target]) -> None:
    outcomes = []
    for target in targets:
        for name in ("t", "u", "whole-3", "whole-5"):
            target.client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 5)
        assert settled(partial(target.client.call, FindCoordinatorRequest("p", 1), 3)) == ErrorCode.NONE
        outcomes.append(list(Steps(target.client).run()))
    ours, kafkas = outcomes
    assert ours == kafkas


def test_share_groups_have_the_same_outcomes_as_in_kafka(targets: tuple[Target, Target]) -> None:
    outcomes = []
    for target in targets:
        target.client.call(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), 5)
        outcomes.append(list(ShareSteps(target).run()))
    differ = [f"klamm: {ours}\nKafka: {kafkas}" for ours, kafkas in zip(*outcomes, strict=True) if ours != kafkas]
    assert not differ, "\n".join(differ)


def test_dead_letters_have_the_same_outcomes_as_in_kafka(targets: tuple[Target, Target]) -> None:
    outcomes = []
    for target in targets:
        target.client.call(CreateTopicsRequest([CreatableTopic(LetterSteps.topic, 1, 1)]), 5)
        outcomes.append(list(LetterSteps(target).run()))
    differ = [f"klamm: {ours}\nKafka: {kafkas}" for ours, kafkas in zip(*outcomes, strict=True) if ours != kafkas]
    assert not differ, "\n".join(differ)


def test_members_and_their_offsets_have_the_same_outcomes_as_in_kafka(targets: tuple[Target, Target]) -> None:
    outcomes = []
    for target in targets:
        target.client.call(CreateTopicsRequest([CreatableTopic(EPOCHS_TOPIC, PARTITIONS, 1)]), 5)
        assert settled(partial(target.client.call, FindCoordinatorRequest("epochs", 1), 3)) == ErrorCode.NONE
        outcomes.append(list(ConsumerSteps(target).run()))
    differ = [f"klamm: {ours}\nKafka: {kafkas}" for ours, kafkas in zip(*outcomes, strict=True) if ours != kafkas]
    assert not differ, "\n".join(differ)


def test_streams_groups_have_the_same_outcomes_as_in_kafka(targets: tuple[Target, Target]) -> None:
    outcomes = []
    for target in targets:
        for more, name in enumerate((STREAMED, OTHER)):
            target.client.call(CreateTopicsRequest([CreatableTopic(name, STREAMED_PARTITIONS + more, 1)]), 5)
        assert settled(partial(target.client.call, FindCoordinatorRequest("streamers", 1), 3)) == ErrorCode.NONE
        outcomes.append(list(StreamsSteps(target).run()))
    differ = [f"klamm: {ours}\nKafka: {kafkas}" for ours, kafkas in zip(*outcomes, strict=True) if ours != kafkas]
    assert not differ, "\n".join(differ)
