"""The handler set `webhook`: the parts of Metadata and Produce that a producer needs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

from klamm import ApiSet, ErrorCode, KafkaError, Pending, RequestContext, handles, setting
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
from klamm.wire.records import Record, decode_records, validate_produced

_NODE_ID = 1


def _check_url(url: str) -> str | None:
    return None if url.startswith(("http://", "https://")) else f'must begin with http:// or https://, not "{url}"'


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The table `[webhook]`."""

    url: str = setting(doc="The URL to which records are posted.", check=_check_url)
    timeout_ms: int = setting(5000, doc="The longest time for an answer.", minimum=1)
    message_max_bytes: int = setting(1_048_588, name="message.max.bytes", doc="Largest record batch.", minimum=1)


class WebhookBridge(ApiSet):
    """Posts records to a URL and keeps nothing: a batch is acknowledged once the URL has taken it."""

    settings: WebhookSettings

    @handles(metadata, versions=metadata.VERSIONS, blocking=False)
    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        """Return one broker, and each requested topic with one partition."""
        host, port = context.listener.advertised
        partition = MetadataResponsePartition(
            leader_id=_NODE_ID, leader_epoch=0, replica_nodes=[_NODE_ID], isr_nodes=[_NODE_ID]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE_ID, host=host, port=port)],
            cluster_id="webhook",
            controller_id=_NODE_ID,
            topics=[MetadataResponseTopic(name=topic.name, partitions=[partition]) for topic in request.topics or ()],
        )

    # From version 13 on, requests have topic ids. Up to version 12, clients send names.
    @handles(produce, versions=range(3, 13))
    def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending:
        """Post the records. This waits for the URL. Without `blocking=False` it runs on a handler thread."""
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
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Records are posted and not kept.")

    def _take(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            batch = data.records or b""
            validate_produced(batch, self.settings.message_max_bytes)
            self._post([_as_json(topic, record) for record in decode_records(batch)])
        except KafkaError as error:
            return PartitionProduceResponse(
                index=data.index, error_code=error.error_code, base_offset=-1, error_message=error.message
            )
        return PartitionProduceResponse(index=data.index, base_offset=0)

    def _post(self, records: list[dict[str, str | None]]) -> None:
        request = urllib.request.Request(
            self.settings.url, json.dumps(records).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.settings.timeout_ms / 1000):
                pass
        except OSError as error:
            # A retriable error: the producer sends the batch again.
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.settings.url}: {error}") from error


def _as_json(topic: str, record: Record) -> dict[str, str | None]:
    return {"topic": topic, "key": _text(record.key), "value": _text(record.value)}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")
