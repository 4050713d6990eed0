"""`printed`: makes the text of a schema from its descriptor. It leaves out options that extensions define."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

_INDENT: Final = "  "
_MAX_NUMBER: Final = 536_870_911
_SCALARS: Final = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


def printed(file: FileDescriptorProto) -> str:
    """Return the text of a schema."""
    newer = file.syntax == "proto3"
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += _block(_imports(file))
    lines += _block(f"option {name} = {value};" for name, value in _options(file.options))
    for enum in file.enum_type:
        lines += _block(_enum(enum))
    for message in file.message_type:
        lines += _block(_message(message, newer))
    lines += _block(_extensions(file.extension, newer))
    for service in file.service:
        lines += _block(_service(service))
    return "\n".join(lines) + "\n"


def _block(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["", *found] if found else []


def _imports(file: FileDescriptorProto) -> Iterator[str]:
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    for index, name in enumerate(file.dependency):
        kind = "public " if index in public else "weak " if index in weak else ""
        yield f"import {kind}{json.dumps(name)};"


def _inner(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line if line else line for line in lines)


def _options(options: Any) -> Iterator[tuple[str, str]]:
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None:
            continue
        for each in value if field.is_repeated else [value]:
            yield field.name, _value(field, each)


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        name: str = field.enum_type.values_by_number[value].name
        return name
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _message(message: DescriptorProto, newer: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from _inner(_body(message, newer))
    yield "}"


def _body(message: DescriptorProto, newer: bool) -> Iterator[str]:
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    yield from (f"option {name} = {value};" for name, value in _options(message.options))
    yield from _reserved(message, message.reserved_range, "max", 1)
    members: dict[int, list[FieldDescriptorProto]] = {}
    for field in message.field:
        if _is_in_oneof(field):
            members.setdefault(field.oneof_index, []).append(field)
    for field in message.field:
        if not _is_in_oneof(field):
            yield from _field(field, newer, maps)
        elif field.oneof_index in members:
            yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
            for member in members.pop(field.oneof_index):
                yield from _inner(_field(member, newer, maps, labelled=False))
            yield "}"
    for ranges in message.extension_range:
        yield f"extensions {_range(ranges.start, ranges.end - 1, 'max')};"
    yield from _extensions(message.extension, newer)
    for enum in message.enum_type:
        yield from _enum(enum)
    groups = {field.type_name.rpartition(".")[2] for field in message.field if _is_group(field)}
    for nested in message.nested_type:
        if nested.name not in maps and nested.name not in groups:
            yield from _message(nested, newer)


def _is_in_oneof(field: FieldDescriptorProto) -> bool:
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _is_group(field: FieldDescriptorProto) -> bool:
    return bool(field.type == FieldDescriptorProto.TYPE_GROUP)


def _field(
    field: FieldDescriptorProto, newer: bool, maps: dict[str, DescriptorProto], *, labelled: bool = True
) -> Iterator[str]:
    if _is_group(field):
        raise ValueError(f"{field.name}: groups are not supported")
    details = [f"{name} = {value}" for name, value in _options(field.options)]
    if field.HasField("default_value"):
        is_text = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
        default = json.dumps(field.default_value, ensure_ascii=False) if is_text else field.default_value
        details.insert(0, f"default = {default}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        details.append(f"json_name = {json.dumps(field.json_name, ensure_ascii=False)}")
    shown = f" [{', '.join(details)}]" if details else ""
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.label == FieldDescriptorProto.LABEL_REPEATED else None
    if entry is not None:
        kind = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
    else:
        label = _label(field, newer) if labelled else ""
        kind = f"{label} {_type(field)}".strip()
    yield f"{kind} {field.name} = {field.number}{shown};"


def _label(field: FieldDescriptorProto, newer: bool) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return "required"
    return "optional" if field.proto3_optional or not newer else ""


def _type(field: FieldDescriptorProto) -> str:
    return str(field.type_name or _SCALARS[field.type])


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _reserved(of: Any, ranges: Any, last: str, beyond: int) -> Iterator[str]:
    if ranges:
        yield f"reserved {', '.join(_range(each.start, each.end - beyond, last) for each in ranges)};"
    if of.reserved_name:
        yield f"reserved {', '.join(json.dumps(name) for name in of.reserved_name)};"


def _range(start: int, end: int, last: str) -> str:
    if start == end:
        return str(start)
    return f"{start} to {last if end in (_MAX_NUMBER, (1 << 31) - 1) else end}"


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from _inner(f"option {name} = {value};" for name, value in _options(enum.options))
    yield from _inner(_reserved(enum, enum.reserved_range, "max", 0))
    for each in enum.value:
        details = [f"{name} = {value}" for name, value in _options(each.options)]
        shown = f" [{', '.join(details)}]" if details else ""
        yield f"{_INDENT}{each.name} = {each.number}{shown};"
    yield "}"


def _extensions(fields: Iterable[FieldDescriptorProto], newer: bool) -> Iterator[str]:
    for field in fields:
        yield f"extend {field.extendee} {{"
        yield from _inner(_field(field, newer, {}))
        yield "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        sent = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        answered = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        yield f"{_INDENT}rpc {method.name} ({sent}) returns ({answered});"
    yield "}"
