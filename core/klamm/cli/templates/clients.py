"""Templates of parts that let clients in: transport, authenticator, SASL mechanism, credential store."""

from __future__ import annotations

from typing import Final

from klamm.cli.templates.package import Template

TRANSPORT: Final = Template(
    "klamm_transports",
    "unchanged bytes over TCP, and their number",
    '''\
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence

from klamm import END_OF_STREAM, WOULD_BLOCK, Address, Buffer, Interest, Transport, TransportLayer


class CLASS(Transport):
    """SENTENCE."""

    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        return CLASSLayer(sock)


class CLASSLayer(TransportLayer):
    """One connected, non-blocking socket. All methods but `abort` are called on one processor's thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.received_bytes = 0

    def handshake(self) -> Interest:
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return WOULD_BLOCK
        self.received_bytes += count
        return count or END_OF_STREAM

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        try:
            return self._socket.sendmsg(chunks)
        except BlockingIOError:
            return WOULD_BLOCK

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        try:
            sent = os.sendfile(self._socket.fileno(), descriptor, position, count)
        except BlockingIOError:
            return WOULD_BLOCK
        if not sent:
            raise OSError("the file is shorter than it was")
        return sent

    @property
    def details(self) -> Mapping[str, str]:
        return {"transport": "PART"}

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, check_transport
from MODULE.part import CLASS


def test_a_broker_serves_over_it():
    with EmbeddedServer(["listeners.default.transport=PART"], plugins=[MODULE]) as server:
        topic = server.create_topic()
        server.produce(topic, "one")
        assert [record.value for record in server.consume(topic)] == [b"one"]


def test_it_keeps_its_contract():
    check_transport(CLASS)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
transport = "PART"
```
""",
)

AUTHENTICATOR: Final = Template(
    "klamm_authenticators",
    "accepts clients whose first frame is a token from the file",
    '''\
import hmac
from dataclasses import dataclass

from klamm import (
    ANONYMOUS,
    AuthenticationStep,
    Authenticator,
    AuthenticatorFactory,
    Buffer,
    ConnectionContext,
    KafkaPrincipal,
    TransportLayer,
    setting,
)


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    token: str = setting(doc="The token that a client must send in its first frame.")
    user: str = setting("service", doc="The principal of clients that have sent the token.")


class CLASS(AuthenticatorFactory):
    """SENTENCE."""

    max_receive_bytes = 1000

    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> Authenticator:
        return CLASSAuthenticator(self.settings)


class CLASSAuthenticator(Authenticator):
    """One connection. The first frame is a token; later frames are requests."""

    def __init__(self, settings: CLASSSettings) -> None:
        self._settings = settings
        self._principal = ANONYMOUS

    @property
    def complete(self) -> bool:
        return self._principal is not ANONYMOUS

    @property
    def principal(self) -> KafkaPrincipal:
        return self._principal

    def receive(self, frame: Buffer) -> AuthenticationStep:
        if not hmac.compare_digest(bytes(frame), self._settings.token.encode()):
            return AuthenticationStep(failed="the token is wrong")
        self._principal = KafkaPrincipal(self._settings.user)
        return AuthenticationStep(send=[b"welcome"], complete=True)
''',
    """\
import MODULE

from klamm import KafkaPrincipal
from klamm.testing import EmbeddedServer, Playbook, RawClient, check_authenticator
from klamm.wire.messages.metadata import MetadataRequest
from MODULE.part import CLASS, CLASSSettings


def test_the_token_lets_a_client_in():
    settings = ["listeners.default.authenticator=PART", "listeners.default.PART.token=sesame"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        with RawClient(server.address()) as client:
            client.send_frame(b"sesame")
            assert client.receive_frame() == b"welcome"
            assert len(client.call(MetadataRequest(topics=None), 12).brokers) == 1
        with RawClient(server.address()) as client:
            client.send_frame(b"please")
            assert client.at_end()


def test_it_keeps_its_contract():
    playbooks = [Playbook([b"sesame"], KafkaPrincipal("service")), Playbook([b"please"], None)]
    check_authenticator(CLASS, CLASSSettings(token="sesame"), playbooks=playbooks)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
authenticator = "PART"

[listeners.default.PART]
token = "change me"
```
""",
)

SASL_MECHANISM: Final = Template(
    "klamm_sasl_mechanisms",
    "accepts clients that send a ticket from the file",
    '''\
from dataclasses import dataclass

from klamm import ConnectionContext, KafkaPrincipal, TransportLayer, setting
from klamm.sasl import SaslError, SaslMechanism, SaslServer, SaslSuccess


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    tickets: dict[str, str] = setting({}, doc="Tickets, each with the user that has it.")


class CLASS(SaslMechanism):
    """SENTENCE."""

    def server(self, connection: ConnectionContext, transport: TransportLayer) -> SaslServer:
        return CLASSServer(self.settings)


class CLASSServer(SaslServer):
    """One exchange: the token of the client is its ticket. Called on one processor's thread."""

    def __init__(self, settings: CLASSSettings) -> None:
        self._tickets = settings.tickets

    def evaluate(self, token: bytes) -> SaslSuccess:
        user = self._tickets.get(token.decode(errors="replace"))
        if user is None:
            raise SaslError("there is no such ticket")
        self.claimed = user
        return SaslSuccess(KafkaPrincipal(user))
''',
    """\
import MODULE

from klamm import KafkaPrincipal
from klamm.testing import EmbeddedServer, Playbook, RawClient, check_sasl_mechanism
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from MODULE.part import CLASS, CLASSSettings


def test_a_ticket_lets_a_client_in():
    settings = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["PART"]',
        'listeners.default.sasl.PART.tickets={ "4711" = "alice" }',
    ]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        for ticket, error_code in ((b"4711", 0), (b"4712", 58)):
            with RawClient(server.address()) as client:
                assert client.call(SaslHandshakeRequest("PART"), 1).error_code == 0
                assert client.call(SaslAuthenticateRequest(ticket), 2).error_code == error_code


def test_it_keeps_its_contract():
    playbooks = [Playbook([b"4711"], KafkaPrincipal("alice")), Playbook([b"4712"], None)]
    check_sasl_mechanism(CLASS, CLASSSettings(tickets={"4711": "alice"}), playbooks=playbooks)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
authenticator = "sasl"

[listeners.default.sasl]
mechanisms = ["PART"]

[listeners.default.sasl.PART]
tickets = { "4711" = "alice" }
```
""",
)

CREDENTIAL_STORE: Final = Template(
    "klamm_credential_stores",
    "users and passwords of a table in SQLite",
    '''\
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from klamm import setting
from klamm.sasl import CredentialStore, ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    database: Path = setting(doc="A file of SQLite with a table users (name, verifier).", private=True)


class CLASS(CredentialStore):
    """SENTENCE: `verifier` is the output of `klamm users hash`. Any thread may call it."""

    blocking = True

    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        database = sqlite3.connect(self.settings.database)
        try:
            rows = database.execute("SELECT verifier FROM users WHERE name = ?", (user,)).fetchall()
        finally:
            database.close()
        found = (ScramCredential.from_text(verifier) for (verifier,) in rows)
        return next((one for one in found if one.mechanism is mechanism), None)
''',
    """\
import sqlite3

import MODULE
import pytest

from klamm.sasl import ScramCredential, ScramMechanism
from klamm.testing import EmbeddedServer, RawClient, check_credential_store
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from MODULE.part import CLASS, CLASSSettings


@pytest.fixture
def database(tmp_path):
    file = tmp_path / "users.db"
    credential = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, "secret", b"0123456789abcdef")
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE users (name TEXT, verifier TEXT)")
    connection.execute("INSERT INTO users VALUES ('alice', ?)", (credential.to_text(),))
    connection.commit()
    connection.close()
    return file


def test_a_user_of_the_table_logs_in(database):
    settings = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["PLAIN"]',
        'listeners.default.sasl.credential_stores=["PART"]',
        f"listeners.default.sasl.PART.database={database}",
    ]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        for password, error_code in ((b"secret", 0), (b"wrong", 58)):
            with RawClient(server.address()) as client:
                client.call(SaslHandshakeRequest("PLAIN"), 1)
                answer = client.call(SaslAuthenticateRequest(b"\\0alice\\0" + password), 2)
                assert answer.error_code == error_code


def test_it_keeps_its_contract(database):
    check_credential_store(CLASS, CLASSSettings(database=database), passwords={"alice": "secret"})
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
authenticator = "sasl"

[listeners.default.sasl]
mechanisms = ["SCRAM-SHA-256"]
credential_stores = ["PART"]

[listeners.default.sasl.PART]
database = "users.db"
```
""",
)
