"""Hypothesis strategies for messages: they follow the descriptions, and draw only values that a version can carry."""

import importlib
from functools import cache
from typing import Any

from hypothesis import strategies as st

from klamm.wire.api_keys import load
from tools.messages.descriptions import committed
from tools.messages.schema import Field, Schema, Struct, Versions, snake

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in _INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40),
}


class Described:
    """A message class, its versions and the fields of its structs."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.name = schema.name
        self.api_key = schema.api_key
        self.versions = range(schema.versions.low, schema.versions.high + 1)
        self.module = (
            importlib.import_module(f"klamm.wire.messages.{snake(schema.name)}")
            if schema.api_key < 0
            else load(schema.api_key)
        )
        self.message_class = vars(self.module)[self.name]

    def __repr__(self) -> str:
        return self.name

    @cache  # noqa: B019 - lives as long as the tests
    def values(self, version: int) -> st.SearchStrategy[Any]:
        """Draw instances in which every field that `version` can carry is set."""
        return self._struct(self.schema.root, version)

    def class_of(self, struct: Struct) -> Any:
        """Return the class of a struct. If request and response share the struct's name, each class has a prefix."""
        prefix = "Response" if self.schema.is_response else "Request"
        return vars(self.module).get(prefix + struct.name) or vars(self.module)[struct.name]

    def _struct(self, struct: Struct, version: int) -> st.SearchStrategy[Any]:
        here = Versions(version, version)
        drawn = {
            field.name: self._field(field, field.type, version, bool(field.nullable & here))
            for field in struct.fields
            if field.versions & here
        }
        return st.builds(self.class_of(struct), **drawn)

    def _field(self, field: Field, kind: str, version: int, nullable: bool) -> st.SearchStrategy[Any]:
        if kind.startswith("[]"):
            values: st.SearchStrategy[Any] = st.lists(self._field(field, kind[2:], version, False), max_size=3)
        else:
            values = _PLAIN[kind] if field.struct is None else self._struct(field.struct, version)
        return st.none() | values if nullable else values


DESCRIBED = [Described(Schema(raw)) for raw in committed().values()]
