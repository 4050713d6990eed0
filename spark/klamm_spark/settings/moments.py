"""`parse_since`: reads a moment as people write it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_since(text: str, now: datetime) -> datetime:
    """Return the moment of a text: `90m`, `24h`, `7d` or `2w` before `now`, or an ISO date or time. Raises ValueError.

    A date or time without a zone is in UTC.
    """
    match = re.fullmatch(r"(\d+)([mhdw])", text)
    if match:
        return now - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'takes e.g. 24h, 7d, 2026-01-31 or 2026-01-31T12:00, not "{text}"') from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
