"""Throttles: quotas that requests are charged to."""

from __future__ import annotations

from abc import ABC, abstractmethod

from klamm.api.context import RequestContext
from klamm.api.part import ListenerPart


class Throttle(ListenerPart, ABC):
    """Charges requests to quotas (KIP-13, KIP-124, KIP-219, KIP-599). Called from any thread."""

    @property
    def active(self) -> bool:
        """Return True if any quota applies now. An inactive throttle is not called.

        When the value changes, the throttle calls `throttles_changed` of its ListenerContext. Must not block.
        """
        return True

    @abstractmethod
    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        """Record a request of `size_bytes` that took `seconds` of thread time; return the `throttle_time_ms`.

        The response carries it and goes out at once; then klamm keeps the channel muted for that long (KIP-219).
        `seconds` counts handler and network threads; it is 0 for a request without a response (Produce with acks=0),
        which Kafka exempts.
        """

    def max_record_bytes(self, context: RequestContext) -> int | None:
        """Return the bytes of records above which a fetch is certain to be throttled; None if there is no limit."""
        return None

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        """Charge records of `size_bytes` before they are sent, and return the `throttle_time_ms`.

        0 lets them pass and records them. For any other value the records are neither sent nor recorded, and the
        response is empty.
        """
        return 0

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        """Charge the creation or deletion of `count` partitions before it happens; return the `throttle_time_ms`.

        If `strict`, any value but 0 refuses the mutations, and they are not recorded.
        """
        return 0
