"""Tests of GSSAPI with a KDC: clients with tickets log in under their local names, and other clients are refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import ConnectionContext, ErrorCode
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.interop.clients.java import run_tool
from tests.kdc import REALM, Kdc, missing_programs
from tests.sasl_client import handshake, send_token
from tests.waiting import wait_until

gssapi = pytest.importorskip("gssapi", reason="klamm[gssapi] is not installed")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs krb5-kdc, krb5-admin-server: {missing_programs()}"),
]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    # The Kerberos library of this process reads its configuration from the environment only once.
    patch = pytest.MonkeyPatch()
    with Kdc(tmp_path_factory.mktemp("kdc")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running
    patch.undo()


@pytest.fixture(scope="module")
def server(kdc: Kdc) -> Iterator[EmbeddedServer]:
    rules = 'RULE:[2:$1-$2](backup-.*)s/backup-(.*)/$1/U", "DEFAULT'
    settings = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["GSSAPI"]',
        f"listeners.default.sasl.GSSAPI.keytab={kdc.keytab('kafka/localhost')}",
        f"listeners.default.sasl.GSSAPI.principal=kafka/localhost@{REALM}",
        f'listeners.default.sasl.GSSAPI.principal_to_local_rules=["{rules}"]',
        "listeners.default.advertise=localhost:0",
    ]
    with EmbeddedServer(settings) as running:
        yield running


def bootstrap(server: EmbeddedServer) -> str:
    return f"localhost:{server.address()[1]}"


@pytest.fixture
def holding(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return the context manager `holding(principal)`. In its block, clients have a ticket of the principal."""

    def hold(principal: str) -> None:
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket(principal)}")

    return hold


def connections(server: EmbeddedServer) -> list[ConnectionContext]:
    return [
        channel.connection
        for processor in server.server.listeners[0].processors
        for channel in list(processor._reactor.selector.channels.values())
    ]


def connection_of(server: EmbeddedServer, client: RawClient) -> ConnectionContext:
    """Return the server's view of a client that has not failed yet."""
    port = client.socket.getsockname()[1]
    found: list[ConnectionContext] = []

    def is_there() -> bool:
        found[:] = [one for one in connections(server) if one.client_address.port == port]
        return bool(found)

    wait_until(is_there)
    return found[0]


@pytest.mark.parametrize(("principal", "name"), [("alice", "alice"), ("backup/nightly", "NIGHTLY")])
def test_kafka_python_logs_in_with_gssapi(
    server: EmbeddedServer, holding: Callable[[str], None], principal: str, name: str
) -> None:
    from kafka import KafkaProducer

    holding(principal)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap(server),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        sasl_kerberos_domain_name="localhost",
    )
    producer.send("gss", b"value").get(timeout=30)
    assert name in {connection.principal.name for connection in connections(server)}
    producer.close()


def test_aiokafka_logs_in_with_gssapi(server: EmbeddedServer, holding: Callable[[str], None]) -> None:
    from aiokafka import AIOKafkaProducer

    holding("bob")

    async def produce() -> set[str]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap(server),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
            sasl_kerberos_domain_name="localhost",
        )
        await producer.start()
        await producer.send_and_wait("gss", b"value")
        names = {connection.principal.name for connection in connections(server)}
        await producer.stop()
        return names

    assert "bob" in asyncio.run(produce())


def test_java_logs_in_with_gssapi(
    server: EmbeddedServer, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = kdc.keytab("carol")
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={module} useKeyTab=true keyTab="{keytab}" principal="carol@{REALM}";\n'
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={os.environ['KRB5_CONFIG']}")
    output = run_tool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "--bootstrap-server",
        bootstrap(server),
        "--command-config",
        str(properties),
    )
    assert "ApiVersions" in output


def exchange(client: RawClient, kdc: Kdc, principal: str, choice: bytes) -> Any:
    """Exchange tokens by hand as a client does. Return the last response. `choice` is the requested security layer."""
    credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{kdc.ticket(principal)}"})
    service = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=service, creds=credentials, usage="initiate")
    assert handshake(client, "GSSAPI").error_code == 0
    response = send_token(client, context.step())
    while not context.complete:
        response = send_token(client, context.step(response.auth_bytes) or b"")
    if not response.auth_bytes:
        response = send_token(client, b"")
    assert context.unwrap(response.auth_bytes).message == b"\x01\0\0\0", "no security layer is offered"
    return send_token(client, context.wrap(choice, False).message)


def is_out(client: RawClient) -> bool:
    """Check that a further request is not served and the connection ends."""
    try:
        client.send(MetadataRequest(topics=None), 12)
    except ConnectionError:
        return True
    return client.at_end()


def test_a_request_instead_of_a_token_is_not_served(server: EmbeddedServer) -> None:
    with RawClient(server.address()) as client:
        handshake(client, "GSSAPI")
        assert client.call(MetadataRequest(topics=None), 12).brokers == []
        assert is_out(client)


def test_handwritten_client_logs_in_with_gssapi(server: EmbeddedServer, kdc: Kdc) -> None:
    with RawClient(server.address()) as client:
        assert exchange(client, kdc, "dave", b"\x01\0\0\0dave").error_code == 0
        assert client.call(MetadataRequest(topics=None), 12).brokers


@pytest.mark.parametrize(
    ("principal", "choice"), [("erin", b"\x02\0\0\0"), ("frank", b""), ("three/part/name", b"\x01\0\0\0")]
)
def test_a_security_layer_or_a_name_without_a_rule_is_refused(
    server: EmbeddedServer, kdc: Kdc, principal: str, choice: bytes
) -> None:
    with RawClient(server.address()) as client:
        connection = connection_of(server, client)
        assert exchange(client, kdc, principal, choice).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.attempted_principal == f"User:{principal}@{REALM}", "its ticket has proved that"
        assert is_out(client)


@pytest.mark.parametrize("token", [b"", b"garbage", b"\x60\x82\x01\x00" + bytes(300)])
def test_bytes_that_are_not_a_ticket_are_refused(server: EmbeddedServer, token: bytes) -> None:
    with RawClient(server.address()) as client:
        handshake(client, "GSSAPI")
        connection = connection_of(server, client)
        assert send_token(client, token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.attempted_principal == "", "a ticket that cannot be read names no client"
        assert is_out(client)


def test_the_server_does_not_start_without_its_keytab(kdc: Kdc, tmp_path: Path) -> None:
    settings = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["GSSAPI"]',
        f"listeners.default.sasl.GSSAPI.keytab={tmp_path / 'nothing'}",
    ]
    with pytest.raises(StartError, match="SASL mechanism GSSAPI: no key for any principal"):
        EmbeddedServer(settings).start()
