"""Functions that parse IP addresses of peers, and group addresses that count as one source."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
"""An address of the standard library."""

UNIX_PREFIX: Final = "unix:"
"""The prefix of the address of a Unix domain socket, e.g. `unix:/run/klamm.sock`."""
UNIX_HOST: Final = "unix"
"""The host of all clients of Unix domain sockets, because they have no address. Their port is 0."""

IPV6_SOURCE_PREFIX_LENGTH: Final = 64
"""The addresses of an IPv6 /64 count as one source, because a site has at least a /64 (RFC 6177)."""


def ip_address_of(host: str) -> IpAddress:
    """Return the address of a host, without its zone. An IPv4-mapped address (`::ffff:192.0.2.7`) becomes IPv4.

    Raises ValueError if the host is not an address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def source_of(host: str, ipv6_prefix_length: int = IPV6_SOURCE_PREFIX_LENGTH) -> str:
    """Return the key by which a peer is counted: its IPv4 address, or the network of its IPv6 address.

    The key of any other host is the host. With a prefix length of 128, each IPv6 address is a separate source.
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
    """A set of addresses and CIDR networks: `host in networks`. False for a host that is not an address."""

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
