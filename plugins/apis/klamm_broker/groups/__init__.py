"""Consumer groups: the classic group protocol, and committed offsets.

`GroupCoordinator` is the entry point; `coordinator.offsets` is the part that commits and fetches. Below it:

    coordinator     which part a request is for
    classic_coordinator  the requests of members of classic groups: join, sync, heartbeat, leave
    administration  describe, list and delete groups
    rebalance       from one generation to the next; sessions
    offsets         commit, fetch, delete, expire
    transactional_offsets  what open transactions would commit
    registry        group id → group
    group           what all kinds of groups share: id, lock, offsets
    classic_group   members and state of a classic group (`state` has its transitions, `views` what clients see of it)
    persistence     to and from the store

A group is the unit of locking. Nothing here does I/O or waits: the store, the clock and the scheduler are given.
"""

from __future__ import annotations

from klamm_broker.groups.coordinator import GroupCoordinator
from klamm_broker.groups.group import CommittedOffset
from klamm_broker.groups.offsets import CommitRequest, OffsetManager, PartitionCommit
from klamm_broker.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klamm_broker.groups.settings import GroupSettings
from klamm_broker.groups.transactional_offsets import TransactionalOffsets

__all__ = [
    "CommitRequest",
    "CommittedOffset",
    "GroupCoordinator",
    "GroupSettings",
    "JoinRequest",
    "JoinResult",
    "LeaveResult",
    "LeavingMember",
    "OffsetManager",
    "PartitionCommit",
    "SyncRequest",
    "SyncResult",
    "TransactionalOffsets",
]
