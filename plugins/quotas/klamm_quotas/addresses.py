"""Addresses of peers: how they are written, and values that hold for networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Generic, TypeAlias, TypeVar

from klamm import Address

T = TypeVar("T")
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse(host: str) -> IpAddress:
    """The address: without its zone, and IPv4 where IPv6 only wraps it."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def host_of(address: Address) -> str:
    """The host by which a peer is counted: the same on a listener for IPv4 and on one for both."""
    host = address.host
    return host[7:] if host.startswith("::ffff:") and "." in host else host


class NetworkMap(Generic[T]):
    """Values for addresses and CIDR networks; the longest prefix counts."""

    def __init__(self, values: Mapping[str, T]) -> None:
        networks = [(ipaddress.ip_network(text, strict=False), value) for text, value in values.items()]
        self._networks = sorted(networks, key=lambda pair: pair[0].prefixlen, reverse=True)

    def find(self, host: str, default: T) -> T:
        """The value for an address."""
        if self._networks:
            address = parse(host)
            for network, value in self._networks:
                if address in network:
                    return value
        return default
