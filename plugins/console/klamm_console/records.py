"""`records_of`: records of one partition, as a page shows them."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Any, Final

from klamm.testing import Admin, ConsumedRecord

_SHOWN_BYTES: Final = 16 * 1024
"""Of a key, a value or a header; the rest is cut off."""
_SHOWN_HEADERS: Final = 100
_MAX_RECORDS: Final = 500
_SCHEMA_HEAD_BYTES: Final = 5


def records_of(
    admin: Admin, topic: str, partition: int, *, offset: int, timestamp_ms: int, limit: int
) -> dict[str, Any]:
    """Return records of committed transactions from an offset or a time on: what one fetch brings, at most `limit`.

    With neither (−1) they are the last ones. Raises KafkaError.
    """
    limit = max(1, min(limit, _MAX_RECORDS))
    start = admin.offset(topic, partition, -2)
    end = admin.offset(topic, partition, isolation="read_committed")
    if timestamp_ms >= 0:
        found = admin.offset(topic, partition, timestamp_ms)
        offset = end if found < 0 else found
    if offset < 0:
        offset = end - limit
    offset = max(offset, start)
    records: list[ConsumedRecord] = []
    following = offset
    if offset < end:
        records, following = admin.fetch(topic, partition, offset, limit=limit)
    return {
        "start_offset": start,
        "end_offset": end,
        "next_offset": following,
        "records": [_shown(record) for record in records],
    }


def _shown(record: ConsumedRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _content(record.key),
        "value": _content(record.value),
        "headers": [
            {"name": name[:_SHOWN_BYTES], "value": _content(value)} for name, value in record.headers[:_SHOWN_HEADERS]
        ],
    }


def _content(data: bytes | None) -> dict[str, Any] | None:
    """Return the text of bytes as `text`, or as `hex` if they are not UTF-8; and their size."""
    if data is None:
        return None
    shown: dict[str, Any] = {"bytes": len(data), "cut": len(data) > _SHOWN_BYTES}
    if data[:1] == b"\0" and len(data) >= _SCHEMA_HEAD_BYTES:
        # As serializers of a Schema Registry write it.
        shown["schema_id"] = int.from_bytes(data[1:_SCHEMA_HEAD_BYTES], "big")
    kept = data[:_SHOWN_BYTES]
    try:
        # The last character may be cut in two.
        return shown | {"as": "text", "text": getincrementaldecoder("utf-8")().decode(kept, final=not shown["cut"])}
    except UnicodeDecodeError:
        return shown | {"as": "hex", "text": kept.hex(" ")}
