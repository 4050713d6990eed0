"""The audit event: one flat record, in the spool and in the lake.

Its names are those of KIP-673 in snake_case. A field without a value is left out of the JSON object. No field has keys,
values or headers of records, tokens or passwords.

The schema file `schema/audit_event.v5.json` and the table in docs/audit/reference.md are generated from `FIELDS`
(`python -m klamm_spark.events.event` prints both). A new field, or a new meaning, raises `SCHEMA_VERSION`; fields are
never removed or renamed, so a reader of this version reads all earlier ones and ignores unknown fields.
"""

from __future__ import annotations

import json
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
"""Each kind with its actions. The list is complete, except for `admin`."""

WAS_SHIPPED: Final = "its segment was shipped before"
"""The `detail` of a `segments_deleted`: a lake must have the events."""

FORGETTABLE: Final = tuple(kind for kind in ACTIONS if kind != AUDIT_GAP)
"""Kinds of events that a lake may forget: an `audit_gap` has no client in it, and says why numbers are missing."""

OUTCOMES: Final = ("ok", "denied", "error", "throttled", "refused", "closed", "unknown")

REQUEST_OUTCOMES: Final = ("ok", "throttled", "denied", "error")
"""Those that reports count the requests of."""


class Field(NamedTuple):
    """One field: `type` is string, int (32 bit), long (64 bit), double, boolean, or the name of a list in `LISTS`.

    Empty `kinds` are all kinds.
    """

    name: str
    type: str
    doc: str
    kinds: tuple[str, ...] = ()
    required: bool = False


_CLIENT: Final = (REQUEST, AUTHENTICATION, CONNECTION)

FIELDS: Final[tuple[Field, ...]] = (
    Field("schema_version", "int", "Version of this record: 5.", required=True),
    Field("event_id", "string", "`node/boot/seq`; unique, the key for removing duplicates.", required=True),
    Field("node", "string", "The server: `[audit] node`, by default the host's name.", required=True),
    Field("boot", "string", "The start of the server; sorts by time.", required=True),
    Field(
        "seq",
        "long",
        "Number within the boot, from 0, without gaps except those that `audit_gap` reports.",
        required=True,
    ),
    Field("time_us", "long", "Wall-clock time of its end, in microseconds since 1970-01-01 UTC.", required=True),
    Field("kind", "string", "`request`, `authentication`, `connection`, `admin` or `audit_gap`.", required=True),
    Field("action", "string", "What happened, within the kind; e.g. `completed`, `failure`, `refused`.", required=True),
    Field(
        "outcome", "string", "`ok`, `denied`, `error`, `throttled`, `refused`, `closed` or `unknown`.", required=True
    ),
    Field("reason", "string", "The cause of a failure, a refusal, a close or a gap.", (*_CLIENT, ADMIN, AUDIT_GAP)),
    Field("detail", "string", "Details, as text.", (CONNECTION, ADMIN, AUDIT_GAP)),
    Field("listener", "string", "Name of the listener.", (*_CLIENT, ADMIN)),
    Field("transport", "string", "Name of the listener's transport, e.g. `plaintext`, `ssl`.", _CLIENT),
    Field("security_protocol", "string", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.", _CLIENT),
    Field("tls_version", "string", "E.g. `TLSv1.3`.", _CLIENT),
    Field("tls_cipher", "string", "Cipher suite.", _CLIENT),
    Field("sni", "string", "Server name that the client asked for in the TLS handshake.", _CLIENT),
    Field("sasl_mechanism", "string", "E.g. `SCRAM-SHA-512`.", _CLIENT),
    Field("principal", "string", "The principal as `Type:name`, e.g. `User:alice`.", _CLIENT),
    Field(
        "attempted_principal",
        "string",
        "The principal that a failed login claimed, e.g. `User:alice`; nothing proves it.",
        (AUTHENTICATION,),
    ),
    Field(
        "certificate_subject",
        "string",
        "Of a client certificate that was refused: its subject (RFC 2253); nothing proves that the client has its key.",
        (AUTHENTICATION,),
    ),
    Field("certificate_issuer", "string", "Its issuer.", (AUTHENTICATION,)),
    Field("certificate_serial_number", "string", "Its serial number, in hexadecimal digits.", (AUTHENTICATION,)),
    Field("client_id", "string", "The client id in the request header.", (REQUEST,)),
    Field("client_software_name", "string", "From ApiVersions (KIP-511).", _CLIENT),
    Field("client_software_version", "string", "From ApiVersions (KIP-511).", _CLIENT),
    Field(
        "client_address",
        "string",
        "IP address of the client; behind a trusted proxy the one that the proxy names.",
        _CLIENT,
    ),
    Field("client_port", "int", "Port of the client.", _CLIENT),
    Field("connection_id", "string", "`local:port-remote:port-processor-index`.", _CLIENT),
    Field("api_key", "int", "Number of the API.", (REQUEST,)),
    Field("api_name", "string", "Name of the API, e.g. `Produce`.", (REQUEST,)),
    Field("api_version", "int", "Version of the request.", (REQUEST,)),
    Field(
        "correlation_id",
        "int",
        "From the request header; in an aggregated event that of the first request.",
        (REQUEST,),
    ),
    Field(
        "upstream_node_id",
        "int",
        "Behind a gateway: the node of the cluster that the request was forwarded to; left out if it was not. In an "
        "aggregated event that of the first request.",
        (REQUEST,),
    ),
    Field("resources", "resources", "The resources of the request; see below.", (REQUEST,)),
    Field(
        "resource_count", "int", "How many resources there were, if `resources` was cut to `max_resources`.", (REQUEST,)
    ),
    Field("intent_id", "string", "Of a state change: the id of its intent, which was on disk before it.", (REQUEST,)),
    Field("part", "int", "Of a state change in several events: which one, from 1.", (REQUEST,)),
    Field("parts", "int", "How many events a state change has, if more than one; all else is in each.", (REQUEST,)),
    Field(
        "error_code", "int", "First error in the response that is not 0; 0 if there is none.", (REQUEST, AUTHENTICATION)
    ),
    Field(
        "error_name",
        "string",
        "Kafka's name of the error, e.g. `TOPIC_AUTHORIZATION_FAILED`.",
        (REQUEST, AUTHENTICATION),
    ),
    Field(
        "request_bytes", "long", "Size of the request; bytes received when a connection closes.", (REQUEST, CONNECTION)
    ),
    Field(
        "response_bytes", "long", "Size of the response; bytes sent when a connection closes.", (REQUEST, CONNECTION)
    ),
    Field("request_queue_time_ms", "double", "From receipt until a handler began.", (REQUEST,)),
    Field("local_time_ms", "double", "In the handler.", (REQUEST,)),
    Field(
        "remote_time_ms",
        "double",
        "Waiting for data, group members or replicas; behind a gateway, for `upstream_node_id`.",
        (REQUEST,),
    ),
    Field("throttle_time_ms", "double", "The throttle time in the response.", (REQUEST,)),
    Field("response_queue_time_ms", "double", "The response waiting for its processor.", (REQUEST,)),
    Field("send_time_ms", "double", "Writing to the socket.", (REQUEST,)),
    Field("total_time_ms", "double", "From receipt until the last byte was written.", (REQUEST,)),
    Field("total_time_max_ms", "double", "The longest `total_time_ms` in an aggregated event.", (REQUEST,)),
    Field(
        "repeat_count",
        "long",
        "How many requests this event represents, if not one: bytes are sums, times are means. 0 in all but the first "
        "of several events of a request; these have no bytes and times.",
        (REQUEST,),
    ),
    Field(
        "duration_ms", "double", "Lifetime of a closed connection; span of an aggregated event.", (REQUEST, CONNECTION)
    ),
    Field("gap_boot", "string", "Boot whose events are missing.", (AUDIT_GAP,)),
    Field("gap_first_seq", "long", "First missing `seq`.", (AUDIT_GAP,)),
    Field("gap_last_seq", "long", "Last missing `seq`.", (AUDIT_GAP,)),
    Field("gap_count", "long", "How many events are missing; left out if unknown.", (AUDIT_GAP,)),
)

RESOURCE_FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "type",
        "string",
        "Kafka's resource type: `TOPIC`, `GROUP`, `CLUSTER`, `TRANSACTIONAL_ID`, `USER` …",
        required=True,
    ),
    Field("name", "string", "Name of the resource.", required=True),
    Field("operation", "string", "The operation that was authorized, e.g. `WRITE`; left out if none was."),
    Field("granted", "boolean", "Whether the authorizer allowed it."),
    Field(
        "decided_by",
        "string",
        "What decided: `acl`, `static_rule`, `super_user`, `no_acl_found`, `not_known`, or a word of the authorizer's "
        "own; left out if it does not say.",
    ),
    Field("acl_operation", "string", "Of the ACL or the rule that decided: its operation, e.g. `ALL`."),
    Field("acl_pattern_type", "string", "Its pattern type: `LITERAL` or `PREFIXED`."),
    Field("acl_name", "string", "Its resource name or prefix; `*` for all."),
    Field("acl_principal", "string", "Its principal, e.g. `User:alice` or `User:*`."),
    Field("acl_host", "string", "Its host; `*` for all."),
    Field("error_code", "int", "First error of this resource in the response that is not 0."),
    Field("error_name", "string", "Kafka's name of the error."),
    Field("partitions", "int", "How many partitions the request named."),
    Field("records", "long", "Records produced or fetched, if known from the batch headers."),
    Field("bytes", "long", "Bytes of record batches produced or fetched."),
    Field("attributes", "attributes", "What a state change says of the resource; see below."),
)

ATTRIBUTE_FIELDS: Final[tuple[Field, ...]] = (
    Field("name", "string", "E.g. `partitions`, `principal`, `offset.0`, `config.retention.ms`.", required=True),
    Field("operation", "string", "What is done with it: `SET`, `DELETE`, `APPEND`, `SUBTRACT`, `UPSERT` …"),
    Field("value", "string", "The value; `(sensitive)` for that of a secret configuration."),
    Field(
        "old_value",
        "string",
        "Of a configuration, quota or SCRAM credential that was changed: its value before; left out if there was none.",
    ),
    Field("new_value", "string", "Its value afterwards; left out if it has none."),
)

LISTS: Final[dict[str, tuple[Field, ...]]] = {"resources": RESOURCE_FIELDS, "attributes": ATTRIBUTE_FIELDS}
"""The fields of the items of each type that is a list."""

DUCKDB_TYPES: Final = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
}
"""DuckDB's names of the types that are no lists."""

FIELD_NAMES: Final = tuple(field.name for field in FIELDS)

_JSON_TYPES: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "int": {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "long": {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1},
    "double": {"type": "number", "minimum": 0},
    "boolean": {"type": "boolean"},
}


def _object(fields: tuple[Field, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in fields:
        if field.type in LISTS:
            kind: dict[str, Any] = {"type": "array", "items": _object(LISTS[field.type])}
        else:
            kind = dict(_JSON_TYPES[field.type])
        properties[field.name] = {**kind, "description": field.doc}
    return {
        "type": "object",
        "properties": properties,
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }


def json_schema() -> dict[str, Any]:
    """The JSON Schema of one event."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:klamm:audit-event:v{SCHEMA_VERSION}",
        "title": f"klamm audit event, version {SCHEMA_VERSION}",
        **_object(FIELDS),
    }
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    schema["properties"]["kind"]["enum"] = list(ACTIONS)
    schema["properties"]["outcome"]["enum"] = list(OUTCOMES)
    return schema


def markdown_table(fields: tuple[Field, ...] = FIELDS) -> str:
    """The table of the fields in docs/audit/reference.md."""
    lines = ["| field | type | of | meaning |", "| --- | --- | --- | --- |"]
    for field in fields:
        kinds = ", ".join(field.kinds) or ("always" if field.required else "all")
        lines.append(f"| `{field.name}` | {field.type} | {kinds} | {field.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
    print(markdown_table())
    print(markdown_table(RESOURCE_FIELDS))
    print(markdown_table(ATTRIBUTE_FIELDS))
