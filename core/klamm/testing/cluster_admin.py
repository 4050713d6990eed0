"""`ClusterAdmin`: an `Admin` for several nodes, which connects to leaders of partitions and coordinators of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.runtime.clock import Clock, SystemClock
from klamm.testing.admin import Admin, ConsumedRecord
from klamm.testing.outcomes import check_error
from klamm.testing.raw_client import RawClient
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.list_offsets import ListOffsetsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import ProduceRequest
from klamm.wire.struct_base import Message

_METADATA_VERSION = 8
_FIND_COORDINATOR_VERSION = 3
_SYSTEM_CLOCK: Final = SystemClock()


class ClusterAdmin(Admin):
    """An `Admin` that looks up leaders and coordinators for each call, because tests move them.

    `connect` must connect to a running node.
    """

    def __init__(
        self,
        connect: Callable[[], RawClient],
        connect_to: Callable[[tuple[str, int]], RawClient],
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        super().__init__(connect, clock)
        self._connect_to = connect_to

    def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request as `Admin.call` does.

        A ProduceRequest or ListOffsetsRequest of one partition goes to the partition's leader.
        """
        if isinstance(request, ProduceRequest):
            (topic,) = request.topic_data
            return self._at(self._leader(topic.name, topic.partition_data[0].index)).call(request, version)
        if isinstance(request, ListOffsetsRequest):
            (asked,) = request.topics
            return self._at(self._leader(asked.name, asked.partitions[0].partition_index)).call(request, version)
        return super().call(request, version)

    def _at(self, address: tuple[str, int]) -> _Once:
        return _Once(lambda: self._connect_to(address))

    def _leader(self, topic: str, partition: int) -> tuple[str, int]:
        asked = [MetadataRequestTopic(name=topic)]
        response = super().call(MetadataRequest(asked, allow_auto_topic_creation=False), _METADATA_VERSION)
        nodes = {node.node_id: (node.host, node.port) for node in response.brokers}
        (found,) = response.topics
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        if leaders.get(partition) not in nodes:
            raise KafkaError(ErrorCode(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE), f"{topic}-{partition}")
        return nodes[leaders[partition]]

    def _fetch(
        self, topic: str, positions: dict[int, int], level: int, limit: int | None = None
    ) -> list[ConsumedRecord]:
        found = []
        for partition, position in [*positions.items()]:
            here = {partition: position}
            found += self._at(self._leader(topic, partition))._fetch(topic, here, level, limit)
            positions.update(here)
        return found

    def groups(self) -> dict[str, str]:
        """Return the groups of all nodes, each with its state."""
        response = super().call(MetadataRequest([], allow_auto_topic_creation=False), _METADATA_VERSION)
        found: dict[str, str] = {}
        for node in response.brokers:
            found.update(self._at((node.host, node.port)).groups())
        return found

    def call_group(self, name: str, request: Message, version: int) -> Any:
        """Send a request to the coordinator of a group, and return its response."""
        return self._coordinator(name).call(request, version)

    def call_node(self, address: tuple[str, int], request: Message, version: int) -> Any:
        """Send a request to the node with this advertised address, and return its response."""
        return self._at(address).call(request, version)

    def delete_groups(self, *names: str) -> None:
        """Delete groups; each request goes to the group's coordinator."""
        for name in names:
            self._coordinator(name).delete_groups(name)

    def _coordinator(self, group: str) -> _Once:
        found = super().call(FindCoordinatorRequest(group), _FIND_COORDINATOR_VERSION)
        check_error(found.error_code, group)
        return self._at((found.host, found.port))


class _Once(Admin):
    """An `Admin` that closes its connection after each call."""

    def call(self, request: Message, version: int | None = None) -> Any:
        try:
            return super().call(request, version)
        finally:
            self.close()
