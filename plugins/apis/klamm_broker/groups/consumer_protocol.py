"""The part of the embedded consumer protocol that a broker reads: the topics that a member subscribes to.

Only the prefix that all versions of `ConsumerProtocolSubscription` share is read, as Kafka's `ClassicGroup` does.
"""

from __future__ import annotations

import struct
from typing import Final

PROTOCOL_TYPE: Final = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Topic names in a subscription.

    Raises ValueError for other bytes: a client may use the protocol type "consumer" for something else.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            raise ValueError(f"subscription of version {version} with {count} topics")
        topics = set()
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                raise ValueError(f"subscription with a topic name of {length} bytes")
            topics.add(name.decode())
            position += length
    except struct.error as error:
        raise ValueError(f"subscription cut short: {error}") from error
    return frozenset(topics)
