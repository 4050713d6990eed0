"""`requests`: requests to a Schema Registry that is empty at first. The answers depend only on the order of the
requests.

`python -m tests.registry_requests URL` writes the answers of a registry in the form in which they are compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from tests.registry_client import Rest

RECORDED = Path(__file__).with_name("registry_answers.json")

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
TYPES = ("AVRO", "JSON", "PROTOBUF")
STRING = '"string"'


class Asked(NamedTuple):
    """A request. The body is the text that is sent; None if there is none."""

    method: str
    path: str
    body: str | None = None


def requests() -> Iterator[Asked]:
    """Yield the requests. Each part comes after the parts on which it builds."""
    for part in (
        _empty,
        _reading,
        _refused_schemas,
        _compatibility,
        _references,
        _deletes,
        _settings,
        _modes,
        _imports,
        _names,
        _hostile,
        _numbers,
        _types,
        _last,
    ):
        yield from part()


def _get(*paths: str) -> Iterator[Asked]:
    for path in paths:
        yield Asked("GET", path)


def _put(path: str, **body: Any) -> Asked:
    return Asked("PUT", path, json.dumps(body))


def _post(path: str, schema: Any, schema_type: str = "AVRO", **more: Any) -> Asked:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    kind = {} if schema_type == "AVRO" else {"schemaType": schema_type}
    return Asked("POST", path, json.dumps({"schema": text, **kind, **more}))


def _register(subject: str, schema: Any, schema_type: str = "AVRO", query: str = "", **more: Any) -> Asked:
    return _post(f"/subjects/{quote(subject, safe='')}/versions{query}", schema, schema_type, **more)


def _delete(*paths: str) -> Iterator[Asked]:
    for path in paths:
        yield Asked("DELETE", path)


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    """Return an Avro record. A field is a name, a pair of name and type, or such a pair with a default."""
    found = []
    for each in fields:
        field_name, kind, *default = (each, "string") if isinstance(each, str) else each
        found.append({"name": field_name, "type": kind, **({"default": default[0]} if default else {})})
    return {"type": "record", "name": name, "fields": found, **more}


def _object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _proto(*fields: str, head: str = "", tail: str = "") -> str:
    return f'syntax = "proto3";\n{head}\nmessage Order {{\n  ' + "\n  ".join(fields) + f"\n}}\n{tail}"


def _empty() -> Iterator[Asked]:
    yield from _get("/", "/subjects", "/schemas", "/schemas/types", "/config", "/mode", "/contexts")
    yield from _get("/subjects/none/versions", "/subjects/none/versions/1", "/subjects/none/versions/latest")
    yield from _get("/schemas/ids/1", "/schemas/ids/1/schema", "/schemas/ids/1/subjects", "/schemas/ids/1/versions")
    yield from _get(
        "/config/none", "/mode/none", "/config/none?defaultToGlobal=true", "/mode/none?defaultToGlobal=true"
    )
    yield from _delete("/subjects/none", "/subjects/none/versions/1", "/subjects/none/versions/latest")
    yield from _delete("/config/none", "/mode/none", "/subjects/none?permanent=true")
    yield _post("/subjects/none", STRING)
    yield _post("/compatibility/subjects/none/versions/latest", STRING)
    yield _post("/compatibility/subjects/none/versions/1", STRING)
    yield _post("/compatibility/subjects/none/versions", STRING)


def _reading() -> Iterator[Asked]:
    first, second = record("id"), record("id", ("total", "double", 0.0))
    yield _register("orders", first)
    yield _register("orders", first)
    yield _register("orders", json.dumps(first, indent=2))
    yield _register("orders", second)
    yield _register("copies", first)
    yield _register("text", _object(id={"type": "string"}), "JSON")
    yield _register("binary", _proto("string id = 1;"), "PROTOBUF")
    yield from _get(
        "/subjects", "/subjects?subjectPrefix=or", "/subjects?subjectPrefix=x", "/subjects?offset=1&limit=2"
    )
    yield from _get("/subjects?limit=0", "/subjects?offset=9", "/subjects?limit=-1", "/subjects?deletedOnly=true")
    yield from _get(
        "/subjects/orders/versions", "/subjects/orders/versions?offset=1", "/subjects/orders/versions?limit=1"
    )
    for version in ("1", "2", "latest", "-1", "3", "0", "-2", "x", "1.5", "2147483647", "2147483648", "99999999999"):
        yield from _get(f"/subjects/orders/versions/{version}")
    yield from _get("/subjects/orders/versions/1/schema", "/subjects/orders/versions/latest/schema")
    yield from _get("/subjects/orders/versions/9/schema", "/subjects/none/versions/1/schema")
    yield from _get("/subjects/text/versions/1", "/subjects/text/versions/1/schema")
    yield from _get("/subjects/binary/versions/1", "/subjects/binary/versions/1/schema")
    yield from _get("/subjects/orders/versions/1/referencedby", "/subjects/orders/versions/9/referencedby")
    yield from _get(*(f"/schemas/ids/{each}" for each in (1, 2, 3, 4, 5, 0, -1, "x", 2147483648)))
    yield from _get(
        "/schemas/ids/1/schema", "/schemas/ids/4/schema", "/schemas/ids/1/subjects", "/schemas/ids/1/versions"
    )
    yield from _get("/schemas/ids/1?fetchMaxId=true", "/schemas/ids/1?subject=copies", "/schemas/ids/1?subject=none")
    yield from _get("/schemas/ids/1/versions?subject=copies", "/schemas/ids/1/subjects?subject=copies")
    yield from _get(
        "/schemas", "/schemas?latestOnly=true", "/schemas?subjectPrefix=orders", "/schemas?limit=1&offset=1"
    )
    yield _post("/subjects/orders", first)
    yield _post("/subjects/orders", json.dumps(second, indent=1))
    yield _post("/subjects/orders", record("other"))
    yield _post("/subjects/copies", second)
    yield _post("/subjects/text", _object(id={"type": "string"}), "JSON")
    yield _post("/subjects/text", _object(id={"type": "string"}))
    yield _post("/subjects/binary", _proto("string id = 1;"), "PROTOBUF")
    namespaced = record(("x", "int"), name="N", namespace="a.b", doc="d", zeta=1, alpha=2)
    reordered = {"alpha": 2, "zeta": 1, "type": "record", "doc": "d", "fields": namespaced["fields"], "name": "a.b.N"}
    yield _register("normal", namespaced, query="?normalize=true")
    yield _register("normal", reordered, query="?normalize=true")
    yield _register("normal", reordered)
    yield _post("/subjects/normal?normalize=true", reordered)
    yield from _get("/subjects/normal/versions", "/subjects/normal/versions/1")
    yield _register("normaljson", '{"type": "object", "b": 1, "a": 2}', "JSON", query="?normalize=true")
    yield _register("normaljson", '{"a": 2, "b": 1, "type": "object"}', "JSON", query="?normalize=true")
    yield from _get("/subjects/normaljson/versions/latest")


_INVALID_AVRO: tuple[Any, ...] = (
    "",
    " ",
    "nothing",
    '"nothing"',
    "{",
    "null",
    "1",
    "[]",
    "{}",
    {"type": "record"},
    {"type": "record", "name": "R"},
    {"type": "record", "name": "a-b", "fields": []},
    {"type": "record", "name": "R", "fields": [{"name": "x"}]},
    {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}]},
    {"type": "enum", "name": "E", "symbols": ["A", "A"]},
    {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"},
    {"type": "fixed", "name": "F", "size": -1},
    {"type": "fixed", "name": "F"},
    {"type": "array"},
    {"type": "map"},
    ["int", "int"],
    ["int", ["string"]],
    record(("x", "Unknown")),
    record(("x", "int", "text")),
    record(("x", ["null", "int"], 1)),
)
_INVALID_JSON: tuple[Any, ...] = ("", "{", "nothing", "[]", "1", {"type": "nothing"}, {"$ref": "other.json"})
_INVALID_PROTO = ("", "nothing", 'syntax = "proto4";', _proto("Missing id = 1;"))


def _refused_schemas() -> Iterator[Asked]:
    for each in _INVALID_AVRO:
        yield _register("refused", each)
    for each in _INVALID_JSON:
        yield _register("refusedjson", each, "JSON")
    for each in _INVALID_PROTO:
        yield _register("refusedproto", each, "PROTOBUF")
    yield _register("refused", STRING, "XML")
    yield _register("refused", STRING, "avro")
    yield _post("/subjects/orders", "nothing")
    yield _post("/compatibility/subjects/orders/versions/latest", "nothing")
    yield _post("/compatibility/subjects/orders/versions/latest?verbose=true", "nothing")


_CHANGES: dict[str, list[Any]] = {
    "AVRO": [
        record("id", ("total", "int", 0)),
        record("id", ("total", "int", 0), ("more", "string", "")),
        record("id", ("total", "int", 0), "more"),
        record("id"),
        record("id", ("total", "long", 0)),
        record("id", ("total", "string", "")),
        record("id", ("total", ["null", "int"], None)),
        record("id", ("total", "int", 0), name="Other"),
        record("id", ("total", "int", 0), ("kind", {"type": "enum", "name": "K", "symbols": ["A", "B"]}, "A")),
        record(),
        STRING,
    ],
    "JSON": [
        _object(id={"type": "string"}, total={"type": "integer"}),
        _object(["id"], id={"type": "string"}, total={"type": "integer"}),
        _object(id={"type": "string"}, total={"type": "number"}),
        _object(id={"type": "string"}),
        _object(id={"type": ["string", "null"]}, total={"type": "integer"}),
        {**_object(id={"type": "string"}, total={"type": "integer"}), "additionalProperties": False},
        _object(id={"type": "string", "maxLength": 5}, total={"type": "integer", "maximum": 9}),
        _object(id={"enum": ["a", "b"]}, total={"type": "integer"}),
        {"type": "string"},
    ],
    "PROTOBUF": [
        _proto("string id = 1;", "int32 total = 2;"),
        _proto("string id = 1;", "int32 total = 2;", "string more = 3;"),
        _proto("string id = 1;"),
        _proto("string id = 1;", "int64 total = 2;"),
        _proto("string id = 1;", "string total = 2;"),
        _proto("string id = 1;", "int32 sum = 2;"),
        _proto("string id = 1;", "repeated int32 total = 2;"),
        _proto("string id = 1;", "oneof one { int32 total = 2; string more = 3; }"),
        _proto("string id = 1;", "int32 total = 2;", tail="message Other { int32 x = 1; }"),
        'syntax = "proto3";\nmessage Other { string id = 1; }',
    ],
}


def _compatibility() -> Iterator[Asked]:
    for schema_type in TYPES:
        first, second, *_ = _CHANGES[schema_type]
        name = f"changes-{schema_type}"
        yield _put(f"/config/{name}", compatibility="NONE")
        yield _register(name, second, schema_type)
        yield _register(name, first, schema_type)
        for level in LEVELS:
            yield _put(f"/config/{name}", compatibility=level)
            for each in _CHANGES[schema_type]:
                yield _post(f"/compatibility/subjects/{name}/versions/latest?verbose=true", each, schema_type)
            yield _post(f"/compatibility/subjects/{name}/versions", _CHANGES[schema_type][3], schema_type)
            yield _post(f"/compatibility/subjects/{name}/versions?verbose=true", _CHANGES[schema_type][3], schema_type)
            yield _post(
                f"/compatibility/subjects/{name}/versions/1?verbose=true", _CHANGES[schema_type][2], schema_type
            )
        yield _put(f"/config/{name}", compatibility="FULL")
        for each in _CHANGES[schema_type]:
            yield _register(name, each, schema_type)
        yield from _get(f"/subjects/{name}/versions")
    yield _register("changes-AVRO", _CHANGES["JSON"][0], "JSON")
    yield _post("/compatibility/subjects/changes-AVRO/versions/latest?verbose=true", _CHANGES["JSON"][0], "JSON")
    yield _post("/compatibility/subjects/changes-AVRO/versions/99", record("id"))
    yield _post("/compatibility/subjects/changes-AVRO/versions/x", record("id"))


def _reference(name: str, subject: str, version: int = 1) -> list[dict[str, Any]]:
    return [{"name": name, "subject": subject, "version": version}]


def _references() -> Iterator[Asked]:
    yield _register("ref-avro", record("id", name="Ref", namespace="r"))
    both = record(("one", "r.Ref"), name="Both")
    yield _register("both-avro", both)
    yield _register("both-avro", both, references=_reference("r.Ref", "ref-avro"))
    yield _register("both-avro", both, references=_reference("r.Ref", "ref-avro"))
    yield _register("bad-avro", both, references=_reference("r.Ref", "none"))
    yield _register("bad-avro", both, references=_reference("r.Ref", "ref-avro", 9))
    yield _register("bad-avro", both, references=_reference("r.Other", "ref-avro"))
    yield _register("latest-avro", both, references=_reference("r.Ref", "ref-avro", -1))
    yield _register("ref-json", {"type": "string"}, "JSON")
    holder = _object(one={"$ref": "ref.json"})
    yield _register("both-json", holder, "JSON", references=_reference("ref.json", "ref-json"))
    yield _register("bad-json", holder, "JSON", references=_reference("other.json", "ref-json"))
    yield _register("ref-proto", _proto("string id = 1;", head="package r;"), "PROTOBUF")
    importing = 'syntax = "proto3";\nimport "ref.proto";\nmessage Both {\n  r.Order one = 1;\n}\n'
    yield _register("both-proto", importing, "PROTOBUF", references=_reference("ref.proto", "ref-proto"))
    yield _register("bad-proto", importing, "PROTOBUF")
    for kind in ("avro", "json", "proto"):
        yield from _get(f"/subjects/both-{kind}/versions/1", f"/subjects/ref-{kind}/versions/1/referencedby")
        yield from _delete(f"/subjects/ref-{kind}/versions/1", f"/subjects/ref-{kind}")
    yield from _get(
        "/subjects/both-avro/versions/1/schema?format=resolved", "/subjects/both-avro/versions/1?format=resolved"
    )
    yield _post("/subjects/both-avro", both, references=_reference("r.Ref", "ref-avro"))
    yield _post("/subjects/both-avro", both)
    yield from _delete("/subjects/both-avro/versions/1", "/subjects/ref-avro", "/subjects/ref-avro?permanent=true")
    yield from _get(
        "/subjects/ref-avro/versions/1/referencedby", "/subjects/ref-avro/versions/1/referencedby?deleted=true"
    )
    yield from _delete("/subjects/both-avro?permanent=true", "/subjects/ref-avro?permanent=true")


def _deletes() -> Iterator[Asked]:
    versions = [record("id"), record("id", ("b", "int", 0)), record("id", ("c", "int", 0))]
    for each in versions:
        yield _register("deletes", each)
    yield from _delete("/subjects/deletes/versions/2?permanent=true", "/subjects/deletes/versions/2")
    yield from _delete("/subjects/deletes/versions/2", "/subjects/deletes/versions/9", "/subjects/deletes/versions/x")
    for query in ("", "?deleted=true", "?deletedOnly=true"):
        yield from _get(f"/subjects/deletes/versions{query}", f"/subjects{query or '?subjectPrefix=d'}")
    yield from _get("/subjects/deletes/versions/2", "/subjects/deletes/versions/2?deleted=true")
    yield _post("/subjects/deletes", versions[1])
    yield _post("/subjects/deletes?deleted=true", versions[1])
    yield _register("deletes", versions[1])
    yield from _get("/subjects/deletes/versions", "/subjects/deletes/versions/latest")
    yield from _delete("/subjects/deletes/versions/latest", "/subjects/deletes/versions/latest")
    yield from _get("/subjects/deletes/versions", "/subjects/deletes/versions?deleted=true")
    yield from _delete("/subjects/deletes/versions/2?permanent=true", "/subjects/deletes?permanent=true")
    yield from _delete("/subjects/deletes", "/subjects/deletes")
    yield from _get(
        "/subjects/deletes/versions", "/subjects/deletes/versions?deleted=true", "/subjects/deletes/versions/1"
    )
    yield from _get(
        "/subjects/deletes/versions/latest?deleted=true", "/subjects?deleted=true", "/subjects?deletedOnly=true"
    )
    yield from _get("/schemas?subjectPrefix=deletes&deleted=true", "/schemas?subjectPrefix=deletes")
    yield from _get("/schemas/ids/1/subjects?deleted=true", "/schemas/ids/1/versions?deleted=true")
    yield _register("deletes", record("id", ("d", "int", 0)))
    yield from _get("/subjects/deletes/versions", "/subjects/deletes/versions/latest")
    yield from _delete("/subjects/deletes", "/subjects/deletes?permanent=true", "/subjects/deletes?permanent=true")
    yield from _get("/subjects/deletes/versions?deleted=true")
    yield _register("deletes", versions[0])
    yield _post("/compatibility/subjects/deletes/versions/latest", versions[2])


def _settings() -> Iterator[Asked]:
    for level in LEVELS:
        yield _put("/config", compatibility=level)
        yield from _get("/config")
    yield _put("/config", compatibility="backward")
    yield _put("/config", compatibility="SIDEWAYS")
    yield _put("/config", compatibility="")
    yield _put("/config")
    yield Asked("PUT", "/config", '{"compatibility": 1}')
    yield Asked("PUT", "/config", '{"compatibility": null}')
    yield _put("/config/orders", compatibility="FULL_TRANSITIVE")
    yield from _get("/config/orders", "/config/orders?defaultToGlobal=true", "/config/text?defaultToGlobal=true")
    yield _put("/config/orders", compatibility="SIDEWAYS")
    yield _put("/config/orders", normalize=True)
    yield from _get("/config/orders")
    yield from _delete("/config/orders", "/config/orders")
    yield from _get("/config/orders", "/config/orders?defaultToGlobal=true")
    yield _put("/config/absent", compatibility="NONE")
    yield from _get("/config/absent", "/subjects")
    yield from _delete("/config/absent", "/config")
    yield from _get("/config")


def _modes() -> Iterator[Asked]:
    for mode in ("READONLY", "READWRITE", "readonly", "nothing", ""):
        yield _put("/mode/orders", mode=mode)
        yield from _get("/mode/orders")
    yield _put("/mode/orders")
    yield _register("orders", record("id"))
    yield _register("orders", record("id", ("new", "int", 1)))
    yield from _delete("/subjects/orders/versions/1", "/subjects/orders")
    yield _put("/config/orders", compatibility="NONE")
    yield _post("/subjects/orders", record("id"))
    yield from _delete("/mode/orders", "/mode/orders")
    yield _put("/mode", mode="READONLY")
    yield from _get("/mode", "/mode/orders", "/mode/orders?defaultToGlobal=true")
    yield _register("readonly", record("id"))
    yield _put("/config", compatibility="NONE")
    yield _put("/mode/orders", mode="READWRITE")
    yield _register("orders", record("id", ("writable", "int", 1)))
    yield _put("/mode", mode="READONLY_OVERRIDE")
    yield _register("readonly", record("id"))
    yield from _get("/mode", "/mode/readonly?defaultToGlobal=true")
    yield _put("/mode", mode="READWRITE")
    yield from _delete("/mode/orders")
    yield from _delete("/config/orders", "/config")


def _imports() -> Iterator[Asked]:
    yield _put("/mode/orders", mode="IMPORT")
    yield _put("/mode", mode="IMPORT")
    yield _put("/mode/imported", mode="IMPORT")
    yield _register("imported", record("id", name="Imported"), id=500, version=3)
    yield _register("imported", record("id", name="Imported"), id=500, version=3)
    yield _register("imported", record("id", name="Another"), id=500, version=4)
    yield _register("imported", record("id", name="Another"), version=4)
    yield _register("imported", record("id", name="Another"), id=502)
    yield _register("imported", record("id", name="Another"), id=1, version=5)
    yield from _get("/subjects/imported/versions", "/schemas/ids/500", "/schemas/ids/500/versions")
    yield _put("/mode/imported", mode="READWRITE")
    yield _register("imported", record("id", ("x", "int", 1), name="Imported"), id=900)
    yield _register("orders", record("id"), id=1)
    yield _register("orders", record("id", ("numbered", "int", 1)), version=9)
    yield _register("after", record("id", name="After"))
    yield _put("/mode/orders?force=true", mode="IMPORT")
    yield _put("/mode/orders", mode="READWRITE")
    yield from _delete("/mode/orders", "/mode/imported")


def _names() -> Iterator[Asked]:
    for name in ("a/b", "a b", "a%b", "ü", "a:b", "a?b", "a.b-c_d", "+", "__GLOBAL", "__EMPTY", "x" * 255):
        yield _register(name, record("id"))
        yield from _get(f"/subjects/{quote(name, safe='')}/versions")
        yield _put(f"/config/{quote(name, safe='')}", compatibility="NONE")
        yield from _delete(f"/config/{quote(name, safe='')}")
    yield from _get(
        "/subjects?subjectPrefix=a", "/subjects/", "/nothing", "/subjects/a%2Fb", "/schemas/ids", "/subjects//versions"
    )


def _hostile() -> Iterator[Asked]:
    path = "/subjects/hostile/versions"
    for body in (
        None,
        "",
        "{",
        "[]",
        "1",
        "null",
        '"text"',
        "{}",
        '{"schema": 1}',
        '{"schema": null}',
        '{"schema": {}}',
        '{"schema": []}',
        '{"schema": "\\"string\\"", "unknown": 1}',
        '{"schema": "\\"string\\"", "id": "x"}',
        '{"schema": "\\"string\\"", "version": "x"}',
        '{"schema": "\\"string\\"", "schemaType": 1}',
        '{"schema": "\\"string\\"", "references": 1}',
        '{"schema": "\\"string\\"", "references": [1]}',
        '{"schema": "\\"string\\"", "references": [{}]}',
        '{"schema": "\\"string\\"", "references": [{"name": "n"}]}',
        '{"schema": "\\"string\\"", "references": null}',
        '{"schema": "\\"string\\"", "schema": "\\"int\\""}',
        '{"schema": "\\"string\\"", "id": 99999999999}',
        '{"schema": "\\"string\\"" ',
        '{"schema": "\\"string\\""} more',
        "{'schema': 'string'}",
        '{"schema": NaN}',
    ):
        yield Asked("POST", path, body)
        yield from _delete("/subjects/hostile", "/subjects/hostile?permanent=true")
    for asked in (
        "PUT /config",
        "PUT /mode",
        "POST /compatibility/subjects/orders/versions/latest",
        "POST /subjects/orders",
    ):
        for body in (None, "", "{", "[]", "null", "{}", '{"mode": 1}', '{"compatibility": []}', '{"schema": 1}'):
            yield Asked(*asked.split(), body)
    for asked in ("DELETE /schemas/types", "POST /config", "PUT /subjects", "DELETE /schemas/ids/1", "POST /subjects"):
        yield Asked(*asked.split(), None)
    yield from _get("/subjects?offset=x", "/subjects?limit=x", "/subjects?deleted=maybe", "/schemas?subjectPrefix=o")


_NUMBERS: Final = (0, -1, True, False, "", "7", " 7 ", "-1", "1_0", 1.5, 1e2, [], {}, None)


def _numbers() -> Iterator[Asked]:
    """Yield ids and versions in other forms: for a schema that the subject has, for a new schema, and during an
    import.
    """
    path = "/subjects/numbers/versions"
    yield _register("numbers", record("id", name="N0"))
    for key in ("id", "version"):
        for i, value in enumerate(_NUMBERS):
            yield _register("numbers", record("id", name="N0"), **{key: value})
            yield _register("numbers", record("id", name=f"New{key}{i}"), **{key: value})
            yield _post("/subjects/numbers", record("id", name="N0"), **{key: value})
            yield from _delete("/subjects/numbers", "/subjects/numbers?permanent=true")
            yield _register("numbers", record("id", name="N0"))
            yield from _get("/subjects/numbers/versions/latest")
    yield _put("/config/numbers", compatibility="NONE")
    yield _register("numbers", record("id", name="N1"))
    yield from _get(path, f"{path}/1", f"{path}/2")
    for version in (1, 2, 4):
        yield _register("numbers", record("id", name="N1"), version=version)
        yield from _get(path)
    yield _put("/mode/imports", mode="IMPORT")
    for value in (0, -1, -5, False, "", None):
        yield _register("imports", record("id", name="Zero"), id=value)
    yield from _get("/subjects/imports/versions", "/subjects/imports/versions/1", "/schemas/ids/0")
    yield from _delete("/mode/numbers", "/mode/imports")


def _types() -> Iterator[Asked]:
    """Yield requests with values of other types in references, metadata and rules."""
    path = "/subjects/types/versions"
    rule: dict[str, Any] = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
    yield _register("named", record("id", name="Named"))
    for reference in (
        {"name": 1, "subject": "named", "version": 1},
        {"name": None, "subject": "named", "version": 1},
        {"name": "Named", "subject": True, "version": 1},
        {"name": "Named", "subject": ["named"], "version": 1},
        {"name": ["Named"], "subject": "named", "version": 1},
        {"name": {}, "subject": "named", "version": 1},
        {"name": "Named", "subject": None, "version": 1},
        {"name": "Named", "subject": "named", "version": True},
        {"name": "Named", "subject": "named", "version": "1"},
        {"name": "Named", "subject": "named", "version": 1.9},
        {"name": "Named", "subject": "named", "version": None},
        {"name": "Named", "subject": "named", "version": ""},
        {"name": "Named", "subject": "named", "version": -2},
        {"name": "Named", "subject": "named", "version": 0},
        {"name": "Named", "subject": "named", "version": 99999999999},
        {"name": "Named", "subject": "named", "version": 1, "more": 1},
        None,
        "Named",
        [],
    ):
        yield _register("types", record(("one", "string")), references=[reference])
        yield from _get(f"{path}/latest")
        yield from _delete("/subjects/types", "/subjects/types?permanent=true")
    for references in ("", "x", {}, False, [[]]):
        yield _register("types", STRING, references=references)
        yield from _delete("/subjects/types", "/subjects/types?permanent=true")
    for key, values in {
        "metadata": (
            *(1, "x", "", [], {}, True, None, {"unknown": 1}),
            *({"properties": each} for each in ({"b": "x", "a": 1}, {"a": True}, {"a": None}, {"a": [1]}, [], "x", {})),
            *({"tags": each} for each in ({"b": ["x"], "a": ["z", 1, "z"]}, {"a": "x"}, {"a": []}, {"a": [[1]]}, 1)),
            *({"sensitive": each} for each in (["b", "a", "b"], "a", [1], [{}], {})),
        ),
        "ruleSet": (
            *(1, "x", "", [], {}, True, None, {"unknown": 1}),
            *({"domainRules": each} for each in ([], {}, 1, [1], [None], [rule], "x")),
            *({"migrationRules": each} for each in ([{**rule, "mode": "UPGRADE"}], {})),
            *(
                {"domainRules": [{**rule, **each}]}
                for each in (
                    *({"kind": "OTHER"}, {"kind": 1}, {"kind": "condition"}, {"kind": None}, {"mode": "OTHER"}),
                    *({"tags": "x"}, {"tags": ["b", "a", 1]}, {"params": 1}, {"params": {"b": 1, "a": None}}),
                    *({"disabled": "x"}, {"disabled": "true"}, {"disabled": 1}, {"disabled": None}, {"disabled": True}),
                    *(
                        {"name": 1},
                        {"name": []},
                        {"doc": 1},
                        {"more": 1},
                        {"expr": {}},
                        {"name": None},
                        {"name": "a b"},
                    ),
                    *({"type": None}, {"onSuccess": "NONE"}, {"onFailure": 1}),
                )
            ),
            *({"enableAt": each, "domainRules": [rule]} for each in ("CLIENT", "OTHER", 1)),
        ),
    }.items():
        for value in values:
            yield _register("types", STRING, **{key: value})
            yield from _get(f"{path}/latest")
            yield from _delete("/subjects/types", "/subjects/types?permanent=true")
    for value in (True, False, "true", "x", "", 1, 0, None, [], {}):
        yield _put("/config/types", normalize=value)
        yield _put("/config/types", compatibility=value)
        yield from _get("/config/types")
        yield from _delete("/config/types")
    for mode in ("FORWARD", True, [], " READWRITE"):
        yield _put("/mode/types", mode=mode)
        yield from _delete("/mode/types")


def _last() -> Iterator[Asked]:
    """Yield requests after which klamm's state differs from that of Confluent's registry."""
    yield _register("last-proto", _proto("string id = 0;"), "PROTOBUF")
    yield _put("/mode", mode="READONLY_OVERRIDE")
    yield _put("/mode/last-mode", mode="READWRITE")
    yield _register("last-mode", record("id"))
    yield _put("/mode", mode="READWRITE")
    yield _put("/mode/last", mode="IMPORT")
    yield _register("last", record("id", name="Last"), id=700, version=3)
    yield _register("last", record("id", name="Last"), id=701, version=3)
    yield from _get("/schemas/ids/700", "/schemas/ids/701", "/subjects/last/versions/3")
    yield _put("/mode", mode="FORWARD")
    yield from _get("/mode")
    yield _put("/mode", mode="READWRITE")


def answers(url: str) -> list[Any]:
    """Return a registry's answers to all requests: the status, and the compared part of the answer."""
    rest = Rest(url)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    found = []
    for each in requests():
        body = None if each.body is None else each.body.encode()
        status, content, _ = rest.raw(each.method, each.path, body, headers)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = content.decode()
        found.append([status, _compared(answer)])
    return found


def recorded() -> list[Any]:
    """Return the recorded answers of Confluent's registry."""
    found: list[Any] = json.loads(RECORDED.read_text("utf-8"))
    return found


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _compared(answer: Any) -> Any:
    """Return an answer without GUIDs, times, texts of errors, and orders without a meaning."""
    if isinstance(answer, list):
        found = list(map(_compared, answer))
        return sorted(found, key=_text) if found and isinstance(found[0], dict | str) else found
    if not isinstance(answer, dict):
        return answer
    kept = {key: each for key, each in answer.items() if key not in ("guid", "ts")}
    if kept.get("error_code") in (400, 422, 42201):
        kept["message"] = ""
    elif kept.get("error_code") == 40901:
        kept["message"] = sorted(kept["message"].replace("}]", "}").replace("[{", ", {").split(", {"))
    if "messages" in kept:
        kept["messages"] = sorted("" if each.startswith("Invalid schema") else each for each in kept["messages"])
    return kept


if __name__ == "__main__":
    print("[\n" + ",\n".join(map(_text, answers(sys.argv[1]))) + "\n]")
