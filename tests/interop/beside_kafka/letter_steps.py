"""Steps with dead letters of share groups. The outcomes of each step are compared between two servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.wire.records import Record, decode_records, encode_batch, iterate_batches
from tests.interop.beside_kafka.data_cases import produce
from tests.interop.beside_kafka.share_steps import ACCEPT, PATIENCE_S, REJECT, RELEASE, ShareSteps, Step

GROUP, TOPIC = "writers", "written"
_PREFIX: Final = "errors.deadletterqueue."
_TOPICS: Final = {"dlq.with": "true", "dlq.without": "false"}
_GROUP_KIND, _TOPIC_KIND, _BROKER_KIND = 32, 2, 4
_SENT_MS: Final = 1_700_000_000_000


class LetterSteps(ShareSteps):
    """The steps on one server. TOPIC has one partition, without records."""

    group, topic = GROUP, TOPIC

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self._sent = 0

    def run(self) -> Iterator[Step]:
        """Run the steps. Return each step with its outcome."""
        update = UpdateFeaturesRequest(5_000, [FeatureUpdateKey("share.version", 2)])
        yield "feature", self._ask(update, 1).error_code
        for name, enabled in _TOPICS.items():
            configs = [CreatableTopicConfig(f"{_PREFIX}group.enable", enabled)]
            self._ask(CreateTopicsRequest([CreatableTopic(name, 2, 1, configs=configs)]), 7)
        yield from self._configs()
        self._configure(_GROUP_KIND, GROUP, **{"share.auto.offset.reset": "earliest"})
        self._configure(_GROUP_KIND, GROUP, **{"share.delivery.count.limit": "2"})
        self._join()
        for copies in ("false", "true"):
            self._set(f"{_PREFIX}copy.record.enable", copies)
            yield f"letters with copies {copies}", self._letters("dlq.with")
        yield "letters to a topic that takes none", self._letters("dlq.without", 0)
        yield "letters to a topic that is not there", self._letters("dlq.new", 0)
        self._configure(_BROKER_KIND, "", **{f"{_PREFIX}auto.create.topics.enable": "true"})
        yield "letters to a topic that is created", self._letters("dlq.new")
        yield "letters to none of the others", [len(self._read(name)) for name in _TOPICS]
        yield "its configs", self._configs_of("dlq.new")

    def _configs(self) -> Iterator[Step]:
        for value in ("foo", "__x", "dlq.with", "bad name", "", " ", "x" * 250):
            yield f"topic {value[:20]}", self._set(f"{_PREFIX}topic.name", value)
        yield "copies", self._set(f"{_PREFIX}copy.record.enable", "perhaps")
        for value in ("__q.", "bad name", "dlq."):
            code = self._configure(_BROKER_KIND, "", **{f"{_PREFIX}topic.name.prefix": value})
            yield f"prefix {value}", code

    def _set(self, key: str, value: str) -> int:
        return self._configure(_GROUP_KIND, GROUP, **{key: value})

    def _configure(self, kind: int, name: str, **values: str) -> int:
        configs = [AlterableConfig(key, 0, value) for key, value in values.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
        return int(self._ask(request, 1).responses[0].error_code)

    def _configs_of(self, topic: str) -> Any:
        request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC_KIND, topic, None)])
        (found,) = self._ask(request, 4).results
        return sorted((each.name, each.value) for each in found.configs if each.config_source == 1)

    def _letters(self, topic: str, expected: int = 2) -> Any:
        """Give up two of four records, and wait for their dead letters. Return acquired records, codes and letters."""
        self._set(f"{_PREFIX}topic.name", topic)
        before = len(self._read(topic))
        first, self._sent = self._sent, self._sent + 4
        records = [
            Record(timestamp_ms=_SENT_MS + each, key=b"k%d" % each, value=b"v%d" % each, headers=(("h", b"x"),))
            for each in range(first, self._sent)
        ]
        self._ask(produce((TOPIC, 0, bytes(encode_batch(records))))(9, self._target.ids), 9)
        # A released record is delivered again, and then given up because it was delivered too often.
        third = RELEASE if expected else REJECT
        kinds = enumerate((ACCEPT, REJECT, third, ACCEPT), first)
        acquired = [self._acquired()]
        steps = [self._next_acknowledge(*((offset, offset, [kind]) for offset, kind in kinds))]
        if expected:
            acquired.append(self._acquired())
            steps.append(self._next_acknowledge((first + 2, first + 2, [RELEASE])))
        deadline = time.monotonic() + PATIENCE_S
        while len(self._read(topic)) - before < expected and time.monotonic() < deadline:
            time.sleep(0.1)
        return acquired, steps, sorted(self._read(topic)[before:], key=repr)

    def _read(self, topic: str) -> list[Any]:
        """Return the dead letters of the topic: partition, key, value, headers, and the attributes of their batches."""
        topic_id = self._target.ids.of(topic)
        found = []
        for index in range(2):
            wanted = FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic("", topic_id, [wanted])]
            )
            (answer,) = self._ask(request, 13).responses[0].partitions
            for header, batch in iterate_batches(bytes(answer.records or b"")):
                batch_says = header.attributes, header.producer_id, header.base_sequence
                for each in decode_records(batch):
                    is_new = abs(each.timestamp_ms / 1000 - time.time()) < 600
                    found.append((index, each.key, each.value, each.headers, is_new, batch_says))
        return found
