"""IP addresses of peers: parsing, and grouping of addresses that count as one source."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
"""An address of the standard library."""

UNIX_PREFIX: Final = "unix:"
"""Prefix of the address of a Unix domain socket: `unix:/run/klamm.sock`."""
UNIX_HOST: Final = "unix"
"""The host of every client of a Unix domain socket, which has no address; its port is 0."""

IPV6_SOURCE_PREFIX_LENGTH: Final = 64
"""One site has a /64 of IPv6 or more (RFC 6177), so all its addresses are one source."""


def ip_address_of(host: str) -> IpAddress:
    """The address, without its zone; an IPv4 address that IPv6 wraps (`::ffff:192.0.2.7`) is an IPv4 address.

    Raises ValueError if the host is not an address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def source_of(host: str, ipv6_prefix_length: int = IPV6_SOURCE_PREFIX_LENGTH) -> str:
    """Return the key by which a peer is counted: its IPv4 address, or the network of its IPv6 address. Another host is
    its own key.

    With a prefix of 128 each IPv6 address is its own source.
    """
    return host if ":" not in host else _ipv6_source(host, ipv6_prefix_length)


@lru_cache(maxsize=4096)
def _ipv6_source(host: str, prefix_length: int) -> str:
    try:
        address = ip_address_of(host)
    except ValueError:
        return host
    if address.version == 4 or prefix_length == 128:
        return str(address)
    return str(ipaddress.ip_network((int(address), prefix_length), strict=False))


class IpNetworks:
    """A set of addresses and CIDR networks: `host in networks`. A host that is not an address is in no set."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ipaddress.ip_network(network, strict=False) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, host: str) -> bool:
        if not self._networks:
            return False
        try:
            address = ip_address_of(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)
