"""Partitions that filters remove from a Produce return in the response of the same request."""

from __future__ import annotations

import gc

from klamm import ErrorCode, RequestContext
from klamm.testing import MemoryListener
from klamm.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm_filters.records.refused_partitions import Refusal, RefusedPartitions


def produce(index: int) -> ProduceRequest:
    """Return a request with one partition that is refused, and partition 9."""
    data = [PartitionProduceData(index, b""), PartitionProduceData(9, b"")]
    return ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=data)])


def take_out(refused: RefusedPartitions, request: ProduceRequest, context: RequestContext) -> None:
    refused.take_out(
        request,
        context,
        lambda _topic, one: Refusal(ErrorCode.INVALID_RECORD, "wrong") if one.index != 9 else None,
    )


def answered(refused: RefusedPartitions, context: RequestContext) -> list[int]:
    written = TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(9)])
    (topic,) = refused.put_back(ProduceResponse([written]), context).responses
    return [each.index for each in topic.partition_responses]


def test_requests_with_one_correlation_id_keep_their_refusals() -> None:
    listener, refused = MemoryListener(), RefusedPartitions(lambda _context, _message: None)
    connection = listener.connection()
    requests = [produce(index) for index in range(3)]
    contexts = [listener.request(each, 9, connection) for each in requests]
    assert len({each.correlation_id for each in contexts}) == 1
    for request, context in zip(requests, contexts, strict=True):
        take_out(refused, request, context)

    assert [answered(refused, each) for each in contexts] == [[9, 0], [9, 1], [9, 2]]
    assert answered(refused, contexts[0]) == [9]


def test_refusals_are_freed_with_a_request_that_is_never_answered() -> None:
    listener, refused = MemoryListener(), RefusedPartitions(lambda _context, _message: None)
    request = produce(0)
    take_out(refused, request, listener.request(request, 9))
    gc.collect()

    assert len(refused) == 0
