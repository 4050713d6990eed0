"""Arguments and results of assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partition indexes by topic id. Topics without partitions are left out."""


class MemberSpec(NamedTuple):
    """A member: the existing topics that it subscribes to, and its present assignment."""

    instance_id: str | None
    topics: frozenset[bytes]
    assigned: Partitions


Assign: TypeAlias = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Partitions]]
"""An assignor: takes the members by id and the partition count of each topic; returns each member's partitions."""
