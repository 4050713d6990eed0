"""Messages as values that JSON supports: texts if the bytes are text, decompressed records, without defaults."""

from __future__ import annotations

from typing import Any, Final

from klamm import KafkaError
from klamm.wire.primitives import WireError
from klamm.wire.records import decode_records, iterate_batches
from klamm.wire.struct_base import WireStruct

_DEFAULTS: Final[dict[type, Any]] = {}


def plain(value: Any) -> Any:
    """A field of a message; a message is a dictionary of the fields that differ from their defaults."""
    if isinstance(value, WireStruct):
        fields = {name: getattr(value, name) for name in value.__slots__}
        default = _default(type(value))
        return {
            name: _records(field) if name == "records" else plain(field)
            for name, field in fields.items()
            if field != getattr(default, name, None)
        }
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return readable(bytes(value))
    if value is None or isinstance(value, (str, int, float)):
        return value
    return repr(value)


def readable(content: bytes | None) -> Any:
    """Return bytes as text if they are text, else as `{"hex": …}`."""
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
    return text if text.isprintable() else {"hex": content.hex()}


def _default(kind: type) -> Any:
    made = _DEFAULTS.get(kind)
    if made is None:
        try:
            made = _DEFAULTS[kind] = kind()
        except TypeError:
            # A subclass may need arguments; its fields are then all shown.
            return None
    return made


def _records(records: Any) -> Any:
    if records is None:
        return None
    if not isinstance(records, (bytes, bytearray, memoryview)):
        # They were sent from a file that may have been deleted.
        return {"bytes": records.size_bytes}
    found = []
    try:
        for _header, batch in iterate_batches(bytes(records)):
            for record in decode_records(batch):
                one: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
                one |= {"key": readable(record.key), "value": readable(record.value)}
                if record.headers:
                    one["headers"] = [[name, readable(content)] for name, content in record.headers]
                found.append(one)
    except (KafkaError, WireError, ValueError):
        return {"bytes": len(records)}
    return found
