"""`decoded`: a value in Avro's binary encoding, as JSON values.

Data and schemas come from any producer, and the server decodes them itself. Therefore the number of steps is limited:
each value takes one, because an array of nulls may have any length and no bytes. The depth is limited too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import error as StructError
from struct import unpack_from
from typing import Any, Final

_DEPTH: Final = 64
_NAME: Final = 1_000


class Steps:
    """The number of steps that are left for all values of a page."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int = 1) -> None:
        """Take steps. Raises ValueError if fewer are left."""
        if self._left < count:
            raise ValueError("the values of this page have too many parts")
        self._left -= count


def names_of(schema: Any) -> dict[str, Any]:
    """Return the named types of a schema by their full names. Raises ValueError for an invalid schema."""
    names: dict[str, Any] = {}
    try:
        _collect(schema, "", names)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the schema is not a valid Avro schema") from error
    return names


def decoded(schema: Any, names: Mapping[str, Any], data: bytes, steps: Steps) -> Any:
    """Return the value of data that was written with a schema. `names` is the result of `names_of`. Raises
    ValueError.
    """
    reader = _Reader(data, names, steps)
    try:
        value = reader.value(schema, "", 0)
    except (AttributeError, IndexError, KeyError, TypeError, StructError) as error:
        raise ValueError("the data does not match its schema") from error
    if reader.at != len(data):
        raise ValueError("the data is longer than its schema says")
    return value


def _collect(schema: Any, namespace: str, names: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _collect(each, namespace, names)
    elif isinstance(schema, dict):
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            names[_full_name(schema, namespace)] = schema
            inner = _inner(schema, namespace)
            for field in schema.get("fields", ()):
                _collect(field["type"], inner, names)
        elif kind in ("array", "map"):
            _collect(schema["items" if kind == "array" else "values"], namespace, names)
        else:
            _collect(kind, namespace, names)


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    own = str(schema.get("namespace", namespace) or "")
    if len(name) + len(own) >= _NAME:
        raise ValueError("the schema has a name that is too long")
    return name if "." in name or not own else f"{own}.{name}"


def _inner(schema: Mapping[str, Any], namespace: str) -> str:
    return _full_name(schema, namespace).rpartition(".")[0]


class _Reader:
    def __init__(self, data: bytes, names: Mapping[str, Any], steps: Steps) -> None:
        self.at = 0
        self._data = data
        self._names = names
        self._steps = steps
        self._simple: Mapping[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: self._take(1) != b"\0",
            "int": self._long,
            "long": self._long,
            "float": lambda: unpack_from("<f", self._take(4))[0],
            "double": lambda: unpack_from("<d", self._take(8))[0],
            "bytes": lambda: self._take(self._long()).hex(" "),
            "string": lambda: self._take(self._long()).decode(),
        }

    def value(self, schema: Any, namespace: str, depth: int) -> Any:
        self._steps.take()
        if depth > _DEPTH:
            raise ValueError("the value is nested too deeply")
        if isinstance(schema, list):
            branch = self._long()
            if branch < 0:
                raise IndexError(branch)
            return self.value(schema[branch], namespace, depth + 1)
        if isinstance(schema, str):
            simple = self._simple.get(schema)
            return simple() if simple is not None else self._named(schema, namespace, depth)
        kind = schema["type"]
        if kind in ("record", "error"):
            inner = _inner(schema, namespace)
            return {field["name"]: self.value(field["type"], inner, depth + 1) for field in schema["fields"]}
        if kind == "enum":
            index = self._long()
            if index < 0:
                raise IndexError(index)
            return schema["symbols"][index]
        if kind == "fixed":
            return self._take(schema["size"]).hex(" ")
        if kind == "array":
            return self._blocks(lambda: self.value(schema["items"], namespace, depth + 1))
        if kind == "map":
            pairs = self._blocks(lambda: (self._simple["string"](), self.value(schema["values"], namespace, depth + 1)))
            return dict(pairs)
        return self.value(kind, namespace, depth + 1)

    def _named(self, name: str, namespace: str, depth: int) -> Any:
        full = f"{namespace}.{name}"
        if "." in name or full not in self._names:
            full = name
        outer = full.rpartition(".")[0]
        return self.value(self._names[full], outer, depth + 1)

    def _blocks(self, item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        while count := self._long():
            self._steps.take()
            if count < 0:
                # The size of the block in bytes follows.
                self._long()
            for _ in range(abs(count)):
                items.append(item())  # noqa: PERF401
        return items

    def _long(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise ValueError("the data ends too early")
        self.at += size
        return self._data[self.at - size : self.at]
