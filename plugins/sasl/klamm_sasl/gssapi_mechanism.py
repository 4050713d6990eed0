"""The mechanism GSSAPI: Kerberos 5 (RFC 4752), with the system's Kerberos library. It needs `klamm[gssapi]`.

The authenticator `sasl` calls its exchanges on the threads for checks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from klamm import ConnectionContext, TransportLayer

try:
    import gssapi
    from gssapi.raw.misc import GSSError
except ImportError as missing:
    raise ImportError(f"the SASL mechanism GSSAPI needs klamm[gssapi]: {missing}") from missing

from klamm import KafkaPrincipal
from klamm.sasl import (
    SaslChallenge,
    SaslContext,
    SaslError,
    SaslMechanism,
    SaslProof,
    SaslServer,
    SaslSuccess,
    SaslTask,
)
from klamm_sasl.kerberos_names import KerberosShortNamer, NoMatchingRuleError
from klamm_sasl.sasl_settings import GssapiSettings

_NO_LAYER: Final = 1
_NAMED: Final = object()
"""The key of all sessions: a change of the rules may change the principal of any of them."""
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
"""The server's offer: no security layer after authentication. The bytes for the maximum size of messages are then 0."""


class _State(enum.Enum):
    """CONTEXT ─► OFFER (only if the server had to send a last token) ─► CHOICE ─► ENDED."""

    CONTEXT = enum.auto()
    OFFER = enum.auto()
    CHOICE = enum.auto()
    ENDED = enum.auto()


class GssapiMechanism(SaslMechanism):
    """The mechanism GSSAPI of one listener."""

    settings: GssapiSettings

    def open(self, context: SaslContext) -> None:
        """Check the keytab. Raises ValueError if it has no key for the principal."""
        settings = self.settings
        name = None
        if settings.principal is not None:
            name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal)
        store: dict[str | bytes, str | bytes] | None = None
        if settings.keytab is not None:
            store = {"keytab": str(settings.keytab)}
        try:
            self.credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store=store
            )
        except GSSError as error:
            raise ValueError(f"no key for {settings.principal or 'any principal'}: {error}") from error
        self._sessions = context.sessions
        self.namer = _namer(settings)

    def reconfigure(self, settings: GssapiSettings) -> bool:
        """Apply new `principal_to_local_rules`, if no other setting has changed."""
        if replace(settings, principal_to_local_rules=self.settings.principal_to_local_rules) != self.settings:
            return False
        self.settings = settings
        self.namer = _namer(settings)
        self._sessions.recheck([_NAMED])
        return True

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> GssapiServer:
        return GssapiServer(self.credentials, self.principal_of)

    def principal_of(self, kerberos_name: str) -> tuple[KafkaPrincipal, SaslProof]:
        """Return a client's principal, and the proof for its session. Raises NoMatchingRuleError."""
        named_by = self.namer
        name = named_by.short_name(kerberos_name)

        def revoked_because() -> str | None:
            if self.namer is named_by or _short_name(self.namer, kerberos_name) == name:
                return None
            return "the rules now map the Kerberos principal to another name"

        return KafkaPrincipal(name), SaslProof(_NAMED, revoked_because)


def _namer(settings: GssapiSettings) -> KerberosShortNamer:
    return KerberosShortNamer(settings.principal_to_local_rules, settings.default_realm or _default_realm())


def _short_name(namer: KerberosShortNamer, kerberos_name: str) -> str | None:
    try:
        return namer.short_name(kerberos_name)
    except NoMatchingRuleError:
        return None


def _default_realm() -> str:
    try:
        name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except GSSError:
        return ""
    return str(name).partition("@")[2]


class GssapiServer(SaslServer):
    """One exchange. It runs on the threads for checks, because accepting a context reads and writes files."""

    def __init__(self, credentials: Any, principal_of: Callable[[str], tuple[KafkaPrincipal, SaslProof]]) -> None:
        self._context: Any = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._principal_of = principal_of
        self._state = _State.CONTEXT

    def evaluate(self, token: bytes) -> SaslTask:
        return SaslTask(lambda: self._evaluate(token))

    def _evaluate(self, token: bytes) -> SaslChallenge | SaslSuccess:
        state, self._state = self._state, _State.ENDED
        try:
            if state is _State.CONTEXT:
                return self._accept(token)
            if state is _State.OFFER:
                return self._offer()
            if state is _State.CHOICE:
                return self._choose(token)
        except (GSSError, NoMatchingRuleError) as error:
            raise SaslError(str(error)) from error
        raise SaslError("a GSSAPI token after the end of the exchange")

    def _accept(self, token: bytes) -> SaslChallenge:
        answer = self._context.step(token)
        if not self._context.complete:
            self._state = _State.CONTEXT
            return SaslChallenge(answer or b"")
        if self._context.mech != gssapi.MechType.kerberos:
            raise SaslError("the client used a GSS-API mechanism other than Kerberos 5")
        # The client's name comes from its ticket, so it is known only now.
        self.claimed = str(self._context.initiator_name)
        if answer:
            self._state = _State.OFFER
            return SaslChallenge(answer)
        return self._offer()

    def _offer(self) -> SaslChallenge:
        self._state = _State.CHOICE
        return SaslChallenge(self._context.wrap(_OFFER, False).message)

    def _choose(self, token: bytes) -> SaslSuccess:
        choice = self._context.unwrap(token).message
        if len(choice) < 4 or choice[0] != _NO_LAYER:
            raise SaslError("the client requests a security layer, which is not offered")
        principal, proof = self._principal_of(str(self._context.initiator_name))
        return SaslSuccess(principal, proof=proof)
