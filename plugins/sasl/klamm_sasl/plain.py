"""The mechanism PLAIN: RFC 4616. Passwords are checked with SCRAM credentials, or by a store that checks passwords.

A check with a credential computes PBKDF2, which takes 0.6 ms for SCRAM-SHA-256 with 4096 iterations and 2.2 ms for
SCRAM-SHA-512, so it runs on a thread for checks. The results of checks are remembered, for right and for wrong
passwords, as HMACs under a key of this process. So a client that connects again with the same password causes no PBKDF2
and does not wait for a thread. A remembered result is only valid for the same credential.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from klamm import ConnectionContext, KafkaPrincipal, TransportLayer, clipped
from klamm.sasl import (
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

log = logging.getLogger("klamm.sasl")

REMEMBERED: Final = 10_000
"""Maximum number of remembered right passwords, and of remembered wrong ones."""


class Verdict(NamedTuple):
    """The result of a password check, and the credential that was used (None if a store checked the password)."""

    right: bool
    credential: ScramCredential | None


class PlainMechanism(SaslMechanism):
    """The mechanism PLAIN of one listener."""

    def open(self, context: SaslContext) -> None:
        services = context.listener.services
        self.credentials = Credentials(context.stores, services)
        # A store that checks passwords itself, or blocks, must check each password again.
        self.knows_passwords = not (self.credentials.blocking or self.credentials.checks_passwords)
        self._key = services.random_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        # Protects the remembered right and wrong passwords.
        self._lock = threading.Lock()

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> PlainServer:
        return PlainServer(self)

    def recall(self, user: str, password: str) -> Verdict | None:
        """Return the verdict of an earlier check, or None if the password must be checked.

        It takes the same time for users that do not exist.
        """
        if not self.knows_passwords:
            return None
        fake = self.credentials.fake_for_plain(user)
        credential = self.credentials.find_for_plain(user) or fake
        right = self._recall(self._mark(password, credential))
        return None if right is None else Verdict(right, credential)

    def _recall(self, mark: bytes) -> bool | None:
        with self._lock:
            for memory, answer in ((self._right, True), (self._wrong, False)):
                if mark in memory:
                    memory.move_to_end(mark)
                    return answer
        return None

    def check(self, user: str, password: str) -> Verdict:
        """Check the password. This takes the same time for users that do not exist."""
        fake = self.credentials.fake_for_plain(user)
        answer = self.credentials.ask_for_plain(user, password)
        if answer is True:
            return Verdict(True, None)
        credential = answer if isinstance(answer, ScramCredential) else fake
        mark = self._mark(password, credential)
        known = self._recall(mark)
        if known is None:
            known = credential.verifies(password) and credential is not fake
            # Right and wrong passwords are kept separately, so that many wrong ones do not evict right ones.
            memory = self._right if known else self._wrong
            with self._lock:
                memory[mark] = None
                if len(memory) > REMEMBERED:
                    memory.popitem(last=False)
        return Verdict(known, credential)

    def _mark(self, password: str, credential: ScramCredential) -> bytes:
        return hmac.digest(self._key, credential.salt + credential.stored_key + password.encode(), "sha256")


class PlainServer(SaslServer):
    """One exchange, which has a single message."""

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
        self.claimed = user
        if not user:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        known = self._mechanism.recall(user, password)
        if known is None:
            password_of = user if self._mechanism.knows_passwords else None
            return SaslTask(lambda: self._check(authzid, user, password), password_of=password_of)
        return self._answer(known, authzid, user)

    def _check(self, authzid: str, user: str, password: str) -> SaslSuccess:
        try:
            verdict = self._mechanism.check(user, password)
        except Exception as error:
            log.exception("a credential store failed")
            message = "Authentication failed: credentials for user could not be verified"
            raise SaslAuthenticationError(message, reason=f"user {_quoted(user)}: a store failed") from error
        return self._answer(verdict, authzid, user)

    def _answer(self, verdict: Verdict, authzid: str, user: str) -> SaslSuccess:
        if not verdict.right:
            raise SaslAuthenticationError(
                "Authentication failed: Invalid username or password",
                reason=f"user {_quoted(user)}: wrong password, or no such user",
            )
        if authzid and authzid != user:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username",
                reason=f"user {_quoted(user)} requests the authorization id {_quoted(authzid)}",
            )
        credential = verdict.credential
        proof = None if credential is None else self._mechanism.credentials.proof(user, credential)
        return SaslSuccess(KafkaPrincipal(user), proof=proof)


def _quoted(name: str) -> str:
    """Return the name that a client has sent, quoted for the log."""
    return repr(clipped(name))
