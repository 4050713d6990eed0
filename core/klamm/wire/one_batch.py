"""Produce of one batch, as nearly all requests are: read, and answered, in a fraction of the steps.

They give what `ProduceRequest.decode` and `ProduceResponse.encode` give, and leave to those whatever is wrong or not of
the usual shape: version 9 or later, no transactional id, one topic, one partition; an answer without errors.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm.wire.messages import produce
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from klamm.wire.primitives import DECODE_ERRORS, ENCODE_ERRORS, ZERO_UUID, ReadBuffer

MODULE: Final = produce
"""The messages that these are for."""

_TOPIC_IDS_FROM: Final = 13
# No transactional id (0), acks, timeout, one topic (2), length of its name + 1.
_REQUEST_HEAD: Final = Struct(">BhiBB")
# One partition (2), its index, and the first three bytes of the size of its records + 1.
_PARTITION: Final = Struct(">BiBBB")
_REQUEST_WITH_ID: Final = Struct(">BhiB16sBiBBB")
_REQUEST_BYTES_UP_TO_ID: Final = 24
# One topic (2), length of its name + 1: of names of up to 126 bytes.
_RESPONSE_HEADS: Final = tuple(bytes((2, length + 1)) for length in range(0x7F))
_RESPONSE_HEAD_WITH_ID: Final = Struct(">B16s")
# One partition (2): index, error code, offset, append time, start offset; no record errors (1), no message (0), no
# tagged fields of it and its topic; throttle time; no tagged fields.
_RESPONSE_TAIL: Final = Struct(">BihqqqBBBBiB")
_unpack_request_head: Final = _REQUEST_HEAD.unpack_from
_unpack_partition: Final = _PARTITION.unpack_from
_unpack_request_with_id: Final = _REQUEST_WITH_ID.unpack_from
_pack_response_head_with_id: Final = _RESPONSE_HEAD_WITH_ID.pack
_pack_response_tail: Final = _RESPONSE_TAIL.pack


def decode_request(version: int, buffer: ReadBuffer, offset: int = 0) -> ProduceRequest:
    """As `ProduceRequest.decode`. Raises WireError."""
    try:
        if 9 <= version < _TOPIC_IDS_FROM:
            with_id, acks, timeout_ms, topics, name_size = _unpack_request_head(buffer, offset)
            name_at = offset + 9
            partition_at = name_at + name_size - 1
            partitions, index, first, second, third = _unpack_partition(buffer, partition_at)
            topic_id = ZERO_UUID
        elif version == _TOPIC_IDS_FROM:
            with_id, acks, timeout_ms, topics, topic_id, partitions, index, first, second, third = (
                _unpack_request_with_id(buffer, offset)
            )
            name_at = partition_at = offset + _REQUEST_BYTES_UP_TO_ID
            name_size = 1
        else:
            return ProduceRequest.decode(version, buffer, offset)
        if with_id or topics != 2 or partitions != 2 or not 0 < name_size < 0x80 or first < 0x80:
            return ProduceRequest.decode(version, buffer, offset)
        if second < 0x80:
            start = partition_at + 7
            end = start + (first & 0x7F | second << 7) - 1
        elif third < 0x80:
            start = partition_at + 8
            end = start + (first & 0x7F | (second & 0x7F) << 7 | third << 14) - 1
        else:
            return ProduceRequest.decode(version, buffer, offset)
        view = memoryview(buffer)
        # No tagged fields of the partition, the topic and the request.
        if end < start or len(view) != end + 3 or any(view[end:]):
            return ProduceRequest.decode(version, buffer, offset)
        name = str(view[name_at:partition_at], "utf-8")
    except DECODE_ERRORS:
        return ProduceRequest.decode(version, buffer, offset)
    data = [PartitionProduceData(index, view[start:end])]
    return ProduceRequest(None, acks, timeout_ms, [TopicProduceData(name, topic_id, data)])


def encode_response(response: ProduceResponse, version: int) -> bytes:
    """As `ProduceResponse.encode`. Raises WireError."""
    try:
        # A handler may answer with whatever can encode itself.
        if type(response) is not ProduceResponse or response.node_endpoints or not 9 <= version <= _TOPIC_IDS_FROM:
            return response.encode(version)
        (topic,) = response.responses
        (result,) = topic.partition_responses
        if result.error_code or result.record_errors:
            return response.encode(version)
        if result.error_message is not None or result.current_leader is not None:
            return response.encode(version)
        if version == _TOPIC_IDS_FROM:
            head = _pack_response_head_with_id(2, topic.topic_id)
        else:
            name = topic.name.encode()
            head = _RESPONSE_HEADS[len(name)] + name
        return head + _pack_response_tail(
            2,
            result.index,
            0,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
            1,
            0,
            0,
            0,
            response.throttle_time_ms,
            0,
        )
    except (IndexError, ValueError, *ENCODE_ERRORS):
        return response.encode(version)
