"""Messages with generated values, made from Kafka's own descriptions: every field that a version can carry is set."""

from __future__ import annotations

import random
import string
from typing import Any

from klamm.wire.api_keys import load
from tools.messages.schema import Field, Schema, Struct, Versions

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXT = string.ascii_letters + "äß日本🎉 .-_"


class Samples:
    """Draws instances of one message's classes. `empty` is the chance of null, empty and default values."""

    def __init__(self, schema: Schema, module: Any, rng: random.Random, empty: float) -> None:
        self.schema, self.module, self.rng, self.empty = schema, module, rng, empty

    def draw(self, version: int) -> Any:
        return self._struct(self.schema.root, version)

    def _class(self, struct: Struct) -> Any:
        prefix = "Request" if self.schema.name.endswith("Request") else "Response"
        return vars(self.module).get(prefix + struct.name) or vars(self.module)[struct.name]

    def _struct(self, struct: Struct, version: int) -> Any:
        made = self._class(struct)()
        here = Versions(version, version)
        for field in struct.fields:
            if not field.versions & here:
                continue
            if self.rng.random() >= self.empty:
                setattr(made, field.name, self._value(field, version))
            elif field.nullable & here and self.rng.random() < 0.5:
                setattr(made, field.name, None)
            elif getattr(made, field.name) is None and not field.nullable & here and field.struct is None:
                setattr(made, field.name, self._value(field, version))
        return made

    def _value(self, field: Field, version: int) -> Any:
        if field.is_array:
            return [self._element(field, version) for _ in range(self.rng.choice([0, 1, 2, 3]))]
        return self._element(field, version)

    def _element(self, field: Field, version: int) -> Any:
        rng, kind = self.rng, field.element
        if field.struct is not None:
            return self._struct(field.struct, version)
        if kind in INTEGERS:
            low, high = INTEGERS[kind]
            return rng.choice([low, high, 0, 1, rng.randint(low, high)])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.choice([0.0, -1.5, 1e300, rng.random()])
        if kind == "string":
            return "".join(rng.choices(TEXT, k=rng.choice([0, 1, 5, 40])))
        if kind == "uuid":
            return rng.randbytes(16)
        return rng.randbytes(rng.choice([0, 1, 100, 300]))


def samples(raws: dict[str, dict[str, Any]], seed: int) -> list[tuple[str, int, int, Any]]:
    """(`request` or `response`, API key, version, message) for each API and version, a full and a sparse one each."""
    rng = random.Random(seed)
    found = []
    for name, raw in sorted(raws.items()):
        if raw.get("type") not in ("request", "response"):
            continue
        schema = Schema(raw)
        for version in range(schema.versions.low, schema.versions.high + 1):
            for empty in (0.0, 0.4):
                made = Samples(schema, load(schema.api_key), rng, empty).draw(version)
                found.append((raw["type"], schema.api_key, version, made))
        assert name == schema.name
    return found
