"""The store `broker`: users that AlterUserScramCredentials has written (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm import SCRAM_CREDENTIALS, CredentialStore, ListenerContext, ScramCredential, ScramMechanism, Table


class BrokerStore(CredentialStore):
    """Reads the shared table `scram_credentials`, whose changes count at once."""

    _table: Table

    def open(self, listener: ListenerContext) -> None:
        self._table = listener.services.shared.table(SCRAM_CREDENTIALS)
        # The rows they were found in, so that one look tells whether they are of now.
        self._keys: tuple[Mapping[str, Any], dict[ScramMechanism, list[str]]] = (
            {},
            {one: [] for one in ScramMechanism},
        )

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        row = self._table.get(mechanism.row_key(user))
        return None if row is None else ScramCredential.from_row(row)

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        rows = self._table.rows
        snapshot, by_mechanism = self._keys
        if snapshot is not rows:
            by_mechanism = {one: [key for key in rows if key.startswith(one.row_key(""))] for one in ScramMechanism}
            self._keys = (rows, by_mechanism)
        keys = by_mechanism[mechanism]
        return ScramCredential.from_row(rows[keys[draw % len(keys)]]) if keys else None
