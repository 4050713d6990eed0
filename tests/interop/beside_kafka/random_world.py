"""Sends the requests of a random sequence to one server with its own ids, and makes the answers comparable."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Self

from klamm import KafkaError
from klamm.wire.headers import response_header_size
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.primitives import ZERO_UUID
from klamm.wire.records import decode_records, iterate_batches
from klamm.wire.struct_base import WireStruct
from tests.interop.beside_kafka.random_facts import MODULES, PREFIX, Facts
from tests.interop.beside_kafka.random_requests import Step
from tests.interop.beside_kafka.random_values import TOPICS
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient, encode_frame
from tests.waiting import wait_until

IGNORED: Final = frozenset(
    {"error_message", "batch_index_error_message", "throttle_time_ms", "cluster_id", "host", "port", "log_dir"}
    | {"total_bytes", "usable_bytes", "is_cordoned", "documentation", "client_host", "producer_snapshot_size"}
    | {"transaction_start_time_ms", "start_timestamp", "last_timestamp", "log_append_time_ms", "node_endpoints"}
    | {"coordinator_epoch", "hmac", "finalized_features_epoch", "size", "offset_lag"}
    | {"endpoint_information_epoch"}
)
PENDING: Final = "no answer yet"
CLOSED: Final = "closed"


_NAMED: Final = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OTHERS: Final = re.compile(r"r\d+-|__")


def _parts(value: Any) -> list[Any]:
    """Return one element for each partition, because servers may group partitions of a topic differently."""
    if not isinstance(value, dict) or not any(name in value for name in ("name", "topic", "topic_name", "topic_id")):
        return [value]
    lists = [name for name, each in value.items() if isinstance(each, list) and "partition" in name]
    if len(lists) != 1 or "is_internal" in value:
        return [value]
    rest = {name: each for name, each in value.items() if name != lists[0]}
    return [rest | {lists[0]: each} for each in value[lists[0]]]


class World:
    """The connections to one server in one run."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server, self._facts = server, Facts(prefix)
        self._connections: dict[str, WireClient] = {}
        self._waiting: dict[str, Step] = {}
        self._admin = WireClient(HOST, server.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        for each in [*self._connections.values(), self._admin]:
            each.close()

    # Requests

    def send(self, step: Step, patience_s: float) -> Any:
        """Send a request. Return the comparable answer, or PENDING or CLOSED."""
        label = step.chooser.label
        if label in self._waiting:
            return PENDING
        connection = self._connections.setdefault(label, WireClient(HOST, self._server.port))
        request = self._facts.resolve(step.made)
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
        module = import_module(f"klamm.wire.messages.{MODULES[step.api]}")
        header_bytes = response_header_size(module.API_KEY, step.version)
        answer = getattr(module, f"{step.api}Response").decode(step.version, frame, header_bytes)
        self._facts.learn(step, answer)
        compared = self.comparable(answer, "")
        if step.api == "CreateTopics":
            # Metadata may lack a new topic. A request that only validates creates no topic, so there is no id.
            compared["topics"] = [topic | {"topic_id": None} for topic in compared["topics"]]
        return compared

    def create_topics(self, partitions: int) -> None:
        self._admin.call(
            CreateTopicsRequest([CreatableTopic(self._facts.resolve(name), partitions, 1) for name in TOPICS]), 7
        )

    def refresh(self) -> list[Any]:
        """Read the topics of this run from metadata."""
        answer = self._admin.call(MetadataRequest(topics=None), 12)
        self._facts.cluster_is(answer.cluster_id)
        mine = []
        for topic in answer.topics:
            self._facts.topic_is(topic.name, topic.topic_id)
            if topic.name.startswith(self._facts.prefix):
                mine.append((topic.name, topic.error_code, [each.leader_id for each in topic.partitions]))
        return sorted(mine)

    def names(self, shown: Iterable[str]) -> set[str]:
        """Return the topics of this run that an answer shows."""
        return {self._facts.resolve(each) for each in shown if each.startswith(PREFIX)}

    def wait_for_leaders(self, topics: Sequence[str], partitions: int) -> None:
        wanted = [ListOffsetsPartition(index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(self._facts.resolve(topic), wanted) for topic in topics])

        def led() -> bool:
            answer = self._admin.call(request, 7)
            return all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)

        wait_until(led)

    def wait_for_markers(self, transactional_id: str) -> None:
        request = DescribeTransactionsRequest([self._facts.resolve(transactional_id)])

        def settled() -> bool:
            (found,) = self._admin.call(request, 0).transaction_states
            return not found.transaction_state.startswith("Prepare")

        wait_until(settled)

    # Comparable answers

    def comparable(self, value: Any, name: str) -> Any:
        if isinstance(value, WireStruct):
            return {
                each: self.comparable(getattr(value, each), each) for each in value.__slots__ if each not in IGNORED
            }
        if isinstance(value, list):
            kept = [self.comparable(each, name) for each in value if not self._of_others(each)]
            # Equal elements are reduced to one, because Kafka often keeps them in a hash table.
            parts = [part for each in kept for part in _parts(each)]
            return [part for number, part in enumerate(parts) if part not in parts[:number]]
        if name == "records" and value is not None:
            return self._records(bytes(value))
        if isinstance(value, (bytes, memoryview, bytearray)):
            data = bytes(value)
            if len(data) != 16:
                return data
            if data != ZERO_UUID and data not in self._facts.topic_names:
                self.refresh()
            return (
                "no id"
                if data == ZERO_UUID
                else f"the id of {self._plain(self._facts.topic_names.get(data, 'nothing'))}"
            )
        if name == "status_detail":
            # Kafka names topics in the order of a hash table.
            return sorted(re.split(r"[ ,]+", self._plain(value)))
        if isinstance(value, str):
            return self._facts.labels.get(("member", value)) or _UUID.sub("UUID", self._plain(value))
        if name == "producer_id" and value > 0:
            return self._facts.labels.get(("producer", value), value)
        if name in ("session_id", "subscription_id"):
            return "some" if value else 0
        return "a time" if isinstance(value, int) and value > 1_500_000_000_000 and "time" in name else value

    def _of_others(self, value: Any) -> bool:
        names = [getattr(value, each, None) for each in _NAMED]
        if "topic_id" in getattr(value, "__slots__", ()) and value.topic_id != ZERO_UUID:
            names.append(self._facts.topic_names.get(value.topic_id))
        return any(name and _OTHERS.match(name) and not name.startswith(self._facts.prefix) for name in names)

    def _plain(self, text: str) -> str:
        return text.replace(self._facts.prefix, PREFIX)

    def _records(self, data: bytes) -> Any:
        out = []
        try:
            for header, batch in iterate_batches(data):
                producer = self._facts.labels.get(("producer", header.producer_id), header.producer_id)
                shape = (header.base_offset, header.last_offset_delta, header.attributes, header.base_sequence)
                records = [] if header.attributes & 0x20 else [r.value for r in decode_records(batch)]
                out.append((*shape, header.partition_leader_epoch, header.producer_epoch, producer, records))
        except (KafkaError, struct.error, ValueError) as error:
            out.append(("cut", type(error).__name__))  # type: ignore[arg-type]
        return out
