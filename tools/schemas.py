"""The JSON descriptions of Kafka's messages, inside the `kafka-clients` jars, as objects.

Apache Kafka 4.3.1 describes all messages but four, which 3.9.1 had last. Where 3.9.1 knows older versions that 4.3.1
has dropped (KIP-896), and no field of theirs is gone since, the two are merged: they are read and written, not offered.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.peers.kafka_jars import jar  # noqa: E402

CURRENT = "4.3.1"
OLD = "3.9.1"
LAST_IN_OLD = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
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
PYTHON = {"bool": "bool", "float64": "float", "string": "str", "uuid": "bytes", "bytes": "bytes", "records": "Any"}


Raw = dict[str, Any]


def snake(name: str) -> str:
    """`topicId` → `topic_id`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) or name in ("b", "p", "s", "version") else name


@dataclass(frozen=True)
class Versions:
    """An inclusive range; empty if `low > high`."""

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
        versions = Versions.parse(raw["versions"]) & parent
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


def describe() -> dict[str, Raw]:
    """The descriptions of every message that klamm knows, by name."""
    current, old = load(CURRENT), load(OLD)
    for name in LAST_IN_OLD:
        for kind in ("Request", "Response"):
            current[name + kind] = old[name + kind]
    for name in [name.removesuffix("Request") for name, raw in current.items() if raw.get("type") == "request"]:
        if name not in LAST_IN_OLD and f"{name}Request" in old:
            extend(*(found[name + kind] for kind in ("Request", "Response") for found in (current, old)))
    return {name: raw for name, raw in current.items() if raw["validVersions"] != "none"}


def extend(request: Raw, old_request: Raw, response: Raw, old_response: Raw) -> None:
    """Reach down to the oldest version of which no field is gone, neither from the request nor from the response."""
    pairs = ((request, old_request), (response, old_response))
    oldest = max(max(oldest_whole(new, old), Versions.parse(old["validVersions"]).low) for new, old in pairs)
    first = Versions.parse(request["validVersions"])
    if oldest >= first.low or old_request.get("latestVersionUnstable", False):
        return
    for new, old in pairs:
        new["offeredVersions"] = new["validVersions"]
        new["validVersions"] = f"{oldest}-{first.high}"
        for path, mine in walk(new):
            for key in ("versions", "nullableVersions"):
                before = Versions.parse(dict(walk(old)).get(path, {}).get(key))
                now = Versions.parse(mine.get(key))
                if before and now and before.low < now.low:
                    mine[key] = f"{before.low}-{now.high}"


def oldest_whole(new: Raw, old: Raw) -> int:
    kept = {path: raw["type"] for path, raw in walk(new)}
    gone = [Versions.parse(raw["versions"]).high for path, raw in walk(old) if kept.get(path) != raw["type"]]
    return max(gone, default=-1) + 1


def walk(message: Raw) -> Iterator[tuple[str, Raw]]:
    """Every field with its path."""
    common = {raw["name"]: raw["fields"] for raw in message.get("commonStructs", [])}

    def below(fields: list[Raw], path: str) -> Iterator[tuple[str, Raw]]:
        for raw in fields:
            yield path + raw["name"], raw
            nested = raw.get("fields") or common.get(raw["type"].removeprefix("[]"), [])
            yield from below(nested, f"{path}{raw['name']}.")

    return below(message["fields"], "")


def load(version: str) -> dict[str, Raw]:
    """All descriptions in a jar, by name."""
    found = {}
    with zipfile.ZipFile(jar("kafka-clients", version)) as archive:
        for path in archive.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(path).decode(), flags=re.MULTILINE)
                text = re.sub(r"(?<=[,\[{}\]])\s*//[^\"\n]*$", "", text, flags=re.MULTILINE)
                raw = json.loads(text)
                found[raw["name"]] = raw
    return found


def has_records(struct: Struct) -> bool:
    return any(
        item.type == "records" or (item.struct is not None and has_records(item.struct)) for item in struct.fields
    )
