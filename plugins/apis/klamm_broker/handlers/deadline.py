"""`Deadline`: the `timeout_ms` of a request that changes topics.

As in Kafka's controller, it bounds the time for which a change waits for its turn. A change that has not started by
then is not made. A change that has started is answered when it is durable. A timeout of 0 or less expires at once.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.numbers import NS_PER_MS


class Deadline:
    """The time limit of one request, which runs from the creation of this object."""

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._ends_ns = clock.monotonic_ns() + timeout_ms * NS_PER_MS

    def check(self) -> None:
        """Raise KafkaError(REQUEST_TIMED_OUT) if the time is over."""
        if self._clock.monotonic_ns() >= self._ends_ns:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
