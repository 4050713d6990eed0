"""`Leadership`: the leader of a partition, its epoch, and the nodes that have replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from klamm_broker.storage.store import Statement

NO_LEADER: Final = -1
NO_LEADER_EPOCH: Final = -1
FIRST_LEADER_EPOCH: Final = 0
LEADERSHIP_ROWS: Final = "leadership/"
"""Key prefix of rows in the store's table `cluster`; the topic id in hex follows."""


class Leadership(NamedTuple):
    """The leadership of one partition. It is replaced as a whole, so that no reader sees one epoch's leader with the
    number of another epoch.

    `leader_id` is NO_LEADER while no node leads. `epoch` increases with each change of leader or replicas. `replicas`
    are node ids; the first is the preferred leader.
    """

    leader_id: int
    epoch: int
    replicas: tuple[int, ...]

    def followed_by(self, leader_id: int, replicas: tuple[int, ...]) -> Leadership:
        """Return the leadership of the next epoch."""
        return Leadership(leader_id, self.epoch + 1, replicas)


# Partitions with equal replicas share one object: there may be many thousand partitions.
@lru_cache(1024)
def first_leadership(replicas: tuple[int, ...]) -> Leadership:
    """Return the leadership of a new partition: its preferred leader leads."""
    return Leadership(replicas[0], FIRST_LEADER_EPOCH, replicas)


def put_leaderships(topic_id: bytes, leaderships: Iterable[Leadership]) -> Statement:
    """Return the statement that stores the leaderships of a topic: leader, epoch and replicas of each partition, in
    JSON.
    """
    return (
        "INSERT INTO cluster (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (LEADERSHIP_ROWS + topic_id.hex(), json.dumps([*leaderships])),
    )


def delete_leaderships(topic_id: bytes) -> Statement:
    """Return the statement that deletes the rows of `put_leaderships`."""
    return ("DELETE FROM cluster WHERE key = ?", (LEADERSHIP_ROWS + topic_id.hex(),))
