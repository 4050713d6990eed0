"""`ServiceManager`, which reports the server's state to systemd and its watchdog (`man sd_notify`)."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final

_US_PER_MS: Final = 1000


class ServiceManager:
    """The service manager that has started this process. Without one, the methods do nothing.

    `klamm serve`, or the parent of workers, makes it and calls it on the main thread.

    The constructor removes the manager's environment variables.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watched = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_ms = int(watchdog_us) // _US_PER_MS if watchdog_us and watched else None
        """The process is killed if `alive` is not called within this time; None without a watchdog."""

    def ready(self, status: str) -> None:
        """Report that every listener answers, or that a reload has ended."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Report that the server reads its configuration again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the server begins to stop."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Report to the watchdog that the server does its work."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        # The server must serve even if the service manager does not listen.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.sendto(state.encode(), address)
