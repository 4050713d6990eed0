"""`NetworkMap`: maps networks to values, for the settings of `creation_rate` and `connection_quota` by address."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Generic, TypeVar

from klamm.shared import ip_address_of

T = TypeVar("T")


class NetworkMap(Generic[T]):
    """Values for addresses and CIDR networks. The longest matching prefix applies."""

    def __init__(self, values: Mapping[str, T]) -> None:
        networks = [(ipaddress.ip_network(text, strict=False), value) for text, value in values.items()]
        self._networks = sorted(networks, key=lambda pair: pair[0].prefixlen, reverse=True)

    def find(self, host: str, default: T) -> T:
        """Return the value for an address, or `default`. Raises ValueError if the host is not an address."""
        if self._networks:
            address = ip_address_of(host)
            for network, value in self._networks:
                if address in network:
                    return value
        return default
