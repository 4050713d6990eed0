"""The mechanism PLAIN: RFC 4616. Passwords are checked against SCRAM credentials, or by a store that can do so itself.

A check against a credential takes PBKDF2's time, 1.3 ms for SCRAM-SHA-256 with 4096 iterations and 2.9 ms for
SCRAM-SHA-512: it runs on the authenticator's threads. A password that was right is remembered as an HMAC under a key of
this process, together with the credential it fits, so that clients that come again, also during a storm of bad ones,
wait for nobody.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from klamm import (
    KafkaPrincipal,
    SaslAuthenticationError,
    SaslContext,
    SaslError,
    SaslEvaluation,
    SaslMechanism,
    SaslServer,
    SaslSuccess,
    SaslTask,
    ScramCredential,
)
from klamm_sasl.credentials import Credentials

if TYPE_CHECKING:
    from klamm import ConnectionContext, TransportLayer

log = logging.getLogger("klamm.sasl")

_REMEMBERED: Final = 10_000
_LOGGED_CHARACTERS: Final = 128


class PlainMechanism(SaslMechanism):
    """PLAIN for one listener."""

    def open(self, context: SaslContext) -> None:
        services = context.listener.services
        self.credentials = Credentials(context.stores, services)
        self._key = services.random_bytes(32)
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> PlainServer:
        return PlainServer(self)

    def knows(self, user: str, password: str) -> bool:
        """Whether that was right before, and nothing has changed. Takes its time also for users that do not exist."""
        if self.credentials.blocking or self.credentials.checks_passwords:
            return False
        imaginary = self.credentials.imaginary_for_plain(user)
        return self._remembers(password, self.credentials.find_for_plain(user) or imaginary)

    def _remembers(self, password: str, credential: ScramCredential) -> bool:
        mark = self._mark(password, credential)
        with self._lock:
            if mark not in self._remembered:
                return False
            self._remembered.move_to_end(mark)
            return True

    def check(self, user: str, password: str) -> bool:
        """Whether that is the user's password; takes its time also for users that do not exist."""
        imaginary = self.credentials.imaginary_for_plain(user)
        answer = self.credentials.ask_for_plain(user, password)
        if answer is True:
            return True
        credential = answer if isinstance(answer, ScramCredential) else None
        if self._remembers(password, credential or imaginary):
            return True
        fits = (credential or imaginary).verifies(password)
        if credential is None or not fits:
            return False
        mark = self._mark(password, credential)
        with self._lock:
            self._remembered[mark] = None
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return True

    def _mark(self, password: str, credential: ScramCredential) -> bytes:
        return hmac.digest(self._key, credential.salt + credential.stored_key + password.encode(), "sha256")


class PlainServer(SaslServer):
    """One exchange: one message."""

    def __init__(self, mechanism: PlainMechanism) -> None:
        self._mechanism = mechanism

    def evaluate(self, token: bytes) -> SaslEvaluation:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError as error:
            raise SaslError("a PLAIN message is not UTF-8") from error
        if len(parts) != 3:
            raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, user, password = parts
        if not user:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        if self._mechanism.knows(user, password):
            return self._success(authzid, user)
        return SaslTask(lambda: self._check(authzid, user, password))

    def _check(self, authzid: str, user: str, password: str) -> SaslSuccess:
        try:
            right = self._mechanism.check(user, password)
        except Exception as error:
            log.exception("a credential store failed")
            message = "Authentication failed: credentials for user could not be verified"
            raise SaslAuthenticationError(message, reason=f"user {_quoted(user)}: a store failed") from error
        if not right:
            raise SaslAuthenticationError(
                "Authentication failed: Invalid username or password",
                reason=f"user {_quoted(user)}: wrong password, or no such user",
            )
        return self._success(authzid, user)

    @staticmethod
    def _success(authzid: str, user: str) -> SaslSuccess:
        if authzid and authzid != user:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username",
                reason=f"user {_quoted(user)} asks for the authorization id {_quoted(authzid)}",
            )
        return SaslSuccess(KafkaPrincipal(user))


def _quoted(name: str) -> str:
    """A name that a client has made up, for the log."""
    return repr(name[:_LOGGED_CHARACTERS])
