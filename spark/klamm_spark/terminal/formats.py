"""Formats that show an event as a line, for `tail` and `export`: for people, a SIEM, and by `events.renderers`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm import __version__, escape_control_characters
from klamm_spark.events.event import AUDIT_GAP
from klamm_spark.events.lineage import open_lineage
from klamm_spark.events.other_names import TABLE, facts, otlp
from klamm_spark.events.renderers import RENDERERS, timestamp

Event = Mapping[str, Any]
_SHOWN_RESOURCES: Final = 5
_SEVERITIES: Final = {"denied": 7, "refused": 5, "error": 4, "unknown": 7}
_GAP_SEVERITY: Final = 9
_UNSET: Final = "(unset)"
_AUDIT_FACILITY: Final = 13
"""Syslog's facility "log audit"."""
_SYSLOG_SEVERITIES: Final = {"denied": 4, "refused": 4, "error": 4, "unknown": 5}
_SYSLOG_GAP, _SYSLOG_OTHER = 3, 6
_NOT_IN_SYSLOG: Final = re.compile(r"[^\x21-\x7e]")


def text(event: Event) -> str:
    """Return a line for a person: time, node, event, result, client, resources. Control characters are escaped."""
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
    """Return the old and new values of a change, e.g. `config.retention.ms:1000->2000`."""
    return [
        f"{one['name']}:{one.get('old_value', _UNSET)}->{one.get('new_value', _UNSET)}"
        for one in resource.get("attributes", ())
        if "old_value" in one or "new_value" in one
    ]


def cef(event: Event) -> str:
    """Return a line in ArcSight's Common Event Format, version 0.

    `cs6` has the resources, `TYPE:NAME`, joined by blanks. `flexString1` has old and new values.
    """
    kind = event["kind"]
    name = event.get("api_name") or f"{kind} {event['action']}"
    severity = _GAP_SEVERITY if kind == AUDIT_GAP else _SEVERITIES.get(event["outcome"], 2)
    head = ("klamm", "klamm", __version__, f"{kind}.{event['action']}", name, str(severity))
    fields = [("rt", event["time_us"] // 1000), ("cat", kind), ("app", "kafka"), ("act", name)]
    found = facts(event)
    for names in TABLE:
        value = found.get(names.field)
        if value in (None, "") or not names.cef:
            continue
        key, _, label = names.cef.partition(" ")
        if key == "src" and ":" in value:
            key, label = "c6a2", "Source IPv6 Address"
        fields += [(f"{key}Label", label), (key, value)] if label else [(key, value)]
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


def as_json(render: Callable[[Event], dict[str, Any] | None]) -> Callable[[Event], str | None]:
    """Return a format. Its lines are the JSON objects that `render` returns."""

    def line(event: Event) -> str | None:
        rendered = render(event)
        return None if rendered is None else json.dumps(rendered, separators=(",", ":"))

    return line


def syslog(event: Event) -> str:
    """Return a line by RFC 5424. The message is the event in JSON, the host the node, and the process the boot."""
    level = _SYSLOG_GAP if event["kind"] == AUDIT_GAP else _SYSLOG_SEVERITIES.get(event["outcome"], _SYSLOG_OTHER)
    lengths = ((event["node"], 255), ("klamm", 48), (event["boot"], 128), (event["action"], 32))
    words = (_NOT_IN_SYSLOG.sub("_", value)[:most] or "-" for value, most in lengths)
    message = json.dumps(event, separators=(",", ":")).replace("\x7f", "\\u007f")
    return f"<{_AUDIT_FACILITY * 8 + level}>1 {timestamp(event)} {' '.join(words)} - {message}"


FORMATS: Final[dict[str, Callable[[Event], str | None]]] = {
    "text": text,
    "jsonl": as_json(dict),
    "cef": cef,
    "syslog": syslog,
    "openlineage": as_json(open_lineage),
    "otlp": as_json(lambda event: otlp(event, text(event), __version__)),
    **{name: as_json(render) for name, render in RENDERERS.items()},
}
"""The formats by name. Each function returns an event as one line, or None if the format has no such events."""
