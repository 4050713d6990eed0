"""Requests of share groups, with the rules that allow them."""

from __future__ import annotations

from typing import Any

from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

ALTER = AlterShareGroupOffsetsRequest(
    "so", [AlterShareGroupOffsetsRequestTopic("t", [AlterShareGroupOffsetsRequestPartition(0, 0)])]
)
DESCRIBE = DescribeShareGroupOffsetsRequest(
    [DescribeShareGroupOffsetsRequestGroup("sh", [DescribeShareGroupOffsetsRequestTopic("t", [0])])]
)
DELETE = DeleteShareGroupOffsetsRequest("so", [DeleteShareGroupOffsetsRequestTopic("t")])
OF_GROUPS: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    "ShareGroupHeartbeat": (
        ShareGroupHeartbeatRequest("sh", "m", 0, None, ["t"]),
        1,
        ("allow User:* READ group:sh", "allow User:* DESCRIBE topic:t"),
    ),
    "ShareGroupDescribe": (ShareGroupDescribeRequest(["sh"]), 1, ("allow User:* DESCRIBE group:sh",)),
    "DescribeShareGroupOffsets": (
        DESCRIBE,
        1,
        ("allow User:* DESCRIBE group:sh", "allow User:* DESCRIBE topic:t"),
    ),
    "AlterShareGroupOffsets": (ALTER, 0, ("allow User:* READ group:so", "allow User:* READ topic:t")),
    "DeleteShareGroupOffsets": (DELETE, 0, ("allow User:* DELETE group:so", "allow User:* READ topic:t")),
}
"""Request, version and rules, by API. Without the rules the group is denied."""


def of_session(topic_id: bytes) -> dict[str, Any]:
    """Return the requests of a share session by API. They name topics by id."""
    acknowledged = AcknowledgePartition(0, [AcknowledgementBatch(0, 0, [1])])
    return {
        "ShareFetch": ShareFetchRequest("sh", "m", 0, topics=[FetchTopic(topic_id, [FetchPartition(0)])]),
        "ShareAcknowledge": ShareAcknowledgeRequest("sh", "m", 1, topics=[AcknowledgeTopic(topic_id, [acknowledged])]),
    }
