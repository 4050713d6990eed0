"""SCRAM credentials (RFC 5802, RFC 7677), which a server stores instead of passwords, and their computation.

The SCRAM mechanism checks clients against them, and PLAIN checks passwords against them. Admin APIs write them. A
delegation token has a credential too.
"""

from __future__ import annotations

import base64
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MIN_ITERATIONS: Final = 4096
"""See `MAX_ITERATIONS`."""
MAX_ITERATIONS: Final = 16_384
"""The bounds of Kafka's `ScramMechanism` and `ScramControlManager`: more would make logins too slow for clients."""


class ScramMechanism(enum.Enum):
    """The SCRAM mechanisms, like Kafka's class of that name. `type_code` is the number on the wire (KIP-554)."""

    SCRAM_SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SCRAM_SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, mechanism_name: str, type_code: int, hash_name: str) -> None:
        self.mechanism_name = mechanism_name
        self.type_code = type_code
        self.hash_name = hash_name

    @staticmethod
    def named(name: str) -> ScramMechanism:
        """Return the mechanism of this name. Raises ValueError for an unknown name."""
        for mechanism in ScramMechanism:
            if mechanism.mechanism_name == name:
                return mechanism
        raise ValueError(f'"{name}" is not a SCRAM mechanism')

    @staticmethod
    def of_type(type_code: int) -> ScramMechanism | None:
        """Return the mechanism of Kafka's type code; None for UNKNOWN."""
        return next((mechanism for mechanism in ScramMechanism if mechanism.type_code == type_code), None)

    def row_key(self, user: str) -> str:
        """Return the key of a user's row in the table of credentials."""
        return f"{self.mechanism_name}:{user}"

    @staticmethod
    def of_row_key(key: str) -> tuple[ScramMechanism, str]:
        """Return mechanism and user of a key of that table. Raises ValueError for any other text."""
        name, _, user = key.partition(":")
        return ScramMechanism.named(name), user

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Return `SaltedPassword` of RFC 5802 (PBKDF2). It takes about a millisecond, in which other threads run."""
        # Imported here, because a server without passwords saves 20 ms. This function is twice as fast as hashlib's.
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

        algorithm = hashes.SHA256() if self is ScramMechanism.SCRAM_SHA_256 else hashes.SHA512()
        return PBKDF2HMAC(algorithm, algorithm.digest_size, salt, iterations).derive(password)

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Return `HMAC(key, message)`."""
        import hmac

        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        """Return `H(data)`, the hash."""
        import hashlib

        return hashlib.new(self.hash_name, data).digest()


_TEXT: Final = (
    r"(?P<mechanism>SCRAM-SHA-(?:256|512))\$(?P<iterations>[0-9]{1,9}):(?P<salt>[A-Za-z0-9+/]+={0,2})"
    r"\$(?P<stored>[A-Za-z0-9+/]+={0,2}):(?P<server>[A-Za-z0-9+/]+={0,2})"
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential that a server stores for one password and mechanism.

    It suffices to check the password, but not to log in. Its text is `SCRAM-SHA-256$4096:salt$stored_key:server_key`
    with values in base64, as in RFC 5803 and PostgreSQL.
    """

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @staticmethod
    def from_salted_password(
        mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential of a salted password, which clients of AlterUserScramCredentials send."""
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return ScramCredential(mechanism, salt, mechanism.hash(client_key), server_key, iterations)

    @staticmethod
    def from_password(
        mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Return the credential of a password, like Kafka's `ScramFormatter.generateCredential`.

        The password is encoded as UTF-8.
        """
        salted = mechanism.salted_password(password.encode(), salt, iterations)
        return ScramCredential.from_salted_password(mechanism, salted, salt, iterations)

    def verifies(self, password: str) -> bool:
        """Return True if the password is right. A wrong password takes as long as the right one, over a millisecond."""
        import hmac

        mechanism = self.mechanism
        salted = mechanism.salted_password(password.encode(), self.salt, self.iterations)
        stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
        return hmac.compare_digest(stored_key, self.stored_key)

    def to_text(self) -> str:
        """Return the credential as text without spaces; see the class."""
        name = self.mechanism.mechanism_name
        return f"{name}${self.iterations}:{_encode(self.salt)}${_encode(self.stored_key)}:{_encode(self.server_key)}"

    @staticmethod
    def from_text(text: str) -> ScramCredential:
        """Parse the text of a credential. Raises ValueError, whose message does not contain the text."""
        match = re.fullmatch(_TEXT, text)
        if match is None:
            raise ValueError("is not a SCRAM verifier; `klamm users` makes them")
        mechanism = ScramMechanism.named(match["mechanism"])
        return _checked(mechanism, match["salt"], match["stored"], match["server"], int(match["iterations"]))

    def to_row(self) -> dict[str, Any]:
        """Return the credential as a JSON object, for the table."""
        return {
            "mechanism": self.mechanism.mechanism_name,
            "salt": _encode(self.salt),
            "stored_key": _encode(self.stored_key),
            "server_key": _encode(self.server_key),
            "iterations": self.iterations,
        }

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> ScramCredential:
        """Parse a row that `to_row` wrote. Raises ValueError or KeyError for any other row."""
        mechanism = ScramMechanism.named(row["mechanism"])
        return _checked(mechanism, row["salt"], row["stored_key"], row["server_key"], row["iterations"])


def _checked(mechanism: ScramMechanism, salt: str, stored: str, server: str, iterations: int) -> ScramCredential:
    credential = ScramCredential(mechanism, _decode(salt), _decode(stored), _decode(server), iterations)
    size = 32 if mechanism is ScramMechanism.SCRAM_SHA_256 else 64
    if len(credential.stored_key) != size or len(credential.server_key) != size:
        raise ValueError(f"has keys whose length is not that of {mechanism.mechanism_name}")
    if iterations < MIN_ITERATIONS:
        raise ValueError(f"has {iterations} iterations; at least {MIN_ITERATIONS} are required")
    return credential


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
