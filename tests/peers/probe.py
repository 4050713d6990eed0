"""The smallest Kafka client: one ApiVersions request over a raw socket."""

from __future__ import annotations

import socket
import struct

API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A whole frame: size, API key 18, version 0, correlation id 1, no client id."""


def receive_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    """Return this number of bytes. Raises ConnectionError if the peer closes the connection before."""
    data = bytearray()
    while len(data) < size_bytes:
        piece = connection.recv(size_bytes - len(data))
        if not piece:
            raise ConnectionError(f"closed after {len(data)} of {size_bytes} bytes")
        data += piece
    return bytes(data)


def receive_frame(connection: socket.socket) -> bytes:
    """Receive one response. Return it without its size."""
    (size_bytes,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size_bytes)


def answers_api_versions(host: str, port: int, timeout_s: float = 5.0) -> bool:
    """Return True if a server answers ApiVersions v0 without an error."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(API_VERSIONS_V0)
            correlation_id, error_code = struct.unpack_from(">ih", receive_frame(connection))
    except OSError:
        return False
    return bool(correlation_id == 1 and error_code == 0)
