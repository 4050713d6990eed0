"""A process whose connections send one frame again and again: `python -m tests.faults.hostile_load PORT`.

A line on its input has the path of a frame and the number of connections. An empty line ends this load. The process
answers each line with the number of answers since the line before.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.peers.server import HOST


class _Load:
    """One frame on a number of connections, until it is stopped."""

    def __init__(self, port: int, frame: bytes, connections: int) -> None:
        self.answers = 0
        self._data = struct.pack(">i", len(frame)) + frame
        self._port = port
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(connections)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), 30.0) as sock:
                self._send_on(sock)

    def _send_on(self, sock: socket.socket) -> None:
        space = bytearray(1 << 20)
        while not self._stopping.is_set():
            sock.sendall(self._data)
            head = sock.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return
            left = struct.unpack(">i", head)[0]
            while left:
                received = sock.recv_into(space, min(left, len(space)))
                if not received:
                    return
                left -= received
            self.answers += 1

    def stop(self) -> int:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return self.answers


def main(port: int) -> None:
    """Start and stop loads as the lines of the input say."""
    load: _Load | None = None
    for line in sys.stdin:
        answers = load.stop() if load is not None else 0
        load = None
        if line.strip():
            path, connections = line.split()
            load = _Load(port, Path(path).read_bytes(), int(connections))
        print(answers, flush=True)


class HostileClients:
    """The process as a test uses it. It gets only the processor time that others leave, because real clients have their
    own machines.
    """

    def __init__(self, port: int, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.faults.hostile_load", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._file = folder / "frame"
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(self._process.pid, os.SCHED_IDLE, os.sched_param(0))
        self.answers = 0
        """Number of answers during the last load."""

    def _tell(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    @contextmanager
    def sending(self, frame: bytes, connections: int) -> Iterator[None]:
        """Send the frame on the connections during the block."""
        self._file.write_bytes(frame)
        self._tell(f"{self._file} {connections}")
        try:
            yield
        finally:
            self.answers = self._tell("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))
