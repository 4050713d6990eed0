"""The store `callable`: functions of the operator that check passwords or return verifiers, on threads for checks."""

from __future__ import annotations

from collections.abc import Callable

from klamm import ListenerContext
from klamm.sasl import CredentialStore, ScramCredential, ScramMechanism
from klamm_sasl.sasl_settings import CallableStoreSettings, load_function


class CallableStore(CredentialStore):
    """The store `callable`. Its functions may block, because they run on threads for checks.

    If a function raises an exception, the client is refused.
    """

    settings: CallableStoreSettings
    blocking = True

    def __init__(self, settings: CallableStoreSettings) -> None:
        super().__init__(settings)
        self._password: Callable[[str, str], bool | None] | None = None
        self._verifier: Callable[[str, str], str | None] | None = None

    def open(self, listener: ListenerContext) -> None:
        """Import the functions.

        Raises ValueError if no function is set, ImportError or AttributeError if one cannot be imported.
        """
        if self.settings.password is None and self.settings.verifier is None:
            raise ValueError("the credential store callable needs password or verifier")
        self._password = load_function(self.settings.password)
        self._verifier = load_function(self.settings.verifier)

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        text: object = None if self._verifier is None else self._verifier(user, mechanism.mechanism_name)
        if text is None:
            return None
        if not isinstance(text, str):
            raise TypeError(f"{self.settings.verifier} returned a {type(text).__name__}; it may return a str or None")
        return ScramCredential.from_text(text)

    def verify_password(self, user: str, password: str) -> bool | None:
        if self._password is None:
            return None
        verdict: object = self._password(user, password)
        if verdict is None or isinstance(verdict, bool):
            return verdict
        # Only True accepts a password, and no other value that Python treats as true.
        raise TypeError(
            f"{self.settings.password} returned a {type(verdict).__name__}; it may return True, False or None"
        )
