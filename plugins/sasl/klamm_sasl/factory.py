"""`SaslAuthenticatorFactory`: the authenticator `sasl` of one listener, with its mechanisms, stores and threads.

klamm calls it when the listener starts, reloads and stops; processors' threads call `authenticator` for each
connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from klamm import (
    ApiHandler,
    AuthenticatorFactory,
    ConnectionContext,
    ErrorCode,
    ListenerContext,
    RequestContext,
    SessionRegistry,
    TransportLayer,
    bind_handlers,
    handles,
)
from klamm.metrics import Counter
from klamm.sasl import CredentialStore, SaslContext, SaslMechanism
from klamm.wire.messages import sasl_authenticate, sasl_handshake
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm_sasl.authenticator import SaslServerAuthenticator
from klamm_sasl.credential_checks import CredentialChecks
from klamm_sasl.sasl_settings import SaslSettings
from klamm_sasl.stores.user_table import InlineStore


@handles(sasl_handshake, versions=range(0, 2), blocking=False)
def late_handshake(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Refuse a SaslHandshake: re-authentication is off, or the last handshake was less than a second ago."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


@handles(sasl_authenticate, versions=range(0, 3), blocking=False)
def late_authenticate(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse a SaslAuthenticate that no SaslHandshake precedes."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)


log = logging.getLogger("klamm.sasl")


class SaslAuthenticatorFactory(AuthenticatorFactory):
    """The authenticator `sasl` of one listener: KIP-12, KIP-43, KIP-152 and KIP-368."""

    security_protocol = "SASL_"

    def __init__(
        self,
        settings: SaslSettings,
        mechanisms: tuple[SaslMechanism, ...],
        credential_stores: tuple[CredentialStore, ...] = (),
    ) -> None:
        super().__init__(settings)
        self.max_receive_bytes = settings.server_max_receive_size
        self._mechanisms = dict(zip(settings.mechanisms, mechanisms, strict=True))
        inline = (InlineStore(settings.users),) if settings.users else ()
        self._stores: tuple[CredentialStore, ...] = (*inline, *credential_stores)
        self._max_reauth_ms = dict.fromkeys(self._mechanisms, settings.connections_max_reauth_ms)
        self._max_reauth_ms |= settings.mechanism_connections_max_reauth_ms
        self._opened = ExitStack()
        self._checks: CredentialChecks
        self._sessions: SessionRegistry[SaslServerAuthenticator]
        self._cannot_reauthenticate: Counter
        self._listener_name = ""

    def open(self, listener: ListenerContext) -> None:
        """Open stores and mechanisms.

        Raises their errors, and ValueError for a setting that names a mechanism that is not configured.
        """
        unknown = sorted(self._max_reauth_ms.keys() - self._mechanisms.keys())
        if unknown:
            raise ValueError(f'mechanism_connections_max_reauth_ms names "{unknown[0]}", which is not among mechanisms')
        self._listener_name = listener.name
        self._cannot_reauthenticate = listener.services.metrics.counter(
            "kafka.server:type=socket-server-metrics,name=successful-authentication-no-reauth-total",
            "Connections that authenticated with a version of SaslAuthenticate that does not support "
            "re-authentication.",
            listener=listener.name,
        )
        with ExitStack() as opened:
            self._checks = CredentialChecks(listener, self.settings.worker_threads, self.settings.suspect_check_percent)
            opened.callback(self._checks.close)
            for store in self._stores:
                store.open(listener)
                opened.callback(store.close)
            self._sessions = SessionRegistry(listener, SaslServerAuthenticator.revoke)
            opened.callback(self._sessions.close)
            for store in self._stores:
                store.watch(self._sessions.recheck)
            context = SaslContext(listener, self._stores, self._sessions)
            for name, mechanism in self._mechanisms.items():
                try:
                    mechanism.open(context)
                except Exception as error:
                    raise ValueError(f"SASL mechanism {name}: {error}") from error
                opened.callback(mechanism.close)
            self._opened = opened.pop_all()

    def reload(self) -> None:
        """Make stores and mechanisms read their files again. If some of them fail, raises the last error."""
        failure: Exception | None = None
        for reload in (
            *(store.reload for store in self._stores),
            *(mechanism.reload for mechanism in self._mechanisms.values()),
        ):
            try:
                reload()
            except Exception as error:
                log.error("the files of listener %s were not reloaded: %s", self._listener_name, error)
                failure = error
        if failure is not None:
            raise failure

    def reconfigure_parts(self, settings: SaslSettings, parts: Mapping[str, tuple[Any, ...]]) -> bool:
        """Give mechanisms their new settings. Return False if another setting has changed, or a mechanism refuses."""
        own = [one.settings for one in self._stores if not isinstance(one, InlineStore)]
        if settings != self.settings or list(parts.get("credential_stores", ())) != own:
            return False
        pairs = zip(self._mechanisms.values(), parts["mechanisms"], strict=True)
        with ExitStack() as undo:
            for mechanism, new in pairs:
                old = mechanism.settings
                if new != old:
                    if not mechanism.reconfigure(new):
                        return False
                    undo.callback(mechanism.reconfigure, old)
            undo.pop_all()
        return True

    def close(self) -> None:
        self._opened.close()

    def handlers(self) -> Iterable[ApiHandler]:
        """Return the handlers of SaslHandshake and SaslAuthenticate, which make ApiVersions list these APIs for
        clients.
        """
        return bind_handlers([late_handshake, late_authenticate])

    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> SaslServerAuthenticator:
        checks, address = self._checks, connection.client_address.host
        return SaslServerAuthenticator(
            connection,
            transport,
            self._mechanisms,
            self._max_reauth_ms,
            self._cannot_reauthenticate,
            lambda check, password_of: checks.submit(check, address, password_of),
            self._sessions if self.settings.revoke_sessions else None,
        )
