"""Requests of members of share groups, independent of wire versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_MEMBER_ID_CHARS: Final = 36
"""A longer id of a member is INVALID_REQUEST: it has no more than a UUID in text."""


class ShareHeartbeat(NamedTuple):
    """A heartbeat: joins with epoch 0, leaves with -1. None: unchanged."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: Sequence[str] | None = None
    owner: str = ""
