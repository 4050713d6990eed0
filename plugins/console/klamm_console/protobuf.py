"""`ProtobufSchema`: decodes values in the encoding of Protocol Buffers, as JSON values.

Descriptors and values are read by the library `protobuf`, which has no limit on memory: an empty message takes two
bytes of data, and in memory as much as its type has fields. Therefore the parts of a value are counted first.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as FormatError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from klamm_console.avro import Steps

_DEPTH: Final = 64
_OWN_NAME: Final = "klamm_schema.proto"
_LIBRARY: Final = "google/protobuf/"
_OF_LIBRARY: Final = frozenset(
    f"{_LIBRARY}{name}.proto"
    for name in (
        *("any", "api", "descriptor", "duration", "empty", "field_mask"),
        *("source_context", "struct", "timestamp", "type", "wrappers"),
    )
)
"""The imports that the library has. No registry has them."""
_AS_JSON: Final = frozenset(f"{_LIBRARY}{name}.proto" for name in ("duration", "field_mask", "struct", "timestamp"))
"""The imports whose messages have a form of their own in JSON."""
_BYTES_OF_EACH: Final = {
    **dict.fromkeys((FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES), 0),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), 4),
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), 8),
}
"""The size of packed values; 0 for types that are never packed. The other types are varints."""
_GOES_ON: Final = bytes(range(0x80, 0x100))

Found = tuple[str, Iterable[tuple[str, str, int]]]
"""A descriptor in base64, and the name, subject and version of each of its references."""


class ProtobufSchema:
    """A schema with its imports."""

    def __init__(self, own: Found, ask: Callable[[str, int], Found]) -> None:
        """Read a schema. `ask` returns a schema of the registry by subject and version, and limits the number.

        Raises ValueError.
        """
        self._pool = DescriptorPool()
        self._ask = ask
        self._names: set[str] = set()
        self._missing: list[str] = []
        try:
            self._add(_OWN_NAME, own)
            self._file = self._pool.FindFileByName(_OWN_NAME)
        except (KeyError, TypeError, DecodeError) as error:
            reason = f"the registry lacks {', '.join(self._missing)}" if self._missing else str(error)
            raise ValueError(f"the schema is not a valid schema of Protocol Buffers: {reason}"[:500]) from error

    def decoded(self, data: bytes, steps: Steps) -> Any:
        """Return the message of data that begins with the message's index. Raises ValueError."""
        kind, at = self._kind(data)
        _Count(data, steps).message(kind, at, len(data), 0)
        message = GetMessageClass(kind)()
        try:
            message.ParseFromString(data[at:])
            return _shown(message)
        except (AttributeError, DecodeError, RecursionError, TypeError) as error:
            # A field may have the name of a method, e.g. HasField.
            raise ValueError("the data does not match its schema") from error

    def _add(self, name: str, found: Found) -> None:
        """Add a file to the pool after its imports."""
        text, references = found
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError("the registry does not return schemas of Protocol Buffers as descriptors") from error
        for imported, subject, version in references:
            if imported not in self._names | _OF_LIBRARY:
                self._names.add(imported)
                self._add(imported, self._ask(subject, version))
        for imported in file.dependency:
            self._add_missing(imported)
        _forget_extensions(file)
        file.name = name
        self._pool.Add(file)

    def _add_missing(self, name: str) -> None:
        """Add an import of the library, or an empty file: many imports have options alone."""
        if name in self._names:
            return
        self._names.add(name)
        file = FileDescriptorProto(name=name)
        if name in _OF_LIBRARY:
            module = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
            file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
            for imported in file.dependency:
                self._add_missing(imported)
        else:
            self._missing.append(name[:200])
        self._pool.Add(file)

    def _kind(self, data: bytes) -> tuple[Descriptor, int]:
        """Return the type of the message in data, and where the message begins.

        A list of indexes leads to the type from the outside to the inside; the list `[0]` is written as a single zero.
        As in Confluent's serializer for Java, the types that maps have in descriptors are not counted.
        """
        count, at = _signed(data, 0)
        indexes = [0] if count == 0 else []
        if not 0 <= count <= _DEPTH:
            raise ValueError("the data has no valid message index")
        for _ in range(count):
            index, at = _signed(data, at)
            indexes.append(index)
        found: Any = None
        inner: Sequence[Any] = list(self._file.message_types_by_name.values())
        for index in indexes:
            if not 0 <= index < len(inner):
                raise ValueError(f"the schema has no message with the index {indexes}")
            found = inner[index]
            inner = [each for each in found.nested_types if not each.GetOptions().map_entry]
        return found, at


def _forget_extensions(of: Any) -> None:
    """Remove extensions, which have messages in places that only the pool knows."""
    of.ClearField("extension")
    for each in of.message_type if isinstance(of, FileDescriptorProto) else of.nested_type:
        _forget_extensions(each)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("the data ends too early")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
    raise ValueError("a number is too long")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    found, at = _varint(data, at)
    return (found >> 1) ^ -(found & 1), at


class _Count:
    """Takes a step for each part of a message, and for each field that it may have."""

    def __init__(self, data: bytes, steps: Steps) -> None:
        self._data = data
        self._steps = steps

    def message(self, kind: Descriptor | None, at: int, end: int, depth: int, group: int = 0) -> int:
        """Count the parts of a message, or of the group with this number. Return where it ends. Raises ValueError."""
        if depth > _DEPTH:
            raise ValueError("the value is nested too deeply")
        fields = kind.fields_by_number if kind is not None else {}
        self._steps.take(1 + len(fields))
        while at < end:
            self._steps.take()
            tag, at = _varint(self._data, at)
            number, wire = tag >> 3, tag & 7
            field = fields.get(number)
            if wire == 4 and number == group:
                return at
            if wire == 0:
                _, at = _varint(self._data, at)
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            elif wire == 2:
                size, at = _varint(self._data, at)
                if size > end - at:
                    raise ValueError("the data ends too early")
                if field is not None:
                    self._field(field, at, at + size, depth)
                at += size
            elif wire == 3:
                at = self.message(field.message_type if field is not None else None, at, end, depth + 1, number)
            else:
                raise ValueError("the data does not match its schema")
        if at > end or group:
            raise ValueError("the data ends too early")
        return at

    def _field(self, field: FieldDescriptor, at: int, end: int, depth: int) -> None:
        if field.message_type is not None:
            self.message(field.message_type, at, end, depth + 1)
            return
        size = _BYTES_OF_EACH.get(field.type)
        if size is None:
            self._steps.take(len(self._data[at:end].translate(None, _GOES_ON)))
        elif size:
            self._steps.take((end - at) // size)


def _shown(message: Message) -> Any:
    """Return a message with the fields that are set, and those that cannot be unset."""
    kind = message.DESCRIPTOR
    if kind.file.name in _AS_JSON:
        try:
            return MessageToDict(message)
        except (FormatError, ValueError):
            # E.g. a time of the year 12000. It is shown as it is.
            pass
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in kind.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return _shown(value)
    if isinstance(value, bytes):
        return value.hex(" ")
    if isinstance(value, Mapping):
        item = field.message_type.fields_by_name["value"]
        return {key: _value(item, each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(field, each) for each in value]
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
