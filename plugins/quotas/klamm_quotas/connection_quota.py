"""The gate `connection_quota`: after Kafka's `ConnectionQuotas`, its part of `max.connections.per.ip`."""

from __future__ import annotations

import ipaddress
import threading

from klamm import Address, Admission, ConnectionGate, Refuse
from klamm_quotas.settings import ConnectionQuotaSettings


class ConnectionQuota(ConnectionGate):
    """Counts connections by address. One over the limit is closed at once, as Kafka does, and counted as refused."""

    def __init__(self, settings: ConnectionQuotaSettings) -> None:
        super().__init__(settings)
        self._default = settings.max_connections_per_ip
        networks = [(ipaddress.ip_network(text, strict=False), limit) for text, limit in settings.overrides.items()]
        self._networks = sorted(networks, key=lambda pair: pair[0].prefixlen, reverse=True)
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def limit_of(self, host: str) -> int:
        """Connections that an address may have."""
        if self._networks:
            address = ipaddress.ip_address(host.partition("%")[0])
            if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
                address = address.ipv4_mapped
            for network, limit in self._networks:
                if address in network:
                    return limit
        return self._default

    def count_of(self, host: str) -> int:
        """Connections that an address has."""
        return self._counts.get(host, 0)

    def admit(self, address: Address) -> Admission:
        limit = self.limit_of(address.host)
        with self._lock:
            count = self._counts.get(address.host, 0)
            if count >= limit:
                return Refuse("per_ip", f"{address.host} has {count} of {limit} connections")
            self._counts[address.host] = count + 1
        return None

    def release(self, address: Address) -> None:
        with self._lock:
            count = self._counts.get(address.host, 0) - 1
            if count > 0:
                self._counts[address.host] = count
            else:
                self._counts.pop(address.host, None)
