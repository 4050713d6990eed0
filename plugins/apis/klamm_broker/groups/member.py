"""`Member`: one member of a classic group, and the bytes for which it counts. The group's lock guards it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from klamm_broker.groups.expiration import ExpirationTimer
from klamm_broker.groups.requests import JoinReply, Protocol, SyncReply
from klamm_broker.limits.ledger import UNKNOWN_OWNER

MEMBER_BYTES: Final = 4096
"""Approximate size of a member whose subscription and assignment have up to `FREE_BYTES`."""
FREE_BYTES: Final = 1024
NAME_BYTES: Final = 100
"""Approximate size of each name in a subscription, in addition to its characters."""


def charge_bytes(size_bytes: int, names: int) -> int:
    """Return the bytes that a member with metadata and names of this size counts towards `group.members.max.bytes`."""
    return MEMBER_BYTES + size_bytes + NAME_BYTES * names


def size_bytes(client_id: str, group_instance_id: str | None, protocols: Iterable[Protocol]) -> int:
    """Estimate the bytes of a member that joins with these ids and protocols."""
    # Each id counts twice, because the coordinator makes the member id from one of them.
    names = 2 * (len(client_id) + len(group_instance_id or ""))
    return names + sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, eq=False)
class Member:
    """The coordinator's state of one member: Kafka's `ClassicGroupMember`.

    `is_new`            True until the first join is answered: until then the member may time out while its join waits.
    `join_reply`,
    `sync_reply`        the request that waits for its answer, if there is one.
    `deadline_ns`       monotonic time at which the session ends. A heartbeat changes only this number; when `timer`
                        fires, it compares the number with the clock.
    `owner`             the principal that joined, towards whose share of `group.members.max.bytes` the member counts.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    deadline_ns: int = 0
    timer: ExpirationTimer | None = None
    owner: str = UNKNOWN_OWNER

    @property
    def size_bytes(self) -> int:
        """Return the member's approximate size in bytes, without its assignment."""
        return size_bytes(self.client_id, self.group_instance_id, self.protocols)

    @property
    def charge_bytes(self) -> int:
        """Return the bytes that the member counts towards `group.members.max.bytes`."""
        return charge_bytes(self.size_bytes, len(self.protocols)) + max(0, len(self.assignment) - FREE_BYTES)

    @property
    def is_static(self) -> bool:
        """Return True if the member has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Return True if the member's join waits for an answer."""
        return self.join_reply is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Return True if the session goes on without heartbeats, because the member waits for the coordinator."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Return the metadata that the member sent with a protocol. Raises KeyError if it does not support the
        protocol.
        """
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers. Raises LookupError if it supports none of them."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise LookupError(f"member {self.member_id} supports none of {sorted(candidates)}")
