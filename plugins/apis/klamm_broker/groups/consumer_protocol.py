"""The consumer protocol inside JoinGroup and SyncGroup, as far as a broker reads and writes it: subscriptions and
assignments.

In a classic group, only the part of a subscription that all versions share is read, as in Kafka's `ClassicGroup`. The
functions keep no state, so any thread may call them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm.wire.primitives import WireError

if TYPE_CHECKING:
    from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
    from klamm.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

PROTOCOL_TYPE: Final = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_VERSION = struct.Struct(">h")
_LATEST: Final = 3


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topic names in a subscription.

    Raises ValueError if the bytes are not a subscription: a client may use the protocol type "consumer" for something
    else.
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


def version_of(data: bytes) -> int:
    """Return the version of a subscription or assignment, at most the latest known one. Raises ValueError."""
    if len(data) < _VERSION.size:
        raise ValueError("no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise ValueError(f"version {version}")
    return int(min(version, _LATEST))


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return a whole subscription. Raises ValueError."""
    from klamm.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

    try:
        return ConsumerProtocolSubscription.decode(version_of(data), data, _VERSION.size)
    except WireError as error:
        raise ValueError(str(error)) from error


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a whole assignment; no bytes mean an empty one. Raises ValueError."""
    from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

    if not data:
        return ConsumerProtocolAssignment()
    try:
        return ConsumerProtocolAssignment.decode(version_of(data), data, _VERSION.size)
    except WireError as error:
        raise ValueError(str(error)) from error


def assignment_bytes(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """Return an assignment of partitions by topic name."""
    from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition

    topics = [TopicPartition(name, sorted(indexes)) for name, indexes in partitions]
    return _VERSION.pack(version) + ConsumerProtocolAssignment(topics).encode(version)
