"""A short way for the shape that nearly all messages of a kind have: few steps, all in one function.

`HOT_SHAPES` names the messages, and for each its arrays that have exactly one element. All other arrays are empty, what
may be null is null, tagged fields have their defaults, strings have at most 126 bytes and records less than 2 MiB. Only
flexible versions have a short way. It gives the same as the general functions, which do every other shape and find what
is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tools.messages.functions import StructFunction, indented
from tools.messages.schema import FIXED, WIDTHS, Field, Versions
from tools.messages.struct_class import StructWriter

HOT_SHAPES: Final = {
    "ProduceRequest": frozenset({"topic_data", "partition_data"}),
    "ProduceResponse": frozenset({"responses", "partition_responses"}),
}


@dataclass(frozen=True)
class Part:
    """A stretch of bytes: a constant byte, or the value of a field of the struct that `of` names."""

    kind: str
    value: int = 0
    of: str = ""
    name: str = ""
    format: str = "B"


@dataclass
class Layout:
    """What lies where in one version; `unusual` are the tests that something is not of the hot shape."""

    parts: list[Part] = field(default_factory=list)
    unusual: list[str] = field(default_factory=list)
    arrays: list[tuple[str, str]] = field(default_factory=list)

    def constant(self, value: int) -> None:
        self.parts.append(Part("constant", value))


class HotShape:
    """The hot shape of one message: a layout for each version."""

    def __init__(self, owner: StructWriter) -> None:
        self.owner, self.module = owner, owner.module
        self.single = HOT_SHAPES[owner.schema.name]
        versions = owner.schema.versions & owner.schema.flexible
        self.layouts = [(version, self._layout(version)) for version in range(versions.low, versions.high + 1)]

    def spans(self) -> Iterator[tuple[str, int, Layout]]:
        """A condition, one of its versions and the layout, for each span of versions with the same one."""
        for _, group in groupby(self.layouts, key=lambda pair: pair[1]):
            versions = [version for version, _ in group]
            low, high = versions[0], versions[-1]
            yield f"version == {low}" if low == high else f"{low} <= version <= {high}", low, self.layouts_of(low)

    def layouts_of(self, version: int) -> Layout:
        return dict(self.layouts)[version]

    def _layout(self, version: int) -> Layout:
        layout = Layout()
        self._add_struct(layout, self.owner, version, "self")
        return layout

    def function(self, owner: StructWriter, version: int) -> StructFunction:
        return StructFunction(owner, "_compact", Versions(version, version))

    def inner(self, item: Field) -> StructWriter:
        assert item.struct is not None
        return StructWriter(self.module, self.owner.schema, item.struct, root=False)

    def _add_struct(self, layout: Layout, owner: StructWriter, version: int, variable: str) -> None:
        function = self.function(owner, version)
        for item in owner.struct.fields:
            carried = item in function.plain
            # What a version cannot carry is an error if it is set, unless it may be left out.
            if item in function.tagged or (not carried and not item.ignorable):
                layout.unusual.append(function.differs(item, variable))
        for item in function.plain:
            self._add_field(layout, item, version, variable)
        layout.constant(0)

    def _add_field(self, layout: Layout, item: Field, version: int, variable: str) -> None:
        here = Versions(version, version)
        value = f"{variable}.{item.name}"
        if item.is_array and item.name in self.single:
            layout.constant(2)
            layout.arrays.append((f"{item.name}_item", value))
            self._add_struct(layout, self.inner(item), version, f"{item.name}_item")
        elif item.is_array:
            layout.constant(1)
            layout.unusual.append(f"{value} != []")
        elif item.type == "records":
            layout.parts.append(Part("records", 0, variable, item.name))
        elif item.nullable & here and item.type == "string":
            layout.constant(0)
            layout.unusual.append(f"{value} is not None")
        elif item.type in FIXED:
            layout.parts.append(Part("fixed", 0, variable, item.name, FIXED[item.type]))
        elif item.type == "string" and not item.plain_string:
            layout.parts.append(Part("string", 0, variable, item.name))
        else:
            raise ValueError(f"{self.owner.name}.{item.name}: the short way has no {item.type}")


class HotReader:
    """Reads parts one stretch after the other: a stretch ends with the size of a string or of records."""

    def __init__(self, shape: HotShape, version: int, layout: Layout) -> None:
        self.shape, self.version, self.module = shape, version, shape.module
        self.parts = list(layout.parts)
        self.at = "offset"
        self.lines: list[str] = []
        self.usual: list[str] = []
        self.values: dict[tuple[str, str], str] = {}

    def write(self) -> list[str]:
        while self.parts:
            if all(part.kind == "constant" for part in self.parts):
                self._read_end()
            else:
                self._read_stretch()
        made = self._construct(self.shape.owner, "self")
        return [*self.lines, f"if {' and '.join(self.usual)}:", f"    return {made}"]

    def _read_end(self) -> None:
        rest = "".join(f"\\x{part.value:02x}" for part in self.parts)
        self.usual.append(f'view[{self.at}:] == b"{rest}"')
        self.parts.clear()

    def _read_stretch(self) -> None:
        targets, formats, width = [], "", 0
        while self.parts:
            part = self.parts.pop(0)
            name = f"{part.name}_size" if part.kind == "string" else part.name
            if part.kind == "constant":
                name = f"_c{len(self.usual)}"
                self.usual.append(f"{name} == {part.value}" if part.value else f"not {name}")
            if part.kind == "records":
                targets += [f"_{name}_1", f"_{name}_2", f"_{name}_3"]
                formats += "BBB"
            else:
                targets.append(name)
                formats += part.format
            if part.kind in ("string", "records"):
                break
            width += WIDTHS[part.format]
            if part.kind == "fixed":
                self.values[part.of, part.name] = name
        self.lines.append(f"{', '.join(targets)} = {self.module.unpack(formats)}(buffer, {self.at})")
        if part.kind == "string":
            self._read_string(part, width)
        elif part.kind == "records":
            self._read_records(part, width)
        else:
            self.at = f"{self.at} + {width}"

    def _read_string(self, part: Part, size_at: int) -> None:
        name = part.name
        self.lines += [f"{name}_at = {self.at} + {size_at + 1}", f"{name}_end = {name}_at + {name}_size - 1"]
        self.usual.append(f"0 < {name}_size < 0x80")
        self.values[part.of, name] = f'str(view[{name}_at:{name}_end], "utf-8")'
        self.at = f"{name}_end"

    def _read_records(self, part: Part, size_at: int) -> None:
        name = part.name
        first, second, third = (f"_{name}_{number}" for number in (1, 2, 3))
        self.lines += [
            f"if {first} < 0x80:",
            f"    {name}_at = {self.at} + {size_at + 1}",
            f"    {name}_end = {name}_at + {first} - 1",
            f"elif {second} < 0x80:",
            f"    {name}_at = {self.at} + {size_at + 2}",
            f"    {name}_end = {name}_at + ({first} & 0x7F | {second} << 7) - 1",
            f"elif {third} < 0x80:",
            f"    {name}_at = {self.at} + {size_at + 3}",
            f"    {name}_end = {name}_at + ({first} & 0x7F | ({second} & 0x7F) << 7 | {third} << 14) - 1",
            "else:",
            f"    {name}_at, {name}_end = 1, 0",
        ]
        self.usual.append(f"{name}_end >= {name}_at")
        self.values[part.of, name] = f"view[{name}_at:{name}_end]"
        self.at = f"{name}_end"

    def _construct(self, owner: StructWriter, variable: str) -> str:
        values = []
        for item in owner.struct.fields:
            default = owner.default(item)
            if item.name in self.shape.single:
                values.append(f"[{self._construct(self.shape.inner(item), f'{item.name}_item')}]")
            elif (variable, item.name) in self.values:
                values.append(self.values[variable, item.name])
            else:
                values.append("None" if item.nullable else "[]" if default == "EMPTY" else default)
        return f"{owner.name}({', '.join(values)})"


class HotWriter:
    """Writes parts one stretch after the other: a stretch ends with the size of a string."""

    def __init__(self, shape: HotShape, layout: Layout) -> None:
        self.module, self.layout = shape.module, layout
        self.lines: list[str] = []
        self.pieces: list[str] = []

    def write(self) -> list[str]:
        stretch: list[Part] = []
        for part in self.layout.parts:
            if part.kind == "string":
                self._write_string(stretch, part)
                stretch = []
            else:
                stretch.append(part)
        self.pieces.append(self._packed(stretch))
        lines = [*self.lines, f"return {' + '.join(self.pieces)}"]
        return indented(lines, f"not ({' or '.join(self.layout.unusual)})" if self.layout.unusual else "")

    def _packed(self, stretch: list[Part]) -> str:
        formats = "".join(part.format for part in stretch)
        values = (str(part.value) if part.kind == "constant" else f"{part.of}.{part.name}" for part in stretch)
        return f"{self.module.pack(formats)}({', '.join(values)})"

    def _write_string(self, before: list[Part], part: Part) -> None:
        if any(each.kind != "constant" for each in before):
            raise ValueError(f"{part.name}: the short way has no string behind other values")
        values = ", ".join(str(each.value) for each in before)
        heads = "_HEADS_" + "_".join(str(each.value) for each in before)
        self.module.constants[heads] = f"{heads} = tuple(bytes(({values}, length + 1)) for length in range(127))"
        self.lines.append(f"{part.name} = {part.of}.{part.name}.encode()")
        self.pieces.append(f"{heads}[len({part.name})] + {part.name}")


def hot_reader(owner: StructWriter) -> list[str]:
    """The beginning of `decode`: a return where the short way is one. Empty if the message has none."""
    if owner.schema.name not in HOT_SHAPES:
        return []
    shape = HotShape(owner)
    lines: list[str] = []
    for condition, version, layout in shape.spans():
        branch = indented(HotReader(shape, version, layout).write(), condition)
        lines += [f"el{branch[0]}", *branch[1:]] if lines else branch
    lines = ["try:", *("    " + line for line in lines), "except DECODE_ERRORS:", "    pass"]
    return ["view: Any = memoryview(buffer)", *lines]


def hot_writer(owner: StructWriter) -> list[str]:
    """The beginning of `encode`, as `hot_reader`."""
    if owner.schema.name not in HOT_SHAPES or not owner.schema.is_response:
        return []
    shape = HotShape(owner)
    lines: list[str] = []
    arrays = [layout.arrays for _, layout in shape.layouts]
    assert all(each == arrays[0] for each in arrays)
    for condition, _, layout in shape.spans():
        branch = indented(HotWriter(shape, layout).write(), condition)
        lines += [f"el{branch[0]}", *branch[1:]] if lines else branch
    lines = [*(f"({item},) = {array}" for item, array in arrays[0]), *lines]
    first = shape.layouts[0][0]
    whole = indented(["try:", *("    " + line for line in lines)], f"version >= {first}")
    errors = owner.module.use("HOT_ENCODE_ERRORS")
    return [*whole, f"    except {errors}:", "        pass"]
