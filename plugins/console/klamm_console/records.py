"""`records_of`: records of one partition in the form that the page shows."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Any, Final

from klamm.testing import Admin, ConsumedRecord
from klamm_console.schemas import HEAD_BYTES, Page

_SHOWN_BYTES: Final = 16 * 1024
"""Maximum number of bytes of a key, a value or a header. The rest is cut off."""
_SHOWN_HEADERS: Final = 100
_MAX_RECORDS: Final = 500
_SEARCHED_FETCHES: Final = 20
"""Maximum number of fetches of a search for a key."""
_SEARCHED_RECORDS: Final = 5_000
"""Maximum number of records of such a fetch."""


def records_of(
    admin: Admin, topic: str, partition: int, page: Page, *, offset: int, timestamp_ms: int, limit: int, key: str = ""
) -> dict[str, Any]:
    """Return the committed records that one fetch returns from an offset or a time on, at most `limit`.

    If neither is given (−1), return the last records. With a key, return the records with this key that a search
    through some fetches finds; it begins with the first record. Raises KafkaError.
    """
    limit = max(1, min(limit, _MAX_RECORDS))
    start = admin.offset(topic, partition, -2)
    end = admin.offset(topic, partition, isolation="read_committed")
    if timestamp_ms >= 0:
        found = admin.offset(topic, partition, timestamp_ms)
        offset = end if found < 0 else found
    if offset < 0:
        offset = start if key else end - limit
    offset = max(offset, start)
    records: list[ConsumedRecord] = []
    following = offset
    if key:
        records, following = _with_key(admin, topic, partition, offset, end, limit, key.encode())
    elif offset < end:
        records, following = admin.fetch(topic, partition, offset, limit=limit)
    return {
        "start_offset": start,
        "end_offset": end,
        "next_offset": following,
        "searched": bool(key),
        "records": [_shown(record, page) for record in records],
    }


def _with_key(
    admin: Admin, topic: str, partition: int, offset: int, end: int, limit: int, key: bytes
) -> tuple[list[ConsumedRecord], int]:
    """Return records with a key, and the offset up to which they have been searched."""
    found: list[ConsumedRecord] = []
    for _ in range(_SEARCHED_FETCHES):
        if offset >= end:
            break
        records, following = admin.fetch(topic, partition, offset, limit=_SEARCHED_RECORDS)
        if following == offset:
            break
        offset = following
        for record in records:
            if record.key == key:
                found.append(record)
                if len(found) >= limit:
                    return found, record.offset + 1
    return found, offset


def _shown(record: ConsumedRecord, page: Page) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _decoded(record.key, page),
        "value": _decoded(record.value, page),
        "headers": [
            {"name": name[:_SHOWN_BYTES], "value": _content(value)} for name, value in record.headers[:_SHOWN_HEADERS]
        ],
    }


def _decoded(data: bytes | None, page: Page) -> dict[str, Any] | None:
    """Return bytes like `_content`, but decode them if a serializer of a Schema Registry has written them.

    In this case, `schema_id` is the id of the schema, and `note` is the reason if the bytes cannot be decoded.
    """
    shown = _content(data)
    if data is None or shown is None or data[:1] != b"\0" or len(data) < HEAD_BYTES:
        return shown
    number = int.from_bytes(data[1:HEAD_BYTES], "big")
    if number == 0:
        # No registry gives this id, and many values begin with zeros.
        return shown
    shown["schema_id"] = number
    try:
        kind, text = page.decoded(number, data[HEAD_BYTES:], _SHOWN_BYTES)
    except ValueError as error:
        return shown | {"note": str(error)[:1_000]}
    return shown | {"as": kind, "text": text[:_SHOWN_BYTES], "cut": len(text) > _SHOWN_BYTES}


def _content(data: bytes | None) -> dict[str, Any] | None:
    """Return the size of bytes, and their content as `text`, or as `hex` if they are not UTF-8."""
    if data is None:
        return None
    shown: dict[str, Any] = {"bytes": len(data), "cut": len(data) > _SHOWN_BYTES}
    kept = data[:_SHOWN_BYTES]
    try:
        # The last character may be cut in two.
        return shown | {"as": "text", "text": getincrementaldecoder("utf-8")().decode(kept, final=not shown["cut"])}
    except UnicodeDecodeError:
        return shown | {"as": "hex", "text": kept.hex(" ")}
