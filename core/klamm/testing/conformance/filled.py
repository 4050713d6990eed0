"""`filled_request`, which makes a request whose texts, lists and records are not empty."""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from klamm.wire.messages.produce import ProduceRequest
from klamm.wire.primitives import ZERO_UUID, WireError
from klamm.wire.records import Record, encode_batch
from klamm.wire.struct_base import WireStruct

NAME: Final = "conformance"
"""The name of every topic, group and other entity."""
_TOPIC_ID: Final = b"conformance-0001"
_RECORDS: Final = "records"


def filled_request(request_class: Any, version: int) -> Any:
    """Return a request in which every list has one element, every text is `NAME`, and every batch has a record.

    Numbers have their defaults, and so have fields that the version lacks. Topic ids are those of missing topics. A
    Produce requires an answer and belongs to no transaction. The message is encoded and decoded, as for a server.
    """
    return request_class.decode(version, bytearray(_encoded(request_class, version)))


@cache
def _encoded(request_class: Any, version: int) -> bytes:
    request: Any = request_class()
    _fill(request, lambda: _encodes(request, version))
    if isinstance(request, ProduceRequest):
        request.acks, request.transactional_id = -1, None
    return bytes(request.encode(version))


def _encodes(request: Any, version: int) -> bool:
    try:
        request.encode(version)
    except WireError:
        return False
    return True


def _fill(struct: Any, fits: Callable[[], bool]) -> None:
    for name, hint in _hints(struct.__class__).items():
        before = getattr(struct, name)
        value = _TOPIC_ID if before == ZERO_UUID else _value(name, hint)
        if value is None:
            continue
        setattr(struct, name, value)
        if not fits():
            setattr(struct, name, before)
            continue
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, WireStruct):
                _fill(below, fits)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind.__init__)
    return {name: hints[name] for name in kind.__slots__ if name in hints}


def _value(name: str, hint: Any) -> Any:
    """Return the value that fills a field; None for a field that keeps its default."""
    if name == _RECORDS:
        return bytes(encode_batch([Record(value=NAME.encode())]))
    if hint is str:
        return NAME
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return hint()
    arguments = [one for one in typing.get_args(hint) if one is not type(None)]
    if typing.get_origin(hint) is list:
        element = 0 if arguments[0] is int else _value(name, arguments[0])
        return None if element is None else [element]
    return _value(name, arguments[0]) if arguments else None
