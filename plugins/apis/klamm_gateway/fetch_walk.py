"""`FetchWalk`: reads the fields of a Fetch response while its bytes pass in pieces of any size, and skips the records.

A `ForwardedRequest` makes one if an observer wants to see the response of a large Fetch. The connection to the node
feeds it on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Any, Final, TypeAlias

from klamm.forwarding import StreamedRecords
from klamm.wire.chunks import Buffer
from klamm.wire.messages.fetch import (
    FLEXIBLE_FROM,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from klamm.wire.primitives import DECODE_ERRORS, WireError

VERSIONS: Final = range(4, 16)
"""Versions that can be read. The responses of later versions name nodes at their end (KIP-951)."""
MAX_FIELD_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a response without records and unknown tagged fields."""

_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqq")
_ABORTED: Final = Struct(">qq")
_MAX_NAME_BYTES: Final = 32767
_FIRST_WITH_ERROR: Final = 7
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_PREFERRED_REPLICA: Final = 11
_FIRST_WITH_IDS: Final = 13
_TAGGED: Final[dict[int, tuple[str, Any, Struct]]] = {
    0: ("diverging_epoch", EpochEndOffset, Struct(">iq")),
    1: ("current_leader", LeaderIdAndEpoch, Struct(">ii")),
    2: ("snapshot_id", SnapshotId, Struct(">qi")),
}
"""Tagged fields of a partition, by tag."""

_Steps: TypeAlias = "Generator[int, bytes, Any]"
"""A generator that yields the number of bytes it needs; `send` passes these bytes to it. It yields 0 after it has set
`unread_bytes`, and is resumed once they were skipped.
"""


class FetchWalk:
    """A parser that fills `message` while bytes arrive. The message has `StreamedRecords` in place of records. The
    caller need not feed the next `unread_bytes` bytes: it may report them to `passed`.

    No length in the response may exceed the bytes that are left of `size_bytes`, the size of the body. Methods raise
    WireError.
    """

    def __init__(self, version: int, size_bytes: int) -> None:
        self.message = FetchResponse()
        self.unread_bytes = 0
        self._version = version
        self._flexible = version >= FLEXIBLE_FROM
        self._left_bytes = size_bytes
        self._may_read_bytes = MAX_FIELD_BYTES
        self._needed_bytes = 0
        self._part = bytearray()
        self._steps = self._walk()
        self._go_on(None)

    def feed(self, data: Buffer) -> None:
        """Read the next bytes of the body."""
        view = memoryview(data)
        position, size_bytes = 0, len(view)
        while position < size_bytes:
            if self.unread_bytes:
                count = min(self.unread_bytes, size_bytes - position)
                self.passed(count)
            else:
                if not self._needed_bytes:
                    raise WireError("bytes follow the end of the response")
                count = min(self._needed_bytes - len(self._part), size_bytes - position)
                self._part += view[position : position + count]
                if len(self._part) == self._needed_bytes:
                    whole, self._part = bytes(self._part), bytearray()
                    self._go_on(whole)
            position += count

    def passed(self, count: int) -> None:
        """Note that this many of the `unread_bytes` were skipped."""
        self.unread_bytes -= count
        if not self.unread_bytes:
            self._go_on(b"")

    def _go_on(self, data: bytes | None) -> None:
        try:
            self._needed_bytes = self._steps.send(data) if data is not None else next(self._steps)
        except StopIteration:
            if self._left_bytes:
                raise WireError(f"{self._left_bytes} bytes follow the end of the response") from None
            self._needed_bytes = 0
            return
        except DECODE_ERRORS as error:
            raise WireError(str(error)) from error
        declared = self._needed_bytes or self.unread_bytes
        if declared > self._left_bytes:
            raise WireError(f"{declared} bytes are declared, but {self._left_bytes} are left")
        self._left_bytes -= declared
        self._may_read_bytes -= self._needed_bytes
        if self._may_read_bytes < 0:
            raise WireError(f"more than {MAX_FIELD_BYTES} bytes of fields")

    # ---- parts of a response

    def _walk(self) -> _Steps:
        message = self.message
        if self._version >= _FIRST_WITH_ERROR:
            message.throttle_time_ms, message.error_code, message.session_id = _HEAD.unpack((yield _HEAD.size))
        else:
            (message.throttle_time_ms,) = _INT32.unpack((yield 4))
        for _ in range((yield from self._count("responses"))):
            yield from self._topic()
        if self._flexible:
            yield from self._tagged_fields()

    def _topic(self) -> _Steps:
        topic = FetchableTopicResponse()
        if self._version >= _FIRST_WITH_IDS:
            topic.topic_id = yield 16
        else:
            topic.topic = yield from self._name()
        self.message.responses.append(topic)
        for _ in range((yield from self._count("partitions"))):
            yield from self._partition(topic)
        if self._flexible:
            yield from self._tagged_fields()

    def _partition(self, topic: FetchableTopicResponse) -> _Steps:
        index, error_code, high_watermark, last_stable_offset = _PARTITION.unpack((yield _PARTITION.size))
        partition = PartitionData(index, error_code, high_watermark, last_stable_offset)
        topic.partitions.append(partition)
        if self._version >= _FIRST_WITH_LOG_START:
            (partition.log_start_offset,) = _INT64.unpack((yield 8))
        count = yield from self._length()
        partition.aborted_transactions = None if count < 0 else []
        for _ in range(count):
            aborted = AbortedTransaction(*_ABORTED.unpack((yield _ABORTED.size)))
            if self._flexible:
                yield from self._tagged_fields()
            assert partition.aborted_transactions is not None
            partition.aborted_transactions.append(aborted)
        if self._version >= _FIRST_WITH_PREFERRED_REPLICA:
            (partition.preferred_read_replica,) = _INT32.unpack((yield 4))
        size_bytes = yield from self._length()
        if size_bytes < 0:
            partition.records = None
        elif size_bytes:
            partition.records = StreamedRecords(size_bytes)
            yield from self._pass(size_bytes)
        if self._flexible:
            yield from self._tagged_fields(partition)

    # ---- fields

    def _pass(self, count: int) -> _Steps:
        self.unread_bytes = count
        yield 0

    def _varint(self) -> _Steps:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = yield 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte > 0x7F or value > 0xFFFFFFFF:
            raise WireError("a varint is longer than 32 bits")
        return value

    def _length(self) -> _Steps:
        """Read the length of an array or of records; -1 for null."""
        if self._flexible:
            return (yield from self._varint()) - 1
        (length,) = _INT32.unpack((yield 4))
        return max(length, -1)

    def _count(self, name: str) -> _Steps:
        count = yield from self._length()
        if count < 0:
            raise WireError(f"{name} is null, which is not allowed")
        if count > self._left_bytes:
            raise WireError(f"{count} {name} are declared, but {self._left_bytes} bytes are left")
        return count

    def _name(self) -> _Steps:
        if self._flexible:
            size_bytes = (yield from self._varint()) - 1
        else:
            (size_bytes,) = _INT16.unpack((yield 2))
        if not 0 <= size_bytes <= _MAX_NAME_BYTES:
            raise WireError(f"the name of a topic has {size_bytes} bytes")
        return str((yield size_bytes), "utf-8") if size_bytes else ""

    def _tagged_fields(self, partition: PartitionData | None = None) -> _Steps:
        for _ in range((yield from self._varint())):
            tag = yield from self._varint()
            size_bytes = yield from self._varint()
            if partition is not None and tag in _TAGGED:
                name, kind, fields = _TAGGED[tag]
                end = self._left_bytes - size_bytes
                setattr(partition, name, kind(*fields.unpack((yield fields.size))))
                yield from self._tagged_fields()
                if self._left_bytes != end:
                    raise WireError(f"tagged field {tag} does not have the {size_bytes} bytes that it declares")
            elif size_bytes:
                yield from self._pass(size_bytes)
