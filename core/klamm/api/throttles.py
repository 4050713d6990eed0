"""Throttles, which charge requests to quotas. A request's context and the pipeline call them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from klamm.api.context import RequestContext
from klamm.api.part import ListenerPart


class Throttle(ListenerPart, ABC):
    """Charges requests to quotas (KIP-13, KIP-124, KIP-219, KIP-599). Any thread may call it."""

    @property
    def active(self) -> bool:
        """Return True if any quota applies now. An inactive throttle is not called. Must not block.

        When the value changes, the throttle must call `throttles_changed` of its ListenerContext.
        """
        return True

    @abstractmethod
    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        """Record a request of `size_bytes` that took `seconds` of thread time; return the `throttle_time_ms`.

        The response carries this time and is sent at once. Then klamm reads nothing from the channel for that time
        (KIP-219). `seconds` is the time of handler and network threads; it is 0 for a request without a response
        (Produce with acks=0), because Kafka exempts such requests.
        """

    def max_record_bytes(self, context: RequestContext) -> int | None:
        """Return the bytes of records above which a fetch is certain to be throttled; None if there is no limit."""
        return None

    def charge_records(self, context: RequestContext, size_bytes: int) -> int:
        """Charge records of `size_bytes` before they are sent, and return the `throttle_time_ms`.

        If the time is 0, the records are charged and sent. Otherwise they are neither charged nor sent, and the
        response has no records.
        """
        return 0

    def charge_mutations(self, context: RequestContext, count: int, strict: bool) -> int:
        """Charge the creation or deletion of `count` partitions before it happens; return the `throttle_time_ms`.

        If `strict` is True and the time is not 0, the mutations are refused, and must not be charged.
        """
        return 0
