"""`Accounts`: an account for the nodes for each principal, from a file or a function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, TypeAlias

from klamm import KafkaPrincipal
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.upstream.files import read_accounts
from klamm_gateway.upstream.login import Account
from klamm_gateway.upstream.states import UpstreamError

MAX_KEPT: Final = 1_000

Find: TypeAlias = "Callable[[str], tuple[str, str] | None]"
"""User name and password of a principal, e.g. `User:alice`; None if it has no account."""


class Accounts:
    """Keeps the latest accounts, because each keeps data computed from its password. Any thread."""

    def __init__(self, find: Find, mechanism: str, random_bytes: Callable[[int], bytes]) -> None:
        self._find = find
        self._mechanism = mechanism
        self._random_bytes = random_bytes
        self._kept: dict[tuple[str, str], Account] = {}

    def of(self, principal: KafkaPrincipal) -> Account | None:
        """Return the account of a principal; None if it has none. Raises UpstreamError if the function fails."""
        try:
            found = self._find(str(principal))
            if found is None:
                return None
            username, password = found
        except Exception as error:
            raise UpstreamError("no_account", f"accounts_function failed for {principal}: {error!r}") from error
        account = self._kept.get((username, password))
        if account is None:
            account = Account(self._mechanism, username, password, self._random_bytes)
            while len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[username, password] = account
        return account


def load_accounts(settings: GatewaySettings, random_bytes: Callable[[int], bytes]) -> Accounts:
    """Read the file, or import the function. Raises ConfigError, ImportError and AttributeError."""
    find: Find
    if settings.accounts_file is None:
        module, _, function = settings.accounts_function.partition(":")
        find = getattr(importlib.import_module(module), function)
    else:
        find = read_accounts(settings.accounts_file).get
    return Accounts(find, settings.sasl_mechanism, random_bytes)
