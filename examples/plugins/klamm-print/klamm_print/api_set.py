"""The handler set `print`: Metadata, InitProducerId, Produce and Fetch, enough for a producer.

klamm calls the handlers: Produce on a request handler's thread, the others (`blocking=False`) on the processor's
thread.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from typing import TextIO

from klamm import ApiSet, ErrorCode, KafkaError, Pending, RequestContext, ServerContext, handles
from klamm.wire.messages import fetch, init_producer_id, metadata, produce
from klamm.wire.messages.fetch import FetchRequest, FetchResponse
from klamm.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
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
from klamm_print.settings import PrintSettings

_NODE_ID = 1


class PrintRecords(ApiSet):
    """Answers every Produce with success and prints its records. Every requested topic exists."""

    def __init__(self, settings: PrintSettings) -> None:
        super().__init__(settings)
        self._partitions = range(settings.partitions)
        self._max_bytes = settings.message_max_bytes
        self._producer_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._output: TextIO = sys.stdout

    def open(self, server: ServerContext) -> None:
        if self.settings.file is not None:
            self._output = self.settings.file.open("a", encoding="utf-8")

    def close(self) -> None:
        if self._output is not sys.stdout:
            self._output.close()

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """Return one broker, which leads every partition of every topic."""
        host, port = context.listener.advertised
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=_NODE_ID,
                leader_epoch=0,
                replica_nodes=[_NODE_ID],
                isr_nodes=[_NODE_ID],
            )
            for index in self._partitions
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE_ID, host=host, port=port)],
            cluster_id="klamm-print",
            controller_id=_NODE_ID,
            topics=[MetadataResponseTopic(name=topic.name, partitions=partitions) for topic in request.topics or ()],
        )

    @handles(init_producer_id, versions=init_producer_id.VERSIONS, blocking=False)
    def init_producer_id(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        """Return an id for an idempotent producer. Transactions are refused."""
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return InitProducerIdResponse(producer_id=next(self._producer_ids), producer_epoch=0)

    # From version 13 on, requests name topics by id. Without that version, clients use names.
    @handles(produce, versions=range(3, 13))
    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending:
        """Print the records. Writing may wait for the terminal or the disk, so the handler is not `blocking=False`."""
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[self._print(topic.name, data) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return context.no_response() if request.acks == 0 else ProduceResponse(responses=responses)

    # librdkafka writes record batches of the current format only if the server has a Fetch of at least version 4.
    @handles(fetch, versions=range(4, 13), blocking=False)
    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse:
        """Refuse every Fetch, because no record is kept."""
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Records are printed and not kept.")

    def _print(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            batch = data.records or b""
            validate_produced(batch, self._max_bytes)
            lines = [
                json.dumps({"topic": topic, "partition": data.index, "key": _text(one.key), "value": _text(one.value)})
                for one in decode_records(batch)
            ]
        except KafkaError as error:
            return PartitionProduceResponse(index=data.index, error_code=error.error_code, base_offset=-1)
        with self._lock:
            self._output.write("".join(f"{line}\n" for line in lines))
            self._output.flush()
        return PartitionProduceResponse(index=data.index, base_offset=0)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")
