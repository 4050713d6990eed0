"""Settings of the gate `connection_quota`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from klamm import setting


def _check_overrides(overrides: dict[str, int]) -> str | None:
    for network, limit in overrides.items():
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            return f'"{network}" is no address or CIDR network'
        if limit < 0:
            return f'the limit of "{network}" must not be negative'
    return None


@dataclass(frozen=True, slots=True)
class ConnectionQuotaSettings:
    """`[listeners.NAME.connection_quota]`."""

    max_connections_per_ip: int = setting(
        2_147_483_647,
        doc="Connections that one address may have on this listener.",
        kafka="max.connections.per.ip",
        minimum=0,
    )
    overrides: dict[str, int] = setting(
        {},
        doc="Other limits for some addresses or CIDR networks; the longest prefix counts.",
        kafka="max.connections.per.ip.overrides",
        check=_check_overrides,
    )
