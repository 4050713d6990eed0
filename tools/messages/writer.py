"""Renders the function that writes one struct."""

from __future__ import annotations

from tools.messages.functions import StructFunction, indented
from tools.messages.schema import FIXED, Field, element_of, snake


class WriterFunction(StructFunction):
    """Writes `_write_…(out, struct, version)`. This function appends to `out`."""

    def write(self) -> None:
        owner, out = self.owner, self.module.lines
        lines: list[str] = []
        for item in owner.struct.fields:
            if item.ignorable:
                continue
            absent = self.absent_condition(item)
            if absent is not None:
                test = self.differs(item, "s")
                self.module.use("not_in_version")
                lines += [f"if {absent}{test}:", f'    raise not_in_version("{item.name}", version)']
        for condition, items in self.runs():
            body = self.write_run(items)
            lines += indented(body, condition)
        if self.flexible:
            lines += self.write_tagged_fields()
        kind = "ChunkBuffer" if owner.has_records else "bytearray"
        if owner.has_records:
            self.module.use("ChunkBuffer")
        out.append(f"def _write_{snake(owner.name)}{self.suffix}(out: {kind}, s: {owner.name}, version: int) -> None:")
        out += ["    " + line for line in lines or ["pass"]]
        out += ["", ""]

    def absent_condition(self, item: Field) -> str | None:
        """Return the condition for versions of this span that lack the field; None if all versions have it."""
        covered = item.versions & self.span
        if not covered:
            return ""
        condition = self.condition(covered)
        return f"not ({condition}) and " if condition else None

    def write_run(self, items: list[Field]) -> list[str]:
        if items[0].type in FIXED:
            formats = "".join(FIXED[item.type] for item in items)
            values = ", ".join(f"s.{item.name}" for item in items)
            return [f"out += {self.module.pack(formats)}({values})"]
        return self.write_one(items[0], f"s.{items[0].name}", "out")

    def write_one(self, item: Field, value: str, out: str) -> list[str]:
        if item.is_array:
            return self.write_array(item, value, out)
        nullable, condition = self.nullable(item)
        always = bool(nullable) and not condition
        if item.struct is not None:
            writer = f"_write_{snake(self.owner.class_name(item.struct))}{self.suffix}"
            if not nullable:
                return [f"{writer}({out}, {value} or {self.owner.class_name(item.struct)}(), version)"]
            null = "\\x00" if self.may_be_null_in_tag(item) else "\\xff"
            test = [
                f"if {value} is None:",
                f'    {out} += b"{null}"',
                "else:",
                f'    {out} += b"\\x01"',
                f"    {writer}({out}, {value}, version)",
            ]
            if always:
                return test
            plain = f"{writer}({out}, {value} or {self.owner.class_name(item.struct)}(), version)"
            return [f"if {condition}:", *("    " + line for line in test), "else:", "    " + plain]
        if item.type in FIXED:
            return [f"{out} += {self.module.pack(FIXED[item.type])}({value})"]
        compact = "compact_" if self.flexible and not item.plain_string else ""
        if item.type == "records":
            write = f"{self.module.use(f'write_{compact}records')}({out}, {value})"
            return [write] if nullable else [*self.refuse_null(item.name, value), write]
        if not nullable:
            return [f"{self.module.use(f'write_{compact}{item.type}')}({out}, {value}){self.ignore(item)}"]
        with_null = self.module.use(f"write_{compact}nullable_{item.type}")
        if always:
            return [f"{with_null}({out}, {value})"]
        without = self.module.use(f"write_{compact}{item.type}")
        return [
            f"if {condition}:",
            f"    {with_null}({out}, {value})",
            "else:",
            f"    {without}({out}, {value})  # type: ignore[arg-type]",
        ]

    def ignore(self, item: Field) -> str:
        # A field may be nullable in other versions only: the writer then raises for null, as it should.
        return "  # type: ignore[arg-type]" if item.nullable else ""

    def write_array(self, item: Field, value: str, out: str) -> list[str]:
        compact = "compact_" if self.flexible else ""
        length = self.module.use(f"write_{compact}array_length")
        nullable, condition = self.nullable(item)
        element = item.element
        single = f"{item.name}_item"
        if element in FIXED and element not in ("uuid", "bool"):
            self.module.use("pack")
            body = [f'{out} += pack(f">{{len({value})}}{FIXED[element]}", *{value})']
        else:
            one = element_of(item)
            if item.struct is not None:
                writer = f"_write_{snake(self.owner.class_name(item.struct))}{self.suffix}"
                body = [f"for {single} in {value}:", f"    {writer}({out}, {single}, version)"]
            else:
                body = [f"for {single} in {value}:", *("    " + line for line in self.write_one(one, single, out))]
        body = [f"{length}({out}, len({value}))", *body]
        if not nullable:
            if item.nullable:
                self.module.use("null_not_allowed")
                return [f"if {value} is None:", f'    raise null_not_allowed("{item.name}")', *body]
            return body
        null = [f"{length}({out}, -1)"]
        if condition:
            self.module.use("null_not_allowed")
            null = [f"if not ({condition}):", f'    raise null_not_allowed("{item.name}")', *null]
        return [f"if {value} is None:", *("    " + line for line in null), "else:", *("    " + line for line in body)]

    def write_tagged_fields(self) -> list[str]:
        if not self.tagged:
            return ["out.append(0)"]
        self.module.use("write_tagged")
        lines = ["tagged: list[tuple[int, bytes | bytearray]] = []"]
        for item in self.tagged:
            test = self.differs(item, "s")
            condition = self.condition(item.versions & item.tagged)
            lines.append(f"if {condition + ' and ' if condition else ''}{test}:")
            lines.append("    field = bytearray()")
            lines += ["    " + line for line in self.write_one(item, f"s.{item.name}", "field")]
            lines.append(f"    tagged.append(({item.tag}, field))")
        return [*lines, "if tagged:", "    write_tagged(out, tagged)", "else:", "    out.append(0)"]
