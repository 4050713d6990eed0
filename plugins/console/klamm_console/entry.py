"""`Entry`: logs users in to a listener over the network, like any Kafka client."""

from __future__ import annotations

import ssl
import threading
from typing import Final

from klamm import ListenerContext, ServerServices
from klamm.config import host_to_connect
from klamm.sasl import SaslAccount
from klamm.testing import Admin, ClusterAdmin, RawClient
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm_console.console_settings import ConsoleSettings

CLIENT_ID: Final = "klamm-console"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
_TIMEOUT_S: Final = 15.0
_ASK_S: Final = 5.0


class LoginError(Exception):
    """Raised if the listener refuses a login. The message is for the user."""


class NoListenerError(Exception):
    """Raised if no listener can be used. The message names the setting."""


class Entry:
    """The connections to one listener. Any thread may call it."""

    def __init__(self, services: ServerServices, settings: ConsoleSettings) -> None:
        """Read the trusted certificates. Raises OSError if their file is missing."""
        self._services = services
        self._settings = settings
        # One thread at a time requests the listener's mechanisms.
        self._asking = threading.Lock()
        self._mechanisms: list[str] = []
        if settings.ca_file is not None:
            settings.ca_file.stat()

    @property
    def listener(self) -> ListenerContext:
        """Return the listener that users log in to. Raises NoListenerError."""
        listeners = list(self._services.listeners.values())
        wanted = self._settings.listener
        if wanted is not None:
            for each in listeners:
                if wanted in (each.name, each.configured_as):
                    return each
            names = ", ".join(sorted({each.configured_as for each in listeners}))
            raise NoListenerError(f'[console] listener: there is no listener "{wanted}", only {names}')
        # A listener with SSL alone may request a client certificate, which the console does not have.
        usable = [each for each in listeners if each.security_protocol != "SSL"]
        if not usable:
            raise NoListenerError("[console] listener: name the listener that users log in to")
        return min(usable, key=lambda each: not each.security_protocol.startswith("SASL_"))

    @property
    def needs_token(self) -> bool:
        """Return True if the listener does not authenticate clients, so that the console asks for its token."""
        return not self.listener.security_protocol.startswith("SASL_")

    @property
    def knows_rights(self) -> bool:
        """Return True if the listener decides who may see and change the server.

        A listener without an authorizer allows every user everything. A listener with a filter that renames topics has
        tenants, whose rights concern only their own part. So neither decides about the server. If the console uses a
        token, a user with the token is trusted.
        """
        listener = self.listener
        return not listener.renames_topics and (self.needs_token or listener.authorizer is not None)

    def mechanisms(self) -> list[str]:
        """Return the SASL mechanisms that both the listener and the console have, the strongest first."""
        if self._mechanisms or self.needs_token:
            return self._mechanisms
        if not self._asking.acquire(timeout=_ASK_S):
            raise TimeoutError("the listener has not yet answered another question")
        try:
            if not self._mechanisms:
                # Requested only once, because the listener counts the request as an unfinished login.
                with self._open(self._own_address(), _ASK_S) as client:
                    offered = client.call(SaslHandshakeRequest(MECHANISMS[0]), _HANDSHAKE_VERSION).mechanisms
                self._mechanisms = [each for each in MECHANISMS if each in offered]
        finally:
            self._asking.release()
        return self._mechanisms

    @property
    def host(self) -> str:
        """Return the address from which the console's requests come: it connects to this machine's own listener."""
        return self._own_address()[0]

    def probe(self) -> Admin:
        """Return an `Admin` for a listener without an authenticator that waits for an answer only for seconds."""
        return Admin(lambda: self._open(self._own_address(), _ASK_S), self._services.clock)

    def admin(self, account: SaslAccount | None) -> Admin:
        """Return an `Admin` that acts as this account. Its first call connects, and raises LoginError if the listener
        refuses the account.
        """

        def connect() -> RawClient:
            return self._logged_in(self._own_address(), account)

        if not self._has_other_nodes():
            return Admin(connect, self._services.clock)
        return ClusterAdmin(connect, lambda address: self._logged_in(address, account), self._services.clock)

    def _has_other_nodes(self) -> bool:
        """Return True if leaders and coordinators may have addresses other than the listener's."""
        listeners = self._services.listeners.values()
        return self.listener.api_set == "gateway" or any(each.node for each in listeners)

    def account(self, mechanism: str, user: str, password: str) -> SaslAccount:
        """Return the account for the entries of a login form."""
        return SaslAccount(mechanism, user, password, self._services.random_bytes)

    def _own_address(self) -> tuple[str, int]:
        host, port = self.listener.bound
        return host_to_connect(host), port

    def _open(self, address: tuple[str, int], timeout_s: float = _TIMEOUT_S) -> RawClient:
        listener = self.listener
        context: ssl.SSLContext | None = None
        if listener.security_protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=self._settings.ca_file)
        name = self._settings.server_name or listener.advertised.host
        return RawClient(address, timeout_s=timeout_s, client_id=CLIENT_ID, ssl_context=context, server_hostname=name)

    def _logged_in(self, address: tuple[str, int], account: SaslAccount | None) -> RawClient:
        client = self._open(address)
        try:
            if account is not None:
                _log_in(client, account)
        except BaseException:
            client.close()
            raise
        return client


def _log_in(client: RawClient, account: SaslAccount) -> None:
    shaken = client.call(SaslHandshakeRequest(account.mechanism), _HANDSHAKE_VERSION)
    if shaken.error_code:
        raise LoginError(f"the listener has the mechanisms {', '.join(shaken.mechanisms)}")
    exchange = account.begin()
    token: bytes | None = exchange.first()
    while token is not None:
        answer = client.call(SaslAuthenticateRequest(token), _AUTHENTICATE_VERSION)
        if answer.error_code:
            raise LoginError(answer.error_message or "the login is refused")
        try:
            token = exchange.respond(answer.auth_bytes)
        except ValueError as error:
            raise LoginError(str(error)) from error
