"""`MemoryPool` (KIP-72): one budget of bytes for requests that have been read and not yet answered."""

from __future__ import annotations

import threading
from typing import Final

from klamm.runtime.clock import Clock, SystemClock

_TENURE_NS: Final = 500_000_000
_SILENT_NS: Final = 1_000_000_000
_TENURE_BYTES: Final = 64 * 1024
_VACANT_NS: Final = 50_000_000


class Claim:
    """The memory that one connection holds for an incomplete request, and its place among the waiting claims.

    `evicted` is True if the pool needs the memory: the connection must then be closed. `refused_ns` is the time since
    which the claim waits for memory; 0 if it does not wait.
    """

    __slots__ = ("asked_ns", "evicted", "held_bytes", "lapses", "refused_ns")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.lapses = 0
        self.evicted = False
        self.asked_ns = 0
        self.refused_ns = 0


class MemoryPool:
    """A budget of bytes. It counts bytes, but does not hold them. Any thread may call all methods.

    A request takes memory as its bytes arrive. *Complete* requests are answered without more memory; *partial* requests
    need more. Partial requests could fill the pool and then wait for each other for ever. So:

    1. All partial requests together may grow to half of the pool. Beyond that, only one claim may grow: the *first*.
    2. If there is no first claim, a claim that would be refused becomes the first. While the first claim lacks memory,
       no other claim gets released memory. A small request does not count as partial if its missing bytes have arrived
       and only have to be read: it may use the other half too, like complete requests.
    3. If the first claim lacks memory and no complete request holds any, waiting does not help. The pool then closes a
       connection whose claim was first earlier, is not complete and has been silent for a second. If there is no such
       connection, the first claim may exceed the limit. If another claim exceeds the limit already, the pool closes the
       connection whose claim was first most often.
    4. The first claim stays first while its bytes keep arriving: 64 KiB in half a second, or all bytes that it lacks.
       Otherwise the next claim that needs memory becomes the first. That claim has bytes to store, so a silent
       connection does not hold up the others. A claim that has lost its turn becomes the first again only if no other
       claim needs memory.

    Hence no request waits for ever: the first claim is completed, or loses its turn to a claim that will be completed,
    and each completed request frees memory. The limit is exceeded by less than one request at any time. The limit is
    not exceeded at all if no request is larger than half of the pool and no first claim slows down. A strict pool
    refuses larger requests, unlike Kafka's broker.
    """

    def __init__(self, size_bytes: int, *, strict: bool = False, clock: Clock | None = None) -> None:
        self.size_bytes = size_bytes
        self.strict = strict
        self._clock = clock or SystemClock()
        # Protects the number of free bytes, the claims and their queue.
        self._lock = threading.Lock()
        self._available = size_bytes
        self._partial = 0
        self._partial_limit = size_bytes // 2
        self._first: Claim | None = None
        self._over: Claim | None = None
        self._first_lacks = False
        self._first_until_ns = 0
        self._first_arrived = 0
        self._vacant_since_ns = 0
        self._lapsed: set[Claim] = set()
        self._evicted: set[Claim] = set()
        self._refused: set[Claim] = set()
        self._depleted_since_ns: int | None = None
        self._depleted_ns = 0
        self.depletions = 0
        self.evictions = 0

    @property
    def largest_bytes(self) -> int | None:
        """Return the largest request that the pool allows; None if the pool has no limit."""
        return self._partial_limit if self.strict else None

    @property
    def available_bytes(self) -> int:
        """Return the free bytes, below 0 while the limit is exceeded: the metric MemoryPoolAvailable."""
        return self._available

    @property
    def used_bytes(self) -> int:
        """Return the bytes in use: the metric MemoryPoolUsed."""
        return self.size_bytes - self._available

    @property
    def depleted_ns(self) -> int:
        """Return the total time between refusals and the next release of memory, in nanoseconds.

        It is the metric MemoryPoolDepletedTimeTotal; its rate is MemoryPoolAvgDepletedPercent."""
        since_ns = self._depleted_since_ns
        return self._depleted_ns + (self._clock.monotonic_ns() - since_ns if since_ns is not None else 0)

    @property
    def waiting_since_ns(self) -> list[int]:
        """Return the times since which requests wait for memory."""
        with self._lock:
            return [claim.refused_ns for claim in self._refused]

    @property
    def is_low(self) -> bool:
        """Return True if less than a tenth of the pool is free, or if partial requests have grown to their limit.

        Channels are then read in random order, and few bytes are read before the size of a request is known.
        """
        return self._available * 10 < self.size_bytes or self._partial >= self._partial_limit

    def try_allocate(self, size_bytes: int) -> bool:
        """Take memory for a request that has arrived completely, and return True if there is enough."""
        with self._lock:
            if size_bytes <= self._available and not self._first_lacks:
                self._available -= size_bytes
                return True
        return False

    def allocate_whole(self, claim: Claim, size_bytes: int) -> bool:
        """Take memory like `try_allocate`, for a claim.

        If there is too little memory, the claim joins the waiting claims.
        """
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            fits = size_bytes <= self._available and not self._first_lacks
            if not fits and not self._goes_first(claim, size_bytes, now_ns):
                self._refuse(claim, now_ns)
                return False
            self._granted(claim)
            self._available -= size_bytes
            if self._first is claim:
                self._forget(claim)
            return True

    def grow(self, claim: Claim, wanted_bytes: int, at_least: int = 1) -> int:
        """Take memory for bytes of a partial request.

        Return the granted number of bytes: 0, or from `at_least` to `wanted_bytes`.
        """
        with self._lock:
            now_ns = claim.asked_ns = self._clock.monotonic_ns()
            granted = 0
            if not self._first_lacks:
                granted = min(wanted_bytes, self._partial_limit - self._partial, self._available)
            if granted < at_least:
                if not self._goes_first(claim, at_least, now_ns):
                    self._refuse(claim, now_ns)
                    return 0
                granted = max(at_least, min(wanted_bytes, self._available))
            self._granted(claim)
            self._available -= granted
            self._partial += granted
            claim.held_bytes += granted
            return granted

    def grow_to_the_end(self, claim: Claim, lacking_bytes: int) -> int:
        """Take memory for all missing bytes of a partial request. Its peer must have sent all of them.

        Return the granted number of bytes: 0 or `lacking_bytes`.
        """
        with self._lock:
            if self._first_lacks or lacking_bytes > self._available:
                return 0
            self._granted(claim)
            self._available -= lacking_bytes
            self._partial += lacking_bytes
            claim.held_bytes += lacking_bytes
            return lacking_bytes

    def settle(self, claim: Claim, arrived_bytes: int, unused_bytes: int) -> None:
        """End a read for which memory was granted: `arrived_bytes` were used, `unused_bytes` are released."""
        with self._lock:
            self._available += unused_bytes
            self._partial -= unused_bytes
            claim.held_bytes -= unused_bytes
            if self._first is claim:
                self._first_arrived += arrived_bytes
                if self._first_arrived >= _TENURE_BYTES:
                    self._first_arrived = 0
                    self._first_until_ns = self._clock.monotonic_ns() + _TENURE_NS

    def complete(self, claim: Claim) -> None:
        """Note that the partial request has arrived completely. `release` frees its memory later."""
        with self._lock:
            self._partial -= claim.held_bytes
            claim.held_bytes = claim.lapses = 0
            claim.evicted = False
            self._forget(claim)

    def release(self, size_bytes: int) -> None:
        """Release the memory of a complete request."""
        with self._lock:
            self._available += size_bytes
            if self._depleted_since_ns is not None:
                self._end_depletion()

    def abandon(self, claim: Claim) -> None:
        """Release the memory and the place of a partial request, because its connection has closed."""
        with self._lock:
            self._available += claim.held_bytes
            self._partial -= claim.held_bytes
            claim.held_bytes = 0
            self._granted(claim)
            self._forget(claim)
            if self._depleted_since_ns is not None:
                self._end_depletion()

    # ---- with the lock held

    def _goes_first(self, claim: Claim, size_bytes: int, now_ns: int) -> bool:
        """Return True if the claim is first, or becomes the first, and may therefore have the memory."""
        first = self._first
        if first is not None and first is not claim and now_ns >= self._first_until_ns:
            first.lapses += 1
            self._lapsed.add(first)
            self._vacate(now_ns)
        if self._first is None and (not claim.lapses or now_ns - self._vacant_since_ns >= _VACANT_NS):
            self._first = claim
            self._lapsed.discard(claim)
            self._first_until_ns = now_ns + _TENURE_NS
            self._first_arrived = 0
        return self._first is claim and self._fits_first(size_bytes, now_ns)

    def _fits_first(self, size_bytes: int, now_ns: int) -> bool:
        if size_bytes <= self._available:
            self._first_lacks = False
            return True
        # While the first claim waits for memory, its time does not run.
        self._first_lacks = True
        self._first_until_ns = now_ns + _TENURE_NS
        if self.used_bytes > self._partial or self._evicted:
            return False
        silent = [one for one in self._lapsed if now_ns - one.asked_ns >= _SILENT_NS]
        if not silent and (self._over is None or self._over is self._first):
            self._over = self._first
            self._first_lacks = False
            return True
        victim = max(silent or self._lapsed, key=lambda one: (one.lapses, one.held_bytes))
        self._lapsed.discard(victim)
        self._evicted.add(victim)
        victim.evicted = True
        self.evictions += 1
        return False

    def _granted(self, claim: Claim) -> None:
        if claim.refused_ns:
            claim.refused_ns = 0
            self._refused.discard(claim)

    def _refuse(self, claim: Claim, now_ns: int) -> None:
        # Counted once for each request, although a request tries again and again.
        if not claim.refused_ns:
            claim.refused_ns = now_ns
            self._refused.add(claim)
            self.depletions += 1
        if self._depleted_since_ns is None:
            self._depleted_since_ns = now_ns

    def _forget(self, claim: Claim) -> None:
        self._lapsed.discard(claim)
        self._evicted.discard(claim)
        if self._over is claim:
            self._over = None
        if self._first is claim:
            self._vacate(self._clock.monotonic_ns())

    def _vacate(self, now_ns: int) -> None:
        self._first = None
        self._first_lacks = False
        self._vacant_since_ns = now_ns

    def _end_depletion(self) -> None:
        assert self._depleted_since_ns is not None
        self._depleted_ns += self._clock.monotonic_ns() - self._depleted_since_ns
        self._depleted_since_ns = None
