"""Times and sizes in the form that people read."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_of(time_us: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def size(count: float) -> str:
    """Return a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
