"""The names of an event's fields in CEF, the Elastic Common Schema (ECS) and OpenTelemetry, in one table.

`python -m klamm_spark.events.other_names` prints the table in docs/audit/reference.md. A new field of events gets a
row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm_spark.events.event import ADMIN, AUDIT_GAP, AUTHENTICATION, CONNECTION, REQUEST

Event = Mapping[str, Any]
FAILURES: Final = ("denied", "error", "refused")
CUSTOM: Final = "klamm"
"""Parent of the fields that have no name in ECS or OpenTelemetry, e.g. `klamm.listener`."""


class Names(NamedTuple):
    """A field of an event and its names elsewhere, empty if there is none. In `cef`, a label follows a blank."""

    field: str
    cef: str = ""
    ecs: str = ""
    otel: str = ""


TABLE: Final = (
    Names("event_id", "externalId", "event.id", "log.record.uid"),
    Names("node", "dvchost", "observer.name", "host.name"),
    Names("seq", "", "event.sequence"),
    Names("action", "", "event.action"),
    Names("reason", "reason", "event.reason"),
    Names("detail", "msg", "message"),
    Names("listener", "deviceInboundInterface", "observer.ingress.interface.name"),
    Names("outcome", "outcome"),
    Names("user", "suser", "user.name", "user.name"),
    Names("attempted_principal", "cs4 attemptedPrincipal"),
    Names("certificate_subject", "", "tls.client.subject", "tls.client.subject"),
    Names("certificate_issuer", "flexString2 certificateIssuer", "tls.client.issuer", "tls.client.issuer"),
    Names("certificate_serial_number", "", "tls.client.x509.serial_number"),
    Names("tls_version", "", "tls.version", "tls.protocol.version"),
    Names("tls_cipher", "", "tls.cipher", "tls.cipher"),
    Names("sni", "", "tls.client.server_name", "tls.client.server_name"),
    Names("sasl_mechanism", "cs3 saslMechanism"),
    Names("client_id", "cs1 clientId", "", "messaging.client.id"),
    Names("client_software_name", "requestClientApplication", "user_agent.name", "user_agent.name"),
    Names("client_software_version", "", "user_agent.version", "user_agent.version"),
    Names("client_address", "src", "source.ip", "client.address"),
    Names("client_port", "spt", "source.port", "client.port"),
    Names("connection_id", "cs5 connectionId"),
    Names("api_name", "", "", "rpc.method"),
    Names("error_name", "cs2 errorName", "error.type", "error.type"),
    Names("error_code", "", "error.code"),
    Names("request_bytes", "in", "source.bytes"),
    Names("response_bytes", "out", "destination.bytes"),
    Names("repeat_count", "cnt"),
    Names("total_time_ms", "", "event.duration"),
)
_TEXTS: Final = frozenset({"error.code"})
"""ECS keywords that Kafka has as numbers."""
_IN_HEADER: Final = frozenset({"schema_version", "boot", "time_us", "kind"})
_ECS_VERSION: Final = "9.4.0"
_ECS_CATEGORIES: Final = {
    REQUEST: "api",
    AUTHENTICATION: "authentication",
    CONNECTION: "network",
    ADMIN: "configuration",
}
_ECS_TYPES: Final = {
    "opened": ("connection", "start"),
    "closed": ("connection", "end"),
    "refused": ("connection", "denied"),
    "expiry": ("end",),
}
_ECS_KIND_TYPES: Final = {AUTHENTICATION: ("start",), ADMIN: ("change",), AUDIT_GAP: ("error",)}
_ECS_API_TYPES: Final = (
    (("Create", "Produce", "Add", "Init"), "creation"),
    (("Delete", "OffsetDelete", "Remove"), "deletion"),
    (("Describe", "List", "Fetch", "Metadata", "OffsetFetch", "FindCoordinator", "ApiVersions"), "access"),
)


def user_of(event: Event) -> str:
    """Return the principal. For a failed login, return the unproved name that the client claimed, or its certificate's
    subject.
    """
    subject = event.get("certificate_subject")
    claimed: str = event.get("attempted_principal") or (f"User:{subject}" if subject else event["principal"])
    return claimed


def facts(event: Event) -> dict[str, Any]:
    """Return the event's fields, with `user` added if the event has a principal."""
    return {**event, "user": user_of(event)} if event.get("principal") is not None else dict(event)


def ecs(event: Event, time: str) -> dict[str, Any]:
    """Return an event as a document of the Elastic Common Schema. `time` is the event's time as text."""
    found = facts(event)
    document: dict[str, Any] = {
        "@timestamp": time,
        "ecs": {"version": _ECS_VERSION},
        "observer": {"vendor": "klamm", "product": "klamm"},
        "service": {"type": "kafka"},
        "event": {"module": "klamm", "dataset": "klamm.audit", **_ecs_categories(event)},
    }
    for names in TABLE:
        value = found.pop(names.field, None)
        if value is None or (names.ecs == "error.code" and not value):
            continue
        if names.ecs == "event.duration":
            value = round(value * 1e6)
        elif names.ecs == "tls.version":
            value = value.removeprefix("TLSv")
        _put(document, names.ecs or f"{CUSTOM}.{names.field}", str(value) if names.ecs in _TEXTS else value)
    if "api_name" in event:
        document["event"]["action"] = event["api_name"]
    if "user" in document:
        document["related"] = {"user": [document["user"]["name"]]}
    if "client_address" in event:
        document.setdefault("related", {})["ip"] = [event["client_address"]]
        document["network"] = {"transport": "tcp", "protocol": "kafka"}
    if "tls" in document:
        document["tls"]["version_protocol"] = "tls"
    for name, value in found.items():
        if name not in _IN_HEADER:
            _put(document, f"{CUSTOM}.{name}", value)
    return document


def _ecs_categories(event: Event) -> dict[str, Any]:
    kind, outcome = event["kind"], event["outcome"]
    types = _ECS_TYPES.get(event["action"]) or _ECS_KIND_TYPES.get(kind)
    if types is None:
        name = event["api_name"]
        change = next((type_ for prefixes, type_ in _ECS_API_TYPES if name.startswith(prefixes)), "change")
        types = (change, "denied") if outcome == "denied" else (change, "allowed") if outcome != "error" else (change,)
    categories = {"category": [_ECS_CATEGORIES[kind]]} if kind in _ECS_CATEGORIES else {}
    return {
        "kind": "pipeline_error" if kind == AUDIT_GAP else "event",
        **categories,
        "type": list(types),
        "outcome": "unknown" if outcome == "unknown" else "failure" if outcome in FAILURES else "success",
    }


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[name] = value


def otlp(event: Event, text: str, version: str) -> dict[str, Any]:
    """Return an OTLP export request with the event as its only log record, and `text` as the record's body."""
    found = facts(event)
    otel = {names.field: names.otel for names in TABLE if names.otel}
    attributes = [
        {"key": otel.get(name) or f"{CUSTOM}.{name}", "value": _any_value(value)}
        for name, value in found.items()
        if name not in ("time_us", "node")
    ]
    failed = event["kind"] == AUDIT_GAP or event["outcome"] in FAILURES
    nanoseconds = str(event["time_us"] * 1000)
    record = {
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 13 if failed else 9,
        "severityText": "WARN" if failed else "INFO",
        "eventName": f"{CUSTOM}.audit.{event['kind']}.{event['action']}",
        "body": {"stringValue": text},
        "attributes": attributes,
    }
    resource = {"service.name": CUSTOM, "host.name": event["node"], "messaging.system": "kafka"}
    scope = {"name": f"{CUSTOM}.audit", "version": version}
    described = {"attributes": [{"key": key, "value": _any_value(value)} for key, value in resource.items()]}
    return {"resourceLogs": [{"resource": described, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": _any_value(item)} for key, item in value.items()]}}
    return {"stringValue": value}


def markdown_table() -> str:
    """Return the table for docs/audit/reference.md."""
    rows = [
        "| " + " | ".join(f"`{name}`" if name else "" for name in names) + " |"
        for names in (names._replace(cef=names.cef.replace(" ", "` of the label `")) for names in TABLE)
    ]
    return "\n".join(["| field | CEF | ECS | OpenTelemetry |", "| --- | --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    print(markdown_table())
