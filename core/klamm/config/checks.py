"""Checks of values for `setting(check=…)`, for settings that several plugins have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def check_networks(networks: Iterable[str]) -> str | None:
    """The problem with the first value that is not an address or CIDR network (`10.0.0.0/8`); None if all are."""
    # Most servers name no networks, and start faster without.
    import ipaddress

    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            return f'"{network}" is not an address or CIDR network'
    return None


def check_private(path: Path) -> str | None:
    """The problem with the mode of a file or directory that only the server's user may have access to, or None."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        # The part that reads the file reports that.
        return None
    if not mode & 0o077:
        return None
    safe = "700" if path.is_dir() else "600"
    return f"{path}: other users have access (mode {mode:04o}); `chmod {safe}` removes it"
