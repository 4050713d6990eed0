"""`Connected`: a transport layer and its peer, over a loopback connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klamm.api.context import Address
from klamm.api.transport import END_OF_STREAM, WOULD_BLOCK, Interest, Transport, TransportLayer
from klamm.testing.conformance import rules
from klamm.testing.conformance.rules import Broken, ensure, within_patience

Connect = Callable[[socket.socket], socket.socket]


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the server's socket of a new connection, which is non-blocking, and the client's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), timeout=rules.PATIENCE_S)
        server, _peer = listening.accept()
    server.setblocking(False)
    try:
        yield server, client
    finally:
        client.close()
        with contextlib.suppress(OSError):
            server.close()


def wait_for(descriptor: int, interest: Interest, timeout_s: float) -> bool:
    """Return True if the socket can be read or written within a time."""
    # `select.select` refuses descriptors above 1,023.
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ if interest & Interest.READ else selectors.EVENT_WRITE)
        return bool(selector.select(timeout_s))


class Connected:
    """A layer whose handshake is done. `peer` is the client's socket; `descriptor` belongs to the layer's socket."""

    def __init__(self, layer: TransportLayer, descriptor: int, peer: socket.socket) -> None:
        self.layer = layer
        self.descriptor = descriptor
        self.peer = peer

    def read(self, count: int, size: int = 65536) -> bytes:
        """Return `count` bytes, or fewer if the stream ends before. Each read has at most `size` bytes."""
        found = bytearray()
        deadline = time.monotonic() + rules.PATIENCE_S
        while len(found) < count:
            ensure(time.monotonic() < deadline, f"{len(found)} of {count} bytes came in {rules.PATIENCE_S:g} s")
            some = self.read_some(min(size, count - len(found)))
            if some is None:
                break
            found += some
        return bytes(found)

    def read_some(self, size: int) -> bytes | None:
        """Return the bytes of one `read_into`, after a short wait if there were none; None at the end of the stream."""
        buffer = bytearray(size)
        result = within_patience("read_into", self.layer.read_into, memoryview(buffer))
        ensure(
            type(result) is int and END_OF_STREAM <= result <= size, f"read_into returned {result!r} for {size} bytes"
        )
        if result == WOULD_BLOCK and not self.layer.has_buffered_data:
            self.wait(Interest.READ, 0.05)
        return None if result == END_OF_STREAM else bytes(buffer[:result])

    def wait(self, interest: Interest, timeout_s: float) -> bool:
        """Return True if the socket can be read or written within a time."""
        return wait_for(self.descriptor, interest, timeout_s)

    def readable(self) -> bool:
        """Return True if the socket has bytes now."""
        return self.wait(Interest.READ, 0)

    def receive_in_background(self, count: int) -> Callable[[], bytes]:
        """Make the peer receive `count` bytes; return a function that waits for them."""
        found = bytearray()

        def run() -> None:
            with contextlib.suppress(OSError):
                while len(found) < count and (some := self.peer.recv(65536)):
                    found.extend(some)

        thread = threading.Thread(target=run, name="conformance", daemon=True)
        thread.start()

        def result() -> bytes:
            thread.join(rules.PATIENCE_S)
            return bytes(found)

        return result

    def reset(self) -> None:
        """Reset the connection at the peer, so that the layer sees a reset."""
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()


@contextmanager
def connected(transport: Transport, connect: Connect) -> Iterator[Connected]:
    """Yield a connection after both sides have completed the handshake."""
    with socket_pair() as (server, client):
        descriptor = server.fileno()
        layer = transport.wrap(server, Address(*client.getsockname()))
        try:
            peer = handshake(layer, descriptor, client, connect)
            with peer:
                yield Connected(layer, descriptor, peer)
        finally:
            layer.close()


def handshake(layer: TransportLayer, descriptor: int, client: socket.socket, connect: Connect) -> socket.socket:
    """Run the handshakes of both sides; return the client's socket. Raises the exceptions of the layer's handshake."""
    made: list[socket.socket] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            made.append(connect(client))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="conformance", daemon=True)
    thread.start()
    deadline = time.monotonic() + rules.PATIENCE_S
    while interest := within_patience("handshake", layer.handshake):
        ensure(isinstance(interest, Interest), f"handshake returned {interest!r}")
        ensure(time.monotonic() < deadline, f"the handshake goes on after {rules.PATIENCE_S:g} s")
        wait_for(descriptor, interest, 0.05)
    thread.join(rules.PATIENCE_S)
    if failures:
        raise Broken(f"the client's handshake failed: {failures[0]!r}")
    ensure(made, "the client's handshake goes on, and the layer's is over")
    return made[0]
