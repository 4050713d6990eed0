"""`UpstreamConnection`: a socket to a node, on the loop of the client's connection. A `ClientSession` owns it."""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from klamm import Interest
from klamm.forwarding import ConnectionLink
from klamm.runtime import PLATFORM
from klamm.wire.chunks import Buffer
from klamm_gateway.upstream.protocol import Exchange, UpstreamProtocol
from klamm_gateway.upstream.security import SocketAddress
from klamm_gateway.upstream.states import UpstreamError, UpstreamState

log = logging.getLogger("klamm.gateway")

INTERNAL_ERROR: Final = "internal_error"
_READ_BYTES: Final = 256 * 1024
# Size of the first read of a response that may become a stream. It is small, because the rest of a stream may pass from
# socket to socket and need not be read into memory.
_FIRST_BYTES: Final = 16 * 1024
_SPLICED_FROM_BYTES: Final = 16 * 1024
_GATHER: Final = 32
# Used for every request. Plain numbers are faster than members of a flag.
_READ: Final = int(Interest.READ)
_WRITE: Final = int(Interest.WRITE)
_TLS_RECORD_BYTES: Final = 16 * 1024
_IN_PROGRESS: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_buffers = threading.local()


class UpstreamConnection:
    """A connection to a node. All methods must be called on the loop's thread. `lost` is called once, when the
    connection fails or the node closes it; it is not called after `close` or `finish`.
    """

    def __init__(
        self,
        link: ConnectionLink,
        protocol: UpstreamProtocol,
        context: ssl.SSLContext | None,
        host: str,
        lost: Callable[[UpstreamError], None],
    ) -> None:
        self._link = link
        self.protocol = protocol
        self._context = context
        self._host = host
        self._lost = lost
        self._socket: socket.socket
        self._send_parts: Callable[[Sequence[Buffer], Sequence[Buffer], int], int]
        self._others: Sequence[SocketAddress] = ()
        self._descriptor = -1
        self._interest = -1
        self._paused = False
        self._when_sent: list[Callable[[], None]] = []

    def connect(self, addresses: Sequence[SocketAddress]) -> None:
        """Connect to the first address that accepts the connection. If all addresses fail, `lost` gets the error, maybe
        before this method returns.
        """
        (family, where), self._others = addresses[0], addresses[1:]
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            # The process has no descriptor left, or the system lacks the address family.
            self.fail(UpstreamError("connection_failed", error.strerror or str(error)))
            return
        self._descriptor = self._socket.fileno()
        self._send_parts = PLATFORM.sender_of_parts(self._socket)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = self._socket.connect_ex(where)
        if number not in _IN_PROGRESS:
            self.fail(UpstreamError("connection_failed", os.strerror(number)))
            return
        self._watch(_WRITE)

    def send(self, frame: list[Buffer], exchange: Exchange | None) -> None:
        """Send a request as soon as the node accepts it."""
        self.protocol.send(frame, exchange)
        if self.protocol.state is UpstreamState.READY:
            self._guarded(self._write)

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call back once all bytes that were passed to `send` are sent, maybe before this method returns. There is no
        call if the connection fails before.
        """
        if self.protocol.has_unsent:
            self._when_sent.append(callback)
        else:
            callback()

    def resume(self) -> None:
        """Continue reading, because the client accepts answers again."""
        if self._paused and self.protocol.state is not UpstreamState.CLOSED:
            self._paused = False
            # TLS may hold bytes although the socket is not readable.
            self._guarded(self._read)
            self._update_interest()

    def finish(self) -> None:
        """Close the connection once the queued bytes are sent. The client is gone, so all answers are ignored."""
        protocol = self.protocol
        if protocol.state is UpstreamState.READY and protocol.has_unsent:
            protocol.transition_to(UpstreamState.FINISHING)
            protocol.exchanges.clear()
            self._update_interest()
        else:
            self.close()

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        if self.protocol.state is UpstreamState.CLOSED:
            return
        self.protocol.transition_to(UpstreamState.CLOSED)
        self._give_back_descriptor()

    def _give_back_descriptor(self) -> None:
        # After the close, the descriptor's number may belong to another connection.
        if self._interest >= 0:
            self._link.forget(self._descriptor)
            self._interest = -1
        if self._descriptor >= 0:
            self._descriptor = -1
            self._socket.close()

    # ---- called by the loop

    def _ready(self, mask: int) -> None:
        state = self.protocol.state
        if state is UpstreamState.CONNECTING:
            self._guarded(self._connected)
        elif state is UpstreamState.HANDSHAKE:
            self._guarded(self._handshake)
        else:
            if mask & _WRITE and self.protocol.outgoing:
                self._guarded(self._write)
            if mask & _READ and self.protocol.state is not UpstreamState.CLOSED:
                self._guarded(self._read)
            self._update_interest()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except UpstreamError as error:
            self.fail(error)
        except OSError as error:
            reason = "tls_failed" if isinstance(error, ssl.SSLError) else "connection_lost"
            self.fail(UpstreamError(reason, str(error)))
        except Exception as error:
            # After a bug too, the connection must end, because the client would otherwise wait for ever.
            log.exception("node %s: its connection failed", self._host)
            self.fail(UpstreamError(INTERNAL_ERROR, repr(error)))

    def fail(self, error: UpstreamError) -> None:
        """Try the next address if the connection is not established. Otherwise, close the connection and call `lost`.

        `lost` is not called for a connection that is closed or finishing.
        """
        if self.protocol.state is UpstreamState.CONNECTING and self._others:
            self._give_back_descriptor()
            self.connect(self._others)
        elif self.protocol.state is not UpstreamState.CLOSED:
            finishing = self.protocol.state is UpstreamState.FINISHING
            self.close()
            if not finishing:
                self._lost(error)

    def _connected(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise UpstreamError("connection_failed", os.strerror(number))
        if self._context is None:
            self._secured()
            return
        self.protocol.transition_to(UpstreamState.HANDSHAKE)
        # The wrapped socket takes over the descriptor.
        self._socket = self._context.wrap_socket(
            self._socket, server_hostname=self._host, do_handshake_on_connect=False
        )
        self._handshake()

    def _handshake(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(_READ)
        except ssl.SSLWantWriteError:
            self._watch(_WRITE)
        else:
            self._secured()

    def _secured(self) -> None:
        self.protocol.secured()
        self._write()
        self._update_interest()

    def _write(self) -> None:
        outgoing = self.protocol.outgoing
        while outgoing:
            try:
                if self._context is not None:
                    sent = self._socket.send(_first_bytes(outgoing))
                elif len(outgoing) == 1:
                    sent = self._socket.send(outgoing[0])
                else:
                    sent = self._send_parts(list(islice(outgoing, _GATHER)), (), 0)
            except _WOULD_BLOCK:
                break
            # A body may be empty. Its buffer counts as sent once the buffers before it are sent.
            while outgoing and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = memoryview(outgoing[0])[sent:]
        if outgoing:
            if not self._interest & _WRITE:
                self._update_interest()
        elif self.protocol.state is UpstreamState.FINISHING:
            self.close()
        elif self._when_sent:
            callbacks, self._when_sent = self._when_sent, []
            for callback in callbacks:
                callback()

    def _read(self) -> None:
        """Read bytes as long as the client accepts the answers."""
        protocol = self.protocol
        buffer = _read_buffer()
        while protocol.state is not UpstreamState.CLOSED:
            if not self._link.can_send:
                self._paused = True
                return
            stream = protocol.stream
            try:
                if self._context is not None or (stream is not None and not stream.takes_sockets):
                    count = self._socket.recv_into(buffer)
                elif stream is not None and protocol.unread_bytes >= min(stream.remaining, _SPLICED_FROM_BYTES):
                    count = stream.put_from(self._descriptor, protocol.unread_bytes)
                    protocol.passed(count)
                    if count:
                        if protocol.stream is not None and not protocol.unread_bytes:
                            # The next bytes are needed, and have probably arrived.
                            continue
                        return
                else:
                    first = stream is not None or protocol.may_stream
                    count = self._socket.recv_into(buffer[:_FIRST_BYTES] if first else buffer)
            except _WOULD_BLOCK:
                return
            if not count:
                raise UpstreamError("closed_by_node", "the node closed the connection")
            if protocol.state is not UpstreamState.FINISHING:
                streaming = protocol.stream is not None
                try:
                    protocol.receive(buffer[:count])
                finally:
                    if streaming and not self._link.can_send:
                        # The client has not accepted all bytes, so the buffer is still in use.
                        buffer = _read_buffer(fresh=True)
                if protocol.outgoing:
                    self._write()
            if count == _FIRST_BYTES and protocol.stream is None and protocol.has_part:
                continue
            # Continued in a later turn, because other connections may wait. TLS may hold bytes although the socket is
            # not readable.
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                return

    def _update_interest(self) -> None:
        if self.protocol.state is UpstreamState.CLOSED:
            return
        self._watch((0 if self._paused else _READ) | (_WRITE if self.protocol.outgoing else 0))

    def _watch(self, interest: int) -> None:
        if interest != self._interest:
            self._interest = interest
            self._link.watch(self._descriptor, interest, self._ready)


def _first_bytes(outgoing: deque[Buffer]) -> Buffer:
    """Return the bytes for one TLS record, with small buffers joined."""
    if len(outgoing) == 1 or len(outgoing[0]) >= _TLS_RECORD_BYTES:
        return outgoing[0]
    return b"".join(islice(outgoing, 2))


def _read_buffer(*, fresh: bool = False) -> memoryview:
    buffer: memoryview | None = getattr(_buffers, "read", None)
    if buffer is None or fresh:
        buffer = _buffers.read = memoryview(bytearray(_READ_BYTES))
    return buffer
