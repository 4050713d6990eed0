"""Tests of ACLs with clients: kafka-acls and confluent-kafka write them, producers and consumers must obey them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from klamm.sasl import ScramCredential, ScramMechanism
from tests.interop.clients.java import run_tool
from tests.peers.kafka_server import KafkaServer
from tests.peers.server import HOST, Server
from tests.peers.target import target_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
ADMIN, ALICE = "admin", "alice"
PATIENCE_S = 20.0
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def password(user: str) -> str:
    return f"{user}-secret"


def verifier(user: str) -> str:
    return ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, password(user), salt=user.encode()).to_text()


def klamm_settings() -> dict[str, str]:
    users = ", ".join(f"{user} = {json.dumps(verifier(user))}" for user in (ADMIN, ALICE))
    return {
        "listeners.default.authenticator": "sasl",
        "listeners.default.sasl.mechanisms": '["PLAIN"]',
        "listeners.default.sasl.users": f"{{{users}}}",
        "listeners.default.authorizer": "acl",
        "listeners.default.acl.super_users": f'["User:{ADMIN}"]',
    }


def kafka_settings(server: KafkaServer) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = " ".join(f'user_{user}="{password(user)}"' for user in (ADMIN, ALICE))
    jaas = f'{module} username="{ADMIN}" password="{password(ADMIN)}" {users};'
    return {
        "listeners": f"CLIENTS://{HOST}:{server.port},CONTROLLER://{HOST}:{server.controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{server.port}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server whose clients authenticate. It has a super user, and a user whose rights are in ACLs."""
    server = target_server(tmp_path_factory.mktemp("guarded"))
    server.settings |= kafka_settings(server) if isinstance(server, KafkaServer) else klamm_settings()
    with server:
        yield server


def login(server: Server, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password(user),
    }


def properties(directory: Path, user: str) -> str:
    """Return a properties file with the login, for Java's tools."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    file = directory / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} username="{user}" password="{password(user)}";\n'
    )
    return str(file)


@pytest.fixture
def admin(guarded: Server, topic: str) -> Iterator[AdminClient]:
    """Yield a client of the super user. The test's topic exists, and there is no ACL before and after the test."""
    client = AdminClient(login(guarded, ADMIN))
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    yield client
    client.delete_acls([ANY_ACL])[ANY_ACL].result(PATIENCE_S)


def acls(server: Server, tmp_path: Path, *arguments: str) -> str:
    login_file = properties(tmp_path, ADMIN)
    return run_tool(ACL_COMMAND, "--bootstrap-server", server.bootstrap, "--command-config", login_file, *arguments)


def rules(listing: str) -> list[str]:
    """Return the lines of `kafka-acls --list` that are rules, without surrounding spaces."""
    return sorted(line.strip() for line in listing.splitlines() if line.strip().startswith("(principal="))


def rule(operation: str, principal: str = f"User:{ALICE}", host: str = "*", permission: str = "ALLOW") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def acl(
    topic: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    principal: str = f"User:{ALICE}",
    host: str = "*",
) -> AclBinding:
    """Return an ACL."""
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, host, operation, AclPermissionType.ALLOW)


def eventually(found: Callable[[], bool]) -> None:
    """Wait for a condition: Apache Kafka applies changed ACLs a moment after its answer, and klamm at once."""
    end = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < end, "the ACLs have not come into force"
        time.sleep(0.1)


def outcome_of_producing(server: Server, topic: str, user: str = ALICE) -> KafkaError | None:
    """Return None if a record was acknowledged, otherwise the error."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(login(server, user) | {"message.timeout.ms": 5000})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(PATIENCE_S)
    return outcomes[0]


def outcome_of_consuming(server: Server, topic: str, group: str) -> KafkaError | None:
    """Return None if a record was read as a member of the group, otherwise the error."""
    consumer = Consumer(login(server, ALICE) | {"group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "neither a record nor an error"
        return message.error()
    finally:
        consumer.close()


def test_kafka_acls_adds_lists_and_removes(guarded: Server, admin: AdminClient, topic: str, tmp_path: Path) -> None:
    alice = ["--allow-principal", f"User:{ALICE}"]
    acls(guarded, tmp_path, "--add", *alice, "--operation", "Read", "--operation", "Describe", "--topic", topic)
    denied = ["--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--operation", "All"]
    acls(guarded, tmp_path, "--add", *denied, "--topic", topic[:7], "--resource-pattern-type", "prefixed")
    eventually(lambda: len(admin.describe_acls(ANY_ACL).result(PATIENCE_S)) == 3)

    listing = acls(guarded, tmp_path, "--list", "--topic", topic)
    assert f"ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)" in listing
    assert rules(listing) == [rule("DESCRIBE"), rule("READ")]
    matching = acls(guarded, tmp_path, "--list", "--topic", topic, "--resource-pattern-type", "match")
    assert rules(matching) == [rule("ALL", "User:*", "10.0.0.1", "DENY"), rule("DESCRIBE"), rule("READ")]
    of_alice = acls(guarded, tmp_path, "--list", "--principal", f"User:{ALICE}")
    assert rules(of_alice) == [rule("DESCRIBE"), rule("READ")]

    acls(guarded, tmp_path, "--remove", "--force", *alice, "--operation", "Describe", "--topic", topic)
    eventually(lambda: len(admin.describe_acls(ANY_ACL).result(PATIENCE_S)) == 2)
    assert rules(acls(guarded, tmp_path, "--list", "--topic", topic)) == [rule("READ")]


def test_a_client_without_permission_is_refused(
    guarded: Server, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    arguments = ["--bootstrap-server", guarded.bootstrap, "--command-config", properties(tmp_path, ALICE)]
    with pytest.raises(RuntimeError, match="ClusterAuthorizationException"):
        run_tool(ACL_COMMAND, *arguments, "--list")
    mine = acl(topic, AclOperation.ALL)
    alice = AdminClient(login(guarded, ALICE))
    with pytest.raises(KafkaException) as refused:
        alice.create_acls([mine])[mine].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert admin.describe_acls(ANY_ACL).result(PATIENCE_S) == []


def test_the_acls_that_kafka_acls_writes_for_producers_and_consumers_suffice(
    guarded: Server, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    refused = outcome_of_producing(guarded, topic)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    alice = ["--allow-principal", f"User:{ALICE}", "--topic", topic]
    acls(guarded, tmp_path, "--add", *alice, "--producer")
    eventually(lambda: outcome_of_producing(guarded, topic) is None)

    refused = outcome_of_consuming(guarded, topic, topic)
    assert refused is not None
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    acls(guarded, tmp_path, "--add", *alice, "--consumer", "--group", topic)
    eventually(lambda: outcome_of_consuming(guarded, topic, topic) is None)

    denied = ["--deny-principal", f"User:{ALICE}", "--deny-host", HOST, "--topic", topic]
    acls(guarded, tmp_path, "--add", *denied, "--operation", "Write")
    eventually(lambda: outcome_of_producing(guarded, topic) is not None)
    assert outcome_of_producing(guarded, topic, ADMIN) is None


def test_a_java_producer_must_obey_acls(guarded: Server, admin: AdminClient, topic: str, tmp_path: Path) -> None:
    def events() -> list[dict[str, Any]]:
        arguments = ["--bootstrap-server", guarded.bootstrap, "--command-config", properties(tmp_path, ALICE)]
        arguments += ["--topic", topic, "--max-messages", "10", "--acks", "-1"]
        return [json.loads(line) for line in run_tool(VERIFIABLE_PRODUCER, *arguments).splitlines()]

    refusals = {event.get("exception", "") for event in events()}
    assert any("AuthorizationException" in refusal for refusal in refusals), refusals
    allowed = acl(topic[:-1], AclOperation.WRITE, ResourcePatternType.PREFIXED, "User:*", HOST)
    admin.create_acls([allowed])[allowed].result(PATIENCE_S)
    eventually(lambda: outcome_of_producing(guarded, topic) is None)
    assert events()[-1]["acked"] == 10


def test_confluent_admin_creates_describes_and_deletes(admin: AdminClient, topic: str) -> None:
    literal = acl(topic, AclOperation.READ)
    prefixed = acl(topic[:3], AclOperation.WRITE, ResourcePatternType.PREFIXED)
    everything = acl("*", AclOperation.DESCRIBE)
    created = [literal, prefixed, everything]
    for future in admin.create_acls(created).values():
        future.result(PATIENCE_S)
    eventually(lambda: len(admin.describe_acls(ANY_ACL).result(PATIENCE_S)) == 3)

    def about(pattern: ResourcePatternType) -> AclBindingFilter:
        return AclBindingFilter(ResourceType.TOPIC, topic, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)

    assert sorted(admin.describe_acls(ANY_ACL).result(PATIENCE_S)) == sorted(created)
    assert admin.describe_acls(about(ResourcePatternType.ANY)).result(PATIENCE_S) == [literal]
    matching = about(ResourcePatternType.MATCH)
    assert sorted(admin.describe_acls(matching).result(PATIENCE_S)) == sorted(created)
    assert sorted(admin.delete_acls([matching])[matching].result(PATIENCE_S)) == sorted(created)
    eventually(lambda: admin.describe_acls(ANY_ACL).result(PATIENCE_S) == [])


def test_acls_outlast_a_restart(guarded: Server, admin: AdminClient, topic: str) -> None:
    lasting = acl(topic, AclOperation.WRITE)
    admin.create_acls([lasting])[lasting].result(PATIENCE_S)
    guarded.restart()
    eventually(lambda: outcome_of_producing(guarded, topic) is None)
    assert admin.describe_acls(ANY_ACL).result(PATIENCE_S) == [lasting]


def test_without_an_authorizer_requests_about_acls_fail(server: Server) -> None:
    with pytest.raises(RuntimeError, match="SecurityDisabledException: No Authorizer is configured on the broker"):
        run_tool(ACL_COMMAND, "--bootstrap-server", server.bootstrap, "--list")
