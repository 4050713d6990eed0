"""Requests of streams groups, for tests that send every API."""

from __future__ import annotations

from typing import Any

from klamm.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from klamm.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.unit.broker import share_requests


def topology(*sources: str, changelog: str | None = None) -> Topology:
    """Return a topology with one subtopology that reads these topics.

    `changelog` names its changelog, if there is one.
    """
    # The topic cannot be created because there are too few nodes. Each heartbeat tries again.
    changelogs = [] if changelog is None else [TopicInfo(changelog, replication_factor=99)]
    return Topology(0, [Subtopology("0", list(sources), state_changelog_topics=changelogs)])


DESCRIBE = StreamsGroupDescribeRequest(["st"])
UPDATE = StreamsGroupTopologyDescriptionUpdateRequest("st", "m", 0, TopologyDescription())


def join(group_id: str, member_id: str = "m", *sources: str, **more: Any) -> StreamsGroupHeartbeatRequest:
    """Return the first heartbeat of a member."""
    fields = {
        "rebalance_timeout_ms": 60_000,
        "topology": topology(*sources),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process-{member_id}",
        "client_tags": [],
    }
    return StreamsGroupHeartbeatRequest(group_id, member_id, **{**fields, **more})


JOIN_WITH_STATE = join("st", "m", topology=topology("t", changelog="st-changelog"))
OF_GROUPS: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    "StreamsGroupHeartbeat": (
        JOIN_WITH_STATE,
        1,
        (
            "allow User:* READ group:st",
            "allow User:* DESCRIBE topic:t",
            "allow User:* DESCRIBE topic:st-changelog",
        ),
    ),
    "StreamsGroupDescribe": (DESCRIBE, 1, ("allow User:* DESCRIBE group:st",)),
    "StreamsGroupTopologyDescriptionUpdate": (UPDATE, 0, ("allow User:* READ group:st",)),
}
"""Request, version and rules, by API. Without the rules the group is denied."""
OF_OTHER_GROUPS = share_requests.OF_GROUPS | OF_GROUPS
"""The same, together with those of share groups."""
