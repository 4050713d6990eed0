"""`FailedLogins`: finds addresses that have lately tried many wrong passwords, for `CredentialChecks`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from klamm.runtime import Clock

MAX_FAILURES: Final = 10
MAX_SOURCES: Final = 10_000
_S_NS: Final = 1_000_000_000
_RECOVERY_NS: Final = 3 * _S_NS
_PACED_NS: Final = 30 * _S_NS


class FailedLogins:
    """A count of failed checks of passwords, by source (a client's address or network). Any thread may call it.

    The count of a source falls by one every 3 s. When it reaches `MAX_FAILURES`, the source exceeds the limit until 30
    s after its last failure. A successful check halves the time until the count is 0. A client cannot use this to guess
    passwords faster: a right password is remembered and not checked again, so one account halves the time only once.

    The `MAX_SOURCES` sources with the latest failures are kept. It calls `exceeded` with a source that reaches the
    limit.
    """

    def __init__(self, clock: Clock, exceeded: Callable[[str], object]) -> None:
        self._clock = clock
        self._exceeded = exceeded
        # Protects the counts of the sources.
        self._lock = threading.Lock()
        # For each source, the monotonic time at which its count is 0. The source with the latest failure comes last.
        self._clear_ns: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clear_ns)

    def exceeds(self, source: str) -> bool:
        """Return True if the source has too many failures now."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            return self._is_too_much(self._clear_ns.get(source, now_ns) - now_ns)

    @staticmethod
    def _is_too_much(left_ns: int) -> bool:
        return left_ns > (MAX_FAILURES - 1) * _RECOVERY_NS

    def failed(self, source: str) -> None:
        """Record a failed check."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_ns = max(0, self._clear_ns.pop(source, now_ns) - now_ns)
            before, left_ns = self._is_too_much(left_ns), left_ns + _RECOVERY_NS
            exceeds = self._is_too_much(left_ns)
            if exceeds:
                left_ns = (MAX_FAILURES - 1) * _RECOVERY_NS + _PACED_NS
            self._clear_ns[source] = now_ns + left_ns
            if len(self._clear_ns) > MAX_SOURCES:
                self._clear_ns.popitem(last=False)
        if exceeds and not before:
            self._exceeded(source)

    def succeeded(self, source: str) -> None:
        """Record a successful check."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_ns = self._clear_ns.get(source, now_ns) - now_ns
            if left_ns > 0:
                self._clear_ns[source] = now_ns + left_ns // 2
