"""Fields that the requests and responses of an API can have, so that a rule that can never fire is refused."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.named_entities import GROUP_FIELDS, PARTITION_FIELDS, TOPIC_FIELDS
from klamm.wire.struct_base import WireStruct


class Reach(typing.NamedTuple):
    """Fields of an API: topics, partitions and groups in requests, and a throttle time in responses."""

    topics: bool
    partitions: bool
    groups: bool
    throttle: bool


@cache
def reach_of(api_key: int) -> Reach:
    """Return the reach of one API, in any of its versions."""
    name, module = spec_of(api_key).name, vars(load(api_key))
    paths = set(_fields(module[f"{name}Request"]))
    names = {field for _, field in paths}
    topics = not names.isdisjoint({*TOPIC_FIELDS, "topic_id"}) or any("Topic" in struct for struct, _ in paths)
    return Reach(
        topics,
        topics and not names.isdisjoint(PARTITION_FIELDS),
        not names.isdisjoint(GROUP_FIELDS) or api_key == ApiKey.FIND_COORDINATOR,
        "throttle_time_ms" in module[f"{name}Response"].__slots__,
    )


def _fields(struct: type[WireStruct]) -> Iterator[tuple[str, str]]:
    """Return names of the structs of a message with those of their fields."""
    hints = typing.get_type_hints(struct.__init__)
    for name in struct.__slots__:
        yield struct.__name__, name
        for below in _structs(hints.get(name)):
            yield from _fields(below)


def _structs(hint: Any) -> Iterator[type[WireStruct]]:
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        yield hint
    for one in typing.get_args(hint):
        yield from _structs(one)
