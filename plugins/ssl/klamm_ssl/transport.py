"""The transport `ssl`: TLS over a non-blocking socket; after Kafka's `SslTransportLayer`."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from klamm import (
    ANONYMOUS,
    END_OF_STREAM,
    WOULD_BLOCK,
    Address,
    Buffer,
    HandshakeError,
    Interest,
    KafkaPrincipal,
    ListenerContext,
    RateLimitedLog,
    SessionRegistry,
    Transport,
    TransportLayer,
    clipped,
)
from klamm.metrics import Counter
from klamm.runtime import PLATFORM, Timer
from klamm_ssl.certificate import refused_certificate_details, subject_name
from klamm_ssl.client_trust import ClientTrust, chain_of
from klamm_ssl.contexts import (
    REVOCATION_LISTS_NAME,
    TRUST_STORE_NAME,
    ServerObject,
    SslContexts,
    SslFiles,
    SslFilesError,
    certificates_of,
    revocation_lists_of,
)
from klamm_ssl.handshake_failures import handshake_error
from klamm_ssl.principal_mapper import NoMatchingRuleError, SslPrincipalMapper
from klamm_ssl.ssl_settings import SslSettings

log = logging.getLogger("klamm.ssl")

_PIECE_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
_RECEIVE_BYTES: Final = 32 * 1024
_TURN_BYTES: Final = 256 * 1024
_DAY_MS: Final = 86_400_000
_FILES: Final = ("certificate", "chain", "private_key", "keystore", "trust_store")
_CHANGEABLE: Final = ("principal_mapping_rules", "client_auth", "ciphers")
_NOT_SERVED: Final = {
    TRUST_STORE_NAME: "a certificate of the trust store",
    REVOCATION_LISTS_NAME: "a revocation list",
}
_CLOSING: Final = threading.Lock()
"""Without it, `abort` might close another connection that reuses the descriptor of a socket that is being closed."""
_DER: Final = 2
"""`_ssl.ENCODING_DER`."""
_METRICS: Final = "klamm:type=SslTransport,name="


class SslTransport(Transport):
    """The transport `ssl`.

    The files are read every `reload_interval_ms` and at SIGHUP. New connections use the new content. Content that
    cannot be used changes nothing; it is logged and counted once.
    """

    security_protocol = "SSL"
    computes_handshake = True

    @classmethod
    def proves_principals(cls, settings: SslSettings) -> bool:
        return settings.client_auth != "none"

    def __init__(self, settings: SslSettings, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self.settings: SslSettings = settings
        self._environment = os.environ if environment is None else environment
        self._mapper = SslPrincipalMapper(settings.principal_mapping_rules)
        # One reload at a time.
        self._reload_lock = threading.Lock()
        self._seen = b""
        # Digest and message of the last failure that was reported.
        self._reported_failure: tuple[bytes, str] | None = None
        self._contexts: SslContexts
        self._client_trust: ClientTrust
        self._sessions: SessionRegistry[SslTransportLayer] | None = None
        self._listener: ListenerContext
        self._reloads: Counter
        self._reload_failures: Counter
        self._unknown_names: Counter
        self._limited_log: RateLimitedLog
        self._timers: list[Timer] = []
        self._remove_metrics: Callable[[], None]

    def open(self, listener: ListenerContext) -> None:
        files = SslFiles(self.settings, self._environment)
        self._contexts = files.contexts()
        self._seen = files.digest
        self._listener = listener
        self._client_trust = self._trust_of(self._contexts)
        self._watch_sessions()
        metrics = listener.services.metrics
        labels = {"listener": listener.name}
        self._reloads = metrics.counter(_METRICS + "Reloads", "Changed files that were loaded.", **labels)
        self._reload_failures = metrics.counter(
            _METRICS + "ReloadFailures", "Changed files that could not be used.", **labels
        )
        self._unknown_names = metrics.counter(
            _METRICS + "UnknownServerNames",
            "Clients that asked for a host without a certificate and got the default one.",
            **labels,
        )
        self._limited_log = RateLimitedLog(log, listener.services.scheduler.schedule)
        self._remove_metrics = metrics.register(
            _METRICS + "CertificateExpiresInSeconds",
            "gauge",
            "Time until a certificate or its chain, the trust store or a revocation list expires.",
            self._read_expirations,
        )
        self.warn_of_expiration()
        scheduler = listener.services.scheduler
        self._timers = [scheduler.every(_DAY_MS, self.warn_of_expiration)]
        if self.settings.reload_interval_ms > 0:
            self._timers.append(scheduler.every(self.settings.reload_interval_ms, self._reload_changed))

    def _watch_sessions(self) -> None:
        """Start to end sessions with their certificates, when the first client with a certificate connects."""
        if self._sessions is None and self.settings.revoke_sessions and self.settings.client_auth != "none":
            self._sessions = SessionRegistry(self._listener, _end_session)

    def wrap(self, sock: socket.socket, peer: Address) -> SslTransportLayer:
        return SslTransportLayer(
            sock,
            self._contexts.context,
            self._mapper,
            lambda name: self._note_unknown_name(name, peer),
            functools.partial(self._begin_session, self._client_trust, self._mapper)
            if self._sessions is not None
            else None,
        )

    def _trust_of(self, contexts: SslContexts) -> ClientTrust:
        pem = contexts.trust.decode("utf-8", "replace")
        leaf_only = self.settings.revocation_check == "leaf"
        return ClientTrust(list(certificates_of(pem)), list(revocation_lists_of(pem)), leaf_only=leaf_only)

    def _begin_session(
        self,
        checked_by: ClientTrust,
        named_by: SslPrincipalMapper,
        layer: SslTransportLayer,
        ders: Sequence[bytes],
        is_whole: bool,
    ) -> Callable[[], object]:
        """Start the session of a client whose certificate `checked_by` trusts; return a function that removes it.

        Raises HandshakeError.
        """
        sessions, clock = self._sessions, self._listener.services.clock
        assert sessions is not None
        chain = chain_of(ders)
        left_ms = max(0, chain[0].not_after_ms - clock.wall_ms())
        expires_ns = clock.monotonic_ns() + left_ms * 1_000_000

        def revoked_because() -> str | None:
            if clock.wall_ms() >= chain[0].not_after_ms:
                return "the client certificate has expired"
            if self._mapper is not named_by and _name_by(self._mapper, ders[0]) != layer.principal.name:
                return "the rules now map the client certificate to another principal"
            trust = self._client_trust
            return None if trust is checked_by else trust.rejection_reason(chain, is_whole=is_whole)

        reason = sessions.add(layer, None, revoked_because, expires_ns)
        if reason is not None:
            raise HandshakeError("certificate_invalid", reason)
        return lambda: sessions.remove(layer)

    def _note_unknown_name(self, name: str, peer: Address) -> None:
        self._unknown_names.add()
        self._limited_log.log(
            "unknown name",
            logging.INFO,
            "listener=%s peer=%s:%d: no certificate for the server name %r; the default one was sent",
            self._listener.name,
            peer.host,
            peer.port,
            name,
        )

    def reconfigure(self, settings: SslSettings) -> bool:
        """Apply new files and the settings in `_CHANGEABLE`, if nothing else has changed. Raises SslFilesError."""
        changeable = {name: getattr(self.settings, name) for name in (*_FILES, *_CHANGEABLE)}
        if replace(settings, **changeable) != self.settings:
            return False
        before, self.settings = self.settings, settings
        try:
            self.reload()
        except SslFilesError:
            self.settings = before
            raise
        self._watch_sessions()
        if settings.principal_mapping_rules != before.principal_mapping_rules:
            self._mapper = SslPrincipalMapper(settings.principal_mapping_rules)
            if self._sessions is not None:
                self._sessions.recheck()
        return True

    def reload(self) -> None:
        """Load changed files. Raises SslFilesError if they cannot be used; then the old content stays in use.

        The same failure is counted once.
        """
        digest = b""
        try:
            # A timer and a signal may call this at the same time.
            with self._reload_lock:
                files = SslFiles(self.settings, self._environment)
                digest = files.digest
                if digest == self._seen:
                    self._reported_failure = None
                    return
                self._seen = digest
                self._contexts = files.contexts()
                self._client_trust = self._trust_of(self._contexts)
        except SslFilesError as error:
            failure = (digest, str(error))
            if failure != self._reported_failure:
                self._reported_failure = failure
                self._reload_failures.add()
                self._listener.services.emit_admin_event(
                    "certificate_swapped", str(error), listener=self._listener.name, failed=True
                )
            raise
        self._reported_failure = None
        self._reloads.add()
        self._listener.services.emit_admin_event("certificate_swapped", listener=self._listener.name)
        log.warning("listener=%s: certificates, keys or trust were reloaded", self._listener.name)
        if self._sessions is not None:
            self._sessions.recheck()
        self.warn_of_expiration()

    def _reload_changed(self) -> None:
        reported = self._reported_failure
        try:
            self.reload()
        except SslFilesError as error:
            if self._reported_failure is reported:
                return
            log.error(
                "listener=%s: the new files cannot be used; the old ones stay in use: %s", self._listener.name, error
            )

    def warn_of_expiration(self) -> None:
        """Log the certificates that have expired or soon will."""
        for labels, seconds in self._read_expirations():
            if seconds <= self.settings.expiry_warning_days * 86_400:
                what = f"expires in {seconds / 86_400:.1f} days" if seconds > 0 else "has expired"
                name = labels["server_name"]
                subject = _NOT_SERVED.get(name, f"the certificate for server name {name}")
                log.warning("listener=%s: %s %s", self._listener.name, subject, what)

    def _read_expirations(self) -> Iterable[tuple[Mapping[str, str], float]]:
        now = datetime.fromtimestamp(self._listener.services.clock.wall_ms() / 1000, UTC)
        for name, end in self._contexts.expirations.items():
            yield {"listener": self._listener.name, "server_name": name}, (end - now).total_seconds()

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        if self._sessions is not None:
            self._sessions.close()
        self._remove_metrics()


def _name_by(mapper: SslPrincipalMapper, certificate: bytes) -> str | None:
    try:
        return mapper.name(subject_name(certificate))
    except (NoMatchingRuleError, ValueError):
        return None


def _end_session(layer: SslTransportLayer, reason: str) -> None:
    log.info("principal=%s:%s: connection ends: %s", layer.principal.type, clipped(layer.principal.name), reason)
    layer.end_session(reason)


class SslTransportLayer(TransportLayer):
    """One TLS connection: OpenSSL works on memory, and this class moves bytes between it and the socket.

    Over a socket OpenSSL needs two system calls for each TLS record, however small, and librdkafka makes two TLS
    records of every Kafka record. After a partial `write` the caller must call it again with the remaining bytes first,
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
        # With a buffer it returns the number of bytes.
        self._read = cast(Callable[[int, memoryview], int], self._tls.read)
        self._on_unknown_name = on_unknown_name
        self._begin_session = begin_session
        self._end_session: Callable[[], object] | None = None
        self._mapper = mapper
        self._principal = ANONYMOUS
        self._details: Mapping[str, str] = {}
        self._established = False
        self._has_rest = False
        # Encrypted bytes that the socket has not accepted, and the number of bytes of the last `write` that they
        # represent.
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
                # OpenSSL keeps the certificates that it has verified, even if it has refused them.
                failure.details = self._failure_details(next(iter(_verified_chain(tls)), b""))
            raise failure from error
        if not self._flush():
            return Interest.WRITE
        self._established = True
        self._has_rest = self._incoming.pending > 0
        self._identify()
        return Interest.NONE

    def _do_handshake(self) -> None:
        """Continue the handshake. Raises BlockingIOError if the peer must send something."""
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
            # Reported now: most clients close the connection when they see a certificate for another name.
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
        """Check the client's certificate. Raises HandshakeError if it has no principal, or is not trusted now."""
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
                    # At most the size of the buffer, or the rest of one TLS record.
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
                    # OpenSSL has read everything; the last TLS record is incomplete.
                    pass
        except BlockingIOError:
            pass
        except ssl.SSLError:
            self._flush_alert()
            raise
        if filled == size:
            self._has_rest = incoming.pending > 0 or self._tls.pending() > 0
        if self._outgoing.pending and not self._flush() and self._outgoing.pending > _RECORD_BYTES:
            # OpenSSL answers each key update. Over a socket it would stop reading here.
            raise ConnectionResetError("the peer requests key updates but does not read the responses")
        return filled or WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        if len(chunks) == 1 and not self._encrypted_bytes and not self._unsent and 0 < len(chunks[0]) <= _PIECE_BYTES:
            # One small response, the usual case.
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
                # Sent with the rest of an earlier call.
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
        """Send the bytes that OpenSSL has written; return True if the socket accepted all of them."""
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
                # close_notify shows the peer that no data are missing. This side does not wait for the peer's
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
    # Public from Python 3.13 on.
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
    """Yield the same bytes in pieces of at most 64 KiB, one call each: small chunks are joined, large ones split."""
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
