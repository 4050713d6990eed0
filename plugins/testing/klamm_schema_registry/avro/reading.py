"""`unreadable`: finds out if data of one Avro schema can be read with another, by the rules of schema resolution.

The order, the paths and the words of the problems are those of `SchemaCompatibility` in Avro's Java library and of
Confluent's registry.
"""

from __future__ import annotations

from typing import Final

from klamm_schema_registry.avro.types import NO_DEFAULT, PRIMITIVE, AvroField, AvroType
from klamm_schema_registry.formats import Steps

_PROMOTED: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def unreadable(reader: AvroType, writer: AvroType, steps: Steps) -> list[str]:
    """Return the reasons why the reader's schema cannot read data of the writer's schema; an empty list if it can."""
    try:
        return _Comparison(steps).of(reader, writer, ())
    except _AmbiguousError as error:
        return [f"Unexpected exception during compatibility check: {error}"]


class _AmbiguousError(Exception):
    """Raised if a field of the reader, with its aliases, matches several fields of the writer."""


class _Comparison:
    """The comparison of pairs of types.

    A type may contain itself, e.g. a list. Such an inner pair counts as compatible while it is compared.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[tuple[int, int], list[str]] = {}

    def of(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
        self._steps.take()
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []
            found = self._compared(reader, writer, path)
            # Clients choose the length of names, and the problems contain them.
            self._steps.take_characters(sum(map(len, found)))
            self._known[pair] = found
        # The caller copies these problems, and a chain of types doubles them at each level.
        self._steps.take(len(self._known[pair]))
        return self._known[pair]

    def _compared(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
        if reader.kind != writer.kind:
            return self._of_kinds(reader, writer, path)
        if reader.kind in PRIMITIVE:
            return []
        if reader.kind == "union":
            return [
                _lacks(branch, (*path, str(index)))
                for index, branch in enumerate(writer.types)
                if self.of(reader, branch, ())
            ]
        if reader.kind == "array":
            return self.of(reader.types[0], writer.types[0], (*path, "items"))
        if reader.kind == "map":
            return self.of(reader.types[0], writer.types[0], (*path, "values"))
        self._steps.take_elements(_size(reader) + _size(writer))
        found = _names(reader, writer, path)
        if reader.kind == "fixed":
            return found + _sizes(reader, writer, path)
        if reader.kind == "enum":
            return found + _symbols(reader, writer, path)
        return found + self._fields(reader, writer, path)

    def _of_kinds(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
        if writer.kind == "union":
            found = (self.of(reader, branch, (*path, str(index))) for index, branch in enumerate(writer.types))
            return [problem for each in found for problem in each]
        if reader.kind == "union":
            if any(not self.of(branch, writer, ()) for branch in reader.types):
                return []
            return [_lacks(writer, path)]
        if writer.kind in _PROMOTED.get(reader.kind, ()):
            return []
        info = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
        text = (
            f"The type (path '{_shown(path)}') of a field in the {{reader}} schema does not match with the {{writer}}"
        )
        return [_problem("TYPE_MISMATCH", f"{text} schema", info)]

    def _fields(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
        written = {one.name: one for one in writer.fields}
        found: list[str] = []
        for index, one in enumerate(reader.fields):
            at = (*path, "fields", str(index))
            names = [name for name in (one.name, *one.aliases) if name in written]
            if len(names) > 1:
                text = f"Reader record field {one.name} matches multiple fields in writer record schema {writer.name}"
                raise _AmbiguousError(text)
            if names:
                found += self.of(one.type, written[names[0]].type, (*at, "type"))
            elif one.default is NO_DEFAULT:
                self._steps.take()
                found += self._without_default(one, writer, at)
        return found

    def _without_default(self, one: AvroField, writer: AvroType, at: tuple[str, ...]) -> list[str]:
        # As in Java, the default of an enum type does not count as a default of the field.
        if one.type.kind == "enum" and one.type.default is not None:
            return self.of(one.type, writer, (*at, "type"))
        text = f"The field '{one.name}' at path '{_shown(at)}' in the {{reader}} schema has no default value and is"
        text = f"{text} missing in the {{writer}} schema"
        return [_problem("READER_FIELD_MISSING_DEFAULT_VALUE", text, one.name)]


def _size(each: AvroType) -> int:
    return len(each.symbols) + len(each.aliases) + sum(1 + len(one.aliases) for one in each.fields)


def _lacks(writer: AvroType, path: tuple[str, ...]) -> str:
    text = f"The {{reader}} schema is missing a type inside a union field at path '{_shown(path)}'"
    text = f"{text} in the {{writer}} schema"
    return _problem("MISSING_UNION_BRANCH", text, f"reader union lacking writer type: {writer.kind.upper()}")


def _names(reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    text = f"The name of the schema has changed (path '{_shown((*path, 'name'))}')"
    return [_problem("NAME_MISMATCH", text, f"expected: {writer.name}")]


def _sizes(reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
    if reader.size == writer.size:
        return []
    text = f"The size of FIXED type field at path '{_shown((*path, 'size'))}' in the {{reader}} schema does not match"
    info = f"expected: {writer.size}, found: {reader.size}"
    return [_problem("FIXED_SIZE_MISMATCH", f"{text} with the {{writer}} schema", info)]


def _symbols(reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[str]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    info = f"[{', '.join(missing)}]"
    at = _shown((*path, "symbols"))
    text = f"The {{reader}} schema is missing enum symbols '{info}' at path '{at}' in the {{writer}} schema"
    return [_problem("MISSING_ENUM_SYMBOLS", text, info)]


def _problem(kind: str, text: str, info: str) -> str:
    return f"{{errorType:'{kind}', description:'{text}', additionalInfo:'{info}'}}"


def _shown(path: tuple[str, ...]) -> str:
    return "/" + "/".join(path)
