"""The gate `connection_quota`: how many connections there may be, after Kafka's `ConnectionQuotas` (KIP-402)."""

from __future__ import annotations

from typing import Final

from klamm import Address, Admission, ConnectionGate, Delay, ListenerContext, Refuse
from klamm_quotas.addresses import NetworkMap, host_of
from klamm_quotas.connection_counts import ConnectionCounts, ListenerCount
from klamm_quotas.settings import ConnectionQuotaSettings

# An acceptor is woken before; who waits behind a proxy is not.
_ASK_AGAIN_MS: Final = 100


class ConnectionQuota(ConnectionGate):
    """Limits the connections of an address, of its listener and of the server.

    One over the limit of its address is refused. At the limit of the listener or the server the acceptor waits until a
    connection goes. A protected listener goes beyond the server's limit, and another gives up a connection for it.
    """

    settings: ConnectionQuotaSettings

    def __init__(self, settings: ConnectionQuotaSettings | None = None) -> None:
        super().__init__(settings or ConnectionQuotaSettings())
        self._overrides = NetworkMap(self.settings.overrides)
        self._counts: ConnectionCounts
        self._listener: ListenerCount

    def open(self, listener: ListenerContext) -> None:
        services = listener.services
        self._counts = services.shared.once("connection_counts", lambda: ConnectionCounts(services.scheduler))
        self._listener = ListenerCount(listener, self.settings.protected)
        with self._counts.lock:
            self._counts.listeners[listener.name] = self._listener
        listener.services.metrics.gauge(
            "klamm:type=ConnectionQuota,name=Connections",
            "Connections that count towards connection quotas.",
            lambda: self._listener.connections,
            listener=listener.name,
        )

    def reconfigure(self, settings: ConnectionQuotaSettings) -> bool:
        """Takes effect at once. When the server's limit falls, connections are closed until it is kept, as in Kafka."""
        overrides = NetworkMap(settings.overrides)
        counts = self._counts
        with counts.lock:
            self.settings, self._overrides = settings, overrides
            self._listener.protected = settings.protected
        counts.keep_limit(settings.broker_max_connections)
        self._listener.context.resume_accepting()
        return True

    def limit_of(self, host: str) -> int:
        """Connections that an address may have."""
        return self._overrides.find(host, self.settings.max_connections_per_ip)

    def admit(self, address: Address) -> Admission:
        host = host_of(address)
        limit = self.limit_of(host)
        settings, counts, listener = self.settings, self._counts, self._listener
        # From others, that is: alone it has to keep the limit, as in Kafka.
        protected = settings.protected and len(listener.context.services.listeners) > 1
        with counts.lock:
            count = counts.by_ip.get(host, 0)
            if count >= limit:
                return Refuse("per_ip", f"{host} has {count} of {limit} connections")
            if listener.connections >= settings.max_connections:
                listener.waiting = True
                return Delay(_ASK_AGAIN_MS, "per_listener", pause_acceptor=True)
            if counts.total >= settings.broker_max_connections and not protected:
                listener.waiting = True
                return Delay(_ASK_AGAIN_MS, "per_broker", pause_acceptor=True)
            listener.waiting = False
            counts.add(host, listener)
            excess = counts.total - settings.broker_max_connections
        if excess > 0:
            counts.keep_limit(settings.broker_max_connections)
        return None

    def release(self, address: Address) -> None:
        self._counts.remove(host_of(address), self._listener)
