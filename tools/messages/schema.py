"""The descriptions of Kafka's messages as objects."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from typing import Any

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
WIDTHS = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
"""The number of bytes for each format of `struct`."""
PYTHON = {"bool": "bool", "float64": "float", "string": "str", "uuid": "bytes", "bytes": "bytes", "records": "Any"}

Raw = dict[str, Any]


def snake(name: str) -> str:
    """Return a name in Python's style: `topicId` becomes `topic_id`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) or name in ("b", "p", "s", "version") else name


@dataclass(frozen=True)
class Versions:
    """An inclusive range of versions. It is empty if `low > high`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        if not text or text == "none":
            return cls(1, 0)
        low, dash, high = text.partition("-")
        if text.endswith("+"):
            return cls(int(text[:-1]), 32767)
        return cls(int(low), int(high) if dash else int(low))

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def __bool__(self) -> bool:
        return self.low <= self.high


@dataclass
class Field:
    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    ignorable: bool
    plain_string: bool
    struct: Struct | None

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")


@dataclass
class Struct:
    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


class Schema:
    """One message: its root struct, and every struct in it once."""

    def __init__(self, raw: Raw) -> None:
        self.name: str = raw["name"]
        self.api_key: int = raw.get("apiKey", -1)
        self.is_response: bool = raw["type"] == "response"
        self.is_record: bool = raw["type"].startswith("coordinator-")
        self.versions = Versions.parse(raw["validVersions"])
        self.flexible = Versions.parse(raw.get("flexibleVersions", "none"))
        self.offered = Versions.parse(raw.get("offeredVersions", raw["validVersions"]))
        if raw.get("latestVersionUnstable", False):
            self.offered = Versions(self.offered.low, self.offered.high - 1)
        self.structs: dict[str, Struct] = {}
        self._common = {common["name"]: common for common in raw.get("commonStructs", [])}
        self.root = self._struct(self.name, raw["fields"], self.versions)
        del self.structs[self.name]

    def _struct(self, name: str, fields: list[Raw], versions: Versions) -> Struct:
        struct = Struct(name, versions)
        struct.fields = [self._field(raw, versions) for raw in fields]
        self.structs[name] = struct
        return struct

    def _field(self, raw: Raw, parent: Versions) -> Field:
        versions = Versions.parse(raw.get("versions", raw.get("taggedVersions"))) & parent
        tagged = Versions.parse(raw.get("taggedVersions"))
        kind: str = raw["type"]
        element = kind.removeprefix("[]")
        struct = None
        if element not in FIXED and element not in PYTHON:
            struct = self.structs.get(element)
            if struct is None:
                fields = raw.get("fields") or self._common[element]["fields"]
                struct = self._struct(
                    element, fields, Versions.parse(self._common.get(element, {}).get("versions")) & parent or parent
                )
        return Field(
            snake(raw["name"]),
            kind,
            versions,
            Versions.parse(raw.get("nullableVersions")),
            tagged,
            raw.get("tag", -1),
            raw.get("default"),
            raw.get("ignorable", False),
            raw.get("flexibleVersions") == "none",
            struct,
        )


def has_records(struct: Struct) -> bool:
    return any(
        item.type == "records" or (item.struct is not None and has_records(item.struct)) for item in struct.fields
    )


def element_of(array: Field) -> Field:
    """Return a field `<name>_item` that stands for one element of an array."""
    nothing = Versions(1, 0)
    return Field(
        f"{array.name}_item", array.element, array.versions, nothing, nothing, -1, None, False, False, array.struct
    )
