"""The client's side of SASL logins: PLAIN (RFC 4616) and SCRAM (RFC 5802), without I/O."""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from klamm.shared.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

_NONCE_BYTES: Final = 24
_NUMBER: Final = re.compile("[0-9]{1,9}")


class SaslExchange(ABC):
    """The client's messages of one login."""

    @abstractmethod
    def first(self) -> bytes:
        """Return the client's first message."""

    @abstractmethod
    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to the server's message; None if the exchange is complete.

        Raises ValueError for an invalid message, or if the server does not prove that it knows the account.
        """


class PlainExchange(SaslExchange):
    """A login with PLAIN: user and password in one message."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """Return the only message."""
        return self._message

    def respond(self, challenge: bytes) -> None:
        """Return None, because the server's empty answer completes the exchange."""


class ScramExchange(SaslExchange):
    """A login with SCRAM, which proves the password, and checks the server's proof that it knows the account."""

    def __init__(self, account: SaslAccount, nonce: str) -> None:
        self._account = account
        self._nonce = nonce
        name = account.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the message with user and nonce."""
        return f"n,,{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the message with the proof, and at the second call None."""
        fields = _fields(challenge)
        if self._server_signature:
            import hmac

            if not hmac.compare_digest(_decoded(fields.get("v", "")), self._server_signature):
                raise ValueError(f"the server refuses the proof: {fields.get('e', 'v')}")
            return None
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not _NUMBER.fullmatch(iterations):
            raise ValueError("the server's first SCRAM message is not valid")
        # Limited to Kafka's maximum, because the iterations are computed on the caller's thread.
        if not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise ValueError(
                f"{iterations} SCRAM iterations are not accepted, only {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        mechanism = self._account.scram
        salted = self._account.salted_password(_decoded(fields.get("s", "")), int(iterations))
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


class SaslAccount:
    """An account at a server. Any thread may begin a login.

    `username` is the user's name, `mechanism` is PLAIN or a SCRAM mechanism. The salted password is kept, because
    computing it takes a millisecond or more.
    """

    def __init__(self, mechanism: str, username: str, password: str, random_bytes: Callable[[int], bytes]) -> None:
        self.mechanism = mechanism
        self.username = username
        self._password = password
        self._random_bytes = random_bytes
        self._salted: tuple[bytes, int, bytes] | None = None

    @property
    def scram(self) -> ScramMechanism:
        """Return the SCRAM mechanism. Raises ValueError for another mechanism."""
        return ScramMechanism.named(self.mechanism)

    def begin(self) -> SaslExchange:
        """Return a new login."""
        if self.mechanism == "PLAIN":
            return PlainExchange(self.username, self._password)
        return ScramExchange(self, base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode())

    def salted_password(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password (PBKDF2), which is computed at the first call with these arguments."""
        known = self._salted
        if known is not None and known[:2] == (salt, iterations):
            return known[2]
        salted = self.scram.salted_password(self._password.encode(), salt, iterations)
        self._salted = salt, iterations, salted
        return salted


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the server's SCRAM message is not UTF-8") from error
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("the server's SCRAM message is not base64") from error
