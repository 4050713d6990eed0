"""Assignors, by which the server distributes partitions to the members of a group (KIP-848).

    spec     arguments and results of assignors
    range    equal ranges of each topic's partitions, in the order of the members
    simple   partitions shared by several members, for share groups (KIP-932)
    uniform  equally many partitions for each member, with as few moves as possible

Assignors are pure functions: the same members, subscriptions and assignments give the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from klamm_broker.groups.assignors.range import assign_ranges
from klamm_broker.groups.assignors.spec import Assign, MemberSpec, Partitions
from klamm_broker.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""The assignors by Kafka's names; the first is the default."""

__all__ = ["ASSIGNORS", "Assign", "MemberSpec", "Partitions"]
