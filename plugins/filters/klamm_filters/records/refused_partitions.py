"""`RefusedPartitions`: the partitions of a Produce that a filter refuses while the others go to the broker.

The filters that read records call it on request and response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from klamm import Answer, ErrorCode, KafkaError, RequestContext
from klamm.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a partition is refused. `records` are pairs of a record's index in the batch and a message."""

    error: ErrorCode
    message: str
    records: tuple[tuple[int, str], ...] = ()


Check = Callable[[Any, Any], "Refusal | None"]
"""A function that returns the refusal of a partition of a ProduceRequest, or None. It may change the partition."""


class RefusedPartitions:
    """The refused partitions of one filter. As in Kafka, the other partitions of the request are still written.

    It calls `note` with the message of each refused partition.
    """

    def __init__(self, note: Callable[[RequestContext, str], None]) -> None:
        self._note = note
        self._refused: WeakKeyDictionary[RequestContext, list[TopicProduceResponse]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._refused)

    def take_out(self, request: ProduceRequest, context: RequestContext, check: Check) -> ProduceRequest | Answer:
        """Return the request without refused partitions, or the whole response if no partition is left.

        Raises KafkaError for a request that gets no response (acks=0), which closes the connection.
        """
        refused: list[TopicProduceResponse] = []
        for topic in request.topic_data:
            refusals = [(one, refusal) for one in topic.partition_data if (refusal := check(topic, one)) is not None]
            if refusals:
                for _, refusal in refusals:
                    self._note(context, refusal.message)
                out = {id(one) for one, _ in refusals}
                topic.partition_data = [one for one in topic.partition_data if id(one) not in out]
                answers = [_response(one.index, refusal) for one, refusal in refusals]
                refused.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        if not refused:
            return request
        if request.acks == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, refused[0].partition_responses[0].error_message)
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
        if not request.topic_data:
            return Answer(ProduceResponse(responses=refused))
        # The key is the context, because several requests of a connection may wait, even with the same correlation id.
        self._refused[context] = refused
        return request

    def put_back(self, response: ProduceResponse, context: RequestContext) -> ProduceResponse:
        """Return the response with the partitions that `take_out` refused."""
        refused = self._refused.pop(context, [])
        written = {(topic.name, topic.topic_id): topic for topic in response.responses} if refused else {}
        for topic in refused:
            beside = written.get((topic.name, topic.topic_id))
            if beside is None:
                response.responses.append(topic)
            else:
                beside.partition_responses += topic.partition_responses
        return response


def _response(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=int(refusal.error),
        base_offset=-1,
        record_errors=[BatchIndexAndErrorMessage(number, message) for number, message in refusal.records],
        error_message=refusal.message,
    )
