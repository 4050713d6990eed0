"""Audit events in other formats: pure functions from an event (see `klamm_spark.events.event`) to a JSON object.

`kip673` makes the request log of KIP-673, `cloudevents` CloudEvents 1.0, `ocsf` the Open Cybersecurity Schema Framework
1.8.0, `ecs` the Elastic Common Schema, and `splunk` an event for Splunk's HTTP Event Collector. Each of them accepts
all kinds of events, except `kip673`, which only renders requests. The commands of `klamm audit` call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from klamm_spark.events import other_names
from klamm_spark.events.event import (
    ADMIN,
    AUDIT_GAP,
    AUTHENTICATION,
    CONNECTION,
    REQUEST,
    RESOURCE_FIELDS,
    SCHEMA_VERSION,
)

Event = Mapping[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(event: Event) -> str:
    """Return the event's time in UTC in the form of RFC 3339, with microseconds."""
    moment = _EPOCH + timedelta(microseconds=event["time_us"])
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# ---- KIP-673


def kip673(event: Event) -> dict[str, Any] | None:
    """Return a request in the form of Kafka's `RequestConvertToJson`, or None for other events.

    In place of the bodies, request and response have the resources, the sizes and the error.
    """
    if event["kind"] != REQUEST or event["action"] != "completed":
        return None
    resources = event.get("resources")
    return {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": event["api_key"],
            "requestApiVersion": event["api_version"],
            "correlationId": event["correlation_id"],
            "clientId": event.get("client_id"),
            "requestApiKeyName": _upper_snake(event["api_name"]),
        },
        "request": _without_none({"sizeBytes": event["request_bytes"], "resources": resources}),
        "response": _without_none(
            {"sizeBytes": event["response_bytes"], "errorCode": event["error_code"], "error": event.get("error_name")}
        ),
        "connection": event["connection_id"],
        "totalTimeMs": event.get("total_time_ms"),
        "requestQueueTimeMs": event.get("request_queue_time_ms"),
        "localTimeMs": event.get("local_time_ms"),
        "remoteTimeMs": event.get("remote_time_ms"),
        "throttleTimeMs": event.get("throttle_time_ms"),
        "responseQueueTimeMs": event.get("response_queue_time_ms"),
        "sendTimeMs": event.get("send_time_ms"),
        "securityProtocol": event["security_protocol"],
        "principal": event["principal"],
        "listener": event["listener"],
        "clientInformation": {
            "softwareName": event["client_software_name"],
            "softwareVersion": event["client_software_version"],
        },
    }


def _upper_snake(name: str) -> str:
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
    return words.lstrip("_").upper()


# ---- CloudEvents


def cloudevents(event: Event) -> dict[str, Any]:
    """Return CloudEvents 1.0 in JSON. `data` is the event itself, and `subject` its principal or client."""
    return _without_none(
        {
            "specversion": "1.0",
            "id": event["event_id"],
            "source": f"urn:klamm:{event['node']}",
            "type": f"klamm.audit.{event['kind']}.{event['action']}",
            "subject": event.get("principal") or event.get("client_address"),
            "time": timestamp(event),
            "datacontenttype": "application/json",
            "dataschema": f"urn:klamm:audit-event:v{event['schema_version']}",
            "data": dict(event),
        }
    )


# ---- OCSF

_OCSF_VERSION: Final = "1.8.0"
_UNKNOWN, _SUCCESS, _FAILURE = 0, 1, 2
_INFORMATIONAL, _LOW, _MEDIUM, _HIGH = 1, 2, 3, 4
_OTHER: Final = 99
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_API_ACTIVITIES: Final = (
    ("Create", _CREATE),
    ("Produce", _CREATE),
    ("Delete", _DELETE),
    ("OffsetDelete", _DELETE),
    ("Alter", _UPDATE),
    ("Incremental", _UPDATE),
    ("OffsetCommit", _UPDATE),
    ("TxnOffsetCommit", _UPDATE),
    ("Describe", _READ),
    ("List", _READ),
    ("Fetch", _READ),
    ("Metadata", _READ),
    ("OffsetFetch", _READ),
    ("FindCoordinator", _READ),
)
_AUTHENTICATION_ACTIVITIES: Final = {"expiry": 2}
_LOGON: Final = 1
_NETWORK_ACTIVITIES: Final = {"opened": 1, "closed": 2, "refused": 5}
_LIFECYCLE_ACTIVITIES: Final = {
    "server_started": 3,
    "server_stopping": 4,
    "plugin_loaded": 6,
    "config_reloaded": 8,
    "config_reload_failed": 8,
    "certificate_swapped": 8,
}


def ocsf(event: Event) -> dict[str, Any]:
    """Return OCSF 1.8.0: an event of the class for the kind of event, or a Base Event for a gap."""
    render = _OCSF[event["kind"]]
    return _without_none(render(event))


def _ocsf_base(event: Event, class_uid: int, activity_id: int) -> dict[str, Any]:
    outcome = event["outcome"]
    failed = outcome in ("denied", "error", "refused")
    return {
        "metadata": _without_none(
            {
                "version": _OCSF_VERSION,
                "product": {"name": "klamm", "vendor_name": "klamm"},
                "uid": event["event_id"],
                "sequence": event["seq"] if event["seq"] < 1 << 31 else None,
                "event_code": f"{event['kind']}.{event['action']}",
                "log_version": str(event.get("schema_version", SCHEMA_VERSION)),
            }
        ),
        "time": event["time_us"] // 1000,
        "category_uid": class_uid // 1000,
        "class_uid": class_uid,
        "activity_id": activity_id,
        "type_uid": class_uid * 100 + activity_id,
        "severity_id": _severity(event),
        "status_id": _UNKNOWN if outcome == "unknown" else _FAILURE if failed else _SUCCESS,
        "status_code": event.get("error_name"),
        "status_detail": event.get("reason"),
        "message": event.get("detail"),
        "count": event.get("repeat_count"),
        "unmapped": _unmapped(event),
    }


def _severity(event: Event) -> int:
    if event["kind"] == AUDIT_GAP:
        return _HIGH
    if event["outcome"] == "denied":
        return _MEDIUM
    return _LOW if event["outcome"] in ("error", "refused") else _INFORMATIONAL


_UNMAPPED: Final = (
    "listener",
    "security_protocol",
    "sasl_mechanism",
    "connection_id",
    "client_id",
    "correlation_id",
    "attempted_principal",
    "certificate_subject",
    "certificate_issuer",
    "intent_id",
    "part",
    "parts",
    "gap_boot",
    "gap_first_seq",
    "gap_last_seq",
    "gap_count",
)


def _unmapped(event: Event) -> dict[str, Any] | None:
    found = {name: event[name] for name in _UNMAPPED if name in event}
    found.update((name, event[name]) for name in event if name.endswith("_time_ms"))
    return found or None


def _source(event: Event) -> dict[str, Any]:
    return {"ip": event["client_address"], "port": event["client_port"]}


def _user(event: Event) -> dict[str, Any]:
    user = other_names.user_of(event)
    return {"name": user.partition(":")[2] or user, "uid": user}


def _api_activity(event: Event) -> dict[str, Any]:
    name = event["api_name"]
    activity = next((number for prefix, number in _API_ACTIVITIES if name.startswith(prefix)), _OTHER)
    resources = [
        _without_none({"name": one["name"], "type": one["type"], "data": _resource_data(one)})
        for one in event.get("resources", ())
        if one["name"]
    ]
    return {
        **_ocsf_base(event, 6003, activity),
        "api": _without_none(
            {
                "operation": name,
                "version": str(event["api_version"]),
                "service": {"name": "kafka"},
                "response": _response(event),
            }
        ),
        "actor": {"user": _user(event), "app_name": event["client_software_name"]},
        "src_endpoint": _source(event),
        "duration": round(event["total_time_ms"]) if "total_time_ms" in event else None,
        "resources": resources or None,
    }


_RESOURCE_DATA: Final = tuple(
    name for name in (field.name for field in RESOURCE_FIELDS) if name not in ("type", "name")
)


def _resource_data(resource: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a resource that OCSF does not have: the decision, the deciding rule, the counts, the
    attributes.
    """
    return {name: resource[name] for name in _RESOURCE_DATA if name in resource} or None


def _response(event: Event) -> dict[str, Any] | None:
    """Return the response, or None for a state change whose outcome is unknown."""
    if "error_code" not in event:
        return None
    return {"code": event["error_code"], "error": event.get("error_name", "")}


def _authentication(event: Event) -> dict[str, Any]:
    mechanism = event.get("sasl_mechanism")
    return {
        **_ocsf_base(event, 3002, _AUTHENTICATION_ACTIVITIES.get(event["action"], _LOGON)),
        "user": _user(event),
        "src_endpoint": _source(event),
        "service": {"name": "kafka"},
        "certificate": _certificate(event),
        "auth_protocol_id": _OTHER if mechanism else None,
        "auth_protocol": mechanism,
        "is_remote": True,
    }


def _certificate(event: Event) -> dict[str, Any] | None:
    """Return the certificate, or None without an issuer or a serial number, which OCSF requires."""
    names = ("subject", "issuer", "serial_number")
    found = {name: event.get(f"certificate_{name}") for name in names}
    return _without_none(found) if found["issuer"] and found["serial_number"] else None


def _network_activity(event: Event) -> dict[str, Any]:
    traffic = None
    if "request_bytes" in event:
        traffic = {"bytes_in": event["request_bytes"], "bytes_out": event["response_bytes"]}
    tls = _without_none(
        {"version": event.get("tls_version"), "cipher": event.get("tls_cipher"), "sni": event.get("sni")}
    )
    return {
        **_ocsf_base(event, 4001, _NETWORK_ACTIVITIES[event["action"]]),
        "src_endpoint": _source(event),
        "dst_endpoint": {"svc_name": event["listener"]},
        "duration": round(event["duration_ms"]) if "duration_ms" in event else None,
        "traffic": traffic,
        "tls": tls if "version" in tls else None,
    }


def _application_lifecycle(event: Event) -> dict[str, Any]:
    return {
        **_ocsf_base(event, 6002, _LIFECYCLE_ACTIVITIES.get(event["action"], _OTHER)),
        "app": {"name": "klamm", "vendor_name": "klamm"},
    }


def _gap(event: Event) -> dict[str, Any]:
    return _ocsf_base(event, 0, _OTHER)


_OCSF: Final[dict[str, Callable[[Event], dict[str, Any]]]] = {
    REQUEST: _api_activity,
    AUTHENTICATION: _authentication,
    CONNECTION: _network_activity,
    ADMIN: _application_lifecycle,
    AUDIT_GAP: _gap,
}

# ---- the others


def ecs(event: Event) -> dict[str, Any]:
    """Return the event in the Elastic Common Schema, by the names of `klamm_spark.events.other_names`."""
    return other_names.ecs(event, timestamp(event))


def splunk(event: Event) -> dict[str, Any]:
    """Return the event in the form of Splunk's HTTP Event Collector."""
    about = {"host": event["node"], "source": "klamm", "sourcetype": "klamm:audit"}
    return {"time": event["time_us"] / 1e6, **about, "event": dict(event)}


RENDERERS: Final[dict[str, Callable[[Event], dict[str, Any] | None]]] = {
    "kip673": kip673,
    "cloudevents": cloudevents,
    "ocsf": ocsf,
    "ecs": ecs,
    "splunk": splunk,
}
"""The renderers, by the name of the format."""
