"""`Credentials`: looks up users in several stores, and makes fake credentials for unknown names.

The mechanisms PLAIN and SCRAM use it, on processors' threads and on threads for checks.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from klamm import ServerServices
from klamm.sasl import MIN_ITERATIONS, CredentialStore, SaslProof, ScramCredential, ScramMechanism

_TABLE: Final = "sasl"
_SECRET: Final = "unknown_users_secret"  # noqa: S105
_SALT_BYTES: Final = 24
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
DRAW_BITS: Final = 64
"""`CredentialStore.any_credential` gets a number below 2**DRAW_BITS."""


class Credentials:
    """The stores of one listener as one store. It also makes credentials for names that no store knows.

    The credential of an unknown name is derived from the name and a secret of the server. It is the same each time and
    looks like a real one, but no password matches it. So neither a response nor its time shows which names exist. Every
    name has one salt as a user and another one as a delegation token, no matter if it exists. The secret is in the
    shared table `sasl`, so the fake credentials stay the same after a restart.
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
        """Return the credential in the first store that knows the user, or None. May block if `blocking`."""
        for store in self._stores:
            credential = store.scram_credential(user, mechanism)
            if credential is not None:
                return credential
        return None

    def find_for_plain(self, user: str) -> ScramCredential | None:
        """Return the user's credential of any mechanism, like `find`. May block if `blocking`."""
        for store in self._stores:
            credential = _any_mechanism(store, user)
            if credential is not None:
                return credential
        return None

    def ask_for_plain(self, user: str, password: str) -> bool | ScramCredential | None:
        """Return the verdict of the first store that knows the user, or a credential to check the password with.

        Return None if no store knows the user. May block.
        """
        for store in self._stores:
            found = store.verify_password(user, password)
            answer = _any_mechanism(store, user) if found is None else found
            if answer is not None:
                return answer
        return None

    def proof(
        self, user: str, credential: ScramCredential, mechanism: ScramMechanism | None = None
    ) -> SaslProof | None:
        """Return the proof of a client that knows the user's password.

        `SessionRegistry` checks the proof again when a store changes. The result is None if a store blocks, because
        this check must not block. Without a mechanism, the credential is the one for PLAIN.
        """
        if self.blocking:
            return None

        def revoked_because() -> str | None:
            found = self.find_for_plain(user) if mechanism is None else self.find(user, mechanism)
            if found is None:
                return "the credential was removed"
            return None if found == credential else "the credential has changed"

        return SaslProof(user, revoked_because)

    def fake(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return a fake credential for an unknown user.

        Callers also call it for existing users, so that a login takes the same time for both.
        """
        return self._like(user, mechanism, self._any_credential(mechanism, self._draw(user, mechanism)))

    def fake_token(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return a fake credential for an unknown delegation token, in the form of real ones.

        Callers also call it for existing tokens, so that a login takes the same time for both.
        """
        return self._like(token_id, mechanism, None, kind=b"token")

    def fake_for_plain(self, user: str) -> ScramCredential:
        """Return a fake credential for PLAIN, like `fake`.

        Each mechanism is as frequent among the fakes as among real credentials.
        """
        models = self._plain_models()
        if not models:
            usual = (one for one in ScramMechanism if self._any_credential(one, 0))
            return self.fake(user, next(usual, ScramMechanism.SCRAM_SHA_256))
        model = models[self._draw(user, ScramMechanism.SCRAM_SHA_256) * len(models) >> DRAW_BITS]
        return self._like(user, model.mechanism, model)

    def _plain_models(self) -> list[ScramCredential]:
        """Return the credential that PLAIN would check, for each user. The list is made again after a store has
        changed.
        """
        now = [store.plain_credentials() for store in self._stores]
        seen, models = self._models
        if len(seen) != len(now) or any(one is not other for one, other in zip(seen, now, strict=True)):
            merged: dict[str, ScramCredential] = {}
            for credentials in reversed(now):
                merged.update(credentials)
            models = sorted(merged.values(), key=form)
            self._models = (now, models)
        return models

    def _draw(self, user: str, mechanism: ScramMechanism) -> int:
        """Return a number below 2**DRAW_BITS that is always the same for a name."""
        return int.from_bytes(self._derive(mechanism, user, b"user", b"draw")[: DRAW_BITS // 8], "big")

    def _like(
        self, name: str, mechanism: ScramMechanism, model: ScramCredential | None, kind: bytes = b"user"
    ) -> ScramCredential:
        def derive(purpose: bytes) -> bytes:
            return self._derive(mechanism, name, kind, purpose)

        noise = derive(b"salt") + derive(b"more salt")
        salt, iterations = noise[:_SALT_BYTES], MIN_ITERATIONS
        if model is not None:
            iterations = model.iterations
            salt = noise[: len(model.salt)]
            if is_text(model.salt):
                # Salts that Kafka's tools make are text.
                salt = "".join(_BASE_36[byte % 36] for byte in salt).encode()
        # No password matches the stored key, because the key is not derived from a password.
        return ScramCredential(mechanism, salt, derive(b"stored key"), derive(b"server key"), iterations)

    def _any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        found = (store.any_credential(mechanism, draw) for store in self._stores)
        return next((credential for credential in found if credential is not None), None)

    def _derive(self, mechanism: ScramMechanism, name: str, kind: bytes, purpose: bytes) -> bytes:
        row = self._table.get(_SECRET)
        assert row is not None
        what = b"\0".join((kind, purpose, mechanism.mechanism_name.encode(), name.encode()))
        return hmac.digest(bytes.fromhex(row["hex"]), what, mechanism.hash_name)


def is_text(salt: bytes) -> bool:
    """Return True if the salt looks like those that Kafka's tools make."""
    return all(chr(byte) in _BASE_36 for byte in salt)


def form(credential: ScramCredential) -> tuple[str, int, int, bool]:
    """Return the parts of a credential that a client can see, except the bytes of the salt: the order of the models."""
    salt = credential.salt
    return credential.mechanism.mechanism_name, credential.iterations, len(salt), is_text(salt)


def _any_mechanism(store: CredentialStore, user: str) -> ScramCredential | None:
    found = (store.scram_credential(user, mechanism) for mechanism in ScramMechanism)
    return next((credential for credential in found if credential is not None), None)
