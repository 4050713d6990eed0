"""Renders the class of one struct. For a whole message, it also registers the functions that read and write it."""

from __future__ import annotations

from typing import Final

from tools.messages.module import Module
from tools.messages.schema import PYTHON, Field, Schema, Struct, Versions, has_records, snake

NAMED_BY: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "transactional_id", "user", "key")
"""Fields that name the subject of a struct's errors. The first one that a struct has counts."""


class StructWriter:
    """Writes the class of one struct."""

    def __init__(self, module: Module, schema: Schema, struct: Struct, root: bool) -> None:
        self.module, self.schema, self.struct, self.root = module, schema, struct, root
        self.name = self.class_name(struct)
        self.has_records = has_records(struct)

    def class_name(self, struct: Struct) -> str:
        return self.module.rename.get(self.schema.name, {}).get(struct.name, struct.name)

    # ---- types and defaults

    def python_type(self, item: Field) -> str:
        if item.struct is not None:
            element = self.class_name(item.struct)
        elif item.element in PYTHON:
            element = PYTHON[item.element]
        else:
            element = "int"
        if item.is_array:
            return f"list[{element}]" + (" | None" if item.nullable else "")
        return element + (" | None" if (item.nullable or item.struct is not None) and element != "Any" else "")

    def default(self, item: Field) -> str:
        text = item.default
        if text == "null" or (item.struct is not None and not item.is_array):
            return "None"
        if item.is_array:
            return self.module.use("EMPTY")
        if item.type == "bool":
            return "True" if str(text).lower() == "true" else "False"
        if item.type == "string":
            return repr(text or "").replace("'", '"')
        if item.type == "uuid":
            return self.module.use("ZERO_UUID")
        if item.type in ("bytes", "records"):
            return 'b""'
        if item.type == "float64":
            return repr(float(text or 0))
        return str(int(str(text or 0), 0))

    def write_class(self) -> None:
        out = self.module.lines
        fields = self.struct.fields
        covers = f"{self.struct.versions.low}-{min(self.struct.versions.high, self.schema.versions.high)}"
        base = "WireStruct" if not self.root else "RecordsMessage" if self.has_records else "WireMessage"
        out.append(f"class {self.name}({self.module.base(base)}):")
        out.append(f'    """Versions {covers}."""' if self.root else f'    """Part of {self.schema.name}."""')
        slots = ", ".join(f'"{item.name}"' for item in fields)
        out.append(f"    __slots__ = ({slots}{',' if len(fields) == 1 else ''})")
        if self.root and self.schema.api_key >= 0 and not self.schema.is_record:
            out.append(f"    API_KEY: ClassVar[int] = {self.schema.api_key}")
        errors = self.error_fields() if self.schema.is_response else None
        if errors:
            out.append(f"    ERRORS: ClassVar[ErrorFields] = {errors}")
        if fields:
            out.append("    def __init__(")
            out.append("        self,")
            for item in fields:
                note = self.version_note(item)
                out.append(f"        {item.name}: {self.python_type(item)} = {self.default(item)},{note}")
            out.append("    ) -> None:")
            for item in fields:
                if self.default(item) == "EMPTY":
                    out.append(f"        self.{item.name} = [] if {item.name} is EMPTY else {item.name}")
                else:
                    out.append(f"        self.{item.name} = {item.name}")
        out.append("")

    def version_note(self, item: Field) -> str:
        low, high = item.versions.low, item.versions.high
        span = self.schema.versions
        if low <= span.low and high >= span.high:
            return ""
        return f"  # v{low}+" if high >= span.high else f"  # v{low}-{high}" if low != high else f"  # v{low}"

    def error_fields(self) -> str | None:
        """Return the declaration of a class's error codes, or None without error codes."""
        fields = self.struct.fields
        names = {item.name for item in fields}
        codes = tuple(item.name for item in fields if is_error(item))
        lists = [item for item in fields if item.is_array and item.struct is not None and has_errors(item.struct)]
        if not codes and not lists:
            return None
        inside = "".join(f'("{item.name}", {self.class_name(item.struct)}.ERRORS), ' for item in lists if item.struct)
        name = next((name for name in NAMED_BY if name in names), None)
        words = "".join(f'"{code}", ' for code in codes)
        named = f'"{name}"' if name else "None"
        return f"{self.module.base('ErrorFields')}(({words}), ({inside}), {named}, {'topic_id' in names})"

    def write_codecs(self) -> None:
        """Write the calls that tell the class of a whole message its functions for each range of versions."""
        name = snake(self.name)
        for suffix, span in self.variants():
            functions = f"_read_{name}{suffix}, _write_{name}{suffix}"
            self.module.lines.append(f"{self.name}.add_codec(range({span.low}, {span.high + 1}), {functions})")

    def variants(self) -> list[tuple[str, Versions]]:
        """Return the suffixes of functions and their versions. From the first flexible version on, the suffix is
        `_compact`.
        """
        span, flexible = self.struct.versions & self.schema.versions, self.schema.flexible
        low = span & Versions(0, flexible.low - 1) if flexible else span
        high = span & flexible
        return [pair for pair in (("", low), ("_compact", high)) if pair[1]]


def has_errors(struct: Struct) -> bool:
    """Return True if a struct has error codes itself, or in its lists."""
    return any(
        is_error(item) or (item.is_array and item.struct is not None and has_errors(item.struct))
        for item in struct.fields
    )


def is_error(item: Field) -> bool:
    """Return True if the field reports a failure. If a topic's configs are not shown, the topic was created anyway."""
    return item.name.endswith("error_code") and item.name != "topic_config_error_code"
