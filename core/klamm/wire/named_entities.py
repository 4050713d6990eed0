"""`entities_of`, which finds the topics, partitions and groups that a request names, by the names of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.wire.struct_base import WireStruct

TOPIC_FIELDS: Final = frozenset({"topic", "topic_name", "topic_names", "subscribed_topic_names"})
PARTITION_FIELDS: Final = frozenset({"partition", "partition_index", "index", "partition_indexes", "partitions"})
GROUP_FIELDS: Final = frozenset({"group", "group_id", "groups", "groups_names", "group_ids"})
_NO_ID: Final = bytes(16)


@dataclass(slots=True)
class Entities:
    """The topics that a request names, each with the named partitions, and the groups."""

    topics: dict[str, set[int]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


def entities_of(message: Any, name_of: Callable[[bytes], str | None]) -> Entities:
    """Return the entities of a request; `name_of` returns the name of a topic id, or None."""
    found = Entities()
    _collect(message, None, found, name_of)
    return found


def _collect(struct: Any, topic: str | None, found: Entities, name_of: Callable[[bytes], str | None]) -> None:
    fields = [(name, getattr(struct, name)) for name in struct.__slots__]
    is_topic = "Topic" in type(struct).__name__
    coordinator = type(struct).__name__ == "FindCoordinatorRequest" and not struct.key_type
    for name, value in fields:
        if name in TOPIC_FIELDS or (name == "name" and is_topic):
            for one in _texts(value):
                topic = one
                found.topics.setdefault(one, set())
        elif name == "topic_id" and value != _NO_ID:
            known = name_of(value)
            if known is not None:
                topic = known
                found.topics.setdefault(known, set())
        elif name in GROUP_FIELDS or (coordinator and name in ("key", "coordinator_keys")):
            found.groups.update(_texts(value))
    for name, value in fields:
        if name in PARTITION_FIELDS and topic is not None:
            found.topics[topic].update(_numbers(value))
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, WireStruct):
                _collect(below, topic, found, name_of)


def _texts(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            yield one


def _numbers(value: Any) -> Iterator[int]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, int):
            yield one
