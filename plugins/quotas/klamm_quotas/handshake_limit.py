"""The gate `handshake_limit`: limits the number of connections that are in handshake or authentication at one time.

klamm calls `admit` on the acceptor's thread, or on a processor's thread if the listener is behind a proxy.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from klamm import Address, Admission, ConnectionGate, Delay, ListenerContext, Refuse
from klamm.shared import WorkerShare, source_of
from klamm_quotas.quota_settings import UNLIMITED, HandshakeLimitSettings, live_keys_of

# A connection that becomes ready wakes a waiting acceptor earlier. It does not wake waiting connections behind a proxy.
_RETRY_MS: Final = 100


class HandshakeLimit(ConnectionGate):
    """The gate `handshake_limit`. Handshakes are the most expensive work that an unauthenticated client can cause.

    At the limit the acceptor waits, and new connections queue in the system's backlog. So if all clients reconnect at
    once, they are served in order. `max_handshakes_per_ip` prevents one client from taking all places. The listener's
    `connection_setup_timeout_ms` limits the time of a handshake.
    """

    settings: HandshakeLimitSettings

    live_keys = live_keys_of(HandshakeLimitSettings)

    def __init__(self, settings: HandshakeLimitSettings | None = None) -> None:
        super().__init__(settings or HandshakeLimitSettings())
        # Protects the counts and the waiting connections.
        self._lock = threading.Lock()
        self._under_way: set[Address] = set()
        self._by_source: Counter[str] = Counter()
        self._waiting = False
        self._listener: ListenerContext
        self._share = WorkerShare()

    def open(self, listener: ListenerContext) -> None:
        self._listener = listener
        self._share = listener.services.worker
        listener.services.metrics.gauge(
            "klamm:type=HandshakeLimit,name=Handshakes",
            "Connections in their handshakes or authentication.",
            lambda: len(self._under_way),
            listener=listener.name,
        )

    def reconfigure(self, settings: HandshakeLimitSettings) -> bool:
        """Apply new settings at once."""
        self.settings = settings
        self._listener.resume_accepting()
        return True

    def admit(self, address: Address) -> Admission:
        source, settings = self._source(address), self.settings
        with self._lock:
            # A peer may connect again from the same port before its old connection is released.
            self._forget(address)
            count = self._count_of(source) if settings.max_handshakes_per_ip < UNLIMITED else 0
            if count >= settings.max_handshakes_per_ip:
                return Refuse("handshakes_per_ip", f"{source} has {count} handshakes under way")
            if len(self._under_way) >= self._share.of(settings.max_handshakes):
                self._waiting = True
                return Delay(_RETRY_MS, "handshakes", pause_acceptor=True)
            self._waiting = False
            self._under_way.add(address)
            self._by_source[source] += 1
            if self._share.counts is not None:
                self._share.counts.add(self._counted_as(source), 1)
        return None

    def authenticated(self, address: Address) -> None:
        self._ended(address)

    def release(self, address: Address) -> None:
        self._ended(address)

    def _ended(self, address: Address) -> None:
        with self._lock:
            self._forget(address)
            waiting = self._waiting
        if waiting:
            self._listener.resume_accepting()

    def _forget(self, address: Address) -> None:
        source = self._source(address)
        if address in self._under_way:
            self._under_way.remove(address)
            self._by_source[source] -= 1
            if self._share.counts is not None:
                self._share.counts.add(self._counted_as(source), -1)
        if not self._by_source[source]:
            del self._by_source[source]

    def _counted_as(self, source: str) -> str:
        return f"handshakes {self._listener.name} {source}"

    def _count_of(self, source: str) -> int:
        """Return the number of unfinished handshakes of a source, including those of other worker processes."""
        if self._share.counts is not None:
            return self._share.counts.count(self._counted_as(source))
        return self._by_source[source]

    def _source(self, address: Address) -> str:
        return source_of(address.host, self.settings.ipv6_prefix_length)
