"""Events as lines of text: for people, for a SIEM, and in the formats of `klamm_spark.events.renderers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm import __version__, escape_control_characters
from klamm_spark.events.event import AUDIT_GAP
from klamm_spark.events.renderers import RENDERERS, timestamp, user_of

Event = Mapping[str, Any]
_SHOWN_RESOURCES: Final = 5
_SEVERITIES: Final = {"denied": 7, "refused": 5, "error": 4, "unknown": 7}
_GAP_SEVERITY: Final = 9
_UNSET: Final = "(unset)"
_CEF_TEXTS: Final = (
    ("src", "client_address"),
    ("spt", "client_port"),
    ("requestClientApplication", "client_software_name"),
    ("outcome", "outcome"),
    ("reason", "reason"),
    ("msg", "detail"),
    ("in", "request_bytes"),
    ("out", "response_bytes"),
    ("cnt", "repeat_count"),
    ("dvchost", "node"),
    ("externalId", "event_id"),
    ("deviceInboundInterface", "listener"),
)
_CEF_LABELLED: Final = (
    ("cs1", "clientId", "client_id"),
    ("cs2", "errorName", "error_name"),
    ("cs3", "saslMechanism", "sasl_mechanism"),
    ("cs4", "attemptedPrincipal", "attempted_principal"),
    ("cs5", "connectionId", "connection_id"),
    ("flexString2", "certificateIssuer", "certificate_issuer"),
)


def text(event: Event) -> str:
    """One line for a person: time, what happened, who, what, the result. Control characters are escaped."""
    words = [timestamp(event), event["node"], _what(event)]
    count = event.get("repeat_count")
    if count is not None and count != 1:
        words.append(f"x{count}")
    words.append(event["outcome"])
    words.extend(_who(event))
    words.extend(_resources(event))
    if event.get("upstream_node_id") is not None:
        words.append(f"node={event['upstream_node_id']} remote_ms={event.get('remote_time_ms', 0.0):.3f}")
    ends = (("error", "error_name"), ("reason", "reason"), ("detail", "detail"))
    words.extend(f"{key}={event[name]}" for key, name in ends if event.get(name))
    return escape_control_characters(" ".join(words))


def _what(event: Event) -> str:
    if "api_name" in event:
        what = f"{event['api_name']} v{event['api_version']}"
        return what if event["action"] == "completed" else f"{what} {event['action']}"
    return f"{event['kind']} {event['action']}"


def _who(event: Event) -> list[str]:
    words = []
    if "principal" in event:
        words.append(f"{event['principal']}@{event['client_address']}")
    elif "client_address" in event:
        words.append(f"@{event['client_address']}")
    if event.get("listener"):
        words.append(f"listener={event['listener']}")
    if event.get("attempted_principal"):
        words.append(f"attempted={event['attempted_principal']}")
    certificate = ("certificate_subject", "certificate_issuer")
    words.extend(f"{name}={event[name]}" for name in certificate if event.get(name))
    if event.get("client_id"):
        words.append(f"client={event['client_id']}")
    return words


def _resources(event: Event) -> list[str]:
    resources = event.get("resources", ())
    words = []
    for one in resources[:_SHOWN_RESOURCES]:
        denied = "!" if one.get("granted") is False else ""
        operation = f":{one['operation']}" if "operation" in one else ""
        words.append(f"{denied}{one['type']}:{one['name']}{operation}")
        words.extend(_changed(one))
    more = max(event.get("resource_count", 0), len(resources)) - _SHOWN_RESOURCES
    if more > 0:
        words.append(f"(+{more} more)")
    return words


def _changed(resource: Mapping[str, Any]) -> list[str]:
    """The values that a change replaced, e.g. `config.retention.ms:1000->2000`."""
    return [
        f"{one['name']}:{one.get('old_value', _UNSET)}->{one.get('new_value', _UNSET)}"
        for one in resource.get("attributes", ())
        if "old_value" in one or "new_value" in one
    ]


def cef(event: Event) -> str:
    """ArcSight's Common Event Format, version 0; resources stand in `cs6`, as TYPE:NAME, separated by blanks.

    Old and new values stand in `flexString1`.
    """
    kind = event["kind"]
    name = event.get("api_name") or f"{kind} {event['action']}"
    severity = _GAP_SEVERITY if kind == AUDIT_GAP else _SEVERITIES.get(event["outcome"], 2)
    head = ("klamm", "klamm", __version__, f"{kind}.{event['action']}", name, str(severity))
    fields = [("rt", event["time_us"] // 1000), ("cat", kind), ("app", "kafka"), ("act", name)]
    fields += [(key, event[field]) for key, field in _CEF_TEXTS if event.get(field) is not None]
    if event.get("principal") is not None:
        fields.append(("suser", user_of(event)))
    for key, label, field in _CEF_LABELLED:
        if event.get(field):
            fields += [(f"{key}Label", label), (key, event[field])]
    if event.get("resources"):
        resources = " ".join(f"{one['type']}:{one['name']}" for one in event["resources"])
        fields += [("cs6Label", "resources"), ("cs6", resources)]
        changed = [f"{one['type']}:{one['name']} {text}" for one in event["resources"] for text in _changed(one)]
        if changed:
            fields += [("flexString1Label", "changedValues"), ("flexString1", "; ".join(changed))]
    body = " ".join(f"{key}={_cef_value(str(value))}" for key, value in fields)
    return "|".join(("CEF:0", *map(_cef_header, head), body))


def _cef_header(value: str) -> str:
    return escape_control_characters(value.replace("\\", "\\\\").replace("|", "\\|"))


def _cef_value(value: str) -> str:
    return escape_control_characters(value.replace("\\", "\\\\").replace("=", "\\="))


def _as_json(render: Callable[[Event], dict[str, Any] | None]) -> Callable[[Event], str | None]:
    def line(event: Event) -> str | None:
        rendered = render(event)
        return None if rendered is None else json.dumps(rendered, separators=(",", ":"))

    return line


FORMATS: Final[dict[str, Callable[[Event], str | None]]] = {
    "text": text,
    "jsonl": _as_json(dict),
    "cef": cef,
    **{name: _as_json(render) for name, render in RENDERERS.items()},
}
"""By name: one line for an event, or None where the format has no such events."""
