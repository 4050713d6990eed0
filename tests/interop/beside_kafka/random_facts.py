"""Values that one server has assigned in one run of a random sequence: ids, epochs and sequence numbers."""

from __future__ import annotations

import time
from typing import Any, Final

from klamm.wire.api_keys import SPECS
from klamm.wire.compression import Codec
from klamm.wire.messages.streams_group_heartbeat import RequestTaskIds
from klamm.wire.records import TRANSACTIONAL, Record, encode_batch
from tests.interop.beside_kafka.random_requests import Step
from tests.interop.beside_kafka.random_streams import ROLES
from tests.interop.beside_kafka.random_values import Batch, Made, Ref

PREFIX: Final = "{p}"
MODULES: Final = {spec.name: spec.module for spec in SPECS}
_NOW_MS: Final = int(time.time() * 1000)


class Facts:
    """Inserts a server's own values into requests, and learns them from answers.

    `prefix` separates the names of runs.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.topic_names: dict[bytes, str] = {}
        self.labels: dict[tuple[str, Any], str] = {}
        self._facts: dict[tuple[str, str], Any] = {}
        self._sequences: dict[tuple[str, str, int], int] = {}

    def topic_is(self, name: str, topic_id: bytes) -> None:
        """Remember the id of a topic."""
        self.topic_names[topic_id] = name
        self._facts["topic_id", name] = topic_id

    def cluster_is(self, cluster_id: str | None) -> None:
        """Remember the id of the server's cluster."""
        self._facts["cluster_id", ""] = cluster_id

    # Requests

    def resolve(self, value: Any) -> Any:
        if isinstance(value, Made):
            return value.kind(**{name: self.resolve(each) for name, each in value.fields.items()})
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if isinstance(value, Ref):
            return self._fact(value)
        if isinstance(value, Batch):
            return self._batch(value)
        return value.replace(PREFIX, self.prefix) if isinstance(value, str) else value

    def _fact(self, ref: Ref) -> Any:
        key = ref.key.replace(PREFIX, self.prefix)
        defaults = {"topic_id": b"\7" * 16, "member_id": "", "generation": -1, "member_epoch": 0, "session_id": 0}
        defaults |= {"session_epoch": 0, "producer_id": 4242, "producer_epoch": 0, "share_epoch": 0}
        defaults |= {"client_instance": b"\5" * 16, "subscription": 0, "endpoint_epoch": 0, "cluster_id": None}
        defaults |= dict.fromkeys(ROLES, [])
        if ref.kind == "chosen_member":
            return (key.replace("-", "") + "A" * 22)[:22]
        found = self._facts.get((ref.kind, key), defaults[ref.kind])
        if not ref.plus:
            return found
        return max(-32768, min(32767, found + ref.plus))

    def _batch(self, wanted: Batch) -> bytes | None:
        topic = wanted.topic.replace(PREFIX, self.prefix)
        values = [Record(timestamp_ms=_NOW_MS + i, key=b"k%d" % i, value=b"v%d" % i) for i in range(wanted.records)]
        options: dict[str, Any] = {}
        if wanted.producer is not None:
            producer = wanted.producer.replace(PREFIX, self.prefix)
            sequence = self._sequences.get((producer, topic, wanted.partition), 0) + wanted.gap
            options = {
                "producer_id": self._fact(Ref("producer_id", producer)),
                "producer_epoch": self._fact(Ref("producer_epoch", producer, wanted.epoch_plus)),
                "base_sequence": max(sequence, 0),
                "attributes": TRANSACTIONAL if wanted.transactional else 0,
            }
        data = bytes(encode_batch(values, codec=Codec(wanted.codec), **options))
        if wanted.damage == "crc":
            return data[:-1] + bytes([data[-1] ^ 1])
        return {"cut": data[:-3], "empty": b"", "twice": data + data}.get(wanted.damage, data)

    # Answers

    def learn(self, step: Step, answer: Any) -> None:
        learner = getattr(self, f"_learn_{MODULES[step.api]}", None)
        if learner:
            learner(step, {name: self._plain_value(each) for name, each in step.made.fields.items()}, answer)

    def _plain_value(self, value: Any) -> Any:
        return None if isinstance(value, (list, Made)) else self.resolve(value)

    def _learn_init_producer_id(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0:
            key = request["transactional_id"] or ""
            self._producer_is(key, answer.producer_id, answer.producer_epoch)

    def _producer_is(self, key: str, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._facts.get(("producer_id", key)), self._facts.get(("producer_epoch", key))):
            self._sequences = {each: n for each, n in self._sequences.items() if each[0] != key}
        self._facts["producer_id", key] = producer_id
        self._facts["producer_epoch", key] = epoch
        self.labels.setdefault(("producer", producer_id), f"producer {sum(k[0] == 'producer' for k in self.labels)}")

    def _learn_end_txn(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0 and step.version >= 5:
            self._producer_is(request["transactional_id"], answer.producer_id, answer.producer_epoch)

    def _learn_produce(self, step: Step, request: Any, answer: Any) -> None:
        good = {
            (topic.name or self.topic_names.get(topic.topic_id, ""), part.index)
            for topic in answer.responses
            for part in topic.partition_responses
            if part.error_code == 0
        }
        for topic in step.made.fields["topic_data"]:
            for part in topic.fields["partition_data"]:
                batch = part.fields["records"]
                name = batch.topic.replace(PREFIX, self.prefix)
                if batch.producer is not None and (name, batch.partition) in good and batch.gap == 0:
                    key = batch.producer.replace(PREFIX, self.prefix), name, batch.partition
                    self._sequences[key] = self._sequences.get(key, 0) + batch.records

    def _learn_fetch(self, step: Step, request: Any, answer: Any) -> None:
        if step.version >= 7 and answer.session_id:
            epoch = request["session_epoch"] if answer.session_id == request["session_id"] else 0
            self._facts["session_id", step.chooser.label] = answer.session_id
            self._facts["session_epoch", step.chooser.label] = epoch + 1

    def _group_key(self, step: Step) -> str:
        return str(self.resolve(step.chooser.group) + step.chooser.label)

    def _learn_join_group(self, step: Step, request: Any, answer: Any) -> None:
        if answer.member_id and answer.error_code in (0, 79):
            self._facts["member_id", self._group_key(step)] = answer.member_id
            self.labels[("member", answer.member_id)] = f"member {step.chooser.label}"
        if answer.error_code == 0:
            self._facts["generation", self.resolve(step.chooser.group)] = answer.generation_id

    def _learn_consumer_group_heartbeat(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0 and answer.member_id:
            self.labels[("member", answer.member_id)] = f"member {step.chooser.label}"
            self._facts["member_id", self._group_key(step)] = answer.member_id
            self._facts["member_epoch", self._group_key(step)] = max(answer.member_epoch, 0)

    _learn_share_group_heartbeat = _learn_consumer_group_heartbeat

    def _learn_streams_group_heartbeat(self, step: Step, request: Any, answer: Any) -> None:
        self._learn_consumer_group_heartbeat(step, request, answer)
        if answer.error_code == 0:
            key = self._group_key(step)
            self._facts["endpoint_epoch", key] = answer.endpoint_information_epoch
            for role in ROLES if answer.active_tasks is not None else ():
                tasks = [RequestTaskIds(each.subtopology_id, each.partitions) for each in getattr(answer, role)]
                self._facts[role, key] = tasks

    def _learn_share_fetch(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0:
            epoch = request["share_session_epoch"]
            self._facts["share_epoch", self._group_key(step)] = 0 if epoch < 0 else epoch + 1

    _learn_share_acknowledge = _learn_share_fetch

    def _learn_get_telemetry_subscriptions(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0:
            self._facts["client_instance", step.chooser.label] = answer.client_instance_id
            self._facts["subscription", step.chooser.label] = answer.subscription_id
