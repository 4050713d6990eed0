"""The contracts of parts that choose the processor of a connection, and the order of requests for the handlers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from klamm.api.context import Address, RequestContext, ServerServices
from klamm.api.part import ListenerPart, Part


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """The load of one processor.

    `connections`  open connections, including connections that are assigned but not registered yet.
    `bytes_per_s`  bytes read and sent by the open connections, over about the last second.
    `busy`         share of time, 0 to 1, in which the processor was not waiting in its selector, over about the last
                   second.

    `bytes_per_s` and `busy` are 0 unless loads are measured (`ProcessorAssigner.rebalance_interval_ms`).
    """

    connections: int
    bytes_per_s: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionLoad:
    """The load of one connection; units as in `ProcessorLoad`."""

    connection_id: str
    bytes_per_s: float
    busy: float


@dataclass(frozen=True, slots=True)
class Move:
    """The move of a connection to another processor, which happens when no request or response is in flight."""

    connection_id: str
    processor: int


class ProcessorAssigner(ListenerPart, ABC):
    """Chooses the processor of a new connection (Kafka's acceptor: round robin); may move connections later."""

    @property
    def rebalance_interval_ms(self) -> int:
        """Return the interval in which klamm measures the loads and calls `rebalance`; 0, the default, means never.

        Read once, after `open`.
        """
        return 0

    @abstractmethod
    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        """Return the index of the processor; `loads` has one entry for each. Called on the acceptor's thread."""

    def rebalance(
        self, loads: Sequence[ProcessorLoad], connections: Sequence[Sequence[ConnectionLoad]]
    ) -> Sequence[Move]:
        """Return the connections to move; both arguments have one entry per processor.

        Called on the scheduler's thread.
        """
        return ()


_Host: TypeAlias = "ServerServices"


class RequestScheduler(Part[_Host], ABC):
    """The queue between processors and handlers: it decides the order of requests, and holds up to `capacity` of them.

    A server has one instance. All processor and handler threads call it concurrently.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        super().__init__(settings)
        self.capacity = capacity

    @abstractmethod
    def offer(self, request: RequestContext) -> bool:
        """Queue a request; return False if there is no room for it. Never blocks."""

    @abstractmethod
    def take(self) -> RequestContext | None:
        """Wait for the next request and return it. After each `wake`, one waiting thread gets None."""

    @abstractmethod
    def wake(self) -> None:
        """Make one `take` return None."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of waiting requests: the metric RequestQueueSize."""

    def lane(self, request: RequestContext) -> Hashable:
        """Return the lane of a request.

        If `offer` has no room for a request, the later requests of its lane wait too.
        """
        return None

    def handled(self, request: RequestContext, busy_ns: int) -> None:
        """Called when a handler has finished a request from `take` after `busy_ns`, on the handler's thread."""

    def resized(self, handlers: int) -> None:
        """Called when the number of request handlers has changed to `handlers`."""

    def lane_sizes(self) -> Mapping[str, int]:
        """Return the number of waiting requests by lane."""
        return {"all": self.size()}
