"""Requests of members of consumer groups, independent of wire versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm_broker.groups.assignors import Partitions


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat: joins with epoch 0, leaves with -1 or (a static member, temporarily) -2.

    None, or -1 for `rebalance_timeout_ms`: unchanged. `owned` are the partitions that the member owns. `may_describe`
    returns whether the principal may describe a topic; a regular expression matches no other topics. `owner` is
    whose share a new group and a new member count for.
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
