"""Hypothesis strategies for messages, from `schemas.json`: what each version can carry, and nothing else."""

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

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
    """One line of `schemas.json`: a message class, its versions and the fields of its structs."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name: str = raw["message"]
        self.api_key: int = raw["api_key"]
        self.versions = range(raw["versions"][0], raw["versions"][1] + 1)
        self.module = importlib.import_module(f"klamm.wire.messages.{raw['module']}")
        self.message_class = vars(self.module)[self.name]
        self._classes = raw["classes"]

    def __repr__(self) -> str:
        return self.name

    @cache  # noqa: B019 - lives as long as the tests
    def values(self, version: int) -> st.SearchStrategy[Any]:
        """Instances whose every field that `version` can carry is drawn."""
        return self._struct(self.name, version)

    def _struct(self, name: str, version: int) -> st.SearchStrategy[Any]:
        drawn = {
            field: self._field(kind, version, nullable[0] <= version <= nullable[1])
            for field, kind, (first, last), nullable in self._classes[name]
            if first <= version <= last
        }
        return st.builds(vars(self.module)[name], **drawn)

    def _field(self, kind: str, version: int, nullable: bool) -> st.SearchStrategy[Any]:
        if kind.startswith("[]"):
            values: st.SearchStrategy[Any] = st.lists(self._field(kind[2:], version, False), max_size=3)
        else:
            values = _PLAIN[kind] if kind in _PLAIN else self._struct(kind, version)
        return st.none() | values if nullable else values


DESCRIBED = [Described(raw) for raw in json.loads((Path(__file__).parent / "schemas.json").read_text())]
