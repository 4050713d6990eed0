"""What a member of a streams group is notified of, beside its tasks."""

from __future__ import annotations

import enum
from typing import NamedTuple


class StatusCode(enum.IntEnum):
    """What a member is to know of its group, as Kafka's `StreamsGroupHeartbeatResponse.Status`."""

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
