"""`UserTable`: users with their credentials in memory. `UserTableStore`: the base of the stores that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.sasl import CredentialStore, ScramCredential, ScramMechanism
from klamm_sasl.credentials import DRAW_BITS, form


class UserTable:
    """Users with their credentials. It never changes. `plain` has the credential that PLAIN checks, for each user."""

    def __init__(self, entries: Iterable[tuple[str, ScramCredential]]) -> None:
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        for user, credential in entries:
            self._credentials[user, credential.mechanism] = credential
        self.plain: dict[str, ScramCredential] = {}
        for mechanism in ScramMechanism:
            for (user, other), credential in self._credentials.items():
                if other is mechanism:
                    self.plain.setdefault(user, credential)
        self._by_mechanism: dict[ScramMechanism, list[ScramCredential]] = {}
        for credential in sorted(self._credentials.values(), key=form):
            self._by_mechanism.setdefault(credential.mechanism, []).append(credential)

    def changed_users(self, other: UserTable) -> set[str]:
        """Return the users whose credentials `other` lacks, or has with other values."""
        mine, others = self._credentials, other._credentials
        return {user for (user, mechanism), one in mine.items() if others.get((user, mechanism)) != one}

    def __len__(self) -> int:
        return len(self.plain)

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's credential for a mechanism; None if there is none."""
        return self._credentials.get((user, mechanism))

    def draw(self, mechanism: ScramMechanism, number: int) -> ScramCredential | None:
        """Return the credential at position `number * count / 2**DRAW_BITS` of a mechanism's `count` credentials.

        They are sorted by `form`. The position is a fraction of the count, so a fake credential that copies the form
        rarely changes when users are added or removed.
        """
        credentials = self._by_mechanism.get(mechanism)
        return credentials[number * len(credentials) >> DRAW_BITS] if credentials else None


class UserTableStore(CredentialStore):
    """The base of stores that answer from `_table`, which a subclass may replace at any time."""

    _table: UserTable

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._table.find(user, mechanism)

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        return self._table.draw(mechanism, draw)

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        return self._table.plain


class InlineStore(UserTableStore):
    """The users in the setting `users = { alice = "SCRAM-SHA-256$…" }`. Spaces separate several verifiers of a user."""

    def __init__(self, users: Mapping[str, str]) -> None:
        super().__init__()
        self._table = UserTable(
            (user, ScramCredential.from_text(word)) for user, text in users.items() for word in text.split()
        )
