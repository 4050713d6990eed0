"""Errors of single partitions, for the kind `partition_error` of `FaultFilter`.

`take_out` removes the partitions from a Produce request, and `put_errors` puts their errors into the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm import ErrorCode
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from klamm.wire.struct_base import WireStruct

APIS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""APIs whose responses have an error code for each partition."""

_INDEX_FIELDS: Final = ("partition_index", "index", "partition")

Names = Callable[[str, int], bool]
"""A function that returns True if a rule names the partition with this topic and index."""
NameOf = Callable[[bytes], str | None]
"""A function that returns the name of the topic with this id; None if it is unknown."""
Refused = list[tuple[str, bytes, int]]
"""The topic's name, its id and the index of partitions that were taken out of the request."""


def take_out(request: Any, names: Names, name_of: NameOf) -> Refused:
    """Remove the named partitions from a Produce request, so that no records are appended to them.

    Return these partitions. Other requests stay unchanged.
    """
    refused: Refused = []
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            name = topic.name or name_of(topic.topic_id) or ""
            kept = [partition for partition in topic.partition_data if not names(name, partition.index)]
            out = [partition for partition in topic.partition_data if names(name, partition.index)]
            refused += [(topic.name, topic.topic_id, partition.index) for partition in out]
            topic.partition_data = kept
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
    return refused


def put_errors(response: Any, error: ErrorCode, names: Names, name_of: NameOf, refused: Refused) -> None:
    """Set an error on the named partitions of a response.

    A Produce response gets the removed partitions back. A Fetch response loses the records of the named partitions.
    """
    if isinstance(response, ProduceResponse):
        for name, topic_id, index in refused:
            partition = PartitionProduceResponse(index=index, error_code=error, base_offset=-1)
            response.responses.append(TopicProduceResponse(name, topic_id, [partition]))
        return
    _mark(response, "", error, names, name_of)


def _mark(struct: Any, topic: str, error: ErrorCode, names: Names, name_of: NameOf) -> None:
    fields = struct.__slots__
    for field in ("name", "topic"):
        if field in fields and isinstance(getattr(struct, field), str):
            topic = getattr(struct, field)
    if "topic_id" in fields and not topic:
        topic = name_of(struct.topic_id) or ""
    index = next((getattr(struct, field) for field in _INDEX_FIELDS if field in fields), None)
    if index is not None and "error_code" in fields and names(topic, index):
        struct.error_code = error
        if "records" in fields:
            struct.records = None
        return
    for field in fields:
        value = getattr(struct, field)
        for below in value if isinstance(value, list) else ():
            if isinstance(below, WireStruct):
                _mark(below, topic, error, names, name_of)
