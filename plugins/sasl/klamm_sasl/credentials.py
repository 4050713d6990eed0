"""Looking users up in several stores, and the credentials of users that do not exist."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from klamm import ServerServices
from klamm.sasl import MIN_ITERATIONS, CredentialStore, ScramCredential, ScramMechanism

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
        self.checks_passwords = any(
            type(store).verify_password is not CredentialStore.verify_password for store in stores
        )
        self._models: tuple[list[Mapping[str, ScramCredential]], list[ScramCredential]] = ([], [])

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What the first store that knows the user has. May block if `blocking`."""
        for store in self._stores:
            credential = store.scram_credential(user, mechanism)
            if credential is not None:
                return credential
        return None

    def find_for_plain(self, user: str) -> ScramCredential | None:
        """What the first store that knows the user has, for whichever mechanism. May block if `blocking`."""
        for store in self._stores:
            credential = _any_mechanism(store, user)
            if credential is not None:
                return credential
        return None

    def ask_for_plain(self, user: str, password: str) -> bool | ScramCredential | None:
        """What the first store that knows the user says of the password, or has to check it by. May block."""
        for store in self._stores:
            found = store.verify_password(user, password)
            answer = _any_mechanism(store, user) if found is None else found
            if answer is not None:
                return answer
        return None

    def imaginary(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """The credential of a user that nobody knows. To be asked for also for those who exist: that takes time."""
        return self._like(user, mechanism, self._any_credential(mechanism, self._draw(user, mechanism)))

    def imaginary_for_plain(self, user: str) -> ScramCredential:
        """As `imaginary`, of a mechanism as often as users of PLAIN are checked by it."""
        models = self._plain_models()
        if not models:
            usual = (one for one in ScramMechanism if self._any_credential(one, 0))
            return self.imaginary(user, next(usual, ScramMechanism.SCRAM_SHA_256))
        model = models[self._draw(user, ScramMechanism.SCRAM_SHA_256) % len(models)]
        return self._like(user, model.mechanism, model)

    def _plain_models(self) -> list[ScramCredential]:
        """What PLAIN finds for each of all users; put together anew when a store has changed."""
        now = [store.plain_credentials() for store in self._stores]
        seen, models = self._models
        if len(seen) != len(now) or any(one is not other for one, other in zip(seen, now, strict=True)):
            merged: dict[str, ScramCredential] = {}
            for credentials in reversed(now):
                merged.update(credentials)
            models = list(merged.values())
            self._models = (now, models)
        return models

    def _draw(self, user: str, mechanism: ScramMechanism) -> int:
        return int.from_bytes(self._noise(mechanism, user, b"draw")[:8], "big")

    def _like(self, user: str, mechanism: ScramMechanism, model: ScramCredential | None) -> ScramCredential:
        noise = self._noise(mechanism, user, b"salt") + self._noise(mechanism, user, b"more salt")
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

    def _any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        found = (store.any_credential(mechanism, draw) for store in self._stores)
        return next((credential for credential in found if credential is not None), None)

    def _noise(self, mechanism: ScramMechanism, user: str, purpose: bytes) -> bytes:
        row = self._table.get(_SECRET)
        assert row is not None
        what = purpose + b"\0" + mechanism.mechanism_name.encode() + b"\0" + user.encode()
        return hmac.digest(bytes.fromhex(row["hex"]), what, mechanism.hash_name)


def _any_mechanism(store: CredentialStore, user: str) -> ScramCredential | None:
    found = (store.scram_credential(user, mechanism) for mechanism in ScramMechanism)
    return next((credential for credential in found if credential is not None), None)
