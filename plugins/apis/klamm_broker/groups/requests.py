"""Requests to the group coordinator and its results, the same for all versions of the messages.

The handlers convert messages into requests, and results into messages. Bytes are owned copies, never views of a frame.
The classes are named tuples, because a module of dataclasses takes four times as long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode
from klamm_broker.groups.assignors import Partitions

Protocol: TypeAlias = tuple[str, bytes]
"""A protocol that a member supports (an assignor, for consumers) and its metadata (the subscription)."""

UNKNOWN_GENERATION_ID = -1
UNKNOWN_MEMBER_ID = ""


class JoinRequest(NamedTuple):
    """A request to join.

    `member_id`                    empty for a member that has no id yet.
    `requires_known_member_id`     True if a first join is answered with MEMBER_ID_REQUIRED (KIP-394, JoinGroup v4).
    `owner`                        the principal; a new group and a new member count towards its share.
    `supports_skipping_assignment` True if the client understands `skip_assignment` (KIP-814, JoinGroup v9).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True
    reason: str = "not provided"
    owner: str = ""


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a join. `members` is filled for the leader only."""

    error_code: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = UNKNOWN_GENERATION_ID
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """A request for the assignment. The leader sends the assignments of all members, by member id."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = MappingProxyType({})


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member to be removed. Administrators may name a member by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = "not provided"


class LeaveResult(NamedTuple):
    """The answer to a LeaveGroup: the error of the request, and that of each member in the request's order."""

    error_code: ErrorCode = ErrorCode.NONE
    members: Sequence[ErrorCode] = ()


class DescribedMember(NamedTuple):
    """A member as an administrator sees it. `metadata` is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group as an administrator sees it. `protocol_name` is empty unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: Sequence[DescribedMember]


class EpochHeartbeatResult(NamedTuple):
    """The answer to a heartbeat of a consumer or a share group. `assignment` is None if it has not changed."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class ListedGroup(NamedTuple):
    """One line of a list of groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


JoinReply: TypeAlias = Callable[[JoinResult], None]
SyncReply: TypeAlias = Callable[[SyncResult], None]


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat. Epoch 0 joins, -1 leaves, and with -2 a static member leaves temporarily.

    None means unchanged, and so does -1 in `rebalance_timeout_ms`. `owned` are the partitions that the member owns.
    `may_describe` returns True if the principal may describe a topic; a regular expression matches no other topics.
    `owner` is the principal; a new group and a new member count towards its share.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    generates_member_id: bool = True
    may_describe: Callable[[str], bool] = lambda _name: True
    owner: str = ""

    @property
    def is_full(self) -> bool:
        """Return True if all fields are set: the response to a full heartbeat has the assignment, changed or not."""
        complete = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == 0 or (complete and (self.topics is not None or self.regex is not None))


MAX_MEMBER_ID_CHARS: Final = 36
"""Maximum length of a member id, that of a UUID in text. A longer id is answered with INVALID_REQUEST."""


class ShareHeartbeat(NamedTuple):
    """A heartbeat. Epoch 0 joins and -1 leaves. None means unchanged."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: Sequence[str] | None = None
    owner: str = ""
