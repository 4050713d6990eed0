"""The transport `plaintext`: unencrypted bytes over a TCP socket. Follows Kafka's `PlaintextTransportLayer`.

A processor's thread calls all methods, except `abort`, which any thread may call.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence

from klamm import END_OF_STREAM, WOULD_BLOCK, Address, Buffer, Interest, Transport, TransportLayer
from klamm.runtime import PLATFORM

_CLOSING = threading.Lock()
"""Held while a socket is closed or aborted.

Without it, `abort` could shut down another connection, which got the descriptor of a socket that was just closed.
"""
_MORE = getattr(socket, "MSG_MORE", 0)


class PlaintextTransport(Transport):
    """The transport `plaintext`: no encryption, and every principal is ANONYMOUS."""

    security_protocol = "PLAINTEXT"

    def wrap(self, sock: socket.socket, peer: Address) -> PlaintextTransportLayer:
        return PlaintextTransportLayer(sock)


class PlaintextTransportLayer(TransportLayer):
    """One connected socket."""

    __slots__ = ("_descriptor", "_recv_into", "_send", "_send_parts", "_socket")

    may_splice = PLATFORM.has_splice

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._send_parts = PLATFORM.sender_of_parts(sock)

    def handshake(self) -> Interest:
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        try:
            return self._recv_into(buffer) or END_OF_STREAM
        except BlockingIOError:
            return WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        try:
            if len(chunks) == 1:
                return self._send(chunks[0], _MORE if more else 0)
            return self._send_parts(chunks, (), _MORE if more else 0)
        except BlockingIOError:
            return WOULD_BLOCK

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        try:
            sent = os.sendfile(self._descriptor, descriptor, position, count)
        except BlockingIOError:
            return WOULD_BLOCK
        if sent == 0:
            # The file was truncated, so waiting would not help.
            raise OSError("the file ended before the end of the region")
        return sent

    def splice_from(self, pipe: int, count: int) -> int:
        if sys.platform != "linux":
            raise NotImplementedError
        try:
            return os.splice(pipe, self._descriptor, count, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return WOULD_BLOCK

    def abort(self) -> None:
        with _CLOSING, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with _CLOSING:
            self._socket.close()
