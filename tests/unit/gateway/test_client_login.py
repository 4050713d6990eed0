"""Tests of a node's answer to a client's login."""

from types import SimpleNamespace

from klamm import Address, ConnectionContext
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm_gateway.client_login import pass_authenticate, pass_handshake


class LinkOffLoop:
    """A link whose answers are decoded on another thread. `calls` wait for the loop."""

    on_loop = False

    def __init__(self, connection):
        self.connection = connection
        self.calls = []
        self.notes = []

    def call_soon(self, callback):
        self.calls.append(callback)

    def login_failed(self, reason, *, again):
        self.notes.append((self.connection.attempted_principal, again))

    def login_succeeded(self, *, again):
        self.notes.append((str(self.connection.principal), again))


class Front:
    """A gateway that keeps its actions for an answer."""

    def __init__(self):
        listener = SimpleNamespace(name="front")
        self.connection = ConnectionContext("1", listener, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
        self.link = self.connection.link = LinkOffLoop(self.connection)

    def forward(self, _message, _context, change):
        self.answered = change

    def log_in(self, user, error_code):
        context = SimpleNamespace(connection=self.connection)
        pass_handshake(self, SaslHandshakeRequest("PLAIN"), context)
        self.answered(SaslHandshakeResponse(0, ["PLAIN"]))
        pass_authenticate(self, SaslAuthenticateRequest(f"\0{user}\0secret".encode()), context)
        self.answered(SaslAuthenticateResponse(error_code))


def test_each_login_is_recorded_with_its_own_name():
    front = Front()
    for user, error_code in (("alice", 58), ("bob", 58), ("carol", 0), ("dave", 58)):
        front.log_in(user, error_code)
    assert front.link.notes == []
    for call in front.link.calls:
        call()
    assert front.link.notes == [
        ("User:alice", False),
        ("User:bob", False),
        ("User:carol", False),
        ("User:dave", True),
    ]
