"""Looking users up in several stores, and the credentials of users that do not exist."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from klamm import MIN_ITERATIONS, CredentialStore, ScramCredential, ScramMechanism, ServerServices

_TABLE: Final = "sasl"
_SECRET: Final = "unknown_users_secret"  # noqa: S105
_SALT_BYTES: Final = 24
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Credentials:
    """The stores of one listener as one, which also answers for users that nobody knows.

    Such a user's credential is made of its name and a secret of the server: it is the same each time, looks like those
    of real users, and no password fits. So neither an answer nor its time tells who exists. The secret is in the
    shared table `sasl`, so that a restart does not change what unknown users get.
    """

    def __init__(self, stores: Sequence[CredentialStore], services: ServerServices) -> None:
        self._stores = stores
        self._table = services.shared.table(_TABLE)
        if self._table.get(_SECRET) is None:
            self._table.update({_SECRET: {"hex": services.random_bytes(32).hex()}})
        self.blocking = any(store.blocking for store in stores)

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What the first store that knows the user has. May block if `blocking`."""
        for store in self._stores:
            credential = store.scram_credential(user, mechanism)
            if credential is not None:
                return credential
        return None

    def check_password(self, user: str, password: str) -> bool | None:
        """What the first store says that checks passwords itself; None if none does so for this user. May block."""
        for store in self._stores:
            verdict = store.verify_password(user, password)
            if verdict is not None:
                return verdict
        return None

    def imaginary(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """The credential of a user that nobody knows. To be asked for also for those who exist: that takes time."""
        noise = self._noise(mechanism, user, b"salt") + self._noise(mechanism, user, b"more salt")
        draw = int.from_bytes(self._noise(mechanism, user, b"draw")[:8], "big")
        model = self._any_credential(mechanism, draw)
        salt, iterations = noise[:_SALT_BYTES], MIN_ITERATIONS
        if model is not None:
            iterations = model.iterations
            salt = noise[: len(model.salt)]
            if all(chr(byte) in _BASE_36 for byte in model.salt):
                # Salts that Kafka's tools make are text.
                salt = "".join(_BASE_36[byte % 36] for byte in salt).encode()
        # Of what no password is known: the hash has no preimage at hand.
        stored_key = self._noise(mechanism, user, b"stored key")
        return ScramCredential(mechanism, salt, stored_key, self._noise(mechanism, user, b"server key"), iterations)

    def usual_mechanism(self) -> ScramMechanism:
        """The first mechanism that users have credentials for."""
        return next((one for one in ScramMechanism if self._any_credential(one, 0)), ScramMechanism.SCRAM_SHA_256)

    def _any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        found = (store.any_credential(mechanism, draw) for store in self._stores)
        return next((credential for credential in found if credential is not None), None)

    def _noise(self, mechanism: ScramMechanism, user: str, purpose: bytes) -> bytes:
        row = self._table.get(_SECRET)
        assert row is not None
        what = purpose + b"\0" + mechanism.mechanism_name.encode() + b"\0" + user.encode()
        return hmac.digest(bytes.fromhex(row["hex"]), what, mechanism.hash_name)
