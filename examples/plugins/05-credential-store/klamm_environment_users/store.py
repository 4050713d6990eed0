"""The credential store `environment_users`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from klamm import ListenerContext, setting
from klamm.sasl import CredentialStore, ScramCredential, ScramMechanism

_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class EnvironmentUsersSettings:
    """The table `environment_users` below `sasl`."""

    variable: str = setting("KLAMM_USERS", doc="The environment variable: USER:PASSWORD, separated by spaces.")


class EnvironmentUsers(CredentialStore):
    """Keeps the verifiers of SCRAM, and not the passwords. They never change, so any thread may read them."""

    settings: EnvironmentUsersSettings

    def open(self, listener: ListenerContext) -> None:
        """Read the users of the variable. Raises ValueError if it is missing or wrong; the message has no password."""
        variable = self.settings.variable
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._plain: dict[str, ScramCredential] = {}
        for number, entry in enumerate(os.environ.get(variable, "").split(), 1):
            user, colon, password = entry.partition(":")
            if not (user and colon and password):
                raise ValueError(f"{variable}: entry {number} is not USER:PASSWORD")
            for mechanism in ScramMechanism:
                credential = ScramCredential.from_password(mechanism, password, os.urandom(_SALT_BYTES))
                self._credentials[user, mechanism] = credential
                self._plain.setdefault(user, credential)
        if not self._plain:
            raise ValueError(f"{variable} names no user")

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        return self._plain
