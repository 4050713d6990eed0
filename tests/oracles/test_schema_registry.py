"""Compares Avro in the Schema Registry with Avro's own Java library, which Confluent's registry uses."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from klamm_schema_registry.avro.schema import parse
from klamm_schema_registry.formats import Steps

pyspark = pytest.importorskip("pyspark", reason="its jars have Avro")

pytestmark = pytest.mark.spark

PAIRS = 400
PRIMITIVES = ["int", "long", "float", "double", "string", "bytes", "null", "boolean"]
NESTING = ["record", "array", "map", "union"]
MAX_DEPTH = 3


class Schemas:
    """Random schemas. Each name is defined once, and may be used afterwards."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self) -> Any:
        return self._type(0, set())

    def _type(self, depth: int, names: set[str]) -> Any:
        pick = self.random.choice
        kind = pick([*PRIMITIVES, "enum", "fixed", *(NESTING * 2 if depth < MAX_DEPTH else [])])
        if kind == "array":
            return {"type": kind, "items": self._type(depth + 1, names)}
        if kind == "map":
            return {"type": kind, "values": self._type(depth + 1, names)}
        if kind == "union":
            branches = [self._type(depth + 1, names) for _ in range(self.random.randint(1, 3))]
            return list(
                {
                    str(each.get("name", each["type"]) if isinstance(each, dict) else each): each
                    for each in branches
                    if not isinstance(each, list)
                }.values()
            )
        if kind in PRIMITIVES:
            return kind if self.random.random() < 0.8 else {"type": kind, "own": 1}
        name = f"{pick('RST')}{depth}{kind[0]}"
        if name in names:
            return name
        names.add(name)
        return self._named(kind, name, depth, names)

    def _named(self, kind: str, name: str, depth: int, names: set[str]) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "doc": "d", "type": kind}
        if self.random.random() < 0.2:
            made["aliases"] = [f"{self.random.choice('RST')}{depth}{kind[0]}"]
        if kind == "fixed":
            made["size"] = self.random.choice([4, 8])
        elif kind == "enum":
            made["symbols"] = self.random.sample(["x", "y", "z"], self.random.randint(1, 3))
            if self.random.random() < 0.3:
                made["default"] = made["symbols"][0]
        else:
            made["fields"] = [self._field(each, depth, names) for each in self.random.sample("abcd", 2)]
        return made

    def _field(self, name: str, depth: int, names: set[str]) -> dict[str, Any]:
        made = {"name": name, "type": self._type(depth + 1, names)}
        if self.random.random() < 0.4:
            made["default"] = None
        if self.random.random() < 0.1:
            made["aliases"] = [self.random.choice("abcd")]
        return made

    def changed(self, schema: Any) -> Any:
        """Return another schema, which is similar to this one."""
        found = json.loads(json.dumps(schema))
        self._change(found)
        return found

    def _change(self, found: Any) -> None:
        for each in found if isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                continue
            if "symbols" in each:
                each["symbols"] = self.random.sample(["x", "y", "z"], self.random.randint(1, 3))
                each.pop("default", None)
            for key in ("items", "values", "type"):
                if isinstance(each.get(key), dict | list):
                    self._change(each[key])
            fields = each.get("fields", [])
            if fields and self.random.random() < 0.3:
                fields.pop()
            for one in fields:
                if isinstance(one["type"], str) and self.random.random() < 0.3:
                    one["type"] = self.random.choice(PRIMITIVES)
            self._change(fields)


def schema_pairs() -> list[tuple[str, str]]:
    pairs = []
    for seed in range(PAIRS):
        made = Schemas(seed)
        first = made.schema()
        second = made.changed(first) if seed % 4 else made.schema()
        pairs.append((json.dumps(first), json.dumps(second)))
    return pairs


def mine(reader: str, writer: str) -> list[str]:
    """Return klamm's result for a pair, in the form of the Java program's lines."""
    parsed = []
    for text in (reader, writer):
        try:
            parsed.append(parse(text, {}))
        except ValueError:
            parsed.append(None)
    found = [] if None in parsed else parsed[0].unreadable(parsed[1], Steps())
    return [*(each.canonical() if each else "null" for each in parsed), ";".join(map(_short, found))]


def _short(problem: str) -> str:
    parts = re.search(r"errorType:'(\w+)'.*path '([^']*)'.*additionalInfo:'(.*)'\}", problem)
    return "|".join(parts.groups()) if parts else "refused"


def test_texts_and_compatibility_are_the_same_as_in_java():
    jars = Path(pyspark.__file__).with_name("jars")
    needed = [*jars.glob("avro-1.*.jar"), *jars.glob("jackson-*2*.jar"), *jars.glob("slf4j-api*.jar")]
    program = Path(__file__).with_name("java") / "AvroOracle.java"
    pairs = schema_pairs()
    run = subprocess.run(
        ["java", "-cp", ":".join(map(str, needed)), str(program)],
        input="".join(f"{reader}\t{writer}\n" for reader, writer in pairs),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    theirs = [line.split("\t") for line in run.stdout.splitlines()]
    assert len(theirs) == PAIRS
    differences = [(pair, java, mine(*pair)) for pair, java in zip(pairs, theirs, strict=True) if java != mine(*pair)]
    assert differences == []
    assert 20 < sum(not found for _, _, found in theirs) < PAIRS - 20
