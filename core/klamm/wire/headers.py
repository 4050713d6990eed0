"""Request and response headers. They follow Kafka's `RequestHeader.parse` and KIP-482.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm.wire.api_keys import SPECS
from klamm.wire.primitives import DECODE_ERRORS, ReadBuffer, WireError, skip_tagged_fields

_HEADER: Final = Struct(">hhih")
_V0: Final = Struct(">hhi")
_NEVER: Final = 32767
_MAX_TAGGED_FIELDS: Final = 64
"""The maximum number of tagged fields in a request header. Kafka defines none so far. The number must fit in a byte."""
_CONTROLLED_SHUTDOWN: Final = 7
_FLEXIBLE_FROM: Final = tuple(
    {spec.api_key: spec.flexible_from for spec in SPECS}.get(api_key, _NEVER)
    for api_key in range(max(spec.api_key for spec in SPECS) + 1)
)
_KNOWN: Final = len(_FLEXIBLE_FROM)


def decode_request_header(frame: ReadBuffer) -> tuple[int, int, int, str | None, int]:
    """Return API key, version, correlation id, client id, and the position of the body. Raises WireError.

    An unknown key or version is not an error here: the header is read like that of the nearest known key or version.
    """
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
        if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
            return api_key, api_version, correlation_id, None, _V0.size
        position = 10
        client_id: str | None = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise WireError(f"client id of {length} bytes, {len(frame) - 10} are left")
            client_id = str(frame[10:position], "utf-8")
        if 0 <= api_key < _KNOWN and api_version >= _FLEXIBLE_FROM[api_key]:
            if frame[position]:
                if frame[position] > _MAX_TAGGED_FIELDS:
                    raise WireError(f"more than {_MAX_TAGGED_FIELDS} tagged fields in the header")
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
        return api_key, api_version, correlation_id, client_id, position
    except DECODE_ERRORS as error:
        raise WireError(str(error)) from error


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of a request's header: 0, 1 or 2.

    Only ControlledShutdown v0 has version 0, without a client id.
    """
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if 0 <= api_key < _KNOWN and api_version >= _FLEXIBLE_FROM[api_key] else 1


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """Return the request header that a client sends before the body."""
    version = request_header_version(api_key, api_version)
    head = _V0.pack(api_key, api_version, correlation_id)
    if version == 0:
        return head
    data = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(data)
    return head + length.to_bytes(2, "big", signed=True) + data + (b"\0" if version == 2 else b"")


def response_header_size(api_key: int, api_version: int) -> int:
    """Return the size of a response's header: the correlation id, and in flexible versions a count of tagged fields.

    The header of ApiVersions never has tagged fields, because the client may not know the server's versions yet
    (KIP-511).
    """
    return 5 if api_key != 18 and request_header_version(api_key, api_version) == 2 else 4
