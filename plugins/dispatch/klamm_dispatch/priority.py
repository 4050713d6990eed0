"""The request scheduler `priority`: control requests go ahead of data requests, but do not starve them.

`LaneScheduler` calls `_next_lane` and `_started` under its lock, on handler threads.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klamm import RequestContext, setting
from klamm.config import did_you_mean
from klamm.wire.api_keys import SPECS
from klamm_dispatch.lanes import Lane, LaneScheduler

log = logging.getLogger("klamm.dispatch")

CONTROL: Final = "control"
DATA: Final = "data"
CONTROL_APIS: Final = (
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "Metadata",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
    "OffsetCommit",
    "OffsetFetch",
)
"""The APIs for metadata and group membership. Their requests are all short."""

_API_KEYS: Final = {spec.name: spec.api_key for spec in SPECS}


def _check_apis(names: tuple[str, ...]) -> str | None:
    unknown = next((name for name in names if name not in _API_KEYS), None)
    return None if unknown is None else f'there is no API "{unknown}"{did_you_mean(unknown, _API_KEYS)}'


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """The table `[server.priority]`."""

    control_apis: tuple[str, ...] = setting(
        CONTROL_APIS, doc="APIs whose requests go ahead of all others.", check=_check_apis
    )
    control_listeners: tuple[str, ...] = setting(
        (),
        doc="Listeners whose requests are all control requests (KIP-291).",
        names_listeners=True,
    )
    data_share: float = setting(
        0.1,
        doc="The minimum share of turns for waiting data requests; 0 lets them starve.",
        minimum=0.0,
        maximum=1.0,
    )
    data_max_queued: float = setting(
        0.8, doc="The part of queued.max.requests that data requests may fill.", minimum=0.0, maximum=1.0
    )
    control_handlers: int = setting(
        1,
        doc="Handlers reserved for control requests. One always remains for data, so a single handler is not reserved.",
        minimum=0,
    )

    def warnings(self, io_threads: int) -> Iterator[tuple[str, str]]:
        """Yield a warning if there are too few handlers for the reserved ones."""
        reserved = max(0, io_threads - 1)
        if reserved < self.control_handlers:
            yield (
                "control_handlers",
                f"of io_threads = {io_threads}, {reserved} can be reserved for control requests, but control_handlers ="
                f" {self.control_handlers}: control requests wait while data requests occupy the others",
            )


class Priority(LaneScheduler):
    """The scheduler `priority`, with the lanes `control` and `data`. Control requests go first.

    Each time that data has to wait, it earns `data_share` of a turn. When it has earned a whole turn, a data request
    goes first.

    Some handlers are reserved for control requests. Without them, long data requests could occupy all handlers, and the
    first place in the queue would not help, because handlers are not interrupted. Kafka separates control from data
    only by threads (KIP-291).
    """

    settings: PrioritySettings

    def __init__(self, settings: PrioritySettings, capacity: int) -> None:
        super().__init__(settings, capacity)
        self._control_apis = frozenset(_API_KEYS[name] for name in settings.control_apis)
        self._control_listeners = frozenset(settings.control_listeners)
        self._control = Lane(CONTROL, capacity)
        self._data = Lane(DATA, max(1, int(capacity * settings.data_max_queued)))

    def resized(self, handlers: int) -> None:
        """Note the number of handlers. Log a warning if it is too low for the reserved ones."""
        super().resized(handlers)
        for _key, message in self.settings.warnings(handlers):
            log.warning("request scheduler priority: %s", message)

    def lane(self, request: RequestContext) -> Hashable:
        return self._lane_of(request).name

    def _lane_of(self, request: RequestContext) -> Lane:
        if (
            request.api_key in self._control_apis
            or request.connection.listener.configured_as in self._control_listeners
        ):
            return self._control
        return self._data

    def _next_lane(self) -> Lane | None:
        control, data = self._control, self._data
        data_may_run = data.waiting and data.running < self._handlers_less(self.settings.control_handlers)
        if not control.waiting:
            return data if data_may_run else None
        if data_may_run:
            data.credit += self.settings.data_share
            # Sums of a share such as 0.1 are inexact in binary, so compare with a little less than 1.
            if data.credit > 1.0 - 1e-9:
                return data
        return control

    def _started(self, lane: Lane, request: RequestContext) -> None:
        lane.credit = max(0.0, lane.credit - 1.0)

    def lane_sizes(self) -> Mapping[str, int]:
        return {lane.name: len(lane.waiting) for lane in (self._control, self._data)}
