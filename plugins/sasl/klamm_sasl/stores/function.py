"""The store `callable`: a function of the operator's own that checks passwords or knows verifiers."""

from __future__ import annotations

from collections.abc import Callable

from klamm import ListenerContext
from klamm.sasl import CredentialStore, ScramCredential, ScramMechanism
from klamm_sasl.settings import CallableStoreSettings
from klamm_sasl.stores.function_path import load_function


class CallableStore(CredentialStore):
    """Both functions may block: they are called on the authenticator's threads. One that raises refuses the client."""

    settings: CallableStoreSettings
    blocking = True

    def __init__(self, settings: CallableStoreSettings) -> None:
        super().__init__(settings)
        self._password: Callable[[str, str], bool | None] | None = None
        self._verifier: Callable[[str, str], str | None] | None = None

    def open(self, listener: ListenerContext) -> None:
        """Raises ValueError if there is no function, ImportError or AttributeError if it cannot be had."""
        if self.settings.password is None and self.settings.verifier is None:
            raise ValueError("the credential store callable needs password or verifier")
        self._password = load_function(self.settings.password)
        self._verifier = load_function(self.settings.verifier)

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        text = None if self._verifier is None else self._verifier(user, mechanism.mechanism_name)
        return None if text is None else ScramCredential.from_text(text)

    def verify_password(self, user: str, password: str) -> bool | None:
        if self._password is None:
            return None
        verdict = self._password(user, password)
        # Nothing but True lets anybody in, whatever the function returns.
        return None if verdict is None else verdict is True
