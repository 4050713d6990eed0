"""The handler set `sqlite`: the parts of Metadata and Produce that a producer needs."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from klamm import ApiSet, ErrorCode, KafkaError, Pending, RequestContext, ServerContext, handles, setting
from klamm.wire.messages import fetch, metadata, produce
from klamm.wire.messages.fetch import FetchRequest, FetchResponse
from klamm.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from klamm.wire.records import decode_records, validate_produced

_NODE_ID = 1
_TABLE = """CREATE TABLE IF NOT EXISTS records
    (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, timestamp_ms INTEGER NOT NULL, key BLOB, value BLOB)"""
_INSERT = "INSERT INTO records (topic, timestamp_ms, key, value) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """The table `[sqlite]`."""

    file: Path = setting(doc="The database; made if it does not exist.")
    message_max_bytes: int = setting(1_048_588, name="message.max.bytes", doc="Largest record batch.", minimum=1)


class SqliteSink(ApiSet):
    """Stores records in SQLite. Handlers run on several threads, so one lock protects the database."""

    settings: SqliteSettings

    def open(self, server: ServerContext) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(self.settings.file, check_same_thread=False)
        self._database.execute(_TABLE)

    def close(self) -> None:
        self._database.close()

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """Return one broker, and each requested topic with one partition."""
        host, port = context.listener.advertised
        partition = MetadataResponsePartition(
            leader_id=_NODE_ID, leader_epoch=0, replica_nodes=[_NODE_ID], isr_nodes=[_NODE_ID]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE_ID, host=host, port=port)],
            cluster_id="sqlite",
            controller_id=_NODE_ID,
            topics=[MetadataResponseTopic(name=topic.name, partitions=[partition]) for topic in request.topics or ()],
        )

    # From version 13 on, requests have topic ids. Up to version 12, clients send names.
    @handles(produce, versions=range(3, 13))
    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending:
        """Store the records. This waits for the disk. Without `blocking=False` it runs on a handler thread."""
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[self._take(topic.name, data) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return context.no_response() if request.acks == 0 else ProduceResponse(responses=responses)

    # librdkafka sends batches of today's format only if the server has this Fetch.
    @handles(fetch, versions=range(4, 13), blocking=False)
    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse:
        """Refuse to read records."""
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Records are rows of the database.")

    def _take(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            batch = data.records or b""
            validate_produced(batch, self.settings.message_max_bytes)
            rows = [(topic, one.timestamp_ms, one.key, one.value) for one in decode_records(batch)]
            with self._lock, self._database:
                before = self._database.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()[0]
                self._database.executemany(_INSERT, rows)
        except KafkaError as error:
            return PartitionProduceResponse(index=data.index, error_code=error.error_code, base_offset=-1)
        except sqlite3.Error as error:
            return PartitionProduceResponse(
                index=data.index,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                base_offset=-1,
                error_message=str(error),
            )
        return PartitionProduceResponse(index=data.index, base_offset=before)
