"""The rules of `check_filter` about records: every codec, control batches, regions of files, decompression bombs."""

from __future__ import annotations

import tempfile
import tracemalloc
from typing import Any, Final

from klamm.api.filters import Answer, Disconnect, EncodedResponse, Hold
from klamm.runtime.platform import PLATFORM
from klamm.testing.conformance.filled import NAME
from klamm.testing.conformance.life_cycle import PartCase
from klamm.testing.conformance.rules import ensure
from klamm.wire.api_keys import ApiKey
from klamm.wire.batch_headers import CODEC_MASK, encode_with_checksum
from klamm.wire.batch_limits import DEFAULT_LIMITS
from klamm.wire.compression import Codec, compress
from klamm.wire.errors import KafkaError
from klamm.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    ControlRecordType,
    Record,
    decode_records,
    encode_batch,
    encode_end_transaction_marker,
    iterate_batches,
    read_header,
)

_EMPTY_RECORD: Final = b"\x0c\x00\x00\x00\x01\x01\x00"
_BOMB_PEAK_BYTES: Final = 3 * 1024 * 1024
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 12


class Region:
    """A region of a file, which is the form in which a broker sends records."""

    def __init__(self, content: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._file.write(b"before" + content + b"behind")
        self._file.flush()
        self.position = len(b"before")
        self.size_bytes = len(content)

    @property
    def is_closed(self) -> bool:
        """Return True if the file was closed."""
        return self._file.closed

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file.fileno()

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes of the file."""
        return PLATFORM.pread(self.fileno(), size_bytes, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read bytes of the file into the buffer."""
        return PLATFORM.preadv(self.fileno(), [buffer], position)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _batch(codec: Codec, base_offset: int = 0) -> bytes:
    records = [Record(timestamp_ms=1, key=b"k", value=b"1", headers=[("h", b"v")]), Record(timestamp_ms=2)]
    return bytes(encode_batch(records, codec=codec, base_offset=base_offset))


def _marker(base_offset: int) -> bytes:
    marker = encode_end_transaction_marker(
        ControlRecordType.COMMIT, timestamp_ms=1, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    header = read_header(marker)._replace(base_offset=base_offset)
    return bytes(encode_with_checksum(header, bytes(marker[HEADER_BYTES:])))


def bomb() -> bytes:
    """Return a batch of a few KB that decompresses to one record more than a batch may have."""
    count = DEFAULT_LIMITS.max_records + 1
    body = compress(Codec.ZSTD, _EMPTY_RECORD * count)
    header = read_header(_batch(Codec.NONE))
    packed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        attributes=header.attributes & ~CODEC_MASK | Codec.ZSTD,
        last_offset_delta=count - 1,
        records_count=count,
    )
    return bytes(encode_with_checksum(packed, body))


def _wants(part: Any, key: ApiKey) -> bool:
    return part.api_keys is None or key in part.api_keys


def _produce(case: PartCase, part: Any, batch: bytes) -> Any:
    """Send a Produce with this batch to a filter; return the records that it passes on, None if it refuses them."""
    data = [TopicProduceData(NAME, partition_data=[PartitionProduceData(0, batch)])]
    request = ProduceRequest(None, -1, 1000, data)
    try:
        passed = part.on_request(request, case.listener.request(request, _PRODUCE_VERSION))
    except (KafkaError, Disconnect):
        return None
    message = passed.message if isinstance(passed, Hold) else passed
    return None if isinstance(message, Answer) else message.topic_data[0].partition_data[0].records


def takes_records_in_every_codec(case: PartCase) -> None:
    """A produced batch in each codec is refused, or passed on as a batch."""
    with case.opened() as part:
        if not _wants(part, ApiKey.PRODUCE):
            return
        for codec in Codec:
            records = _produce(case, part, _batch(codec))
            ensure(records is None or list(decode_records(records)), f"{codec.name}: it passed on {records!r}")


def takes_records_of_files(case: PartCase) -> None:
    """A filter takes the records of a Fetch in each codec, as bytes and as a region of a file, with control batches.

    The result can be sent and keeps control batches. A region that is not sent is closed.
    """
    with case.opened() as part:
        if not _wants(part, ApiKey.FETCH):
            return
        request = FetchRequest()
        for codec in Codec:
            marker = _marker(2)
            content = _batch(codec) + marker + _batch(codec, 3)
            for records in (content, Region(content)):
                partition = PartitionData(records=records)
                answer = FetchResponse(responses=[FetchableTopicResponse(NAME, partitions=[partition])])
                try:
                    outcome = part.on_response(answer, case.listener.request(request, _FETCH_VERSION))
                except (KafkaError, Disconnect):
                    continue
                passed = outcome.message if isinstance(outcome, Hold) else outcome
                passed.encode_chunks(_FETCH_VERSION)
                if not isinstance(passed, EncodedResponse):
                    _check_passed(passed, records, marker, codec)


def _check_passed(passed: Any, sent: Any, marker: bytes, codec: Codec) -> None:
    left = [one.records for topic in passed.responses for one in topic.partitions if one.records]
    if isinstance(sent, Region) and all(one is not sent for one in left):
        ensure(sent.is_closed, f"{codec.name}: the region is neither passed on nor closed")
    for records in left:
        content = records.read(records.position, records.size_bytes) if isinstance(records, Region) else records
        control = [bytes(batch) for header, batch in iterate_batches(content) if header.is_control]
        ensure(control == [marker], f"{codec.name}: the control batch became {control!r}")
        if isinstance(records, Region):
            records.close()


def unpacks_no_bomb(case: PartCase) -> None:
    """A produced batch of more records than a batch may have is refused or passed on, and not decompressed."""
    with case.opened() as part:
        if not _wants(part, ApiKey.PRODUCE):
            return
        _produce(case, part, _batch(Codec.ZSTD))
        batch = bomb()
        tracemalloc.start()
        try:
            _produce(case, part, batch)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        ensure(peak_bytes < _BOMB_PEAK_BYTES, f"{len(batch)} bytes took {peak_bytes} bytes of memory")


RECORD_RULES: Final = (takes_records_in_every_codec, takes_records_of_files, unpacks_no_bomb)
