"""`unreadable`: compares schemas of Protocol Buffers by the rules of Confluent's registry.

Fields with the same number count as the same field. Their names are not compared. Fields may be
added and removed, but for required fields and for those of a oneof.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from klamm_schema_registry.formats import Steps

Difference: TypeAlias = tuple[str, tuple[str, ...]]

_KINDS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
_MESSAGES: Final = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema does not match the"
    " package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema does not"
    " match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {reader} schema"
    " does not match its kind in the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {reader} schema"
    " does not match its type in the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {reader} schema"
    " does not match its label in the {writer} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema is missing"
    " in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' in"
    " the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {reader} schema"
    " are outside a oneof in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {reader} schema is"
    " outside an existing oneof in the {writer} schema",
}


class Types:
    """The types of a schema and of its imports, by their full names with a dot in front."""

    def __init__(self, file: FileDescriptorProto, imported: list[FileDescriptorProto]) -> None:
        self.file = file
        self.messages: dict[str, DescriptorProto] = {}
        self.local_names: dict[str, tuple[str, ...]] = {}
        self.newer: dict[str, bool] = {}
        for each in (*imported, file):
            start = f".{each.package}" if each.package else ""
            self._add(each.message_type, start, (), each.syntax == "proto3")

    def _add(self, messages: Iterable[DescriptorProto], start: str, outer: tuple[str, ...], newer: bool) -> None:
        for message in messages:
            local = (*outer, message.name)
            name = f"{start}.{'.'.join(local)}"
            self.messages[name] = message
            self.local_names[name] = local
            self.newer[name] = newer
            self._add(message.nested_type, start, local, newer)


def unreadable(reader: Types, writer: Types, steps: Steps) -> list[str]:
    """Return the reasons why the reader's schema cannot read data of the writer's schema; an empty list if it can."""
    found = dict.fromkeys(_Comparison(writer, reader, steps).of_files())
    # Clients choose the length of message names, and each path contains them.
    steps.take_characters(sum(len(name) for _, path in found for name in path))
    return [_message(kind, path) for kind, path in found]


def _message(kind: str, path: tuple[str, ...]) -> str:
    text = _MESSAGES[kind].replace("{path}", "#/" + "/".join(path))
    return f'{{errorType:"{kind}", description:"{text}"}}'


class _Comparison:
    """The comparison of an original schema with its update.

    Messages are compared in pairs of an old and a new name. A message may contain itself: while a pair is compared, the
    same pair inside it counts as compatible.
    """

    def __init__(self, original: Types, update: Types, steps: Steps) -> None:
        self._original = original
        self._update = update
        self._steps = steps
        self._known: dict[tuple[str, str], list[Difference]] = {}

    def of_files(self) -> list[Difference]:
        old, new = self._original.file, self._update.file
        found: list[Difference] = [] if old.package == new.package else [("PACKAGE_CHANGED", ())]
        starts = (f".{old.package}" if old.package else "", f".{new.package}" if new.package else "")
        return found + self._nested(old.message_type, new.message_type, starts, ())

    def _nested(
        self,
        old: Iterable[DescriptorProto],
        new: Iterable[DescriptorProto],
        starts: tuple[str, str],
        path: tuple[str, ...],
    ) -> list[Difference]:
        found: list[Difference] = []
        names = {each.name for each in new}
        self._steps.take_elements(len(names))
        for each in old:
            self._steps.take()
            if each.options.map_entry:
                continue
            if each.name in names:
                found += self._messages(f"{starts[0]}.{each.name}", f"{starts[1]}.{each.name}", (*path, each.name))
            else:
                found.append(("MESSAGE_REMOVED", (*path, each.name)))
        return found

    def _messages(self, old_name: str, new_name: str, path: tuple[str, ...]) -> list[Difference]:
        self._steps.take()
        pair = (old_name, new_name)
        if pair not in self._known:
            self._known[pair] = []
            old, new = self._original.messages[old_name], self._update.messages[new_name]
            found = _moved_into_oneofs(old, new, path) + self._fields(old, new, pair, path)
            found += self._nested(old.nested_type, new.nested_type, pair, path)
            self._known[pair] = found
        # The caller copies these differences, so they count as steps: if each message of a chain names the next one
        # twice, their number doubles at each level.
        self._steps.take(len(self._known[pair]))
        return self._known[pair]

    def _fields(
        self, old: DescriptorProto, new: DescriptorProto, pair: tuple[str, str], path: tuple[str, ...]
    ) -> list[Difference]:
        found: list[Difference] = []
        old_fields, new_fields = _by_number(old), _by_number(new)
        gone = _gone_oneofs(old, new)
        for number in sorted({*old_fields, *new_fields}):
            self._steps.take()
            before, after = old_fields.get(number), new_fields.get(number)
            if after is None and before is not None:
                found += _removed(old, before, gone, path)
            elif before is None and after is not None:
                if after.label == FieldDescriptorProto.LABEL_REQUIRED:
                    found.append(("REQUIRED_FIELD_ADDED", (*path, str(number))))
            elif before is not None and after is not None:
                oneof = _oneof(new, after)
                at = (*path, *((oneof,) if oneof else ()), str(number))
                labels = (
                    _label(old, before, self._original.newer[pair[0]]),
                    _label(new, after, self._update.newer[pair[1]]),
                )
                found += self._types(before, after, labels, at)
        return found

    def _types(
        self,
        before: FieldDescriptorProto,
        after: FieldDescriptorProto,
        labels: tuple[str, str],
        at: tuple[str, ...],
    ) -> list[Difference]:
        old_map, new_map = self._map(self._original, before), self._map(self._update, after)
        if old_map is not None and new_map is not None:
            pairs = zip(old_map.field, new_map.field, strict=True)
            return [one for old, new in pairs for one in self._types(old, new, ("", ""), at)]
        old_kind, new_kind = _kind(before), _kind(after)
        if (old_map is None) != (new_map is None) or (old_kind == "message") != (new_kind == "message"):
            return [("FIELD_KIND_CHANGED", at)]
        if old_kind == "message":
            return self._named(before.type_name, after.type_name, at)
        if old_kind != new_kind:
            return [("FIELD_SCALAR_KIND_CHANGED", at)]
        if all(labels) and labels[0] != labels[1] and old_kind != "text":
            return [("FIELD_NUMERIC_LABEL_CHANGED", at)]
        return []

    def _named(self, old: str, new: str, at: tuple[str, ...]) -> list[Difference]:
        local = self._original.local_names[old]
        if local != self._update.local_names[new]:
            return [("FIELD_NAMED_TYPE_CHANGED", at)]
        found = self._messages(old, new, local)
        return [*found, ("FIELD_NAMED_TYPE_CHANGED", at)] if found else []

    def _map(self, types: Types, field: FieldDescriptorProto) -> DescriptorProto | None:
        found = types.messages.get(field.type_name)
        return found if found is not None and found.options.map_entry else None


def _kind(field: FieldDescriptorProto) -> str:
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return _KINDS.get(name, "message")


def _label(message: DescriptorProto, field: FieldDescriptorProto, newer: bool) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if _oneof(message, field) or (newer and not field.proto3_optional):
        return ""
    return "required" if field.label == FieldDescriptorProto.LABEL_REQUIRED else "optional"


def _by_number(message: DescriptorProto) -> dict[int, FieldDescriptorProto]:
    return {field.number: field for field in message.field}


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Return the name of the oneof that contains a field; empty if there is none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.oneof_decl[field.oneof_index].name)


def _oneofs(message: DescriptorProto) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for field in message.field:
        name = _oneof(message, field)
        if name:
            found.setdefault(name, []).append(field.number)
    return found


def _gone_oneofs(old: DescriptorProto, new: DescriptorProto) -> set[str]:
    """Return the oneofs of `old` whose name and fields are all missing in `new`."""
    left, names = _by_number(new), _oneofs(new)
    return {name for name, numbers in _oneofs(old).items() if name not in names and not left.keys() & set(numbers)}


def _removed(
    old: DescriptorProto, field: FieldDescriptorProto, gone: set[str], path: tuple[str, ...]
) -> list[Difference]:
    oneof = _oneof(old, field)
    if oneof:
        return [] if oneof in gone else [("ONEOF_FIELD_REMOVED", (*path, oneof, str(field.number)))]
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return [("REQUIRED_FIELD_REMOVED", (*path, str(field.number)))]
    return []


def _moved_into_oneofs(old: DescriptorProto, new: DescriptorProto, path: tuple[str, ...]) -> list[Difference]:
    """Return a difference for each oneof whose fields were in several places before.

    Old data may contain several of these fields, but a oneof keeps only one.
    """
    fields = _by_number(old)
    found: list[Difference] = []
    for name, numbers in _oneofs(new).items():
        known = [(number, _oneof(old, fields[number])) for number in numbers if number in fields]
        single = [number for number, oneof in known if not oneof]
        if len({oneof for _, oneof in known if oneof}) + len(single) > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(single) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            found.append((kind, (*path, name)))
    return found
