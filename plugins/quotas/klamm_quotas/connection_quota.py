"""The gate `connection_quota`: limits the number of connections. Follows Kafka's `ConnectionQuotas` (KIP-402).

klamm calls `admit` on the acceptor's thread, and `release` on any thread.
"""

from __future__ import annotations

from typing import Final

from klamm import Address, Admission, ConnectionGate, Delay, ListenerContext, Refuse
from klamm.shared import WorkerShare, source_of
from klamm_quotas.addresses import NetworkMap
from klamm_quotas.connection_counts import ConnectionCounts, ListenerCount
from klamm_quotas.quota_settings import UNLIMITED, ConnectionQuotaSettings, live_keys_of

# A closed connection wakes a waiting acceptor earlier, but not a connection that waits for its PROXY header.
_RETRY_MS: Final = 100


class ConnectionQuota(ConnectionGate):
    """The gate `connection_quota`. It limits the connections of an address, of a listener and of the server.

    A connection over the limit of its address is refused. At the limit of the listener or the server, the acceptor
    waits until a connection is closed. A protected listener may exceed the server's limit; then another listener closes
    a connection.
    """

    settings: ConnectionQuotaSettings

    live_keys = live_keys_of(ConnectionQuotaSettings)

    def __init__(self, settings: ConnectionQuotaSettings | None = None) -> None:
        super().__init__(settings or ConnectionQuotaSettings())
        self._overrides = NetworkMap(self.settings.overrides)
        self._counts: ConnectionCounts
        self._listener: ListenerCount
        self._share = WorkerShare()

    def open(self, listener: ListenerContext) -> None:
        services = listener.services
        self._share = services.worker
        self._counts = services.shared.once(
            "connection_counts", lambda: ConnectionCounts(services.scheduler, services.worker)
        )
        self._listener = ListenerCount(listener, self.settings.protected)
        with self._counts.lock:
            self._counts.listeners[listener.name] = self._listener
        listener.services.metrics.gauge(
            "klamm:type=ConnectionQuota,name=Connections",
            "Connections that count towards connection quotas.",
            lambda: self._listener.connections,
            listener=listener.name,
        )

    def close(self) -> None:
        """Leave the counts to the other listeners, or to a successor of the same name."""
        with self._counts.lock:
            if self._counts.listeners.get(self._listener.context.name) is self._listener:
                del self._counts.listeners[self._listener.context.name]

    def reconfigure(self, settings: ConnectionQuotaSettings) -> bool:
        """Apply new settings at once.

        As in Kafka, connections are closed if the server's new limit is lower than their number.
        """
        overrides = NetworkMap(settings.overrides)
        counts = self._counts
        with counts.lock:
            self.settings, self._overrides = settings, overrides
            self._listener.protected = settings.protected
        counts.keep_limit(self._broker_limit)
        self._listener.context.resume_accepting()
        return True

    def limit_of(self, host: str) -> int:
        """Return the number of connections that an address may have."""
        return self._overrides.find(host, self.settings.max_connections_per_ip)

    @property
    def _broker_limit(self) -> int:
        return self._share.of(self.settings.broker_max_connections)

    def count_of(self, source: str) -> int:
        """Return the number of connections that a source has."""
        return self._counts.by_source.get(source, 0)

    def admit(self, address: Address) -> Admission:
        source = self._source(address)
        limit = self.limit_of(address.host)
        settings, counts, listener, broker_limit = self.settings, self._counts, self._listener, self._broker_limit
        # As in Kafka, the only listener of a server stays within the limit, even if it is protected.
        protected = settings.protected and len(listener.context.services.listeners) > 1
        with counts.lock:
            count = counts.of(source) if limit < UNLIMITED else 0
            if count >= limit:
                return Refuse("per_ip", f"{source} has {count} of {limit} connections")
            if listener.connections >= self._share.of(settings.max_connections):
                listener.waiting = True
                return Delay(_RETRY_MS, "per_listener", pause_acceptor=True)
            if counts.total >= broker_limit and not protected:
                listener.waiting = True
                return Delay(_RETRY_MS, "per_broker", pause_acceptor=True)
            listener.waiting = False
            counts.add(source, listener)
            excess = counts.total - broker_limit
        if excess > 0:
            counts.keep_limit(broker_limit)
        return None

    def release(self, address: Address) -> None:
        self._counts.remove(self._source(address), self._listener)

    def _source(self, address: Address) -> str:
        return source_of(address.host, self.settings.ipv6_prefix_length)
