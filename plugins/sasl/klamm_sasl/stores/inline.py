"""Users in the configuration file itself."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.sasl import ScramCredential
from klamm_sasl.stores.user_table import UserTable, UserTableStore


class InlineStore(UserTableStore):
    """`users = { alice = "SCRAM-SHA-256$…" }`; several verifiers of a user are separated by spaces."""

    def __init__(self, users: Mapping[str, str]) -> None:
        super().__init__()
        self._table = UserTable(
            (user, ScramCredential.from_text(word)) for user, text in users.items() for word in text.split()
        )
