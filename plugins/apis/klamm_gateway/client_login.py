"""The setting `login = "client"`: SASL requests are passed on to the node, which accepts or refuses the login.

The node gets the client's own bytes. So the mechanisms work that do not name the server: PLAIN, SCRAM and OAUTHBEARER.
GSSAPI is refused, because the client's ticket is for the gateway's host. SaslHandshake is served from version 1 on:
after version 0, the client sends tokens without a header, which cannot be distinguished from requests. After PLAIN and
SCRAM, klamm uses the node's default principal, `User:NAME`, for quotas and the audit. After OAUTHBEARER, and with a
delegation token, the client stays anonymous for klamm. A login that the node refuses is recorded as a failed
authentication. A login that the node accepts is recorded as an authentication, if the client's name is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from klamm import ANONYMOUS, ConnectionContext, ErrorCode, KafkaPrincipal, RequestContext, handles
from klamm.forwarding import ConnectionLink
from klamm.wire.messages import sasl_authenticate, sasl_handshake
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSIONS: Final = range(1, 2)
_STATE: Final = "gateway-login"
_SCRAM_FIRST: Final = re.compile(r"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=[^,]*(.*)", re.DOTALL)
"""In RFC 5802, the name comes before the nonce. Extensions after the nonce may have the same names as fields."""
_NAMES_THE_SERVER: Final = frozenset({"GSSAPI"})


class Forwards(Protocol):
    """The methods of the gateway that a login uses."""

    def forward(self, message: Any, context: RequestContext, change: Callable[[Any], Any]) -> Any: ...


@dataclass(slots=True)
class ClientLogin:
    """A login in progress. `user` is the name that the client claims; empty if its mechanism does not send one."""

    mechanism: str
    user: str = ""
    messages: int = 0

    def take(self, auth_bytes: bytes) -> None:
        """Read the client's next message."""
        self.messages += 1
        if self.messages == 1:
            self.user = _claimed(self.mechanism, auth_bytes)

    @property
    def is_last(self) -> bool:
        """Return True if the node's next success proves the user name."""
        return bool(self.user) and self.messages == (1 if self.mechanism == "PLAIN" else 2)


def _claimed(mechanism: str, auth_bytes: bytes) -> str:
    try:
        text = auth_bytes.decode()
    except UnicodeDecodeError:
        return ""
    if mechanism == "PLAIN":
        _authorization_id, _, rest = text.partition("\0")
        return rest.partition("\0")[0]
    found = _SCRAM_FIRST.match(text) if mechanism.startswith("SCRAM-") else None
    if found is None:
        return ""
    name, rest = found.groups()
    # As in Kafka, the last one of two equal fields counts.
    extensions = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
    if extensions.get("tokenauth", "").lower() == "true":
        return ""
    return name.replace("=2C", ",").replace("=3D", "=")


@handles(sasl_handshake, versions=HANDSHAKE_VERSIONS, blocking=False)
def pass_handshake(gateway: Forwards, request: SaslHandshakeRequest, context: RequestContext) -> Any:
    """Forward SaslHandshake. Return the node's answer without the mechanisms that cannot be passed on."""
    if request.mechanism in _NAMES_THE_SERVER:
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM)

    def shaken(response: SaslHandshakeResponse) -> SaslHandshakeResponse:
        response.mechanisms = [each for each in response.mechanisms if each not in _NAMES_THE_SERVER]
        if not response.error_code:
            context.connection.state[_STATE] = ClientLogin(request.mechanism)
        return response

    return gateway.forward(request, context, shaken)


@handles(sasl_authenticate, versions=range(0, 3), blocking=False)
def pass_authenticate(gateway: Forwards, request: SaslAuthenticateRequest, context: RequestContext) -> Any:
    """Forward SaslAuthenticate. Return the node's answer."""
    login: ClientLogin | None = context.connection.state.get(_STATE)
    if login is not None:
        login.take(request.auth_bytes)

    def answered(response: SaslAuthenticateResponse) -> SaslAuthenticateResponse:
        if response.error_code:
            _note_refusal(context.connection, login, response)
        elif login is not None and login.is_last:
            _note_success(context.connection, login)
        return response

    result = gateway.forward(request, context, answered)
    # Observers get the message, and must not see a password.
    request.auth_bytes = b""
    return result


def _note_refusal(connection: ConnectionContext, login: ClientLogin | None, response: SaslAuthenticateResponse) -> None:
    claimed = str(KafkaPrincipal(login.user)) if login is not None and login.user else ""
    reason = f"the node refuses the login: error {response.error_code}: {response.error_message or 'without a message'}"
    again = connection.principal is not ANONYMOUS

    def note(link: ConnectionLink) -> None:
        # Counted here, because the next failure may be known before this one is recorded.
        connection.attempted_principal = claimed
        link.login_failed(reason, again=again)

    _on_loop(connection, note)


def _note_success(connection: ConnectionContext, login: ClientLogin) -> None:
    again = connection.principal is not ANONYMOUS
    # Done at once, because requests after the login belong to this client.
    connection.principal = KafkaPrincipal(login.user)
    connection.sasl_mechanism = login.mechanism
    _on_loop(connection, lambda link: link.login_succeeded(again=again))


def _on_loop(connection: ConnectionContext, note: Callable[[ConnectionLink], None]) -> None:
    link = connection.link
    assert link is not None
    # A long answer is decoded on another thread.
    if link.on_loop:
        note(link)
    else:
        link.call_soon(lambda: note(link))


LOGIN_HANDLERS: Final = (pass_handshake, pass_authenticate)
