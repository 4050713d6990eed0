"""`check_transport`, which checks parts that carry the bytes of a connection."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm.api.context import Address
from klamm.api.transport import WOULD_BLOCK, HandshakeError, Interest, Transport, TransportLayer
from klamm.shared.principal import KafkaPrincipal
from klamm.testing.conformance import rules
from klamm.testing.conformance.connected import Connect, Connected, connected, handshake, socket_pair, wait_for
from klamm.testing.conformance.life_cycle import PartCase, rules_of
from klamm.testing.conformance.rules import Broken, ensure, is_label, run_rules, within_patience

_LARGE: Final = 300_000
_FLOOD: Final = 1 << 16
_FLOODS: Final = 4096


class _TransportCase(PartCase):
    contract = Transport
    connect: Connect


def _as_it_is(sock: socket.socket) -> socket.socket:
    return sock


def check_transport(
    factory: Callable[[Any], Transport],
    settings: Any = None,
    *,
    connect: Connect = _as_it_is,
    other_settings: Any = None,
) -> None:
    """Check that a transport keeps its contract, over loopback connections; see `check_gate`.

    `connect(sock)` does the client's part of the handshake, and returns the socket with which the client sends and
    receives, e.g. `lambda sock: context.wrap_socket(sock, server_hostname="localhost")`.
    """
    case = _TransportCase(factory, settings, other_settings)
    case.connect = connect
    run_rules(TRANSPORT_RULES, case)


def _bytes(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def describes_itself(case: _TransportCase) -> None:
    """`security_protocol` is PLAINTEXT or SSL; `computes_handshake` and `proves_principals` are True or False."""
    with case.opened() as transport:
        ensure(transport.security_protocol in ("PLAINTEXT", "SSL"), f"it is {transport.security_protocol!r}")
        for value in (transport.computes_handshake, transport.proves_principals(case.settings)):
            ensure(value is True or value is False, f"one is {value!r}")


def wraps_without_io(case: _TransportCase) -> None:
    """`wrap` returns a TransportLayer, and neither reads nor writes."""
    with case.opened() as transport, socket_pair() as (server, client):
        client.sendall(b"first")
        wait_for(server.fileno(), Interest.READ, rules.PATIENCE_S)
        with socket.socket(fileno=_duplicate(server)) as seen:
            layer = within_patience("wrap", transport.wrap, server, Address(*client.getsockname()))
            ensure(isinstance(layer, TransportLayer), f"wrap returned {layer!r}")
            seen.setblocking(False)
            try:
                waiting = seen.recv(100, socket.MSG_PEEK)
            except BlockingIOError:
                waiting = b""
            ensure(waiting == b"first", f"{waiting!r} of what the client sent is left")
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                raise Broken(f"the client has got {client.recv(100)!r}")
        layer.close()


def _duplicate(sock: socket.socket) -> int:
    return os.dup(sock.fileno())


def waits_for_a_silent_peer(case: _TransportCase) -> None:
    """With a peer that sends nothing, no call blocks: the handshake returns the event for which it waits."""
    with case.opened() as transport, socket_pair() as (server, client):
        layer = transport.wrap(server, Address(*client.getsockname()))
        interest = within_patience("handshake", layer.handshake)
        ensure(isinstance(interest, Interest), f"handshake returned {interest!r}")
        if interest is Interest.NONE:
            count = within_patience("read_into", layer.read_into, memoryview(bytearray(10)))
            ensure(count == WOULD_BLOCK, f"read_into returned {count!r}")
        layer.close()


def reads_what_was_sent(case: _TransportCase) -> None:
    """Bytes come in order, whatever the size of the buffers; `read_into` returns 0 if there is nothing."""
    with case.opened() as transport:
        for size, count in ((1, 200), (7, 2000), (4096, _LARGE), (65536, _LARGE)):
            with connected(transport, case.connect) as it:
                data = _bytes(count)
                sender = threading.Thread(target=it.peer.sendall, args=(data,), daemon=True)
                sender.start()
                found = it.read(count, size)
                sender.join(rules.PATIENCE_S)
                ensure(found == data, f"{len(found)} of {count} bytes came, or others, in pieces of {size}")
                ensure(it.read_some(10) == b"", "there is nothing more, and read_into does not return 0")


def says_what_it_holds(case: _TransportCase) -> None:
    """`has_buffered_data` and `may_buffer` are True while the layer holds bytes that it has taken from the socket."""
    with case.opened() as transport, connected(transport, case.connect) as it:
        it.peer.sendall(b"0123456789")
        for left in range(10, 0, -1):
            ensure(it.read(1, 1), "a byte is missing")
            holds = it.layer.has_buffered_data
            ensure(holds is True or holds is False, f"has_buffered_data is {holds!r}")
            ensure(not holds or it.layer.may_buffer is True, "it holds bytes, and may_buffer is not True")
            ensure(holds or it.readable() or left == 1, f"{left - 1} bytes are left, and no call would find them")


def writes_in_order(case: _TransportCase) -> None:
    """`write` accepts chunks of every kind and size, and returns the number of bytes that it has written, in order."""
    chunks: list[Any] = [b"one", bytearray(b"two"), memoryview(b"three"), _bytes(_LARGE), b"", b"end"]
    expected = b"".join(bytes(one) for one in chunks)
    with case.opened() as transport:
        for more in (False, True):
            with connected(transport, case.connect) as it:
                received = it.receive_in_background(len(expected))
                _write_all(it, chunks, more)
                got = received()
                ensure(got == expected, f"the client got {len(got)} of {len(expected)} bytes, or others")


def _write_all(it: Connected, chunks: list[Any], more: bool = False) -> None:
    left = [memoryview(one) for one in chunks]
    deadline = time.monotonic() + rules.PATIENCE_S
    while left:
        total = sum(len(one) for one in left)
        written = within_patience("write", it.layer.write, left, more)
        ensure(type(written) is int and 0 <= written <= total, f"write returned {written!r} for {total} bytes")
        ensure(time.monotonic() < deadline, f"{total} bytes cannot be written")
        if not written and total:
            it.wait(Interest.WRITE, 0.05)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]


def stops_at_a_full_socket(case: _TransportCase) -> None:
    """If the peer does not read, `write` finally returns 0 and does not block; later everything arrives."""
    with case.opened() as transport, connected(transport, case.connect) as it:
        data, sent = _bytes(_FLOOD), 0
        for _ in range(_FLOODS):
            written = within_patience("write", it.layer.write, [data[sent % _FLOOD :]])
            if not written:
                break
            sent += written
        else:
            raise Broken(f"{sent} bytes were written, and the client has read none")
        received = it.receive_in_background(sent + 3)
        rest = data[sent % _FLOOD :][:3] or data[:3]
        _write_all(it, [rest])
        got = received()
        expected = (data * (sent // _FLOOD + 1))[:sent]
        ensure(got[:sent] == expected, f"the client got {len(got)} of {sent} bytes, or others")


def sends_files(case: _TransportCase) -> None:
    """`send_file` sends bytes of a file from a position, returns their number, and leaves the file open."""
    data = _bytes(_LARGE)
    with case.opened() as transport, connected(transport, case.connect) as it, tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        received = it.receive_in_background(_LARGE - 100)
        position = 100
        deadline = time.monotonic() + rules.PATIENCE_S
        while position < _LARGE:
            left = _LARGE - position
            sent = within_patience("send_file", it.layer.send_file, file.fileno(), position, left)
            ensure(type(sent) is int and 0 <= sent <= left, f"send_file returned {sent!r} for {left} bytes")
            ensure(time.monotonic() < deadline, f"{left} bytes of a file cannot be sent")
            if not sent:
                it.wait(Interest.WRITE, 0.05)
            position += sent
        got = received()
        ensure(got == data[100:], f"the client got {len(got)} of {_LARGE - 100} bytes, or others")
        file.seek(0)
        ensure(file.read() == data, "the file has changed")


def sees_the_end(case: _TransportCase) -> None:
    """After the peer has closed, its earlier bytes can be read, and then `read_into` returns -1 or raises OSError."""
    with case.opened() as transport, connected(transport, case.connect) as it:
        it.peer.sendall(b"last words")
        it.peer.close()
        ensure(it.read(10) == b"last words", "what was sent before is lost")
        _read_to_the_end(it)


def _read_to_the_end(it: Connected) -> None:
    deadline = time.monotonic() + rules.PATIENCE_S
    with contextlib.suppress(OSError):
        while it.read_some(100) is not None:
            ensure(time.monotonic() < deadline, "there is no end")


def survives_a_reset(case: _TransportCase) -> None:
    """After a reset, reading and writing raise nothing but OSError, and `close` raises nothing."""
    with case.opened() as transport, connected(transport, case.connect) as it:
        it.reset()
        _read_to_the_end(it)
        with contextlib.suppress(OSError):
            for _ in range(3):
                it.layer.write([b"hello"])


def proves_who_the_peer_is(case: _TransportCase) -> None:
    """Once the handshake is done, `principal` is a KafkaPrincipal and `details` has text by name."""
    with case.opened() as transport, connected(transport, case.connect) as it:
        ensure(isinstance(it.layer.principal, KafkaPrincipal), f"principal is {it.layer.principal!r}")
        details = it.layer.details
        fits = isinstance(details, Mapping) and all(type(one) is str for pair in details.items() for one in pair)
        ensure(fits, f"details is {details!r}")


def is_aborted_from_any_thread(case: _TransportCase) -> None:
    """`end_session` stores its reason and aborts.

    Any thread may call it, repeatedly and after `close`, without an exception. Afterwards a read returns only the end,
    or raises OSError, unless the layer cannot abort.
    """
    with case.opened() as transport, connected(transport, case.connect) as it:
        within_patience("end_session", it.layer.end_session, "revoked")
        ensure(it.layer.session_end == "revoked", f"session_end is {it.layer.session_end!r}")
        with contextlib.suppress(OSError):
            it.read_some(10)
        it.layer.abort()
        it.layer.close()
        it.layer.abort()


def closes_twice(case: _TransportCase) -> None:
    """`close` closes the socket, never raises, and may be called twice, and before the handshake is done."""
    with case.opened() as transport:
        with connected(transport, case.connect) as it:
            within_patience("close", it.layer.close)
            within_patience("close", it.layer.close)
            it.peer.settimeout(rules.PATIENCE_S)
            try:
                end = it.peer.recv(10)
            except TimeoutError:
                raise Broken("the client does not see the end") from None
            except OSError:
                end = b""
            ensure(end == b"", f"the client got {end!r}")
        with socket_pair() as (server, client):
            layer = transport.wrap(server, Address(*client.getsockname()))
            layer.close()
            layer.close()


def fails_a_bad_handshake(case: _TransportCase) -> None:
    """With garbage, or a peer that vanishes, the handshake ends, raises OSError, or raises HandshakeError with a reason
    in lower_snake_case.
    """
    with case.opened() as transport:
        for garbage in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", _bytes(2000)):
            with socket_pair() as (server, client):
                descriptor = server.fileno()
                layer = transport.wrap(server, Address(*client.getsockname()))
                client.sendall(garbage)
                client.close()
                try:
                    handshake(layer, descriptor, client, _as_it_is)
                except HandshakeError as error:
                    ensure(is_label(error.reason), f"the reason is {error.reason!r}")
                except OSError:
                    pass
                finally:
                    layer.close()


def keeps_connections_apart(case: _TransportCase) -> None:
    """The bytes of one connection do not reach another."""
    with (
        case.opened() as transport,
        connected(transport, case.connect) as one,
        connected(transport, case.connect) as other,
    ):
        for it, text in ((one, b"one"), (other, b"two")):
            it.peer.sendall(text)
        ensure(other.read(3) == b"two", "the second connection got something else")
        ensure(one.read(3) == b"one", "the first connection got something else")
        one.layer.close()
        other.peer.sendall(b"still")
        ensure(other.read(5) == b"still", "the second connection ended with the first")


TRANSPORT_RULES: Final = rules_of(_TransportCase)
