"""Sequences of random requests, made from the descriptions of Kafka's messages: valid, borderline and invalid ones.

A seed determines a sequence. A value that only a server knows, e.g. the id of a member, is a `Ref` in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, NamedTuple

from klamm.wire.api_keys import SPECS
from tests.interop.beside_kafka import random_values
from tests.interop.beside_kafka.random_streams import HEARTBEAT, heartbeat
from tests.interop.beside_kafka.random_values import FAMILIES, Chooser, Made
from tools.messages.descriptions import committed
from tools.messages.schema import Field, Schema, Struct

_MODULES: Final = {spec.name: spec.module for spec in SPECS}
_TOPIC_FIELDS: Final = frozenset({"topic_id", "topic_name", "topic"})

_FROM: Final = {"Metadata": 4, "ApiVersions": 3}
"""The first versions to send. Older ones create the topics that they name after their answer, or list all APIs."""


class Step(NamedTuple):
    """A request, and the name of the connection that carries it."""

    api: str
    version: int
    made: Made
    chooser: Chooser


@dataclass
class Generator:
    """Makes the steps of one family of APIs."""

    family: str
    rng: random.Random
    versions: dict[str, range]
    schemas: dict[str, Schema] = field(default_factory=dict)

    def steps(self, count: int) -> list[Step]:
        family = FAMILIES[self.family]
        apis = {name: weight for name, weight in family.apis.items() if name in self.versions}
        names = self.rng.choices(list(apis), list(apis.values()), k=count)
        return [self._step(name) for name in names]

    def _step(self, name: str) -> Step:
        served = self.versions[name]
        version = self._version(served[served.index(_FROM.get(name, served[0])) :])
        schema = self.schemas.setdefault(name, Schema(committed()[f"{name}Request"]))
        module = import_module(f"klamm.wire.messages.{_MODULES[name]}")
        chooser = Chooser(self.rng, FAMILIES[self.family], name, version)
        made = self._struct(schema.root, module, chooser)
        return Step(name, version, heartbeat(made, chooser) if name == HEARTBEAT else made, chooser)

    def _version(self, served: range) -> int:
        return served[-1] if self.rng.random() < 0.5 else self.rng.choice(served)

    def _struct(self, struct: Struct, module: Any, chooser: Chooser) -> Made:
        version = chooser.version
        fields = {each.name: each for each in struct.fields if each.versions.low <= version <= each.versions.high}
        if _TOPIC_FIELDS & set(fields) or ("name" in fields and len(fields) > 1):
            chooser = replace(chooser, topic=chooser.any_topic())
        if "transactional_id" in fields:
            chooser = replace(chooser, producer=chooser.any_producer())
        values = {name: self._value(each, module, chooser) for name, each in fields.items()}
        kind = getattr(module, struct.name, None) or getattr(module, f"Request{struct.name}")
        return Made(kind, random_values.fitted(values))

    def _value(self, item: Field, module: Any, chooser: Chooser) -> Any:
        nullable = item.nullable.low <= chooser.version <= item.nullable.high
        if item.is_array:
            if nullable and chooser.rng.random() < (0.25 if item.default == "null" else 0.05):
                return None
            return self._elements(item, module, chooser)
        if item.struct is not None:
            return None if nullable and chooser.rng.random() < 0.5 else self._struct(item.struct, module, chooser)
        found = random_values.pool(chooser.api, item.name)
        if found is None:
            return _plain(item, nullable, chooser)
        value = found(chooser)
        return "" if value is None and not nullable and item.type == "string" else value

    def _elements(self, item: Field, module: Any, chooser: Chooser) -> list[Any]:
        fewest = 1 if chooser.api == "Produce" else 0
        count = chooser.rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, fewest))
        if item.struct is not None:
            return random_values.unlike(chooser, [self._struct(item.struct, module, chooser) for _ in range(count)])
        found = random_values.pool(chooser.api, item.name)
        return random_values.unlike(chooser, [found(chooser) if found else _default(item) for _ in range(count)])


def _plain(item: Field, nullable: bool, chooser: Chooser) -> Any:
    if item.type == "bool":
        return chooser.rng.random() < 0.3
    if item.type.startswith("int") and chooser.rng.random() < 0.1:
        return chooser.rng.choice((-1, 0, 1, -2, 5))
    return _default(item) if not (nullable and item.default is None) else None


def _default(item: Field) -> Any:
    if item.type in ("string", "bytes", "records"):
        return None if item.default == "null" else ("" if item.type == "string" else b"")
    if item.type == "uuid":
        return bytes(16)
    if item.type == "bool":
        return item.default in (True, "true")
    if item.type == "float64":
        return 0.0
    return int(str(item.default or 0), 0)
