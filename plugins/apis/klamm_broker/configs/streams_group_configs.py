"""The configs of streams groups (KIP-1071) that are in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm_broker.configs.group_config_keys import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_REBALANCE_DELAY,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_RACK_AWARE_TAGS,
    STREAMS_SESSION_TIMEOUT,
)


class StreamsGroupConfigs:
    """Each by group id: the group's own, or the broker's."""

    def __init__(self, number: Callable[[str, str], int], value: Callable[[str, str], Any]) -> None:
        """`number` and `value` get a group id and the name of a config."""
        self._number = number
        self._value = value

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the longest time for which a member may be silent."""
        return self._number(group_id, STREAMS_SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Time between two heartbeats of a member."""
        return self._number(group_id, STREAMS_HEARTBEAT_INTERVAL)

    def num_standby_replicas(self, group_id: str) -> int:
        """Standby copies of the state of each task."""
        return self._number(group_id, STREAMS_NUM_STANDBY_REPLICAS)

    def initial_rebalance_delay_ms(self, group_id: str) -> int:
        """Return the time that a new group waits for more members."""
        return self._number(group_id, STREAMS_INITIAL_REBALANCE_DELAY)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Shortest time between two assignments."""
        return self._number(group_id, STREAMS_ASSIGNMENT_INTERVAL)

    def rack_aware_assignment_tags(self, group_id: str) -> tuple[str, ...]:
        """Keys of client tags over whose values standby copies are distributed."""
        return tuple(self._value(group_id, STREAMS_RACK_AWARE_TAGS))
