"""`Security`: the TLS settings and the accounts for connections to nodes. Each start and each reload creates one. New
connections use the latest.
"""

from __future__ import annotations

import importlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from klamm import KafkaPrincipal
from klamm.sasl import SaslAccount
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.upstream.files import read_accounts, read_password
from klamm_gateway.upstream.states import UpstreamError

MAX_KEPT: Final = 1_000
Find: TypeAlias = "Callable[[str], tuple[str, str] | None]"
"""A function that returns user name and password of a principal, e.g. `User:alice`; None if it has no account."""


class Accounts:
    """The accounts of principals. The latest `MAX_KEPT` accounts are kept, because a new `SaslAccount` must compute its
    salted password again. Any thread may call `of`.
    """

    def __init__(self, find: Find, mechanism: str, random_bytes: Callable[[int], bytes]) -> None:
        self._find = find
        self._mechanism = mechanism
        self._random_bytes = random_bytes
        self._kept: dict[tuple[str, str], SaslAccount] = {}

    def of(self, principal: KafkaPrincipal) -> SaslAccount | None:
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
            account = SaslAccount(self._mechanism, username, password, self._random_bytes)
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


SocketAddress: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""The address family, and the address in the form that `socket.connect` expects."""


@dataclass(frozen=True, slots=True)
class Security:
    """The security of connections to nodes. `context` is None without TLS. `account` is the gateway's own account; None
    without SASL or without its password.

    `accounts` are the accounts of principals; None if all clients share the gateway's account. If `passes_login` is
    True, each client logs in at the node itself, and the gateway only forwards the SASL requests.
    """

    context: ssl.SSLContext | None
    account: SaslAccount | None
    accounts: Accounts | None = None
    passes_login: bool = False

    def account_of(self, principal: KafkaPrincipal) -> SaslAccount | None:
        """Return the account that logs in for a client; None if no login is needed. Raises UpstreamError for a
        principal without an account.
        """
        if self.passes_login:
            return None
        if self.accounts is None:
            return self.account
        account = self.accounts.of(principal)
        if account is None:
            raise UpstreamError("no_account", f"{principal} has no account for the nodes")
        return account


def load_security(settings: GatewaySettings, random_bytes: Callable[[int], bytes]) -> Security:
    """Read the files that the settings name, and import the function.

    Raises OSError if a file cannot be read, ssl.SSLError for an invalid certificate, ValueError for a password that is
    empty or not UTF-8, ConfigError for an invalid `accounts_file`, and ImportError or AttributeError if
    `accounts_function` cannot be imported.
    """
    context = account = accounts = None
    if settings.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.ssl_truststore_location)
        context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
        if settings.ssl_keystore_location is not None:
            context.load_cert_chain(settings.ssl_keystore_location)
    if settings.security_protocol.startswith("SASL") and settings.sasl_password_file is not None:
        password = read_password(settings.sasl_password_file)
        account = SaslAccount(settings.sasl_mechanism, settings.sasl_username, password, random_bytes)
    if settings.login == "principal":
        accounts = load_accounts(settings, random_bytes)
    return Security(context, account, accounts, settings.login == "client")


def resolve(host: str, port: int) -> tuple[SocketAddress, ...]:
    """Return the addresses of a host, in the order of the resolver. May block. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple((family, address) for family, _, _, _, address in found)
