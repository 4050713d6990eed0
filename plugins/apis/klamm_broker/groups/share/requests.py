"""Requests of members of share groups and their results, independent of wire versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode
from klamm_broker.groups.assignors import Partitions

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


class ShareHeartbeatResult(NamedTuple):
    """The answer to a heartbeat. `assignment` is None if it has not changed."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


ShareHeartbeatReply: TypeAlias = Callable[[ShareHeartbeatResult], None]


class DescribedShareMember(NamedTuple):
    """A member as an administrator sees it."""

    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    assigned: Partitions


class DescribedShareGroup(NamedTuple):
    """A share group as an administrator sees it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[DescribedShareMember]
