"""`WireClient`: a blocking client that sends one message and waits for its answer, for the set-up of tests."""

from __future__ import annotations

import socket
import struct
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from klamm.wire.api_keys import SPECS
from klamm.wire.headers import encode_request_header, response_header_size
from klamm.wire.struct_base import Message
from tests.peers.probe import receive_frame
from tests.waiting import is_readable

_MODULES = {spec.api_key: (spec.module, spec.name) for spec in SPECS}


def encode_frame(
    request: Message, version: int, correlation_id: int = 0, client_id: str | None = "klamm-test"
) -> bytes:
    """Return a whole request frame, with its size."""
    frame = encode_request_header(request.API_KEY, version, correlation_id, client_id) + request.encode(version)
    return struct.pack(">i", len(frame)) + frame


class WireClient:
    """A client with one connection."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._correlation_id = 0

    def exchange(self, request: Message, version: int) -> bytes:
        """Send a request. Return the response frame. Raises OSError if the server closes, ValueError for another
        request's answer.
        """
        self._correlation_id += 1
        self._socket.sendall(encode_frame(request, version, self._correlation_id))
        frame = receive_frame(self._socket)
        (correlation_id,) = struct.unpack_from(">i", frame)
        if correlation_id != self._correlation_id:
            raise ValueError(f"asked {self._correlation_id}, answered {correlation_id}")
        return frame

    def call(self, request: Message, version: int) -> Any:
        """Send a request. Return the decoded response. Raises the errors of `exchange`."""
        frame = self.exchange(request, version)
        module, name = _MODULES[request.API_KEY]
        response = getattr(import_module(f"klamm.wire.messages.{module}"), f"{name}Response")
        return response.decode(version, frame, response_header_size(request.API_KEY, version))

    def send(self, frame: bytes) -> None:
        """Send a whole frame with its size, and wait for no answer."""
        self._socket.sendall(frame)

    def has_come(self, within_s: float) -> bool:
        """Return True if there are bytes to receive within this time, or the server has closed the connection."""
        return is_readable(self._socket, within_s)

    def receive(self) -> bytes:
        """Return the next response frame without its size. Raises OSError if the server closes."""
        return receive_frame(self._socket)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
