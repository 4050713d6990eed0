"""Checks of values for `setting(check=…)`, for settings that several plugins have."""

from __future__ import annotations

from collections.abc import Iterable


def check_networks(networks: Iterable[str]) -> str | None:
    """What is wrong with the first that is no address or CIDR network, e.g. `10.0.0.0/8`; None if all are."""
    # Most servers name no networks, and start faster without.
    import ipaddress

    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            return f'"{network}" is no address or CIDR network'
    return None
