"""Writes groups and committed offsets to the store, and reads them back.

A group is written only when Kafka would append a group metadata record: when the group is new or becomes empty, when
its leader's assignment arrives, and when a static member is replaced. So after a crash during a rebalance, the group is
in its last stable generation, and members of a later generation get ILLEGAL_GENERATION.

The functions only make statements, which their callers submit. `load` reads the store before the first request.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klamm.runtime import Clock
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.persistence import ROWS as CONSUMER_ROWS
from klamm_broker.groups.group import CommittedOffset, Group
from klamm_broker.groups.member import Member
from klamm_broker.groups.share.persistence import ROWS as SHARE_ROWS
from klamm_broker.groups.state import STABLE
from klamm_broker.groups.streams.persistence import ROWS as STREAMS_ROWS
from klamm_broker.limits.owners import GROUPS as OWNERS
from klamm_broker.storage.store import Statement, Store

_PUT_GROUP: Final = (
    "INSERT INTO groups (group_id, protocol_type, generation_id, protocol_name, leader_id, state_timestamp_ms)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (group_id) DO UPDATE SET"
    " protocol_type = excluded.protocol_type, generation_id = excluded.generation_id,"
    " protocol_name = excluded.protocol_name, leader_id = excluded.leader_id,"
    " state_timestamp_ms = excluded.state_timestamp_ms"
)
_DELETE_MEMBERS: Final = "DELETE FROM group_members WHERE group_id = ?"
_PUT_MEMBER: Final = (
    "INSERT INTO group_members (group_id, position, member_id, group_instance_id, client_id, client_host,"
    " rebalance_timeout_ms, session_timeout_ms, subscription, assignment, owner)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DELETE_GROUP: Final = "DELETE FROM groups WHERE group_id = ?"
_PUT_OFFSET: Final = (
    "INSERT INTO offsets (group_id, topic, partition, committed_offset, leader_epoch, metadata,"
    " commit_timestamp_ms, expire_timestamp_ms, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (group_id, topic, partition) DO UPDATE SET"
    " committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,"
    " metadata = excluded.metadata, commit_timestamp_ms = excluded.commit_timestamp_ms,"
    " expire_timestamp_ms = excluded.expire_timestamp_ms, owner = excluded.owner"
)
_DELETE_OFFSET: Final = "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?"
_DELETE_OFFSETS: Final = "DELETE FROM offsets WHERE group_id = ?"
_DELETE_OF_TOPICS: Final = (
    "DELETE FROM offsets WHERE group_id = ? AND topic IN (SELECT value FROM json_each(?))",
    "DELETE FROM pending_offsets WHERE group_id = ? AND topic IN (SELECT value FROM json_each(?))",
)
_DELETE_PENDING_OFFSET: Final = "DELETE FROM pending_offsets WHERE group_id = ? AND topic = ? AND partition = ?"
_DELETE_PENDING_OF_GROUP: Final = "DELETE FROM pending_offsets WHERE group_id = ?"
_PUT_PENDING_OFFSET: Final = (
    "INSERT OR REPLACE INTO pending_offsets (producer_id, group_id, topic, partition, committed_offset, leader_epoch,"
    " metadata, commit_timestamp_ms, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COMMIT_PENDING_OFFSETS: Final = (
    "INSERT INTO offsets (group_id, topic, partition, committed_offset, leader_epoch, metadata, commit_timestamp_ms,"
    " expire_timestamp_ms, owner) SELECT group_id, topic, partition, committed_offset, leader_epoch, metadata,"
    " commit_timestamp_ms, NULL, owner FROM pending_offsets WHERE producer_id = ?"
    " ON CONFLICT (group_id, topic, partition) DO UPDATE SET"
    " committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,"
    " metadata = excluded.metadata, commit_timestamp_ms = excluded.commit_timestamp_ms, expire_timestamp_ms = NULL,"
    " owner = excluded.owner"
    " WHERE excluded.commit_timestamp_ms >= offsets.commit_timestamp_ms"
)
_DELETE_PENDING_OFFSETS: Final = "DELETE FROM pending_offsets WHERE producer_id = ?"


def put_group(group: ClassicGroup, assignments: Mapping[str, bytes]) -> list[Statement]:
    """Return the statements that write the current generation, with assignments by member id (missing ones are
    empty).
    """
    protocol = group.protocol_type, group.generation_id, group.protocol_name
    statements: list[Statement] = [
        (_PUT_GROUP, (group.group_id, *protocol, group.leader_id, group.state_timestamp_ms)),
        (_DELETE_MEMBERS, (group.group_id,)),
        *CONSUMER_ROWS.delete(group.group_id),
        *STREAMS_ROWS.delete(group.group_id),
    ]
    if group.protocol_name is not None:
        for position, member in enumerate(group.members.values()):
            statements.append(
                (
                    _PUT_MEMBER,
                    (
                        group.group_id,
                        position,
                        member.member_id,
                        member.group_instance_id,
                        member.client_id,
                        member.client_host,
                        member.rebalance_timeout_ms,
                        member.session_timeout_ms,
                        member.metadata(group.protocol_name),
                        assignments.get(member.member_id, b""),
                        member.owner,
                    ),
                )
            )
    return statements


def delete_classic(group_id: str) -> list[Statement]:
    """Return the statements that delete a classic group, but not its offsets."""
    return [(_DELETE_GROUP, (group_id,)), (_DELETE_MEMBERS, (group_id,))]


def delete_group(group_id: str) -> list[Statement]:
    """Return the statements that delete a group of any kind and its offsets."""
    offsets: list[Statement] = [(sql, (group_id,)) for sql in (_DELETE_OFFSETS, _DELETE_PENDING_OF_GROUP)]
    return [
        *delete_classic(group_id),
        *CONSUMER_ROWS.delete(group_id),
        *SHARE_ROWS.delete(group_id),
        *STREAMS_ROWS.delete(group_id),
        OWNERS.delete(group_id),
        *offsets,
    ]


def put_offset(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> Statement:
    """Return the statement that writes a committed offset."""
    return (_PUT_OFFSET, (group_id, topic, partition, *committed))


def put_pending_offset(
    producer_id: int, group_id: str, topic: str, partition: int, pending: CommittedOffset
) -> Statement:
    """Return the statement that writes an offset that an open transaction will commit."""
    return (_PUT_PENDING_OFFSET, (producer_id, group_id, topic, partition, *pending[:4], pending.owner))


def end_pending_offsets(producer_id: int, *, committed: bool) -> list[Statement]:
    """Return the statements that commit or drop a transaction's pending offsets. A later commit of an offset stays."""
    forget: Statement = (_DELETE_PENDING_OFFSETS, (producer_id,))
    return [(_COMMIT_PENDING_OFFSETS, (producer_id,)), forget] if committed else [forget]


def delete_offset(group_id: str, topic: str, partition: int) -> Statement:
    """Return the statement that deletes a committed offset."""
    return (_DELETE_OFFSET, (group_id, topic, partition))


def delete_offsets_of(group_id: str, topics: Sequence[str]) -> list[Statement]:
    """Return the statements that delete the offsets of topics, including those pending in open transactions."""
    return [(sql, (group_id, json.dumps(topics))) for sql in _DELETE_OF_TOPICS]


def delete_pending_offset(group_id: str, topic: str, partition: int) -> Statement:
    """Return the statement that deletes a partition's offsets that are pending in open transactions."""
    return (_DELETE_PENDING_OFFSET, (group_id, topic, partition))


def load(store: Store, clock: Clock) -> Iterable[Group]:
    """Return all stored groups. A classic group with members is STABLE; other classic groups are EMPTY.

    A group with only offsets (of a consumer without group management) is EMPTY and has no protocol type.
    """
    classic = _load_classic(store, clock)
    others: list[Group] = [*CONSUMER_ROWS.load(store), *SHARE_ROWS.load(store), *STREAMS_ROWS.load(store)]
    groups: dict[str, Group] = {**classic, **{group.group_id: group for group in others}}
    for group_id, topic, partition, *committed in store.read(
        "SELECT group_id, topic, partition, committed_offset, leader_epoch, metadata, commit_timestamp_ms,"
        " expire_timestamp_ms, owner FROM offsets"
    ):
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = ClassicGroup(group_id, clock)
        group.offsets.setdefault(topic, {})[partition] = _interned(CommittedOffset(*committed))
    _load_pending_offsets(store, clock, groups)
    for group in groups.values():
        if isinstance(group, ClassicGroup):
            group.refresh_subscribed_topics()
    return groups.values()


def _interned(committed: CommittedOffset) -> CommittedOffset:
    """Return the offset with its owner interned, so that all offsets of an owner share one string."""
    return committed._replace(owner=sys.intern(committed.owner))


def _load_classic(store: Store, clock: Clock) -> dict[str, ClassicGroup]:
    groups: dict[str, ClassicGroup] = {}
    for group_id, protocol_type, generation_id, protocol_name, leader_id, timestamp_ms in store.read(
        "SELECT group_id, protocol_type, generation_id, protocol_name, leader_id, state_timestamp_ms FROM groups"
    ):
        group = groups[group_id] = ClassicGroup(group_id, clock)
        group.restore(protocol_type, protocol_name, generation_id)
        group.leader_id = leader_id
        group.state_timestamp_ms = timestamp_ms
    for group_id, *values, subscription, assignment, owner in store.read(
        "SELECT group_id, member_id, group_instance_id, client_id, client_host, rebalance_timeout_ms,"
        " session_timeout_ms, subscription, assignment, owner FROM group_members ORDER BY group_id, position"
    ):
        group = groups[group_id]
        member = Member(*[*values, ((group.protocol_name or "", subscription),), assignment])
        member.owner = owner
        group.add(member, group.protocol_type or "")
        group.state = STABLE
    return groups


def _load_pending_offsets(store: Store, clock: Clock, groups: dict[str, Group]) -> None:
    for producer_id, group_id, topic, partition, *pending in store.read(
        "SELECT producer_id, group_id, topic, partition, committed_offset, leader_epoch, metadata,"
        " commit_timestamp_ms, NULL, owner FROM pending_offsets"
    ):
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = ClassicGroup(group_id, clock)
        offset = _interned(CommittedOffset(*pending))
        group.book.add_pending(producer_id, {(topic, partition): offset})
        group.book.latest_pending_ms = max(group.book.latest_pending_ms, offset.commit_timestamp_ms)
