"""Functions that replace the names of topics, groups and other entities in any request or response."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from klamm.wire.primitives import WireError
from klamm.wire.struct_base import WireStruct, generated_class

M = TypeVar("M", bound=WireStruct)

ENTITY_TYPES: Final = ("topicName", "groupId", "transactionalId", "producerId", "brokerId")
"""The types of entities by Kafka's names: `entityType` in the descriptions of its messages."""

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumer groups (`ConsumerProtocol.PROTOCOL_TYPE`)."""

_VERSION: Final = struct.Struct(">h")
_LATEST: Final = 3


class _Plan(NamedTuple):
    """The fields of a struct that name entities.

    `fields` always name entities. `by_code` do so only if another field has a code. `below` are the fields of nested
    structs.
    """

    fields: tuple[str, ...]
    by_code: tuple[tuple[str, str, int | None], ...]
    below: tuple[tuple[str, _Plan], ...]


_PLANS: Final[dict[tuple[type, str], _Plan | None]] = {}


def map_entities(message: M, entity_type: str, fn: Callable[[Any], Any]) -> M:
    """Replace each name of that type in a request or response by `fn(name)`, in place; return the message.

    `entity_type` is one of `ENTITY_TYPES`. Names of topics, groups and transactional ids are texts, producer and broker
    ids are numbers. Values that name nothing stay unchanged: null, empty texts, negative numbers. Use
    `klamm.wire.struct_base.copy_message` to copy a message that you must not change.

    The types are those of Kafka's descriptions. Kafka gives no type if another field determines it, e.g. for resources
    of configs and ACLs, and for keys of coordinators. Such names are replaced according to that field; the name in an
    ACL may be `*` or a prefix. Some names are not replaced, because the message does not determine their type: keys in
    FindCoordinatorResponse, ACL filters for resources of any type, regular expressions (`subscribed_topic_regex`,
    `source_topic_regex`, `transactional_id_pattern`), quota entities, error messages, numbers of brokers as names of
    configs. Topic ids are not names. Members of a classic group exchange topics in bytes: `map_consumer_protocol`
    replaces them.

    Raises ValueError for an unknown type, TypeError for an object that is not a generated message or that keeps its
    encoded form.
    """
    key = message.__class__, entity_type
    plan = _PLANS[key] if key in _PLANS else _PLANS.setdefault(key, _plan(*key))
    if plan is not None:
        _apply(message, plan, fn)
    return message


def map_consumer_protocol(message: M, fn: Callable[[str], str], *, strict: bool = False) -> M:
    """Replace the topics in subscriptions and assignments of a classic group, in place; return the message.

    They are bytes in JoinGroup, SyncGroup and DescribeGroups; other messages have no such bytes. Groups with protocols
    other than `consumer` stay unchanged, and so does the user data of an assignor. If the version of a message does not
    name the protocol type, the type counts as `consumer`.

    Bytes that cannot be read also stay unchanged, or raise WireError if `strict` is True. Use `strict` if no other name
    may reach the broker, because the broker may read names that klamm cannot read, e.g. in texts that are not UTF-8.
    """
    find = _CONSUMER_BYTES.get(generated_class(type(message)).__name__)
    for part, field, kind in find(message) if find is not None else ():
        setattr(part, field, _mapped_bytes(kind, getattr(part, field), fn, strict))
    return message


_Found = Iterator[tuple[Any, str, str]]


def _of_join_request(message: Any) -> _Found:
    if message.protocol_type == CONSUMER_PROTOCOL:
        yield from ((one, "metadata", "Subscription") for one in message.protocols)


def _of_join_response(message: Any) -> _Found:
    if message.protocol_type in (CONSUMER_PROTOCOL, None):
        yield from ((one, "metadata", "Subscription") for one in message.members)


def _of_sync_request(message: Any) -> _Found:
    if message.protocol_type in (CONSUMER_PROTOCOL, None):
        yield from ((one, "assignment", "Assignment") for one in message.assignments)


def _of_sync_response(message: Any) -> _Found:
    if message.protocol_type in (CONSUMER_PROTOCOL, None):
        yield message, "assignment", "Assignment"


def _of_describe_response(message: Any) -> _Found:
    for group in message.groups:
        if group.protocol_type == CONSUMER_PROTOCOL:
            for member in group.members:
                yield member, "member_metadata", "Subscription"
                yield member, "member_assignment", "Assignment"


_CONSUMER_BYTES: Final[dict[str, Callable[[Any], _Found]]] = {
    "JoinGroupRequest": _of_join_request,
    "JoinGroupResponse": _of_join_response,
    "SyncGroupRequest": _of_sync_request,
    "SyncGroupResponse": _of_sync_response,
    "DescribeGroupsResponse": _of_describe_response,
}


def _mapped_bytes(kind: str, data: bytes, fn: Callable[[str], str], strict: bool) -> bytes:
    if len(data) < _VERSION.size:
        return data
    name = f"ConsumerProtocol{kind}"
    message_class = vars(importlib.import_module(f"klamm.wire.messages.consumer_protocol_{kind.lower()}"))[name]
    version = min(_VERSION.unpack_from(data)[0], _LATEST)
    try:
        content = map_entities(message_class.decode(version, data, _VERSION.size), "topicName", fn)
        return _VERSION.pack(version) + bytes(content.encode(version))
    except WireError:
        if strict:
            raise
        return data


def _apply(part: Any, plan: _Plan, fn: Callable[[Any], Any]) -> None:
    for name in plan.fields:
        _map_field(part, name, fn)
    for name, code_field, code in plan.by_code:
        deciding = getattr(part, code_field)
        if deciding == code or (code is None and not deciding):
            _map_field(part, name, fn)
    for name, below in plan.below:
        value = getattr(part, name)
        if value.__class__ is list:
            for element in value:
                if element is not None:
                    _apply(element, below, fn)
        elif value is not None:
            _apply(value, below, fn)


def _map_field(part: Any, name: str, fn: Callable[[Any], Any]) -> None:
    value = getattr(part, name)
    if value.__class__ is list:
        setattr(part, name, [fn(element) if _names_something(element) else element for element in value])
    elif _names_something(value):
        setattr(part, name, fn(value))


def _names_something(value: Any) -> bool:
    return value >= 0 if value.__class__ is int else bool(value)


def _plan(kind: type, entity_type: str) -> _Plan | None:
    # Imported here, because the table is needed only if a filter replaces names.
    from klamm.wire.entity_fields import ENTITY_FIELDS

    if entity_type not in ENTITY_TYPES:
        raise ValueError(f'there is no entity type "{entity_type}"; there are {", ".join(ENTITY_TYPES)}')
    if not issubclass(kind, WireStruct):
        raise TypeError(f"{kind.__name__} is not a message of klamm.wire.messages")
    if generated_class(kind) is not kind:
        raise TypeError(f"{kind.__name__} keeps its encoded form: change a copy of it (copy_message)")
    paths = ENTITY_FIELDS.get(kind.__name__, {}).get(entity_type, ())
    return _plan_of([path.split(".") for path in paths]) if paths else None


def _plan_of(paths: list[list[str]]) -> _Plan:
    fields, by_code = [], []
    below: dict[str, list[list[str]]] = {}
    for first, *rest in paths:
        if rest:
            below.setdefault(first, []).append(rest)
        elif "?" in first:
            name, _, condition = first.partition("?")
            code_field, _, code = condition.partition("=")
            by_code.append((name, code_field, int(code) if code else None))
        else:
            fields.append(first)
    return _Plan(tuple(fields), tuple(by_code), tuple((name, _plan_of(rest)) for name, rest in below.items()))
