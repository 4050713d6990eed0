"""`Security`: how to trust nodes and to log in to them: TLS and account; made once, read by every connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from klamm_gateway.settings import GatewaySettings
from klamm_gateway.upstream.login import Account

SocketAddress: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""Family and address, as `socket.connect` takes it."""


@dataclass(frozen=True, slots=True)
class Security:
    """`context` is None without TLS, `account` without SASL."""

    context: ssl.SSLContext | None
    account: Account | None


def load_security(settings: GatewaySettings, random_bytes: Callable[[int], bytes]) -> Security:
    """Read the files that the settings name. Raises OSError, and ssl.SSLError for a certificate that is not valid."""
    context = account = None
    if settings.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.ssl_truststore_location)
        context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)
        if settings.ssl_keystore_location is not None:
            context.load_cert_chain(settings.ssl_keystore_location)
    if settings.security_protocol.startswith("SASL") and settings.sasl_password_file is not None:
        password = settings.sasl_password_file.read_text().partition("\n")[0].rstrip("\r")
        account = Account(settings.sasl_mechanism, settings.sasl_username, password, random_bytes)
    return Security(context, account)


def resolve(host: str, port: int) -> tuple[SocketAddress, ...]:
    """The addresses of a host, in the order of the resolver. May block. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple((family, address) for family, _, _, _, address in found)
