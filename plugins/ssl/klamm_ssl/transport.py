"""`SslTransport`: the transport `ssl`, TLS over a non-blocking socket. Follows Kafka's `SslTransportLayer`.

klamm calls `wrap` on the acceptor's or a processor's thread. Timers on the scheduler's thread reload changed files.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from klamm import (
    Address,
    HandshakeError,
    ListenerContext,
    RateLimitedLog,
    SessionRegistry,
    Transport,
    clipped,
)
from klamm.config import specs_of
from klamm.metrics import Counter
from klamm.runtime import Timer
from klamm_ssl.certificate import subject_name
from klamm_ssl.client_trust import ClientTrust, chain_of
from klamm_ssl.contexts import (
    REVOCATION_LISTS_NAME,
    TRUST_STORE_NAME,
    SslContexts,
    SslFiles,
    SslFilesError,
    certificates_of,
    revocation_lists_of,
)
from klamm_ssl.principal_mapper import NoMatchingRuleError, SslPrincipalMapper
from klamm_ssl.ssl_settings import SslSettings
from klamm_ssl.tls_layer import SslTransportLayer

log = logging.getLogger("klamm.ssl")

_DAY_MS: Final = 86_400_000
_NOT_SERVED: Final = {
    TRUST_STORE_NAME: "a certificate of the trust store",
    REVOCATION_LISTS_NAME: "a revocation list",
}
_METRICS: Final = "klamm:type=SslTransport,name="


class SslTransport(Transport):
    """The transport `ssl`.

    The files are read every `reload_interval_ms` and at SIGHUP. New connections use the new content. If the new content
    cannot be used, the old content stays in use, and the failure is logged and counted once.
    """

    # They include all keys from which contexts are made, because a mixture of old and new ones may refuse every client.
    live_keys = frozenset(specs_of(SslSettings)) - {"reload_interval_ms", "revoke_sessions"}
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
        # Held during a reload, because a timer and a signal may start one at the same time.
        self._reload_lock = threading.Lock()
        self._seen = b""
        # The digest and the message of the last reported failure.
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
            listener.name,
        )
        self.warn_of_expiration()
        scheduler = listener.services.scheduler
        self._timers = [scheduler.every(_DAY_MS, self.warn_of_expiration)]
        if self.settings.reload_interval_ms > 0:
            self._timers.append(scheduler.every(self.settings.reload_interval_ms, self._reload_changed))

    def _watch_sessions(self) -> None:
        """Create the registry that closes connections whose certificate has become invalid, if the settings need it."""
        if self._sessions is None and self.settings.revoke_sessions and self.settings.client_auth != "none":
            self._sessions = SessionRegistry(self._listener, _end_session)

    def wrap(self, sock: socket.socket, peer: Address) -> SslTransportLayer:
        # Read before the context, which a reload sets first: an older trust only makes the session check again.
        trust = self._client_trust
        return SslTransportLayer(
            sock,
            self._contexts.context,
            self._mapper,
            lambda name: self._note_unknown_name(name, peer),
            functools.partial(self._begin_session, trust, self._mapper) if self._sessions is not None else None,
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
        """Start the session of a client whose certificate `checked_by` trusts. Return a function that removes the
        session.

        `is_whole` is True if `ders` is the whole chain, and False if it has only the client's certificate. Raises
        HandshakeError.
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
        """Apply new files and the other settings that may change. Raises SslFilesError."""
        before, self.settings = self.settings, settings
        seen = self._seen
        try:
            self.reload()
        except SslFilesError:
            self.settings, self._seen = before, seen
            raise
        self._watch_sessions()
        if settings.principal_mapping_rules != before.principal_mapping_rules:
            self._mapper = SslPrincipalMapper(settings.principal_mapping_rules)
            if self._sessions is not None:
                self._sessions.recheck()
        return True

    def reload(self) -> None:
        """Load changed files. Raises SslFilesError if they cannot be used; the old content then stays in use.

        A failure that repeats is counted once.
        """
        digest = b""
        try:
            with self._reload_lock:
                files = SslFiles(self.settings, self._environment)
                digest = files.digest
                if digest == self._seen:
                    self._reported_failure = None
                    return
                self._seen = digest
                contexts = files.contexts()
                self._contexts, self._client_trust = contexts, self._trust_of(contexts)
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
        """Log a warning for each certificate that has expired or will expire soon."""
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
