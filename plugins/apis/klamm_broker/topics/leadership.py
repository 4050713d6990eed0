"""`Leadership`: which node leads a partition, since when, and which nodes have its replicas."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1
NO_LEADER_EPOCH: Final = -1
FIRST_LEADER_EPOCH: Final = 0


class Leadership(NamedTuple):
    """Replaced as a whole, so that a reader never sees the leader of one epoch with the number of another.

    `leader_id` is NO_LEADER while no node leads. `epoch` rises with each change of the leader. `replicas` are node ids;
    the first is the preferred leader.
    """

    leader_id: int
    epoch: int
    replicas: tuple[int, ...]


def first_leadership(replicas: tuple[int, ...]) -> Leadership:
    """That of a new partition: its preferred leader leads."""
    return Leadership(replicas[0], FIRST_LEADER_EPOCH, replicas)
