"""One server of a random sequence: it gets requests with its own ids in them, and its answers are made comparable."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Self

from klamm import KafkaError
from klamm.wire.api_keys import SPECS
from klamm.wire.compression import Codec
from klamm.wire.headers import response_header_size
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.primitives import ZERO_UUID
from klamm.wire.records import TRANSACTIONAL, Record, decode_records, encode_batch, iterate_batches
from klamm.wire.struct_base import WireStruct
from tests.interop.beside_kafka.random_requests import Made, Step
from tests.interop.beside_kafka.random_values import TOPICS, Batch, Ref
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient, encode_frame
from tests.waiting import wait_until

IGNORED: Final = frozenset(
    {"error_message", "batch_index_error_message", "throttle_time_ms", "cluster_id", "host", "port", "log_dir"}
    | {"total_bytes", "usable_bytes", "is_cordoned", "documentation", "client_host", "producer_snapshot_size"}
    | {"transaction_start_time_ms", "start_timestamp", "last_timestamp", "log_append_time_ms", "node_endpoints"}
    | {"coordinator_epoch", "hmac", "finalized_features_epoch", "size", "offset_lag"}
)
PREFIX: Final = "{p}"
PENDING: Final = "no answer yet"
CLOSED: Final = "closed"
_NAMES: Final = {spec.name: spec.module for spec in SPECS}
_NOW_MS: Final = int(time.time() * 1000)


_NAMED: Final = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OTHERS: Final = re.compile(r"r\d+-|__")


def _parts(value: Any) -> list[Any]:
    """A topic with partitions as one element for each partition: how servers group them says nothing."""
    if not isinstance(value, dict) or not any(name in value for name in ("name", "topic", "topic_name", "topic_id")):
        return [value]
    lists = [name for name, each in value.items() if isinstance(each, list) and "partition" in name]
    if len(lists) != 1 or "is_internal" in value:
        return [value]
    rest = {name: each for name, each in value.items() if name != lists[0]}
    return [rest | {lists[0]: each} for each in value[lists[0]]]


class World:
    """What one server has given in one run; `prefix` keeps the names of runs apart."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server, self._prefix = server, prefix
        self._connections: dict[str, WireClient] = {}
        self._waiting: dict[str, Step] = {}
        self._admin = WireClient(HOST, server.port)
        self._facts: dict[tuple[str, str], Any] = {}
        self._sequences: dict[tuple[str, str, int], int] = {}
        self._labels: dict[tuple[str, Any], str] = {}
        self._ids: dict[bytes, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        for each in [*self._connections.values(), self._admin]:
            each.close()

    # To the server

    def send(self, step: Step, patience_s: float) -> Any:
        """The comparable answer, PENDING or CLOSED."""
        label = step.chooser.label
        if label in self._waiting:
            return PENDING
        connection = self._connections.setdefault(label, WireClient(HOST, self._server.port))
        request = self.resolve(step.made)
        frame = encode_frame(request, step.version)
        connection.send(frame)
        if request.API_KEY == 0 and request.acks == 0:
            return None
        self._waiting[label] = step
        return self.arrived(label, patience_s)

    def waiting(self) -> list[str]:
        return list(self._waiting)

    def arrived(self, label: str, patience_s: float) -> Any:
        connection = self._connections[label]
        step = self._waiting[label]
        if not connection.has_come(patience_s):
            return PENDING
        del self._waiting[label]
        try:
            frame = connection.receive()
        except OSError:
            del self._connections[label]
            connection.close()
            return CLOSED
        module = import_module(f"klamm.wire.messages.{_NAMES[step.api]}")
        header_bytes = response_header_size(module.API_KEY, step.version)
        answer = getattr(module, f"{step.api}Response").decode(step.version, frame, header_bytes)
        self.learn(step, answer)
        compared = self.comparable(answer, "")
        if step.api == "CreateTopics":
            # Metadata may not know a new topic yet, and an id that is only validated is none.
            compared["topics"] = [topic | {"topic_id": None} for topic in compared["topics"]]
        return compared

    def create_topics(self, partitions: int) -> None:
        self._admin.call(CreateTopicsRequest([CreatableTopic(self.resolve(name), partitions, 1) for name in TOPICS]), 7)

    def refresh(self) -> list[Any]:
        """The topics of this run as metadata have them."""
        answer = self._admin.call(MetadataRequest(topics=None), 12)
        mine = []
        for topic in answer.topics:
            self._ids[topic.topic_id] = topic.name
            if topic.name.startswith(self._prefix):
                mine.append((topic.name, topic.error_code, [each.leader_id for each in topic.partitions]))
                self._facts["topic_id", topic.name] = topic.topic_id
        return sorted(mine)

    def wait_for_leaders(self, topics: Sequence[str], partitions: int) -> None:
        wanted = [ListOffsetsPartition(index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(self.resolve(topic), wanted) for topic in topics])

        def led() -> bool:
            answer = self._admin.call(request, 7)
            return all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)

        wait_until(led, within_s=20)

    def wait_for_markers(self, transactional_id: str) -> None:
        request = DescribeTransactionsRequest([self.resolve(transactional_id)])

        def settled() -> bool:
            (found,) = self._admin.call(request, 0).transaction_states
            return not found.transaction_state.startswith("Prepare")

        wait_until(settled, within_s=20)

    # From plan to request

    def resolve(self, value: Any) -> Any:
        if isinstance(value, Made):
            return value.kind(**{name: self.resolve(each) for name, each in value.fields.items()})
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if isinstance(value, Ref):
            return self._fact(value)
        if isinstance(value, Batch):
            return self._batch(value)
        return value.replace(PREFIX, self._prefix) if isinstance(value, str) else value

    def _fact(self, ref: Ref) -> Any:
        key = ref.key.replace(PREFIX, self._prefix)
        defaults = {"topic_id": b"\7" * 16, "member_id": "", "generation": -1, "member_epoch": 0, "session_id": 0}
        defaults |= {"session_epoch": 0, "producer_id": 4242, "producer_epoch": 0, "share_epoch": 0}
        defaults |= {"client_instance": b"\5" * 16, "subscription": 0}
        if ref.kind == "chosen_member":
            return (key.replace("-", "") + "A" * 22)[:22]
        found = self._facts.get((ref.kind, key), defaults[ref.kind])
        if not ref.plus:
            return found
        return max(-32768, min(32767, found + ref.plus))

    def _batch(self, wanted: Batch) -> bytes | None:
        topic = wanted.topic.replace(PREFIX, self._prefix)
        values = [Record(timestamp_ms=_NOW_MS + i, key=b"k%d" % i, value=b"v%d" % i) for i in range(wanted.records)]
        options: dict[str, Any] = {}
        if wanted.producer is not None:
            producer = wanted.producer.replace(PREFIX, self._prefix)
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

    # From answers

    def learn(self, step: Step, answer: Any) -> None:
        learner = getattr(self, f"_learn_{_NAMES[step.api]}", None)
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
        self._labels.setdefault(("producer", producer_id), f"producer {sum(k[0] == 'producer' for k in self._labels)}")

    def _learn_end_txn(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0 and step.version >= 5:
            self._producer_is(request["transactional_id"], answer.producer_id, answer.producer_epoch)

    def _learn_produce(self, step: Step, request: Any, answer: Any) -> None:
        good = {
            (topic.name or self._ids.get(topic.topic_id, ""), part.index)
            for topic in answer.responses
            for part in topic.partition_responses
            if part.error_code == 0
        }
        for topic in step.made.fields["topic_data"]:
            for part in topic.fields["partition_data"]:
                batch = part.fields["records"]
                name = batch.topic.replace(PREFIX, self._prefix)
                if batch.producer is not None and (name, batch.partition) in good and batch.gap == 0:
                    key = batch.producer.replace(PREFIX, self._prefix), name, batch.partition
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
            self._labels[("member", answer.member_id)] = f"member {step.chooser.label}"
        if answer.error_code == 0:
            self._facts["generation", self.resolve(step.chooser.group)] = answer.generation_id

    def _learn_consumer_group_heartbeat(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0 and answer.member_id:
            self._labels[("member", answer.member_id)] = f"member {step.chooser.label}"
            self._facts["member_id", self._group_key(step)] = answer.member_id
            self._facts["member_epoch", self._group_key(step)] = max(answer.member_epoch, 0)

    _learn_share_group_heartbeat = _learn_consumer_group_heartbeat

    def _learn_share_fetch(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0:
            epoch = request["share_session_epoch"]
            self._facts["share_epoch", self._group_key(step)] = 0 if epoch < 0 else epoch + 1

    _learn_share_acknowledge = _learn_share_fetch

    def _learn_get_telemetry_subscriptions(self, step: Step, request: Any, answer: Any) -> None:
        if answer.error_code == 0:
            self._facts["client_instance", step.chooser.label] = answer.client_instance_id
            self._facts["subscription", step.chooser.label] = answer.subscription_id

    # Comparable

    def comparable(self, value: Any, name: str) -> Any:
        if isinstance(value, WireStruct):
            return {
                each: self.comparable(getattr(value, each), each) for each in value.__slots__ if each not in IGNORED
            }
        if isinstance(value, list):
            kept = [self.comparable(each, name) for each in value if not self._of_others(each)]
            # Of elements that are the same, one is left: Kafka's are often in a hash table.
            parts = [part for each in kept for part in _parts(each)]
            return [part for number, part in enumerate(parts) if part not in parts[:number]]
        if name == "records" and value is not None:
            return self._records(bytes(value))
        if isinstance(value, (bytes, memoryview, bytearray)):
            data = bytes(value)
            if len(data) != 16:
                return data
            if data != ZERO_UUID and data not in self._ids:
                self.refresh()
            return "no id" if data == ZERO_UUID else f"the id of {self._plain(self._ids.get(data, 'nothing'))}"
        if isinstance(value, str):
            return self._labels.get(("member", value)) or _UUID.sub("UUID", self._plain(value))
        if name == "producer_id" and value > 0:
            return self._labels.get(("producer", value), value)
        if name in ("session_id", "subscription_id"):
            return "some" if value else 0
        return "a time" if isinstance(value, int) and value > 1_500_000_000_000 and "time" in name else value

    def _of_others(self, value: Any) -> bool:
        names = [getattr(value, each, None) for each in _NAMED]
        if "topic_id" in getattr(value, "__slots__", ()) and value.topic_id != ZERO_UUID:
            names.append(self._ids.get(value.topic_id))
        return any(name and _OTHERS.match(name) and not name.startswith(self._prefix) for name in names)

    def _plain(self, text: str) -> str:
        return text.replace(self._prefix, PREFIX)

    def _records(self, data: bytes) -> Any:
        out = []
        try:
            for header, batch in iterate_batches(data):
                producer = self._labels.get(("producer", header.producer_id), header.producer_id)
                shape = (header.base_offset, header.last_offset_delta, header.attributes, header.base_sequence)
                records = [] if header.attributes & 0x20 else [r.value for r in decode_records(batch)]
                out.append((*shape, header.partition_leader_epoch, header.producer_epoch, producer, records))
        except (KafkaError, struct.error, ValueError) as error:
            out.append(("cut", type(error).__name__))  # type: ignore[arg-type]
        return out
