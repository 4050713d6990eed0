"""Checks for `setting(check=…)` and parsers of values, shared by settings of several plugins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from klamm.runtime.platform import PLATFORM

MAX_PORT: Final = 65535
_PORT_MAX_DIGITS: Final = 5


def check_networks(networks: Iterable[str]) -> str | None:
    """Return the problem with the first value that is not an address or CIDR network (`10.0.0.0/8`).

    None if every value is one.
    """
    # Imported here, because most servers name no networks and start faster without the import.
    import ipaddress

    for network in networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            return f'"{network}" is not an address or CIDR network'
    return None


def parse_host_port(text: str, *, to_connect: bool = False) -> tuple[str, int]:
    """Parse `HOST:PORT`; the brackets around an IPv6 host are not part of the result.

    An address to listen on may have an empty host and the port 0. With `to_connect`, it needs a host and a port above
    0. Raises ValueError.
    """
    host, _, port = text.rpartition(":")
    inside = host[1:-1] if host.startswith("[") and host.endswith("]") else None
    is_host = ":" in inside if inside is not None else not any(char in host for char in ":[]")
    lowest = 1 if to_connect else 0
    is_port = port.isascii() and port.isdecimal() and len(port) <= _PORT_MAX_DIGITS and lowest <= int(port) <= MAX_PORT
    if ":" not in text or not is_host or not is_port or (to_connect and not host):
        if not to_connect:
            raise ValueError(f'must be HOST:PORT with a port up to {MAX_PORT}, not "{text}"')
        raise ValueError(f'must be HOST:PORT with a port from 1 to {MAX_PORT}, not "{text}"')
    return host if inside is None else inside, int(port)


def check_host_port(text: str) -> str | None:
    """Return the problem with an address to listen on, or None if it is `HOST:PORT`."""
    try:
        parse_host_port(text)
    except ValueError as error:
        return str(error)
    return None


def format_host_port(host: str, port: int) -> str:
    """Return `HOST:PORT`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_to_connect(host: str) -> str:
    """Return the host at which this machine reaches a server that listens on `host`: loopback for all addresses."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def check_private(path: Path) -> str | None:
    """Return the problem with a file or directory to which users other than the server's have access; else None."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        # The part that reads the file reports a missing file.
        return None
    if not mode & 0o077 or not PLATFORM.has_modes:
        return None
    safe = "700" if path.is_dir() else "600"
    return f"{path}: other users have access (mode {mode:04o}); `chmod {safe}` removes it"
