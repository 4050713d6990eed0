"""`SslTransportLayer`: one TLS connection over a non-blocking socket.

The connection's processor calls it on its thread, except `handshake`, which runs on a thread for handshakes, and
`abort`, which any thread may call.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from klamm import (
    ANONYMOUS,
    END_OF_STREAM,
    WOULD_BLOCK,
    Buffer,
    HandshakeError,
    Interest,
    KafkaPrincipal,
    TransportLayer,
)
from klamm.runtime import PLATFORM
from klamm_ssl.certificate import refused_certificate_details, subject_name
from klamm_ssl.contexts import ServerObject
from klamm_ssl.handshake_failures import handshake_error
from klamm_ssl.principal_mapper import NoMatchingRuleError, SslPrincipalMapper

log = logging.getLogger("klamm.ssl")

_PIECE_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
_RECEIVE_BYTES: Final = 32 * 1024
_TURN_BYTES: Final = 256 * 1024
_CLOSING: Final = threading.Lock()
"""Held while a socket is closed or aborted.

Without it, `abort` could shut down another connection, which got the descriptor of a socket that was just closed.
"""
_DER: Final = 2
"""`_ssl.ENCODING_DER`."""


class SslTransportLayer(TransportLayer):
    """One TLS connection. OpenSSL works in memory, and this class moves bytes between OpenSSL and the socket.

    On a socket, OpenSSL would need two system calls for each TLS record, however small, and librdkafka makes two TLS
    records of every Kafka record. After a partial `write`, the next `write` must begin with the remaining bytes,
    because they are already encrypted.
    """

    __slots__ = (
        "_begin_session",
        "_details",
        "_encrypted_bytes",
        "_end_session",
        "_established",
        "_has_rest",
        "_incoming",
        "_mapper",
        "_on_unknown_name",
        "_outgoing",
        "_principal",
        "_read",
        "_socket",
        "_tls",
        "_unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        mapper: SslPrincipalMapper,
        on_unknown_name: Callable[[str], None],
        begin_session: Callable[[SslTransportLayer, Sequence[bytes], bool], Callable[[], object]] | None = None,
    ) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = cast(ServerObject, context.wrap_bio(self._incoming, self._outgoing, server_side=True))
        # With a buffer, `read` returns the number of bytes.
        self._read = cast(Callable[[int, memoryview], int], self._tls.read)
        self._on_unknown_name = on_unknown_name
        self._begin_session = begin_session
        self._end_session: Callable[[], object] | None = None
        self._mapper = mapper
        self._principal = ANONYMOUS
        self._details: Mapping[str, str] = {}
        self._established = False
        self._has_rest = False
        # Encrypted bytes that the socket has not accepted. `_encrypted_bytes` is the number of plain bytes of the last
        # `write` that they contain.
        self._unsent: Buffer = b""
        self._encrypted_bytes = 0

    def handshake(self) -> Interest:
        """Perform the handshake. Raises HandshakeError, whose `reason` is one of `handshake_failures.REASONS`."""
        tls = self._tls
        try:
            self._do_handshake()
        except BlockingIOError:
            return Interest.READ if self._flush() else Interest.WRITE
        except ssl.SSLError as error:
            self._flush_alert()
            failure = handshake_error(error, tls.name_refused, tls.server_name)
            if isinstance(failure, HandshakeError):
                # OpenSSL keeps the certificates that it has checked, even if it refused them.
                failure.details = self._failure_details(next(iter(_verified_chain(tls)), b""))
            raise failure from error
        if not self._flush():
            return Interest.WRITE
        self._established = True
        self._has_rest = self._incoming.pending > 0
        self._identify()
        return Interest.NONE

    def _do_handshake(self) -> None:
        """Continue the handshake. Raises BlockingIOError if the next step needs bytes from the peer."""
        tls = self._tls
        try:
            while True:
                try:
                    tls.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    self._flush()
                    data = self._socket.recv(_RECORD_BYTES)
                    if data:
                        self._incoming.write(data)
                    else:
                        self._incoming.write_eof()
        finally:
            # Report it now: most clients close the connection when they see a certificate for another name.
            if tls.name_unknown:
                tls.name_unknown = False
                self._on_unknown_name(tls.server_name)

    def _identify(self) -> None:
        self._details = _tls_details(self._tls)
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None:
            return
        try:
            self._take_certificate(certificate)
        except HandshakeError as error:
            error.details = self._failure_details(certificate)
            raise

    def _failure_details(self, certificate: bytes) -> dict[str, str]:
        return {**_tls_details(self._tls), **refused_certificate_details(certificate)}

    def _take_certificate(self, certificate: bytes) -> None:
        """Check the client's certificate. Raises HandshakeError if it gives no principal or is no longer trusted."""
        try:
            name = self._mapper.name(subject_name(certificate))
        except NoMatchingRuleError as error:
            raise HandshakeError("no_matching_rule", str(error)) from error
        except ValueError as error:
            raise HandshakeError("certificate_invalid", str(error)) from error
        self._principal = KafkaPrincipal(name)
        if self._begin_session is not None:
            chain = _verified_chain(self._tls)
            self._end_session = self._begin_session(self, chain or [certificate], bool(chain))

    def abort(self) -> None:
        with _CLOSING, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def read_into(self, buffer: memoryview) -> int:
        incoming, read = self._incoming, self._read
        size = len(buffer)
        filled = 0
        more = True
        try:
            while filled < size:
                if self._has_rest:
                    self._has_rest = False
                elif more and filled < _TURN_BYTES:
                    # Read at most as many bytes as the buffer has room for, or else the rest of one TLS record.
                    wanted = min(_RECEIVE_BYTES, max(size - filled, _RECORD_BYTES))
                    data = self._socket.recv(wanted)
                    if not data:
                        return filled or END_OF_STREAM
                    more = len(data) == wanted
                    incoming.write(data)
                else:
                    break
                try:
                    while True:
                        # Each call returns one TLS record at most.
                        count = read(size, buffer[filled:])
                        if not count:
                            self._has_rest = filled > 0
                            return filled or END_OF_STREAM
                        filled += count
                        if filled == size or not incoming.pending:
                            break
                except ssl.SSLWantReadError:
                    # OpenSSL has read all bytes, and the last TLS record is incomplete.
                    pass
        except BlockingIOError:
            pass
        except ssl.SSLError:
            self._flush_alert()
            raise
        if filled == size:
            self._has_rest = incoming.pending > 0 or self._tls.pending() > 0
        if self._outgoing.pending and not self._flush() and self._outgoing.pending > _RECORD_BYTES:
            # OpenSSL answers each key update in memory. Without this check, a peer could make the answers grow without
            # limit.
            raise ConnectionResetError("the peer requests key updates but does not read the responses")
        return filled or WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        if len(chunks) == 1 and not self._encrypted_bytes and not self._unsent and 0 < len(chunks[0]) <= _PIECE_BYTES:
            # The usual case is one small response.
            (piece,) = chunks
            self._tls.write(piece)
            if self._flush():
                return len(piece)
            self._encrypted_bytes = len(piece)
            return WOULD_BLOCK
        return self._write(_pieces(chunks))

    def _write(self, pieces: Iterable[Buffer]) -> int:
        sent = 0
        if self._unsent and not self._flush():
            return WOULD_BLOCK
        for piece in pieces:
            done = min(self._encrypted_bytes, len(piece))
            if done:
                # An earlier call encrypted these bytes, and `_flush` has now sent them.
                self._encrypted_bytes -= done
                sent += done
                if done == len(piece):
                    continue
                piece = memoryview(piece)[done:]
            self._tls.write(piece)
            if not self._flush():
                self._encrypted_bytes = len(piece)
                break
            sent += len(piece)
        return sent

    def _flush(self) -> bool:
        """Send the bytes that OpenSSL has written. Return True if the socket accepted all of them."""
        while data := self._unsent or self._outgoing.read():
            try:
                count = self._socket.send(data)
            except BlockingIOError:
                count = 0
            if count < len(data):
                self._unsent = memoryview(data)[count:]
                return False
            if not self._unsent:
                break
            self._unsent = b""
        return True

    def _flush_alert(self) -> None:
        with contextlib.suppress(OSError):
            self._flush()

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        return self._write(_pieces_of_file(descriptor, position, count))

    @property
    def has_buffered_data(self) -> bool:
        return self._has_rest

    @property
    def principal(self) -> KafkaPrincipal:
        return self._principal

    @property
    def details(self) -> Mapping[str, str]:
        return self._details

    def close(self) -> None:
        if self._established and not self._unsent:
            self._established = False
            with contextlib.suppress(OSError, ValueError):
                # close_notify shows the peer that it has received all data. This side does not wait for the peer's
                # close_notify.
                self._tls.unwrap()
            try:
                self._flush()
            except OSError:
                log.debug("close_notify was not sent")
        if self._end_session is not None:
            self._end_session()
        with _CLOSING:
            self._socket.close()


def _tls_details(tls: ServerObject) -> dict[str, str]:
    cipher = tls.cipher()
    return {
        "tls_version": tls.version() or "",
        "tls_cipher": cipher[0] if cipher is not None else "",
        "tls_server_name": tls.server_name,
    }


def _verified_chain(tls: ssl.SSLObject) -> list[bytes]:
    """Return the peer's certificate and the authorities above it, in DER; empty if a session was resumed."""
    # The method is public from Python 3.13 on.
    owner: Any = tls if hasattr(tls, "get_verified_chain") else tls._sslobj  # type: ignore[attr-defined]
    chain = owner.get_verified_chain() or ()
    return [one if isinstance(one, bytes) else one.public_bytes(_DER) for one in chain]


def _pieces_of_file(descriptor: int, position: int, count: int) -> Iterator[Buffer]:
    end = position + count
    while position < end:
        piece = PLATFORM.pread(descriptor, min(_PIECE_BYTES, end - position), position)
        if not piece:
            raise OSError("the file ends before the end of the region")
        position += len(piece)
        yield piece


def _pieces(chunks: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield the bytes of `chunks` in pieces of at most 64 KiB. Small chunks are joined, and large ones are split."""
    joined: list[Buffer] = []
    size = 0
    for chunk in chunks:
        if size + len(chunk) <= _PIECE_BYTES:
            joined.append(chunk)
            size += len(chunk)
            continue
        if size:
            yield _join(joined)
        start = 0
        if len(chunk) > _PIECE_BYTES:
            view = memoryview(chunk)
            while len(chunk) - start > _PIECE_BYTES:
                yield view[start : start + _PIECE_BYTES]
                start += _PIECE_BYTES
            chunk = view[start:]
        joined, size = [chunk], len(chunk)
    if size:
        yield _join(joined)


def _join(chunks: list[Buffer]) -> Buffer:
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
