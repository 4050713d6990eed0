"""Detection of Produce requests without a response, from their bytes."""

from __future__ import annotations

from typing import Any, Final

from klamm.forwarding import OpaqueRequest
from klamm.wire.primitives import read_compact_nullable_string, read_nullable_string

_FLEXIBLE_FROM: Final = 9


def wants_no_response(message: Any, version: int) -> bool:
    """Return True if `acks` is 0. Raises WireError or IndexError for bytes that are not a Produce request."""
    if type(message) is not OpaqueRequest:
        acks: int = message.acks
        return acks == 0
    frame, position = message.frame, message.body_offset
    read = read_compact_nullable_string if version >= _FLEXIBLE_FROM else read_nullable_string
    _, position = read(frame, position)
    return bytes(frame[position : position + 2]) == b"\0\0"
