"""Functions that encode events as lines of JSON, and `LineEncoder`, which numbers them.

`Recorder` calls them on the writer's thread. The fields that all events of a connection share are encoded once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, RequestContext, RequestEvent, clipped
from klamm.acl import Verdict
from klamm.wire.errors import ErrorCode
from klamm_spark.events.event import SCHEMA_VERSION
from klamm_spark.requests.resources import Resource, Summary

MAX_CHARACTERS: Final = 256
"""The maximum number of characters of a string that a client has chosen."""
MAX_EVENT_BYTES: Final = 64 * 1024
"""The maximum bytes of a line. Resources that exceed it come in further events of the same request."""
_HASH_CHARACTERS: Final = 32
_MAX_SENTENCE: Final = 1024
_MAX_HEAD_BYTES: Final = 2048
"""The maximum bytes that `LineEncoder.line` adds, with the numbers of parts."""
_MAX_RESOURCE_BYTES: Final = 16 * 1024
_ERROR_NAMES: Final = {int(code): f',"error_name":"{code.name}"' for code in ErrorCode if code}


def cut(text: str) -> str:
    """Return a string of at most `MAX_CHARACTERS`. A hash replaces the rest of a longer one, so that names stay
    distinct.
    """
    if len(text) <= MAX_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    return f"{text[: MAX_CHARACTERS - _HASH_CHARACTERS - 1]}…{digest}"


def _text(text: str) -> str:
    return encode_basestring_ascii(text if len(text) <= MAX_CHARACTERS else cut(text))


def error_fields(code: int) -> str:
    """Return `error_code`, and `error_name` unless the code is 0."""
    return f',"error_code":{code}{_ERROR_NAMES.get(code, "") if code else ""}'


def listener_fields(listener: ListenerContext) -> str:
    """Return the fields that all connections of a listener share."""
    return (
        f',"listener":{_text(listener.name)},"transport":{_text(listener.transport)}'
        f',"security_protocol":{_text(listener.security_protocol)}'
    )


def address_fields(address: Address) -> str:
    """Return the client's address."""
    return f',"client_address":{_text(address.host)},"client_port":{address.port}'


def connection_fields(connection: ConnectionContext, principal: KafkaPrincipal) -> str:
    """Return the fields that all requests of a connection share."""
    details = connection.transport_details
    optional = (
        ("tls_version", details.get("tls_version")),
        ("tls_cipher", details.get("tls_cipher")),
        ("sni", details.get("tls_server_name")),
        ("sasl_mechanism", connection.sasl_mechanism),
    )
    return "".join(
        (
            listener_fields(connection.listener),
            address_fields(connection.client_address),
            f',"connection_id":{_text(connection.connection_id)}',
            f',"principal":{_text(str(principal))}',
            f',"client_software_name":{_text(connection.client_software_name)}',
            f',"client_software_version":{_text(connection.client_software_version)}',
            *(f',"{name}":{_text(value)}' for name, value in optional if value),
        )
    )


def principal_fields(attempted: str) -> str:
    """Return the principal that a failed login claimed, if it claimed one."""
    return f',"attempted_principal":{_text(attempted)}' if attempted else ""


def certificate_fields(details: Mapping[str, str]) -> str:
    """Return the fields of a certificate that was refused, from the details of the transport."""
    return "".join(
        f',"certificate_{part}":{_text(details[f"tls_client_{part}"])}'
        for part in ("subject", "issuer", "serial_number")
        if f"tls_client_{part}" in details
    )


def resource_fields(summary: Summary, size_bytes: int) -> str:
    """Return the field `resources`, if there are any, and `resource_count`, if some were left out.

    The rest of the event has `size_bytes`.
    """
    if not summary.resources:
        return ""
    listed = next(packed(map(_resource, summary.resources), MAX_EVENT_BYTES - _MAX_HEAD_BYTES - size_bytes))
    omitted = f',"resource_count":{summary.count}' if summary.count > len(listed) else ""
    return f',"resources":[{",".join(listed)}]{omitted}'


def split_resources(texts: Iterable[str], size_bytes: int) -> list[str]:
    """Return the fields `resources`, `part` and `parts` for each of the events that all resources need.

    The rest of each event has `size_bytes`.
    """
    parts = list(packed(texts, MAX_EVENT_BYTES - _MAX_HEAD_BYTES - size_bytes))
    if len(parts) < 2:
        return [f',"resources":[{",".join(part)}]' for part in parts] or [""]
    return [
        f',"part":{number},"parts":{len(parts)},"resources":[{",".join(part)}]'
        for number, part in enumerate(parts, start=1)
    ]


def packed(texts: Iterable[str], limit: int) -> Iterator[list[str]]:
    """Yield texts in lists of at most `limit` characters with commas. A longer text has a list of its own."""
    listed: list[str] = []
    size = 0
    for text in texts:
        if listed and size + len(text) + 1 > limit:
            yield listed
            listed, size = [], 0
        listed.append(text)
        size += len(text) + 1
    if listed:
        yield listed


def resource_texts(summary: Summary) -> Iterator[str]:
    """Yield the text of each resource. A resource with many attributes comes several times, each time with some of
    them.
    """
    for resource in summary.resources:
        if resource.attributes is None:
            yield _resource(resource)
            continue
        changed = resource.changed or {}
        texts = (_attribute(each, changed.get(each[0])) for each in resource.attributes)
        for attributes in packed(texts, _MAX_RESOURCE_BYTES):
            yield f'{_resource(resource)[:-1]},"attributes":[{",".join(attributes)}]}}'


def _attribute(attribute: tuple[str, str | None, str | None], changed: tuple[str | None, str | None] | None) -> str:
    name, value, operation = attribute
    old, new = changed or (None, None)
    others = (("operation", operation), ("value", value), ("old_value", old), ("new_value", new))
    rest = "".join(f',"{field}":{_text(text)}' for field, text in others if text is not None)
    return f'{{"name":{_text(name)}{rest}}}'


@lru_cache(maxsize=4096)
def _authority(verdict: Verdict) -> str:
    """Return the fields about a decision: its maker, and the rule."""
    if verdict.acl is None:
        return f',"decided_by":{_text(verdict.decided_by)}' if verdict.decided_by else ""
    acl = verdict.acl
    return (
        f',"decided_by":{_text(verdict.decided_by)},"acl_operation":"{acl.operation.name}"'
        f',"acl_pattern_type":"{acl.pattern_type.name}","acl_name":{_text(acl.resource_name)}'
        f',"acl_principal":{_text(acl.principal)},"acl_host":{_text(acl.host)}'
    )


def _resource(resource: Resource) -> str:
    parts = [f'{{"type":{_text(resource.type)},"name":{_text(resource.name)}']
    if resource.granted is not None:
        parts.append(f',"operation":"{resource.operation}","granted":{"true" if resource.granted else "false"}')
        if resource.verdict is not None:
            parts.append(_authority(resource.verdict))
    if resource.error_code:
        parts.append(error_fields(resource.error_code))
    if resource.partitions is not None:
        parts.append(f',"partitions":{resource.partitions}')
    if resource.records is not None:
        parts.append(f',"records":{resource.records}')
    if resource.bytes is not None:
        parts.append(f',"bytes":{resource.bytes}')
    parts.append("}")
    return "".join(parts)


def context_fields(context: RequestContext) -> str:
    """Return the fields of the request's header."""
    client_id = f',"client_id":{_text(context.client_id)}' if context.client_id is not None else ""
    return (
        f'{client_id},"api_key":{context.api_key},"api_name":"{context.api_name}"'
        f',"api_version":{context.api_version},"correlation_id":{context.correlation_id}'
    )


def stage_times(event: RequestEvent) -> str:
    """Return the stage times of one request."""
    times = event.times
    return stage_fields(
        1e6,
        times.request_queue_ns,
        times.local_ns,
        times.remote_ns,
        event.context.throttle_time_ms,
        times.response_queue_ns,
        times.send_ns,
        times.total_ns,
    )


def stage_fields(
    divisor: float,
    queue_ns: int,
    local_ns: int,
    remote_ns: int,
    throttle_ms: float,
    response_queue_ns: int,
    send_ns: int,
    total_ns: int,
) -> str:
    """Return the fields of stage times. Each time is divided by `divisor` to milliseconds, except `throttle_ms`."""
    return (
        f',"request_queue_time_ms":{max(0, queue_ns) / divisor:.3f},"local_time_ms":{max(0, local_ns) / divisor:.3f}'
        f',"remote_time_ms":{max(0, remote_ns) / divisor:.3f},"throttle_time_ms":{throttle_ms:.3f}'
        f',"response_queue_time_ms":{max(0, response_queue_ns) / divisor:.3f}'
        f',"send_time_ms":{max(0, send_ns) / divisor:.3f},"total_time_ms":{max(0, total_ns) / divisor:.3f}'
    )


def fields_of(**values: Any) -> str:
    """Return further fields. Values that are None and empty texts are left out."""
    parts = []
    for name, value in values.items():
        if isinstance(value, str):
            if value:
                parts.append(f',"{name}":{encode_basestring_ascii(clipped(value, _MAX_SENTENCE))}')
        elif isinstance(value, float):
            parts.append(f',"{name}":{value:.3f}')
        elif value is not None:
            parts.append(f',"{name}":{value}')
    return "".join(parts)


class LineEncoder:
    """Encodes the events of one stream, and numbers them. Only the writer's thread calls it."""

    def __init__(self, node: str, boot: str) -> None:
        self._head = f'{{"schema_version":{SCHEMA_VERSION},"event_id":"{node}/{boot}/'
        self._middle = f'","node":"{node}","boot":"{boot}","seq":'
        self.next_seq = 0

    def line(self, time_us: int, kind: str, action: str, outcome: str, fields: str) -> str:
        """Return the line of one event; `fields` begins with a comma, or is empty."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return (
            f'{self._head}{seq}{self._middle}{seq},"time_us":{time_us},"kind":"{kind}","action":"{action}"'
            f',"outcome":"{outcome}"{fields}}}\n'
        )
