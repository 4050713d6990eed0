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

    `evicted` is True if the pool wants the memory back: the connection must be closed. `refused_ns` is the time since
    which it waits for memory; 0 if it does not.
    """

    __slots__ = ("asked_ns", "evicted", "held_bytes", "lapses", "refused_ns")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.lapses = 0
        self.evicted = False
        self.asked_ns = 0
        self.refused_ns = 0


class MemoryPool:
    """Counts bytes, but does not hold them. All methods may be called from any thread.

    Memory is taken as bytes arrive, so it belongs either to *complete* requests, which are answered without more
    memory, or to *partial* ones, which need more. Partial requests could fill the pool and then wait for each other for
    ever. So:

    1. All partial requests together may grow to half of the pool. Beyond that only one does, the *first*.
    2. A claim that would be refused while there is no first one becomes the first. While the first lacks memory, no
       other claim gets memory that is released. Small requests do not count as partial if their missing bytes have
       arrived and only remain to be read: they may use the other half too, like complete ones.
    3. If the first lacks memory and no complete request holds any, waiting does not help. Then a connection is closed
       that was first before, is not complete and has been silent for a second. If there is none, the first exceeds the
       limit; if another one exceeds it already, the connection that was first most often is closed.
    4. The first stays first while its bytes keep coming: 64 KiB in half a second, or all that it lacks. Else the next
       claim that needs memory is first. That claim has bytes to store, so a silent connection does not hold up the
       others; a claim that has lost its turn gets another turn only when no other claim needs it.

    Hence the first is completed, or loses its turn to one that will be, and each end frees memory: no request waits for
    ever. The limit is exceeded by less than one request at any time, and not at all while no request is larger than
    half of the pool and no peer slows down in its turn. A strict pool, unlike Kafka's broker, refuses larger requests.
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
        """The total time in nanoseconds between a refusal and the next release of memory; the metric
        MemoryPoolDepletedTimeTotal, and its rate MemoryPoolAvgDepletedPercent."""
        since_ns = self._depleted_since_ns
        return self._depleted_ns + (self._clock.monotonic_ns() - since_ns if since_ns is not None else 0)

    @property
    def waiting_since_ns(self) -> list[int]:
        """Return the times since which requests wait for memory."""
        with self._lock:
            return [claim.refused_ns for claim in self._refused]

    @property
    def is_low(self) -> bool:
        """Return True if less than a tenth is free, or partial requests use all that they may: then reads are served in
        random order, and little is read before the size of a request is known.
        """
        return self._available * 10 < self.size_bytes or self._partial >= self._partial_limit

    def try_allocate(self, size_bytes: int) -> bool:
        """Take memory for a request that has arrived completely; the common case."""
        with self._lock:
            if size_bytes <= self._available and not self._first_lacks:
                self._available -= size_bytes
                return True
        return False

    def allocate_whole(self, claim: Claim, size_bytes: int) -> bool:
        """Do `try_allocate` for a claim, which waits in line if there is no memory."""
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
        """Take memory for bytes of a partial request. Return the granted number: 0, or from `at_least` to
        `wanted_bytes`.
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
        """Take memory for all bytes that a partial request lacks and that its peer has already sent. Return the granted
        number: 0 or `lacking_bytes`.
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
        """Note that the partial request has arrived completely: `release` later frees its memory."""
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
        """Release the memory of a partial request, and its place, because its connection is closed."""
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
        # The time in which it waits for memory does not count against its turn.
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
        # Once for each request, which asks again and again.
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
