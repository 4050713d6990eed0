"""The types of an Avro schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NO_DEFAULT: Final = object()


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record. `attributes` has the attributes that the specification does not define."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. `name` and `aliases` are full names.

    `types` are the branches of a union, the items of an array or the values of a map.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    types: list[AvroType] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def space(self) -> str:
        """The namespace of the type's name."""
        return self.name.rpartition(".")[0]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]
