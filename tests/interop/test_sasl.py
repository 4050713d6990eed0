"""Tests of real clients with SASL: right and wrong credentials, and users and tokens that clients create."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import RSAKey

from klamm.testing import EmbeddedServer
from tests.interop.clients.java import run_tool
from tests.sasl_client import users_setting

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

KEY = RSAKey.generate_key(2048, {"kid": "idp"})
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PATIENCE_S = 20.0


def bearer(subject: str, seconds: float = 600) -> str:
    now = time.time()
    claims = {"sub": subject, "iat": int(now), "exp": int(now + seconds), "aud": "kafka"}
    return jws.serialize_compact({"alg": "RS256", "kid": "idp"}, json.dumps(claims).encode(), KEY)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    directory = tmp_path_factory.mktemp("sasl")
    (directory / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (directory / "token.key").write_text("a key for delegation tokens")
    settings = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]',
        "listeners.default." + users_setting(alice="sesame"),
        f"listeners.default.sasl.OAUTHBEARER.jwks_file={directory / 'jwks.json'}",
        'listeners.default.sasl.OAUTHBEARER.expected_audience=["kafka"]',
        "listeners.default.sasl.OAUTHBEARER.allow_unverified_issuer=true",
        f"broker.delegation.token.secret.key.file={directory / 'token.key'}",
    ]
    with EmbeddedServer(settings) as running:
        yield running


class Refused(Exception):
    """Raised if the client got the error that its credentials are wrong."""


def confluent(bootstrap: str, mechanism: str, user: str, secret: str) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "error_cb": errors.append,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _config: (secret, time.time() + 600)
    else:
        settings |= {"sasl.username": user, "sasl.password": secret}
    producer = Producer(settings)
    done: list[KafkaError | None] = []
    producer.produce("sasl", b"value", on_delivery=lambda error, _message: done.append(error))
    deadline = time.monotonic() + PATIENCE_S
    while not done and time.monotonic() < deadline:
        producer.poll(0.05)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            producer.purge()
            raise Refused(str(errors))
    assert done == [None]


def kafka_python(bootstrap: str, mechanism: str, user: str, secret: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return secret

    login: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": secret}
    if mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": Provider()}
    try:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            bootstrap_timeout_ms=3000,
            **login,
        )
        producer.send("sasl", b"value").get(PATIENCE_S)
    except KafkaError as error:
        # The client tries again until its timeout and reports that. The cause is in its log.
        raise Refused(str(error)) from error
    producer.close()


def aiokafka(bootstrap: str, mechanism: str, user: str, secret: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return secret

    async def produce() -> None:
        login: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": secret}
        if mechanism == "OAUTHBEARER":
            login = {"sasl_oauth_token_provider": Provider()}
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            request_timeout_ms=3000,
            **login,
        )
        try:
            await producer.start()
            await producer.send_and_wait("sasl", b"value")
        except KafkaError as error:
            # The client takes a refused bearer token for success, continues, and finds no broker.
            raise Refused(str(error)) from error
        finally:
            await producer.stop()

    asyncio.run(produce())


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_clients_log_in_with_passwords(server: EmbeddedServer, client: str, mechanism: str) -> None:
    CLIENTS[client](server.bootstrap, mechanism, "alice", "sesame")
    with pytest.raises(Refused):
        CLIENTS[client](server.bootstrap, mechanism, "alice", "wrong")


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_log_in_with_bearer_tokens(server: EmbeddedServer, client: str) -> None:
    CLIENTS[client](server.bootstrap, "OAUTHBEARER", "", bearer("alice"))
    with pytest.raises(Refused):
        CLIENTS[client](server.bootstrap, "OAUTHBEARER", "", bearer("alice", seconds=-60))


def properties(directory: Path, name: str, user: str, secret: str, options: str = "") -> str:
    """Return a login for Java's tools."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    file = directory / f"{name}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} username="{user}" password="{secret}" {options};\n'
    )
    return str(file)


def produce(server: EmbeddedServer, login: str) -> str:
    return run_tool(
        PRODUCER,
        *("--bootstrap-server", server.bootstrap, "--topic", "sasl", "--max-messages", "1"),
        *("--command-config", login),
    )


def test_java_makes_users(server: EmbeddedServer, tmp_path: Path) -> None:
    admin = properties(tmp_path, "admin", "alice", "sesame")
    where = ("--bootstrap-server", server.bootstrap, "--command-config", admin, "--entity-type", "users")
    for change in ("SCRAM-SHA-512=[iterations=8192,password=hello]", "SCRAM-SHA-256=[password=hello]"):
        run_tool(CONFIGS, *where, "--entity-name", "bob", "--alter", "--add-config", change)
    assert "producer_send_success" in produce(server, properties(tmp_path, "bob", "bob", "hello"))
    confluent(server.bootstrap, "PLAIN", "bob", "hello")
    confluent(server.bootstrap, "SCRAM-SHA-256", "bob", "hello")
    run_tool(CONFIGS, *where, "--entity-name", "bob", "--alter", "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(Refused):
        confluent(server.bootstrap, "SCRAM-SHA-256", "bob", "hello")


def test_confluent_makes_users(server: EmbeddedServer) -> None:
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "sesame",
        }
    )
    wanted = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("carol", wanted, b"hello")]
    ).values():
        future.result(PATIENCE_S)
    described = admin.describe_user_scram_credentials(["carol"])["carol"].result(PATIENCE_S)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 4096)
    ]
    kafka_python(server.bootstrap, "SCRAM-SHA-512", "carol", "hello")


def test_java_makes_and_uses_delegation_tokens(server: EmbeddedServer, tmp_path: Path) -> None:
    admin = properties(tmp_path, "admin", "alice", "sesame")
    where = ("--bootstrap-server", server.bootstrap, "--command-config", admin)
    output = run_tool(TOKENS, *where, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = next(line.split() for line in output.splitlines() if "User:alice" in line)
    token_id, secret = row[0], row[1]
    assert token_id in run_tool(TOKENS, *where, "--describe", "--owner-principal", "User:alice")
    login = properties(tmp_path, "token", token_id, secret, "tokenauth=true")
    assert "producer_send_success" in produce(server, login)
    with pytest.raises(RuntimeError, match="not allowed|DelegationTokenDisabled|DELEGATION_TOKEN|Delegation Token"):
        run_tool(
            TOKENS,
            *("--bootstrap-server", server.bootstrap, "--command-config", login),
            *("--create", "--max-life-time-period", "-1"),
        )
    run_tool(TOKENS, *where, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    run_tool(TOKENS, *where, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in run_tool(TOKENS, *where, "--describe", "--owner-principal", "User:alice")
    assert "producer_send_success" not in produce_or_fail(server, login)


def produce_or_fail(server: EmbeddedServer, login: str) -> str:
    try:
        return produce(server, login)
    except RuntimeError as error:
        return str(error)
