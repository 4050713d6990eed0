"""Which processor a connection gets, and in which order requests reach the handlers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from klamm.api.part import ListenerPart, Part

if TYPE_CHECKING:
    from klamm.api.context import Address, RequestContext, ServerServices


@dataclass(frozen=True, slots=True)
class ProcessorLoad:
    """What one processor has to do.

    `connections` it has or is about to have; `bytes_per_s` read and sent by those it has now, `busy` the share of time,
    0 to 1, in which it did not wait for something to happen; both over the last second or so, 0 where nobody measures
    (`ProcessorAssigner.rebalance_interval_ms`).
    """

    connections: int
    bytes_per_s: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionLoad:
    """What one connection gives its processor to do; units as in `ProcessorLoad`."""

    connection_id: str
    bytes_per_s: float
    busy: float


@dataclass(frozen=True, slots=True)
class Move:
    """A connection is to go to another processor, as soon as it has no request and no answer under way."""

    connection_id: str
    processor: int


class ProcessorAssigner(ListenerPart, ABC):
    """Chooses the processor of a new connection; Kafka's acceptor goes round. May move connections later."""

    @property
    def rebalance_interval_ms(self) -> int:
        """How often loads are measured and `rebalance` is asked; 0, the default, does neither. Read once, after
        `open`."""
        return 0

    @abstractmethod
    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        """Index of the processor; `loads` has one entry for each. On the acceptor's thread."""

    def rebalance(
        self, loads: Sequence[ProcessorLoad], connections: Sequence[Sequence[ConnectionLoad]]
    ) -> Sequence[Move]:
        """Which connections shall move; both arguments have one entry per processor. On the scheduler's thread."""
        return ()


_Host: TypeAlias = "ServerServices"


class RequestScheduler(Part[_Host], ABC):
    """The order in which queued requests reach the handlers; a bounded multi-lane queue of `capacity` requests.

    Used by all processors and handlers at once. One instance per server.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        super().__init__(settings)
        self.capacity = capacity

    @abstractmethod
    def offer(self, request: RequestContext) -> bool:
        """Queue a request; False when there is no room for it. Never blocks."""

    @abstractmethod
    def take(self) -> RequestContext | None:
        """The next request, waiting for it; None after `wake` for one waiting thread."""

    @abstractmethod
    def wake(self) -> None:
        """Let one `take` return None."""

    @abstractmethod
    def size(self) -> int:
        """How many requests wait; the metric RequestQueueSize."""

    def lane(self, request: RequestContext) -> Hashable:
        """What a request waits with: when `offer` has no room for it, later ones of its lane wait behind it, and those
        of other lanes do not."""
        return None

    def handled(self, request: RequestContext, busy_ns: int) -> None:
        """A handler is done with a request that `take` gave it, which took that long. On the handler's thread."""

    def resized(self, handlers: int) -> None:
        """There are now so many handlers."""

    def lane_sizes(self) -> Mapping[str, int]:
        """How many requests wait, by lane."""
        return {"all": self.size()}
