"""The requests to the broker while it is recorded, with the times of its acknowledgements."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klamm import Answer, ApiHandler, ErrorCode, KafkaError, RequestContext, RequestFilter, ServerServices
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.sasl import DELEGATION_TOKENS, SCRAM_CREDENTIALS
from klamm.server.listener_parts import ListenerParts
from klamm.shared import CLIENT_QUOTAS
from klamm.wire.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    incremental_alter_configs,
    offset_commit,
    produce,
)
from klamm.wire.messages.produce import PartitionProduceData
from klamm.wire.records import Record, encode_batch
from klamm.wire.struct_base import copy_message
from klamm_broker.broker import Broker
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.log.file_operations import FileOperations
from tests.contract.filter_settings import settings_of
from tests.faults.crash_states.recorded_disk import RecordedDisk, RecordedStore, Recording
from tests.unit.broker.broker_harness import BrokerHarness, Reply

GROUP = "group"
CONSUMER_GROUP = "consumers"
TABLES = ("acls", SCRAM_CREDENTIALS, CLIENT_QUOTAS, DELEGATION_TOKENS)
"""The tables that the broker keeps for other parts of the server."""
DEFAULT_BROKERS = ""
_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4
_GROUP_RESOURCE = 32
_SET = 0


@dataclass(eq=False)
class Incarnation:
    """One topic from its creation to its deletion. `id` is None if its creation was not acknowledged."""

    name: str
    configs: dict[str, str]
    id: bytes | None = None

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


@dataclass(eq=False)
class Event:
    """A request to the broker: the operation from which on it may have taken effect, and the one from which on it must
    have (None: never).
    """

    kind: str
    key: Any
    value: Any
    started_at: int
    acknowledged_at: int | None = None


@dataclass(eq=False)
class Transaction:
    """A transaction of one producer: each attempt to end it (True for a commit), and the offsets that it commits."""

    transactional_id: str
    ends: list[Event] = field(default_factory=list)
    offsets: list[Event] = field(default_factory=list)


@dataclass(eq=False)
class Sent:
    """A produced record, with its offset if it was acknowledged."""

    incarnation: Incarnation
    partition: int
    key: bytes | None
    value: bytes
    event: Event
    transaction: Transaction | None = None
    offset: int | None = None


@dataclass
class BatchProducer:
    """The producer of a batch: transactional id, identity, sequence number, and the version of Produce."""

    transaction: Transaction
    version: int
    batch: dict[str, int]


class QuietHarness(BrokerHarness):
    """A broker without threads: the workload does their work. `filters` are the names of its listener's filters."""

    def __init__(
        self,
        data_dir: Path,
        operations: FileOperations,
        recording: Recording | None,
        boot_id: str = "first boot",
        filters: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir)
        self._filter_names = filters
        self._filters: Sequence[RequestFilter] = ()
        self._boot_id = boot_id
        self._operations = operations
        self._recording = recording
        if recording is None:
            # Random bytes for ids that no topic of the recording has.
            self._random = itertools.count(1_000_000)

    @property
    def filters(self) -> Sequence[str]:
        """Return the names of the listener's filters."""
        return self._filter_names

    def open(self, **settings: Any) -> Broker:
        broker = super().open(**settings)
        self._filters = self._opened_filters(broker) if self._filter_names else ()
        return broker

    def _opened_filters(self, broker: Broker) -> Sequence[RequestFilter]:
        """Open new filters, as in a new process."""
        overrides = settings_of(self._filter_names, self.data_dir.with_name("filters"))
        overrides += [f"listeners.default.{kind}=[]" for kind in ("observers", "gates", "throttles")]
        (plan,) = load_plan(None, PluginRegistry(), overrides, bind="127.0.0.1:0", data_dir="unused").listeners
        parts = ListenerParts(plan, self.listener)
        parts.open(broker.topic_names())
        return parts.filters

    def handle(self, handler: ApiHandler, request: Any, context: RequestContext, reply: Reply) -> Any:
        """Pass a request through the filters that want its API, and its response back."""
        passed: list[RequestFilter] = []

        def back(response: Any) -> Any:
            for one in reversed(passed):
                response = one.on_response(copy_message(response), context)
            return response

        reply.change = back
        for one in self._filters:
            if one.api_keys is None or handler.api_key in one.api_keys:
                request = one.on_request(request, context)
                if isinstance(request, Answer):
                    return request.response
                passed.append(one)
        return handler.handle(request, context)

    def make_broker(self, settings: BrokerSettings) -> Broker:
        return Broker(
            settings,
            operations=self._operations,
            make_store=lambda path, sync: RecordedStore(path, self._recording, sync_submitted=sync),
            boot_id=lambda: self._boot_id,
        )

    def forget_services(self) -> None:
        """Forget all shared services, as at the start of a new process."""
        self.listener.services = ServerServices(self.clock)

    def settle(self) -> None:
        """Do the work that the threads of the flusher and the store would have done by now."""
        while True:
            self.broker.logs.flusher.run_pending()
            if not self.broker.store.commit_pending():
                return

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its response, also if it waits for a disk."""
        reply = self.send(request, version)
        if reply.pending:
            self.settle()
        return reply.response

    def probe(self, topic: str, partition: int) -> Any:
        """Produce one more record. Return the answer."""
        batch = encode_batch([Record(timestamp_ms=self.clock.wall_ms(), key=b"probe", value=b"probe")])
        data = PartitionProduceData(partition, bytes(batch))
        wanted = produce.TopicProduceData(topic, partition_data=[data])
        answer = self.ask(produce.ProduceRequest(None, -1, 1000, [wanted]), 9)
        return answer.responses[0].partition_responses[0]


class Noted:
    """The recorded events: requests, and their acknowledgements."""

    recording: Recording
    events: list[Event]
    _may_fail: bool

    def new_event(self, kind: str, key: Any, value: Any) -> Event:
        """Record an event that is requested from now on."""
        event = Event(kind, key, value, len(self.recording))
        self.events.append(event)
        return event

    @contextlib.contextmanager
    def event(self, kind: str, key: Any, value: Any) -> Iterator[Event]:
        """Record an event. It is acknowledged if the block ends without KafkaError."""
        event = self.new_event(kind, key, value)
        try:
            yield event
            event.acknowledged_at = len(self.recording)
        except KafkaError:
            if not self._may_fail:
                raise

    def check(self, answer: Any) -> Any:
        """Return the answer. Raises KafkaError if it has an error."""
        self.check_code(answer.error_code)
        return answer

    @staticmethod
    def check_code(error_code: int) -> None:
        """Raise KafkaError if the code is an error."""
        if error_code:
            raise KafkaError(ErrorCode(error_code))


@dataclass
class Workload(Noted):
    """A workload: requests to one broker, one after the other, all by its handlers."""

    harness: QuietHarness
    recording: Recording
    settings: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    cluster_id: str = ""

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self.topics: dict[str, Incarnation] = {}
        """The existing topics by name."""
        self._may_fail = self.recording.fault is not None
        self.open()

    # Life

    def open(self) -> None:
        """Open the broker. If the disk fails meanwhile and the opening fails, open it again with a sound disk."""
        with self.event("cluster", None, None) as event:
            try:
                broker = self.harness.open(**self.settings)
            except (OSError, KafkaError):
                assert self.recording.fault is not None
                self.recording.fault = None
                self.harness.forget_services()
                broker = self.harness.open(**self.settings)
            self.harness.settle()
            self.cluster_id = event.value = broker.cluster_id

    def close(self) -> None:
        """Close the broker in good order. All data is then synced."""
        logs = {
            (self.topics[topic.name], partition.index): log
            for topic in self.harness.broker.topics.all()
            if topic.name in self.topics
            for partition in topic.partitions
            if (log := partition.opened_log) is not None
        }
        self.harness.broker.close()
        for key, log in logs.items():
            self._note_flushed(key, log.recovery_point)

    def restart(self) -> None:
        self.close()
        self.harness.forget_services()
        self.open()

    # Topics

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        made = Incarnation(name, configs)
        with self.event("topic", name, made):
            self.events.append(Event("partitions", made, partitions, len(self.recording), len(self.recording)))
            wanted = [create_topics.CreatableTopicConfig(key, value) for key, value in configs.items()]
            request = create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(name, partitions, 1, configs=wanted)]
            )
            (answer,) = self.harness.call(request, 7).topics
            made.id = self.check(answer).topic_id
            self.topics[name] = made
        for key, value in configs.items():
            self.events.append(Event("config", (made, key), value, len(self.recording), len(self.recording)))

    def delete(self, name: str) -> None:
        self.topics.pop(name, None)
        with self.event("topic", name, None) as event:
            answers = self.harness.call(
                delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5
            ).responses
            self.check(answers[0])
        committed = {each.key for each in self.events if each.kind == "offset" and each.key[1] == name}
        for key in committed:
            self.events.append(Event("offset", key, None, event.started_at, event.acknowledged_at))

    def add_partitions(self, name: str, count: int) -> None:
        if name in self.topics:
            with self.event("partitions", self.topics[name], count):
                request = create_partitions.CreatePartitionsRequest(
                    [create_partitions.CreatePartitionsTopic(name, count, None)], 1000
                )
                self.check(self.harness.call(request, 3).results[0])

    def set_config(self, name: str, key: str, value: str) -> None:
        if name in self.topics:
            with self.event("config", (self.topics[name], key), value):
                self._alter_config(_TOPIC_RESOURCE, name, key, value)

    def set_broker_config(self, key: str, value: str) -> None:
        """Set a config as the dynamic default of all brokers."""
        with self.event("broker config", key, value):
            self._alter_config(_BROKER_RESOURCE, DEFAULT_BROKERS, key, value)

    def set_group_config(self, key: str, value: str) -> None:
        """Set a config of the consumer group."""
        with self.event("group config", key, value):
            self._alter_config(_GROUP_RESOURCE, CONSUMER_GROUP, key, value)

    def _alter_config(self, resource_type: int, name: str, key: str, value: str) -> None:
        change = incremental_alter_configs.AlterableConfig(key, _SET, value)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(resource_type, name, [change])]
        )
        self.check(self.harness.call(request, 1).responses[0])

    # Records

    def produce(self, name: str, partition: int = 0, *, key: bytes | None = None, count: int = 1) -> None:
        for _ in range(count):
            if name in self.topics:
                self._produce(self.topics[name], partition, key)

    def produce_in(
        self, producer: BatchProducer, name: str, partition: int = 0, *, key: bytes | None = None
    ) -> int | None:
        """Send a record within a transaction. Return its offset if it was acknowledged."""
        return self._produce(self.topics[name], partition, key, producer) if name in self.topics else None

    def _produce(
        self, topic: Incarnation, partition: int, key: bytes | None, producer: BatchProducer | None = None
    ) -> int | None:
        """Send a record. Return its offset if it was acknowledged."""
        value = f"{topic.name} {next(self._numbers):04d} ".encode() + b"x" * 40
        transaction = producer.transaction if producer is not None else None
        with self.event("produce", None, None) as event:
            sent = Sent(topic, partition, key, value, event, transaction)
            self.sent.append(sent)
            record = Record(timestamp_ms=self.harness.clock.wall_ms(), key=key, value=value)
            batch = encode_batch([record], **(producer.batch if producer is not None else {}))
            data = [
                produce.TopicProduceData(topic.name, partition_data=[PartitionProduceData(partition, bytes(batch))])
            ]
            transactional_id = transaction.transactional_id if transaction is not None else None
            version = producer.version if producer is not None else 9
            reply = self.harness.send(produce.ProduceRequest(transactional_id, -1, 1000, data), version)
            is_flushed = reply.pending and topic.configs.get("flush.messages") == "1"
            if reply.pending:
                self.harness.settle()
            answer = self.check(reply.response.responses[0].partition_responses[0])
            sent.offset = answer.base_offset
            if is_flushed:
                self._note_flushed((topic, partition), answer.base_offset + 1)
        return sent.offset

    def delete_records(self, name: str, offset: int, partition: int = 0) -> None:
        if name not in self.topics:
            return
        with self.event("start", (self.topics[name], partition), offset):
            wanted = delete_records.DeleteRecordsPartition(partition, offset)
            request = delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(name, [wanted])])
            self.check(self.harness.call(request, 2).topics[0].partitions[0])

    def commit(self, name: str, offset: int, partition: int = 0) -> None:
        with self.event("offset", (GROUP, name, partition), offset):
            wanted = offset_commit.OffsetCommitRequestPartition(partition, offset)
            request = offset_commit.OffsetCommitRequest(
                GROUP, topics=[offset_commit.OffsetCommitRequestTopic(name, partitions=[wanted])]
            )
            reply = self.harness.send(request, 8)
            self.harness.broker.store.commit_pending()
            self.check(reply.response.topics[0].partitions[0])

    # The rest

    def put_rows(self, key: str) -> None:
        for table in TABLES:
            with self.event("row", (table, key), key):
                self.harness.listener.services.shared.table(table).update({key: {"name": key}})

    def take_rows(self, key: str) -> None:
        for table in TABLES:
            with self.event("row", (table, key), None):
                self.harness.listener.services.shared.table(table).update({key: None})

    def take_producer_id(self) -> None:
        with self.event("producer id", None, None) as event:
            event.value = self.harness.broker.producer_ids.allocate()

    def flush(self) -> None:
        """Do the work of the flusher's thread."""
        self.harness.settle()
        for name, topic in self.topics.items():
            found = self.harness.broker.topics.get(name)
            for partition in found.partitions if found is not None else ():
                if (log := partition.opened_log) is not None:
                    self._note_flushed((topic, partition.index), log.recovery_point)

    def _note_flushed(self, key: tuple[Incarnation, int], offset: int) -> None:
        now = len(self.recording)
        self.events.append(Event("flushed", key, offset, now, now))

    def checkpoint(self) -> None:
        now_ms = self.harness.clock.wall_ms()
        self.harness.broker.logs.checkpoint(now_ms)
        self.harness.broker.logs.checkpoint_start_offsets(now_ms)

    def clean(self) -> None:
        self.harness.broker.logs.compaction.clean(self.harness.clock.wall_ms())

    def retain(self) -> None:
        """Apply retention. The possible starts of logs are known after it."""
        started_at = len(self.recording)
        self.harness.broker.logs.delete_old_segments(self.harness.clock.wall_ms())
        for name, topic in self.topics.items():
            found = self.harness.broker.topics.get(name)
            for partition in found.partitions if found is not None else ():
                event = Event("start", (topic, partition.index), partition.log.log_start_offset, started_at)
                self.events.append(event)


SMALL: dict[str, Any] = {"internal_segment_bytes": "300", "file_delete_delay_ms": "0"}


def run(work: Workload) -> None:
    """Run all operations in which a crash may happen."""
    work.create("rolling", 2, **SMALL)
    work.create("synced", flush_messages="1", **SMALL)
    work.create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **SMALL)
    work.create("bounded", retention_bytes="400", **SMALL)
    for number in range(4):
        work.produce("rolling", count=2)
        work.produce("synced")
        work.produce("compacted", key=b"ab"[number % 2 : number % 2 + 1], count=2)
        work.produce("bounded", count=2)
    work.put_rows("first")
    work.set_broker_config("message.max.bytes", "2000000")
    work.commit("rolling", 3)
    work.flush()
    work.checkpoint()
    work.take_producer_id()
    work.clean()
    work.retain()
    work.checkpoint()
    work.delete_records("synced", 2)
    work.delete_records("rolling", 5)
    work.retain()
    work.checkpoint()
    _recreate(work)
    work.restart()
    work.produce("rolling", count=5)
    work.produce("compacted", key=b"a", count=4)
    work.add_partitions("synced", 3)
    work.produce("synced", 2, count=3)
    work.set_config("bounded", "retention.bytes", "300")
    work.take_rows("first")
    work.put_rows("second")
    work.set_broker_config("message.max.bytes", "3000000")
    work.commit("rolling", 4)
    work.take_producer_id()
    work.flush()
    work.clean()
    work.retain()
    work.checkpoint()
    work.delete("bounded")
    work.produce("compacted", key=b"b", count=3)
    work.close()


def _recreate(work: Workload) -> None:
    """Delete a topic and create it again, with offsets in the checkpoints that could lose the new topic's records."""
    work.delete("rolling")
    work.create("rolling", **SMALL)
    work.produce("rolling", count=3)
    work.commit("rolling", 1)
    work.delete("synced")
    work.create("synced", flush_messages="1", **SMALL)
    work.produce("synced", count=3)
    work.delete_records("synced", 1)
    work.checkpoint()
    work.produce("synced", count=2)


def recorded(
    directory: Path,
    settings: dict[str, Any],
    fault: Any = None,
    run: Callable[[Workload], None] = run,
    filters: Sequence[str] = (),
) -> Workload:
    """Return a workload after its run on a directory, with a fault or without."""
    directory.mkdir(parents=True)
    recording = Recording(directory)
    harness = QuietHarness(directory, RecordedDisk(recording), recording, filters=filters)
    # The server creates the directory before the broker opens it.
    recording.fault = fault
    work = Workload(harness, recording, settings)
    run(work)
    return work


ERRORS = (errno.ENOSPC, errno.EIO)
