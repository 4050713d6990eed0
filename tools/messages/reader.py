"""Renders the function that reads one struct."""

from __future__ import annotations

from tools.messages.functions import StructFunction, indented
from tools.messages.schema import FIXED, WIDTHS, Field, element_of, snake


class ReaderFunction(StructFunction):
    """Writes `_read_…(buffer, position, version)`. This function returns the struct and the position after it."""

    def write(self) -> None:
        owner, out = self.owner, self.module.lines
        lines: list[str] = []
        for item in owner.struct.fields:
            if item not in self.plain or self.condition(item.versions):
                default = owner.default(item)
                value = "[]" if default == "EMPTY" else default
                if self.may_be_null_in_tag(item) and item.struct is not None and item.default != "null":
                    value = f"{owner.class_name(item.struct)}()"
                lines.append(f"{item.name}: {owner.python_type(item)} = {value}")
        for condition, items in self.runs():
            body = self.read_run(items)
            lines += indented(body, condition)
        if self.flexible:
            lines += self.read_tagged()
        name = f"_read_{snake(owner.name)}{self.suffix}"
        out.append(f"def {name}(b: ReadBuffer, p: int, version: int) -> tuple[{owner.name}, int]:")
        arguments = ", ".join(item.name for item in owner.struct.fields)
        out += ["    " + line for line in lines]
        out += [f"    return {owner.name}({arguments}), p", "", ""]

    def read_run(self, items: list[Field]) -> list[str]:
        if items[0].type in FIXED:
            formats = "".join(FIXED[item.type] for item in items)
            size = sum(WIDTHS[FIXED[item.type]] for item in items)
            names = ", ".join(item.name for item in items)
            target = f"({names},)" if len(items) == 1 else names
            return [f"{target} = {self.module.unpack(formats)}(b, p)", f"p += {size}"]
        return self.read_one(items[0])

    def read_one(self, item: Field) -> list[str]:
        if item.is_array:
            return self.read_array(item)
        nullable, condition = self.nullable(item)
        always = bool(nullable) and not condition
        if item.struct is not None:
            reader = f"_read_{snake(self.owner.class_name(item.struct))}{self.suffix}(b, p, version)"
            plain = [f"{item.name}, p = {reader}"]
            if not nullable:
                return plain
            test = [
                "_present = b[p]",
                "p += 1",
                "if _present:" if self.may_be_null_in_tag(item) else "if _present < 0x80:",
                "    " + plain[0],
                "else:",
                f"    {item.name} = None",
            ]
            return test if always else [f"if {condition}:", *("    " + t for t in test), "else:", "    " + plain[0]]
        if item.type in FIXED:
            return self.read_run([item])
        compact = "compact_" if self.flexible and not item.plain_string else ""
        if item.type == "records":
            read = f"{item.name}, p = {self.module.use(f'read_{compact}data')}(b, p)"
            return [read] if nullable else [read, *self.refuse_null(item.name, item.name)]
        with_null = self.module.use(f"read_{compact}nullable_{item.type}") if nullable else ""
        without = "" if always else self.module.use(f"read_{compact}{item.type}")
        if always:
            return [f"{item.name}, p = {with_null}(b, p)"]
        if not nullable:
            return [f"{item.name}, p = {without}(b, p)"]
        return [f"{item.name}, p = ({with_null} if {condition} else {without})(b, p)"]

    def read_array(self, item: Field) -> list[str]:
        compact = "compact_" if self.flexible else ""
        lines = [f"_n, p = {self.module.use(f'read_{compact}array_length')}(b, p)"]
        nullable, condition = self.nullable(item)
        name = item.name
        if not nullable:
            self.module.use("null_not_allowed")
            lines += ["if _n < 0:", f'    raise null_not_allowed("{name}")']
        elif condition:
            self.module.use("null_not_allowed")
            lines += [f"if _n < 0 and not ({condition}):", f'    raise null_not_allowed("{name}")']
        body: list[str]
        element = item.element
        single = f"{name}_item"
        if element in FIXED and element != "uuid" and element != "bool":
            width = WIDTHS[FIXED[element]]
            self.module.use("unpack_from")
            body = [f'{name} = list(unpack_from(f">{{_n}}{FIXED[element]}", b, p))', f"p += {width} * _n"]
        else:
            read = self.read_one(element_of(item))
            body = [
                f"{name} = []",
                "for _ in range(_n):",
                *("    " + line for line in read),
                f"    {name}.append({single})",
            ]
        if not nullable:
            return lines + body
        return [*lines, "if _n < 0:", f"    {name} = None", "else:", *("    " + line for line in body)]

    def read_tagged(self) -> list[str]:
        if not self.tagged:
            self.module.use("skip_tagged_fields")
            return ["if b[p]:", "    p = skip_tagged_fields(b, p)", "else:", "    p += 1"]
        varint = self.module.use("read_unsigned_varint")
        self.module.use("skip")
        self.module.use("tag_size_differs")
        lines = [
            "if b[p]:",
            f"    _count, p = {self.module.use('read_tag_count')}(b, p)",
            "    for _ in range(_count):",
            f"        _tag, p = {varint}(b, p)",
            f"        _size, p = {varint}(b, p)",
            "        _end = skip(b, p, _size)",
        ]
        word = "if"
        for item in self.tagged:
            condition = self.condition(item.versions & item.tagged)
            lines.append(f"        {word} _tag == {item.tag}" + (f" and {condition}:" if condition else ":"))
            lines += ["            " + line for line in self.read_one(item)]
            word = "elif"
        return [
            *lines,
            "        else:",
            "            p = _end",
            "        if p != _end:",
            "            raise tag_size_differs(_tag, _size)",
            "else:",
            "    p += 1",
        ]
