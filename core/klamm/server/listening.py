"""What a listener listens with: its socket, and the loop that accepts from it."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.network.acceptor import Acceptor, set_connection_options
from klamm.network.acceptor_thread import AcceptorThread

if TYPE_CHECKING:
    from klamm.config.settings import ListenerSettings
    from klamm.network.processor import Processor
    from klamm.network.runtime import ListenerRuntime


def listening_socket(settings: ListenerSettings, host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    with contextlib.ExitStack() as opened:
        made = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.socket_receive_buffer_bytes > 0:
            # The window scale is agreed on at the handshake, so the listening socket must have it.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
        set_connection_options(made, settings.socket_send_buffer_bytes)
        made.bind(address)
        made.listen(settings.backlog)
        opened.pop_all()
        return made


class AcceptorLoop:
    """Runs an acceptor: a single processor on its own thread; with several processors, an acceptor thread."""

    def __init__(self, acceptor: Acceptor, runtime: ListenerRuntime) -> None:
        self._acceptor = acceptor
        self._runtime = runtime
        self._thread: AcceptorThread | None = None
        self._processor: Processor | None = None

    def begin(self, processors: Sequence[Processor]) -> None:
        """Accept connections for these processors."""
        if len(processors) == 1:
            self._processor = processors[0]
            self._processor.listen(self._acceptor)
            return
        self._thread = AcceptorThread(self._acceptor, self._runtime.clock, self._runtime.limits.poller)
        self._thread.start()

    def pause(self) -> None:
        """Accept no more until `begin`; the listening socket stays open."""
        if self._processor is not None:
            self._processor.stop_listening()
        if self._thread is not None:
            self._thread.stop()
        self._processor = self._thread = None
