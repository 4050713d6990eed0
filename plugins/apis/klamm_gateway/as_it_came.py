"""`frame_as_it_came`: checks if a decoded Produce request may be sent in its original frame. `Gateway` calls it on the
thread of the request.

An authorizer has checked the message, and a node must read the same message. A frame whose size equals the size of the
encoded message contains nothing else: no tagged field that klamm does not know, no bytes after the body.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import RequestContext
from klamm.forwarding import OpaqueRequest, request_frame
from klamm.wire.chunks import Buffer
from klamm.wire.primitives import read_compact_nullable_string, read_nullable_string

_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_UUID_BYTES: Final = 16


def frame_as_it_came(message: Any, context: RequestContext) -> Buffer | None:
    """Return the frame of a Produce request, without the size in front; None if the message must be encoded again."""
    frame = request_frame(context)
    version = context.api_version
    if frame is None or len(frame) != _header_bytes(context.client_id, version) + body_bytes(message, version):
        return None
    return frame


def _header_bytes(client_id: str | None, version: int) -> int:
    return 10 + (0 if client_id is None else _utf8_bytes(client_id)) + (version >= _FLEXIBLE_FROM)


def body_bytes(message: Any, version: int) -> int:
    """Return the size of an encoded Produce request."""
    transactional_id = message.transactional_id
    if version < _FLEXIBLE_FROM:
        size = 12 if transactional_id is None else 12 + _utf8_bytes(transactional_id)
        for topic in message.topic_data:
            size += 6 + _utf8_bytes(topic.name)
            for data in topic.partition_data:
                size += 8 if data.records is None else 8 + len(data.records)
        return size
    size = 7 + _compact_bytes(-1 if transactional_id is None else _utf8_bytes(transactional_id))
    size += _varint_bytes(len(message.topic_data) + 1)
    for topic in message.topic_data:
        size += _UUID_BYTES if version >= _TOPIC_IDS_FROM else _compact_bytes(_utf8_bytes(topic.name))
        size += 1 + _varint_bytes(len(topic.partition_data) + 1)
        for data in topic.partition_data:
            size += 5 + _compact_bytes(-1 if data.records is None else len(data.records))
    return size


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _compact_bytes(length: int) -> int:
    """Return the encoded size of bytes or a string, with the length in front; a `length` of -1 means null."""
    return _varint_bytes(length + 1) + max(length, 0)


def _varint_bytes(value: int) -> int:
    return 1 + (value > 0x7F) + (value > 0x3FFF) + (value > 0x1FFFFF) + (value > 0xFFFFFFF)


def wants_no_response(message: Any, version: int) -> bool:
    """Return True if `acks` is 0. Raises WireError or IndexError for bytes that are not a Produce request."""
    if type(message) is not OpaqueRequest:
        acks: int = message.acks
        return acks == 0
    frame, position = message.frame, message.body_offset
    read = read_compact_nullable_string if version >= _FLEXIBLE_FROM else read_nullable_string
    _, position = read(frame, position)
    return bytes(frame[position : position + 2]) == b"\0\0"
