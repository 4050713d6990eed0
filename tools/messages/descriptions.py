"""Reads the JSON descriptions of Kafka's messages: from the `kafka-clients` jars, or from the committed files.

Apache Kafka 4.4.0 describes all messages but four; for these four, 3.9.1 has the last description. For some messages
3.9.1 describes older versions that 4.4.0 has dropped (KIP-896). If 4.4.0 has all fields of these versions, the two
descriptions are merged. klamm reads and writes such versions, but does not offer them.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.messages.schema import Raw, Versions

COMMITTED = Path(__file__).resolve().parent / "descriptions.json"
COMMITTED_RECORDS = Path(__file__).resolve().parent / "coordinator_records.json"
COORDINATORS = ("group", "transaction", "share")
"""The coordinators that keep their state as records of internal topics. Each has a jar of its own."""
CURRENT = "4.4.0"
OLD = "3.9.1"
EXTRA = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
"""Messages that clients exchange through the group coordinator, beside requests and responses."""
BETWEEN_BROKERS = (
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BeginQuorumEpoch",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "DeleteShareGroupState",
    "EndQuorumEpoch",
    "Envelope",
    "FetchSnapshot",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "UpdateRaftVoter",
    "Vote",
    "WriteShareGroupState",
)
"""APIs that brokers and controllers call on one another. No API set serves them, so git does not keep their modules."""
LAST_IN_OLD = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
NOT_WRITTEN = (
    "LegacyOffsetCommit",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupRegularExpression",
    "ShareGroupStatePartitionMetadata",
    "ShareUpdate",
)
"""Records of older releases, and records that klamm does not need."""
# Only names, types and versions are kept, and not the texts.
KEPT = frozenset(
    ("name", "type", "apiKey", "validVersions", "flexibleVersions", "offeredVersions", "latestVersionUnstable")
    + (
        "fields",
        "commonStructs",
        "versions",
        "nullableVersions",
        "taggedVersions",
        "tag",
        "default",
        "ignorable",
        "entityType",
    )
)


def committed() -> dict[str, Raw]:
    """Return the committed descriptions of every message that klamm knows, by name."""
    return {raw["name"]: raw for raw in json.loads(COMMITTED.read_text())}


def committed_records() -> dict[str, Raw]:
    """Return the committed descriptions of keys and values of coordinator records, by name."""
    return {raw["name"]: raw for raw in json.loads(COMMITTED_RECORDS.read_text())}


def records_from_jars() -> dict[str, Raw]:
    """Return the descriptions of keys and values of coordinator records, by name, from the current release's jars."""
    found: dict[str, Raw] = {}
    for coordinator in COORDINATORS:
        found.update(load(CURRENT, f"kafka-{coordinator}-coordinator"))
    return {name: raw for name, raw in found.items() if not name.startswith(NOT_WRITTEN)}


def as_committed(raws: dict[str, Raw]) -> str:
    """Return the text of `COMMITTED`: a line of JSON for each message."""
    lines = (json.dumps(_facts(raws[name]), separators=(",", ":"), ensure_ascii=False) for name in sorted(raws))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _facts(item) for key, item in value.items() if key in KEPT}
    return [_facts(item) for item in value] if isinstance(value, list) else value


def from_jars() -> dict[str, Raw]:
    """Return the descriptions of every message that klamm knows, by name, from the jars."""
    current, old = load(CURRENT), load(OLD)
    for name in LAST_IN_OLD:
        for kind in ("Request", "Response"):
            current[name + kind] = old[name + kind]
    for name in [name.removesuffix("Request") for name, raw in current.items() if raw.get("type") == "request"]:
        if name not in LAST_IN_OLD and f"{name}Request" in old:
            extend(*(found[name + kind] for kind in ("Request", "Response") for found in (current, old)))
    return {
        name: raw
        for name, raw in current.items()
        if (raw["type"] in ("request", "response") or name in EXTRA) and raw["validVersions"] != "none"
    }


def extend(request: Raw, old_request: Raw, response: Raw, old_response: Raw) -> None:
    """Extend the new descriptions down to the oldest version whose fields the new request and the new response still
    have.
    """
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
    """Yield every field with its path."""
    common = {raw["name"]: raw["fields"] for raw in message.get("commonStructs", [])}

    def below(fields: list[Raw], path: str) -> Iterator[tuple[str, Raw]]:
        for raw in fields:
            yield path + raw["name"], raw
            nested = raw.get("fields") or common.get(raw["type"].removeprefix("[]"), [])
            yield from below(nested, f"{path}{raw['name']}.")

    return below(message["fields"], "")


def load(version: str, artifact: str = "kafka-clients") -> dict[str, Raw]:
    """Return all descriptions in a jar, by name."""
    from tests.peers.kafka_jars import jar

    found = {}
    with zipfile.ZipFile(jar(artifact, version)) as archive:
        for path in archive.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(path).decode(), flags=re.MULTILINE)
                text = re.sub(r"(?<=[,\[{}\]])\s*//[^\"\n]*$", "", text, flags=re.MULTILINE)
                raw = json.loads(text)
                found[raw["name"]] = raw
    return found
