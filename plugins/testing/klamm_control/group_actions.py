"""`GroupActions`: groups of consumers."""

from __future__ import annotations

from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import Done, Group, TimeoutS


class GroupActions(Actions):
    """Groups of consumers, of the classic or the consumer protocol."""

    @route("GET", "/groups")
    def groups(self) -> dict[str, str]:
        """Return the groups, each with its state."""
        return self._server.admin.groups()

    @route("GET", "/groups/{group}")
    def group(
        self,
        group: str,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_s: TimeoutS = 30.0,
    ) -> Group:
        """Return a group. With `state`, `members` or `lag`, wait until it has this state, number of members, or lag."""
        asked = self._server.admin.group(group)
        if (state, members, lag) != (None, None, None):
            asked.wait(state=state, members=members, lag=lag, timeout_s=limited(timeout_s))
        committed, behind = asked.committed(), asked.lag()
        return {
            "name": group,
            "state": asked.state,
            "members": [
                {
                    "member_id": one.member_id,
                    "client_id": one.client_id,
                    "instance_id": one.instance_id,
                    "partitions": [{"topic": topic, "partition": index} for topic, index in one.partitions],
                }
                for one in asked.members()
            ],
            "partitions": [
                {"topic": topic, "partition": index, "committed": committed.get((topic, index)), "lag": each}
                for (topic, index), each in behind.items()
            ],
            "lag": sum(behind.values()),
        }

    @route("DELETE", "/groups/{group}")
    def delete_group(self, group: str) -> Done:
        """Delete a group without members."""
        self._server.admin.delete_groups(group)
        return {}
