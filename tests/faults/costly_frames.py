"""`costly_frames`: builds the frames of an API and version that cost a server most, within limits of bytes and
elements.

They follow the descriptions of the messages. For each array of a request there are frames in which the array has as
many elements as fit, each as small as possible. The elements are all equal, all different, or all the name of an
existing resource. There are also frames with unknown tagged fields, and with strings of maximum length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from klamm.wire.headers import encode_request_header
from tools.messages.descriptions import committed
from tools.messages.schema import FIXED, Field, Schema, Struct, Versions, element_of

CORRELATION_ID = 7
TOPIC, GROUP, USER = "t", "g", "u"
_EXISTING: dict[str, Any] = {
    "group_id": GROUP,
    "group": GROUP,
    "groups_names": GROUP,
    "group_ids": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "member_id": "m",
    "resource_type": 2,
    "resource_type_filter": 2,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:u",
    "host": "*",
    "acks": -1,
    "replication_factor": 1,
    "num_partitions": 1,
    "entity_type": "user",
    "principal_type": "User",
    "match_type": 2,
    "session_timeout_ms": 10_000,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "timestamp": -2,
    "response_partition_limit": 2000,
    "include_synonyms": True,
    "include_documentation": True,
    "include_authorized_operations": True,
    "include_topic_authorized_operations": True,
    "config_operation": 0,
    "mechanism": 1,
    "iterations": 4096,
}
_LONG = "ÿ" * 5_000


@dataclass(frozen=True)
class CostlyFrame:
    """One frame, and a text about its costly part."""

    api: str
    version: int
    kind: str
    frame: bytes


class _Full(Exception):
    """Raised when the frame has as many bytes as allowed."""


class _Writer:
    """The writer of one message. `path` names the array that is to be large, and `values` the kind of its elements."""

    def __init__(self, version: int, *, flexible: bool, path: str, count: int, values: str) -> None:
        self.version, self.flexible, self.path, self.count, self.values = version, flexible, path, count, values
        self.number = 0

    def struct(self, item: Struct, path: str) -> bytes:
        here = Versions(self.version, self.version)
        out = bytearray()
        for field in item.fields:
            if field.versions & here and not (self.flexible and field.tagged & here):
                out += self.field(field, f"{path}.{field.name}", here)
        if self.flexible:
            out += self.tags() if path == "" and self.path == "tags" else b"\0"
        return bytes(out)

    def tags(self) -> bytes:
        return varint(self.count) + b"\x63\x00" * self.count

    def field(self, field: Field, path: str, here: Versions) -> bytes:
        if field.is_array:
            return self.array(field, path, here)
        if field.struct is not None:
            if field.nullable & here:
                return b"\xff"
            return self.struct(field.struct, path)
        if field.type in FIXED:
            return struct.pack(">" + FIXED[field.type], self.number_of(field))
        if field.type == "string":
            return self.string(self.text(field, path), compact=self.flexible and not field.plain_string)
        data = b"" if path != self.path else bytes(self.count)
        if field.nullable & here and not data:
            return b"\0" if self.flexible else b"\xff\xff\xff\xff"
        return (varint(len(data) + 1) if self.flexible else struct.pack(">i", len(data))) + data

    def array(self, field: Field, path: str, here: Versions) -> bytes:
        if path == self.path:
            count = self.count
        elif self.path.startswith(path + "."):
            count = 1
        elif field.nullable & here and self.values != "existing":
            return b"\0" if self.flexible else b"\xff\xff\xff\xff"
        else:
            count = 0
        element = element_of(field)
        head = varint(count + 1) if self.flexible else struct.pack(">i", count)

        def one() -> bytes:
            self.number += path == self.path
            return self.field(element, path, here) if element.struct is None else self.struct(element.struct, path)

        if count > 1 and self.values != "different":
            return head + one() * count
        return head + b"".join([one() for _ in range(count)])

    def number_of(self, field: Field) -> Any:
        if field.type == "uuid":
            return self.number.to_bytes(16, "big") if self.values == "different" else bytes(16)
        name = field.name.removesuffix("_item")
        if self.values == "existing" and name in _EXISTING and isinstance(_EXISTING[name], int):
            return _EXISTING[name]
        if field.type == "bool":
            return self.values == "existing"
        width = {"int8": 0x7F, "int16": 0x7FFF}.get(field.type, 0x7FFFFFFF)
        return self.number & width if self.values == "different" else 0

    def text(self, field: Field, path: str) -> str:
        name = field.name.removesuffix("_item")
        if self.values == "existing":
            found = _EXISTING.get(name, TOPIC)
            return found if isinstance(found, str) else TOPIC
        if self.values == "long":
            return _LONG if path.startswith(self.path) else ""
        return f"{self.number:x}" if self.values == "different" else ""

    @staticmethod
    def string(text: str, *, compact: bool) -> bytes:
        data = text.encode()
        return (varint(len(data) + 1) if compact else struct.pack(">h", len(data))) + data


def varint(value: int) -> bytes:
    """Return the encoding of an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def schemas() -> dict[str, Schema]:
    """Return the descriptions of requests by the names of their APIs."""
    return {name.removesuffix("Request"): Schema(raw) for name, raw in committed().items() if raw["type"] == "request"}


def growable(item: Struct, version: int, *, flexible: bool, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths of the arrays, bytes and strings of a request, with their types. Tagged fields keep their
    defaults.
    """
    here = Versions(version, version)
    for field in item.fields:
        if not field.versions & here or (flexible and field.tagged & here):
            continue
        own = f"{path}.{field.name}"
        if field.is_array:
            yield own, "array"
        elif field.type in ("bytes", "records"):
            yield own, "bytes"
        if field.struct is not None and (field.is_array or not field.nullable & here):
            yield from growable(field.struct, version, flexible=flexible, path=own)


VALUES = ("alike", "different", "existing", "long")
"""The kinds of elements: empty, all different, the name of an existing resource, long strings."""


def costly_frames(
    api: str, version: int, max_bytes: int, max_elements: int, values: Sequence[str] = VALUES
) -> Iterator[CostlyFrame]:
    """Yield the costliest frames of one API and version within these limits."""
    schema = schemas()[api]
    flexible = bool(schema.flexible & Versions(version, version))
    header = encode_request_header(schema.api_key, version, CORRELATION_ID, "costly")

    def body(path: str, count: int, values: str) -> bytes:
        return _Writer(version, flexible=flexible, path=path, count=count, values=values).struct(schema.root, "")

    def frame(kind: str, path: str, most: int, values: str) -> CostlyFrame:
        one, many = len(body(path, 1, values)), len(body(path, 17, values))
        each = max(1.0, (many - one) / 16)
        count = max(
            1, min(most, int((max_bytes - len(header) - one) / (each * (1.35 if values == "different" else 1))))
        )
        made = header + body(path, count, values)
        while len(made) > max_bytes and count > 1:
            count = int(count * 0.9)
            made = header + body(path, count, values)
        return CostlyFrame(api, version, f"{count} {kind}", made)

    yield CostlyFrame(api, version, "nothing in it", header + body("", 0, "existing"))
    for path, what in growable(schema.root, version, flexible=flexible):
        if what == "bytes":
            yield frame(f"bytes of {path[1:]}", path, max_bytes, "alike")
            continue
        # The elements that contain this array count too.
        most = max_elements - path.count(".") + 1
        for value in values:
            made = frame(f"{value} elements of {path[1:]}", path, most, value)
            if len(made.frame) <= max_bytes:
                yield made
    if flexible:
        yield frame("tagged fields", "tags", max_elements, "alike")
