"""Functions that send a request in each version to both servers, and make the answers comparable."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.primitives import ZERO_UUID, WireError
from klamm.wire.struct_base import WireStruct
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

_IGNORED: Final = frozenset(
    {"error_message", "batch_index_error_message", "throttle_time_ms", "cluster_id", "host", "port", "log_dir"}
    | {"total_bytes", "usable_bytes", "is_cordoned", "documentation", "session_id", "current_leader", "node_endpoints"}
)
"""Fields with texts, addresses or sizes of disks. They differ from server to server."""
_IGNORED_CONFIGS: Final = frozenset({"min.insync.replicas"})
"""A config with a dynamic default for all brokers in Kafka; see docs/deviations.md."""


class Ids:
    """The ids of the topics of one server."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self.names: dict[bytes, str] = {}

    def refresh(self) -> None:
        for topic in self._client.call(MetadataRequest(topics=None), 12).topics:
            self.names[topic.topic_id] = topic.name

    def of(self, name: str) -> bytes:
        """Return the id of a topic; an id that no topic has if there is no such topic."""
        self.refresh()
        return next((topic_id for topic_id, each in reversed(self.names.items()) if each == name), b"\7" * 16)

    def comparable(self, topic_id: bytes) -> str:
        if topic_id == ZERO_UUID:
            return "no id"
        if topic_id not in self.names:
            self.refresh()
        return f"the id of {self.names.get(topic_id, 'nothing')}"


class Case(NamedTuple):
    """A function that makes a request, which is called for each version and server."""

    name: str
    make: Callable[[int, Ids], Any]
    versions: range | None = None
    differs: str = ""
    """The reason why the answers may differ, in the words of docs/deviations.md."""


class Target:
    """A server to which requests are sent."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.client = WireClient(HOST, server.port)
        self.ids = Ids(self.client)
        answer = self.client.call(ApiVersionsRequest("klamm-test", "1"), 3)
        self.served = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}

    def ask(self, case: Case, version: int) -> Any:
        """Return the comparable answer, or "closed" if the server closed the connection."""
        request = case.make(version, self.ids)
        # Kafka's metadata may lack a topic that was just created.
        ignored = _IGNORED | {"topic_id"} if request.API_KEY == CreateTopicsRequest.API_KEY else _IGNORED
        client = WireClient(HOST, self._server.port)
        try:
            answer = client.call(request, version)
        except (OSError, EOFError, struct.error):
            return "closed"
        finally:
            client.close()
        return self._comparable(answer, ignored)

    def _comparable(self, value: Any, ignored: frozenset[str]) -> Any:
        if isinstance(value, WireStruct):
            return {
                name: self._comparable(getattr(value, name), ignored) for name in value.__slots__ if name not in ignored
            }
        if isinstance(value, list):
            return [
                self._comparable(each, ignored) for each in value if getattr(each, "name", "") not in _IGNORED_CONFIGS
            ]
        if isinstance(value, (bytes, memoryview, bytearray)) and len(value) == 16:
            return self.ids.comparable(bytes(value))
        return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def differences(case: Case, ours: Target, theirs: Target) -> Iterator[str]:
    """Return the differences between the servers' answers, version by version."""
    for version in _versions(case, ours, theirs):
        here, there = ours.ask(case, version), theirs.ask(case, version)
        if here != there and in_order(here) != in_order(there):
            yield f"{case.name}, version {version}:\n  klamm: {here}\n  Kafka: {there}"


def _versions(case: Case, ours: Target, theirs: Target) -> Iterator[int]:
    request = case.make(0, ours.ids)
    both = [version for version in ours.served[request.API_KEY] if version in theirs.served[request.API_KEY]]
    for version in both:
        if case.versions is not None and version not in case.versions:
            continue
        try:
            case.make(version, ours.ids).encode(version)
        except WireError:
            continue
        yield version


def in_order(value: Any) -> Any:
    """Return lists in a fixed order, because Kafka's order is often that of a hash table."""
    if isinstance(value, dict):
        return {name: in_order(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted((in_order(each) for each in value), key=repr)
    return value
