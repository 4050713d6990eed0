"""Limits for state that clients create: a total for each table that clients can grow, and a share for each owner.

ledger    the amount in use, in total and by owner
tables    all tables, their declarations and their ledgers
owners    the creators of entries, across restarts
"""

from __future__ import annotations

from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger
from klamm_broker.limits.owners import owner_of
from klamm_broker.limits.tables import (
    CONFIGS,
    GROUPS,
    MEMBERS,
    OFFSETS,
    SHARE_PARTITIONS,
    TABLES,
    TOPICS,
    TRANSACTIONAL_IDS,
    StateLimits,
)

__all__ = [
    "CONFIGS",
    "GROUPS",
    "MEMBERS",
    "OFFSETS",
    "SHARE_PARTITIONS",
    "TABLES",
    "TOPICS",
    "TRANSACTIONAL_IDS",
    "UNKNOWN_OWNER",
    "Ledger",
    "StateLimits",
    "owner_of",
]
