"""Requests of members of streams groups and their results, independent of wire versions."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from klamm import ErrorCode
from klamm_broker.groups.epoch_group import JOIN_EPOCH
from klamm_broker.groups.streams.tasks import Task, Tasks
from klamm_broker.groups.streams.topology import InternalTopic, Topology


class StatusCode(enum.IntEnum):
    """A status in the heartbeat response to a member: Kafka's `StreamsGroupHeartbeatResponse.Status`."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    """A status, and a sentence about it."""

    code: StatusCode
    detail: str


class Endpoint(NamedTuple):
    """The address at which a member answers interactive queries."""

    host: str
    port: int


def _create_nothing(_topics: Mapping[str, InternalTopic]) -> str:
    return ""


class StreamsHeartbeat(NamedTuple):
    """A heartbeat. Epoch 0 joins, -1 leaves, and with -2 a static member leaves temporarily.

    None means unchanged, and so does -1 in `rebalance_timeout_ms`. `owned` are the tasks that the member has.
    `endpoint_epoch` is the epoch of the endpoints that the member knows. `offsets` and `end_offsets` belong to its
    tasks' changelogs. `create_topics` starts the creation of internal topics, and returns the reasons why some are not
    created. A new group, a topology and a new member count towards the share of `owner`. `has_partial_tasks` is True if
    tasks are given for some roles only.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    has_partial_tasks: bool = False
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    offsets: Mapping[Task, int] | None = None
    end_offsets: Mapping[Task, int] | None = None
    shuts_down: bool = False
    endpoint_epoch: int = 0
    knows_missing_tags: bool = True
    create_topics: Callable[[Mapping[str, InternalTopic]], str] = _create_nothing
    owner: str = ""

    @property
    def is_join(self) -> bool:
        """Return True if the member joins."""
        return self.epoch == JOIN_EPOCH


class EndpointPartitions(NamedTuple):
    """The partitions of source topics that a member with an endpoint processes, and those for which it has copies."""

    endpoint: Endpoint
    active: Mapping[str, Sequence[int]]
    standby: Mapping[str, Sequence[int]]


class StreamsHeartbeatResult(NamedTuple):
    """The answer to a heartbeat. `assignment` and `endpoints` are None if they have not changed."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: Sequence[Status] = ()
    assignment: Tasks | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
