"""Arguments and results of assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partition indexes by topic id; no topic without partitions."""


class MemberSpec(NamedTuple):
    """A member: the topics that it subscribes to and that exist, and what it is assigned so far."""

    instance_id: str | None
    topics: frozenset[bytes]
    assigned: Partitions


Assign: TypeAlias = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Partitions]]
"""From members by id, and the partition count of each topic, to the partitions of each member."""
