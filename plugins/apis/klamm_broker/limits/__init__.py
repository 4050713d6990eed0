"""Limits for what clients leave behind: a total for each table that a client can make grow, and a share for each owner.

ledger    what is in use of it, in all and by each owner
tables    all tables, what is declared of each, and their ledgers
owners    who has made what, across restarts
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
