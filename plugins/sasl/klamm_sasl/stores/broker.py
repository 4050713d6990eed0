"""The store `broker`: users that AlterUserScramCredentials has written (KIP-554). It does not block."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from klamm import ListenerContext
from klamm.sasl import SCRAM_CREDENTIALS, CredentialStore, ScramCredential, ScramMechanism
from klamm.shared import Table
from klamm_sasl.stores.user_table import UserTable

log = logging.getLogger("klamm.sasl")


class BrokerStore(CredentialStore):
    """The users in the shared table `scram_credentials`. Changes take effect at once. Each row is decoded once.

    An invalid row is logged and left out.
    """

    _table: Table

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._unwatch = ExitStack()

    def open(self, listener: ListenerContext) -> None:
        self._table = listener.services.shared.table(SCRAM_CREDENTIALS)
        # The rows that were decoded last, and their users. They are valid as long as the table has these rows.
        self._users: tuple[Mapping[str, Any], UserTable] = ({}, UserTable(()))
        self._now()

    def _now(self) -> UserTable:
        rows = self._table.rows
        snapshot, users = self._users
        if snapshot is not rows:
            users = UserTable(self._decoded(rows, snapshot, users))
            self._users = (rows, users)
        return users

    @staticmethod
    def _decoded(
        rows: Mapping[str, Any], before: Mapping[str, Any], users: UserTable
    ) -> list[tuple[str, ScramCredential]]:
        entries = []
        for key, row in rows.items():
            try:
                mechanism, user = ScramMechanism.of_row_key(key)
                known = users.find(user, mechanism) if before.get(key) is row else None
                entries.append((user, known or ScramCredential.from_row(row)))
            except (ValueError, KeyError, TypeError) as error:
                log.error("the stored credential %r cannot be used: %r", key, error)
        return entries

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._now().find(user, mechanism)

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        return self._now().draw(mechanism, draw)

    def watch(self, changed: Callable[[Iterable[str] | None], object]) -> None:
        def note(changes: Mapping[str, Any]) -> None:
            users = []
            for key in changes:
                # A key without a user has no sessions.
                with contextlib.suppress(ValueError, KeyError):
                    users.append(ScramMechanism.of_row_key(key)[1])
            changed(users)

        self._unwatch.callback(self._table.watch(note))

    def close(self) -> None:
        self._unwatch.close()

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        return self._now().plain
