"""Events as lines of JSON. The fields that all events of a connection share are encoded once."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Final

from klamm.wire.errors import ErrorCode
from klamm_spark.event import SCHEMA_VERSION
from klamm_spark.resources import Resource, Summary

if TYPE_CHECKING:
    from klamm import Address, ConnectionContext, ListenerContext, RequestContext

_text: Final = encode_basestring_ascii
_ERROR_NAMES: Final = {int(code): f',"error_name":"{code.name}"' for code in ErrorCode if code}


def error_fields(code: int) -> str:
    """`error_code`, and `error_name` unless it is 0."""
    return f',"error_code":{code}{_ERROR_NAMES.get(code, "") if code else ""}'


def listener_fields(listener: ListenerContext) -> str:
    """The fields that all connections of a listener share."""
    return (
        f',"listener":{_text(listener.name)},"transport":{_text(listener.transport)}'
        f',"security_protocol":{_text(listener.security_protocol)}'
    )


def address_fields(address: Address) -> str:
    """The client's address."""
    return f',"client_address":{_text(address.host)},"client_port":{address.port}'


def connection_fields(connection: ConnectionContext) -> str:
    """The fields that all requests of a connection share."""
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
            f',"principal":{_text(str(connection.principal))}',
            f',"client_software_name":{_text(connection.client_software_name)}',
            f',"client_software_version":{_text(connection.client_software_version)}',
            *(f',"{name}":{_text(value)}' for name, value in optional if value),
        )
    )


def resource_fields(summary: Summary) -> str:
    """`resources`, if there are any, and `resource_count`, if some were cut."""
    if not summary.resources:
        return ""
    listed = ",".join(map(_resource, summary.resources))
    cut = f',"resource_count":{summary.count}' if summary.count > len(summary.resources) else ""
    return f',"resources":[{listed}]{cut}'


def _resource(resource: Resource) -> str:
    parts = [f'{{"type":"{resource.type}","name":{_text(resource.name)}']
    if resource.granted is not None:
        parts.append(f',"operation":"{resource.operation}","granted":{"true" if resource.granted else "false"}')
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


def request_fields(request: RequestContext) -> str:
    """The fields of the request's header."""
    client_id = f',"client_id":{_text(request.client_id)}' if request.client_id is not None else ""
    return (
        f'{client_id},"api_key":{request.api_key},"api_name":"{request.handler.name}"'
        f',"api_version":{request.api_version},"correlation_id":{request.correlation_id}'
    )


def stage_times(request: RequestContext, end_ns: int) -> str:
    """The stage times of one request whose answer was out at `end_ns`, if they were taken."""
    if not request.received_ns:
        return ""
    received, start, local_end = request.received_ns, request.handler_start_ns, request.local_end_ns
    completed, dequeued = request.completed_ns, request.dequeued_ns
    return stage_fields(
        1e6,
        start - received,
        local_end - start,
        completed - local_end,
        request.throttle_time_ms,
        dequeued - completed if dequeued else 0,
        end_ns - (dequeued or completed),
        end_ns - received,
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
    """Stage times, each divided to milliseconds but `throttle_ms`, which are that already."""
    return (
        f',"request_queue_time_ms":{max(0, queue_ns) / divisor:.3f},"local_time_ms":{max(0, local_ns) / divisor:.3f}'
        f',"remote_time_ms":{max(0, remote_ns) / divisor:.3f},"throttle_time_ms":{throttle_ms:.3f}'
        f',"response_queue_time_ms":{max(0, response_queue_ns) / divisor:.3f}'
        f',"send_time_ms":{max(0, send_ns) / divisor:.3f},"total_time_ms":{max(0, total_ns) / divisor:.3f}'
    )


def fields_of(**values: Any) -> str:
    """Further fields; None and empty texts are left out."""
    parts = []
    for name, value in values.items():
        if isinstance(value, str):
            if value:
                parts.append(f',"{name}":{_text(value)}')
        elif isinstance(value, float):
            parts.append(f',"{name}":{value:.3f}')
        elif value is not None:
            parts.append(f',"{name}":{value}')
    return "".join(parts)


class LineEncoder:
    """Encodes events and numbers them."""

    def __init__(self, node: str, boot: str) -> None:
        self._head = f'{{"schema_version":{SCHEMA_VERSION},"event_id":"{node}/{boot}/'
        self._middle = f'","node":"{node}","boot":"{boot}","seq":'
        self.next_seq = 0

    def line(self, time_us: int, kind: str, action: str, outcome: str, fields: str) -> str:
        """One event; `fields` begins with a comma, or is empty."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return (
            f'{self._head}{seq}{self._middle}{seq},"time_us":{time_us},"kind":"{kind}","action":"{action}"'
            f',"outcome":"{outcome}"{fields}}}\n'
        )
