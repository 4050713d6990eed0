"""`StructFunction`: the fields of a struct and their conditions, shared by the reader and the writer of the struct."""

from __future__ import annotations

from tools.messages.schema import FIXED, Field, Versions
from tools.messages.struct_class import StructWriter


class StructFunction:
    """The base of the reader and of the writer of one struct. Both are for one span of versions, flexible or not."""

    def __init__(self, owner: StructWriter, suffix: str, span: Versions) -> None:
        self.owner, self.suffix, self.span = owner, suffix, span
        self.module = owner.module
        self.flexible = suffix == "_compact"
        self.present = [item for item in owner.struct.fields if item.versions & span]
        self.tagged = sorted((i for i in self.present if self.is_tagged(i)), key=lambda item: item.tag)
        self.plain = [item for item in self.present if item not in self.tagged]

    def is_tagged(self, item: Field) -> bool:
        return self.flexible and bool(item.tagged & self.span)

    def condition(self, versions: Versions) -> str:
        low, high = versions.low > self.span.low, versions.high < self.span.high
        if low and high:
            if versions.low == versions.high:
                return f"version == {versions.low}"
            return f"{versions.low} <= version <= {versions.high}"
        return f"version >= {versions.low}" if low else f"version <= {versions.high}" if high else ""

    def nullable(self, item: Field) -> tuple[Versions, str]:
        """Return the versions in which a field may be null, and the test for them; no test if it may always be null."""
        covered = item.versions & self.span
        nullable = item.nullable & covered
        return nullable, "" if nullable == covered else self.condition(nullable)

    def runs(self) -> list[tuple[str, list[Field]]]:
        """Return the untagged fields in order. Adjacent fields of fixed width with the same condition are together."""
        runs: list[tuple[str, list[Field]]] = []
        for item in self.plain:
            condition = self.condition(item.versions)
            if runs and item.type in FIXED and runs[-1][1][-1].type in FIXED and runs[-1][0] == condition:
                runs[-1][1].append(item)
            else:
                runs.append((condition, [item]))
        return runs

    def differs(self, item: Field, struct: str) -> str:
        """Return the test that a field's value is not its default."""
        value = f"{struct}.{item.name}"
        default = self.owner.default(item)
        if default == "EMPTY":
            return value if not item.nullable else f"({value} is None or {value})"
        if default == "None":
            set_to = f"{value} is not None"
            if item.struct is not None and item.default != "null":
                differs = f"{value} != {self.owner.class_name(item.struct)}()"
                return f"({value} is None or {differs})" if self.may_be_null_in_tag(item) else f"{set_to} and {differs}"
            return set_to
        if default == 'b""' or default == '""':
            return value if not item.nullable else f"{value} != {default}"
        if default == "False":
            return value
        if default == "True":
            return f"not {value}"
        return f"{value} != {default}"

    def may_be_null_in_tag(self, item: Field) -> bool:
        """Return True for a tagged struct that may be null. Its default is not null, and its mark differs from other
        structs'.
        """
        return item.struct is not None and not item.is_array and bool(item.tagged & item.nullable)

    def refuse_null(self, name: str, value: str) -> list[str]:
        self.module.use("null_not_allowed")
        return [f"if {value} is None:", f'    raise null_not_allowed("{name}")']


def indented(lines: list[str], condition: str = "") -> list[str]:
    """Return the lines below `if condition:`. Without a condition, return them as they are."""
    return [f"if {condition}:", *("    " + line for line in lines)] if condition else lines
