"""The audit event: one flat record, which the spool has as a line and the lake as a row.

The fields have KIP-673's names in snake_case. The JSON object leaves out a field without a value. No field has keys,
values or headers of records, tokens or passwords.

`FIELDS` come from the JSON Schema `schema/audit_event.v5.json`, where `x-kinds` lists the kinds of events that have a
field. `python -m klamm_spark.events.event` prints the tables in docs/audit/reference.md. To change the schema, add a
field or a meaning and raise `SCHEMA_VERSION`. Fields are never removed or renamed, so a reader of this version reads
all earlier ones. Readers ignore unknown fields.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final, NamedTuple

SCHEMA_VERSION: Final = 5

REQUEST: Final = "request"
AUTHENTICATION: Final = "authentication"
CONNECTION: Final = "connection"
ADMIN: Final = "admin"
AUDIT_GAP: Final = "audit_gap"

ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    REQUEST: ("completed", "interrupted"),
    AUTHENTICATION: ("success", "failure", "reauthentication", "reauthentication_failure", "expiry"),
    CONNECTION: ("opened", "refused", "closed"),
    # Actions of administrative events; plugins may add actions.
    ADMIN: (
        "server_started",
        "server_stopping",
        "config_reloaded",
        "config_reload_failed",
        "certificate_swapped",
        "plugin_loaded",
        "plugin_failed",
        "sessions_ended",
        "topic_auto_created",
    ),
    AUDIT_GAP: ("dropped", "unclean_stop", "torn_tail", "segments_deleted"),
}
"""Each kind of event with its actions. The list is complete, except for `admin`."""

WAS_SHIPPED: Final = "its segment was shipped before"
"""The `detail` of a `segments_deleted` whose events the lake must have."""

FORGETTABLE: Final = tuple(kind for kind in ACTIONS if kind != AUDIT_GAP)
"""The kinds of events that a lake may forget. An `audit_gap` names no client, and says why numbers are missing."""

REQUEST_OUTCOMES: Final = ("ok", "throttled", "denied", "error")
"""The outcomes whose requests reports count."""


class Field(NamedTuple):
    """One field. `type` is string, int (32 bit), long (64 bit), double, boolean, or the name of a list in `LISTS`.

    If `kinds` is empty, events of all kinds may have the field.
    """

    name: str
    type: str
    doc: str
    kinds: tuple[str, ...] = ()
    required: bool = False


_INT_BITS: Final = 31


def json_schema() -> dict[str, Any]:
    """Read the JSON Schema of one event."""
    # Do not open a path, because Spark's executors import klamm from a zip archive.
    file = files("klamm_spark.events") / "schema" / f"audit_event.v{SCHEMA_VERSION}.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def _type_of(name: str, schema: dict[str, Any]) -> str:
    match schema["type"]:
        case "integer":
            return "int" if schema["maximum"] < 1 << _INT_BITS else "long"
        case "number":
            return "double"
        case "array":
            return name
    return str(schema["type"])


def _fields_of(schema: dict[str, Any]) -> tuple[Field, ...]:
    required = schema["required"]
    return tuple(
        Field(name, _type_of(name, each), each["description"], tuple(each.get("x-kinds", ())), name in required)
        for name, each in schema["properties"].items()
    )


_SCHEMA: Final = json_schema()
_RESOURCE: Final = _SCHEMA["properties"]["resources"]["items"]
OUTCOMES: Final = tuple(_SCHEMA["properties"]["outcome"]["enum"])
FIELDS: Final = _fields_of(_SCHEMA)
RESOURCE_FIELDS: Final = _fields_of(_RESOURCE)
ATTRIBUTE_FIELDS: Final = _fields_of(_RESOURCE["properties"]["attributes"]["items"])
LISTS: Final[dict[str, tuple[Field, ...]]] = {"resources": RESOURCE_FIELDS, "attributes": ATTRIBUTE_FIELDS}
"""The fields of the items of each type that is a list."""

DUCKDB_TYPES: Final = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}
"""DuckDB's names of the types that are not lists."""

FIELD_NAMES: Final = tuple(field.name for field in FIELDS)


def markdown_table(fields: tuple[Field, ...] = FIELDS) -> str:
    """Return the table of the fields in docs/audit/reference.md."""
    lines = ["| field | type | of | meaning |", "| --- | --- | --- | --- |"]
    for field in fields:
        kinds = ", ".join(field.kinds) or ("always" if field.required else "all")
        lines.append(f"| `{field.name}` | {field.type} | {kinds} | {field.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table())
    print(markdown_table(RESOURCE_FIELDS))
    print(markdown_table(ATTRIBUTE_FIELDS))
