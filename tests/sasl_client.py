"""A SASL client over a `RawClient` for tests. It works step by step, or in one call."""

from __future__ import annotations

from typing import Any

import scramp

from klamm.sasl import ScramCredential, ScramMechanism
from klamm.testing import RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest


def verifiers(password: str) -> str:
    """Return the verifiers of a password for a configuration, for both mechanisms."""
    salt = b"a salt that all tests share"
    return " ".join(ScramCredential.from_password(mechanism, password, salt).to_text() for mechanism in ScramMechanism)


def users_setting(**passwords: str) -> str:
    """Return the setting `sasl.users={…}` for these names and passwords."""
    table = ", ".join(f'{name} = "{verifiers(password)}"' for name, password in passwords.items())
    return f"sasl.users={{ {table} }}"


def plain(user: str, password: str) -> bytes:
    """Return the message of PLAIN."""
    return f"\0{user}\0{password}".encode()


def handshake(client: RawClient, mechanism: str, version: int = 1) -> Any:
    """Send SaslHandshake. Return the response."""
    return client.call(SaslHandshakeRequest(mechanism), version)


def send_token(client: RawClient, token: bytes, version: int = 2) -> Any:
    """Send SaslAuthenticate. Return the response, after a check of its form if it succeeded."""
    return client.call(SaslAuthenticateRequest(token), version)


def log_in(client: RawClient, mechanism: str, user: str, password: str, extensions: str = "") -> Any:
    """Log in as usual clients do, with ApiVersions first. Return the last response."""
    assert client.call(ApiVersionsRequest("sasl-client", "1.0"), 3).error_code == 0
    return authenticate(client, mechanism, user, password, extensions)


def authenticate(client: RawClient, mechanism: str, user: str, password: str, extensions: str = "") -> Any:
    """Log in, beginning with SaslHandshake. Return the last response."""
    assert handshake(client, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return send_token(client, plain(user, password))
    scram = scramp.ScramClient([mechanism], user, password)
    first = scram.get_client_first() + extensions
    scram.client_first_bare = first.removeprefix("n,,")
    response = send_token(client, first.encode())
    if response.error_code:
        return response
    scram.set_server_first(response.auth_bytes.decode())
    response = send_token(client, scram.get_client_final().encode())
    if not response.error_code:
        scram.set_server_final(response.auth_bytes.decode())
    return response
