"""Throttles: quotas that requests are charged to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from klamm.api.part import ListenerPart

if TYPE_CHECKING:
    from klamm.api.context import RequestContext


class Throttle(ListenerPart, ABC):
    """Charges requests to quotas (KIP-13, KIP-124, KIP-219, KIP-599). Called from any thread."""

    @property
    def active(self) -> bool:
        """Whether it limits anybody now. While it does not, it is not asked at all, and requests cost nothing more.

        One that changes its mind calls `throttles_changed` of its ListenerContext. Must not block.
        """
        return True

    @abstractmethod
    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        """Record a request of `size_bytes` that took `seconds` of thread time; the `throttle_time_ms` it earns.

        The answer goes out at once and tells the client; klamm keeps the channel muted for that long. `seconds` are
        those of handlers and of the network thread, and 0 for a request without an answer (Produce with acks=0), which
        Kafka exempts.
        """

    def max_record_bytes(self, context: RequestContext) -> int | None:
        """How many bytes of records a fetch may bring at once without being sure to be throttled; None any number."""
        return None

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        """Records of `size_bytes` are about to be sent; 0 records that, anything else is the `throttle_time_ms`.

        Then they are not sent and not recorded: the answer is empty, and the client comes again.
        """
        return 0

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        """So many partitions are about to be created or deleted; the `throttle_time_ms` that this earns.

        If `strict`, anything but 0 means that they are not to be, and are not recorded.
        """
        return 0
