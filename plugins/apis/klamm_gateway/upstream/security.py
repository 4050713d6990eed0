"""`Security`: the TLS settings and the account for connections to nodes; created once, read by every connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from klamm import KafkaPrincipal
from klamm_gateway.gateway_settings import GatewaySettings
from klamm_gateway.upstream.files import read_password
from klamm_gateway.upstream.login import Account
from klamm_gateway.upstream.states import UpstreamError

if TYPE_CHECKING:
    from klamm_gateway.upstream.accounts import Accounts

SocketAddress: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""Family and address in the form that `socket.connect` expects."""


@dataclass(frozen=True, slots=True)
class Security:
    """`context` is None without TLS; `account`, the gateway's own, is None without SASL.

    `accounts` are those of principals, None if clients have no accounts of their own. With `passes_login` clients log
    in themselves.
    """

    context: ssl.SSLContext | None
    account: Account | None
    accounts: Accounts | None = None
    passes_login: bool = False

    def account_of(self, principal: KafkaPrincipal) -> Account | None:
        """Return the account that logs in for a client; None means no account. Raises UpstreamError for a principal
        without an account.
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

    Raises OSError, ssl.SSLError for a certificate that is not valid, ValueError for a password, ConfigError for
    accounts, ImportError and AttributeError for the function.
    """
    context = account = accounts = None
    if settings.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.ssl_truststore_location)
        context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
        if settings.ssl_keystore_location is not None:
            context.load_cert_chain(settings.ssl_keystore_location)
    if settings.security_protocol.startswith("SASL") and settings.sasl_password_file is not None:
        password = read_password(settings.sasl_password_file)
        account = Account(settings.sasl_mechanism, settings.sasl_username, password, random_bytes)
    if settings.login == "principal":
        # Imported here: most gateways have one account.
        from klamm_gateway.upstream.accounts import load_accounts

        accounts = load_accounts(settings, random_bytes)
    return Security(context, account, accounts, settings.login == "client")


def resolve(host: str, port: int) -> tuple[SocketAddress, ...]:
    """The addresses of a host, in the order of the resolver. May block. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple((family, address) for family, _, _, _, address in found)
