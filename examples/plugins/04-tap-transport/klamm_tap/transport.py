"""The transport `tap`: passes bytes unchanged, and copies them to files."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klamm import (
    END_OF_STREAM,
    WOULD_BLOCK,
    Address,
    Buffer,
    Interest,
    ListenerContext,
    Transport,
    TransportLayer,
    setting,
)


@dataclass(frozen=True, slots=True)
class TapSettings:
    """The table `tap` of a listener."""

    directory: Path = setting(doc="The folder of the copies; created if it does not exist.")


class TapTransport(Transport):
    """Gives each connection a number and two files."""

    settings: TapSettings

    def open(self, listener: ListenerContext) -> None:
        self._numbers = itertools.count(1)
        self.settings.directory.mkdir(parents=True, exist_ok=True)

    def wrap(self, sock: socket.socket, peer: Address) -> TapLayer:
        return TapLayer(sock, self.settings.directory / str(next(self._numbers)))


class TapLayer(TransportLayer):
    """The bytes of one connection. All calls come from the thread of its processor, so there is no lock."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self._socket = sock
        self._in = path.with_suffix(".in").open("wb", buffering=0)
        self._out = path.with_suffix(".out").open("wb", buffering=0)

    def handshake(self) -> Interest:
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return WOULD_BLOCK
        self._in.write(buffer[:count])
        return count or END_OF_STREAM

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        sent = 0
        for chunk in chunks:
            count = self._send(chunk)
            sent += count
            if count < len(chunk):
                break
        return sent

    def _send(self, chunk: Buffer) -> int:
        try:
            count = self._socket.send(chunk)
        except BlockingIOError:
            return WOULD_BLOCK
        self._out.write(memoryview(chunk)[:count])
        return count

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        data = os.pread(descriptor, min(count, 65536), position)
        if not data:
            raise OSError("the file ended before the end of the region")
        return self._send(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        self._in.close()
        self._out.close()
