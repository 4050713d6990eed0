"""Tests of `upstream.login = "client"`: clients log in through the gateway, and the node behind it decides.

The node is klamm's broker. `test_sasl` compares its mechanisms with Kafka's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer
from tests.contract.gateway_nodes import gateway
from tests.interop.clients.java import TOPIC_COMMAND, run_tool
from tests.interop.test_sasl import CLIENTS, KEY, Refused, bearer, produce, properties
from tests.peers.server import lasting_port
from tests.sasl_client import users_setting
from tests.tls_files import TlsFiles

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

SLOW_CLIENTS = [pytest.param(name, marks=pytest.mark.slow) for name in ("kafka-python", "aiokafka")]
OWN_PASSWORD = "of the gateway"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    directory = tmp_path_factory.mktemp("login")
    (directory / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (directory / "password").write_text(OWN_PASSWORD)
    (directory / "password").chmod(0o600)
    node = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]',
        "listeners.default." + users_setting(alice="sesame", gateway=OWN_PASSWORD),
        f"listeners.default.sasl.OAUTHBEARER.jwks_file={directory / 'jwks.json'}",
        'listeners.default.sasl.OAUTHBEARER.expected_audience=["kafka"]',
        "listeners.default.sasl.OAUTHBEARER.allow_unverified_issuer=true",
    ]
    upstream = [
        "upstream.security_protocol=SASL_PLAINTEXT",
        "upstream.sasl_mechanism=SCRAM-SHA-512",
        "upstream.sasl_username=gateway",
        f"upstream.sasl_password_file={directory / 'password'}",
        "upstream.login=client",
    ]
    with EmbeddedServer(node) as behind:
        settings = [f"gateway.{each}" for each in upstream]
        with gateway(behind.bootstrap, settings) as running:
            yield running


@pytest.mark.parametrize("client", ["confluent-kafka", *SLOW_CLIENTS])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_the_node_decides_who_logs_in(front: EmbeddedServer, client: str, mechanism: str) -> None:
    bears = mechanism == "OAUTHBEARER"
    CLIENTS[client](front.bootstrap, mechanism, "alice", bearer("alice") if bears else "sesame")
    with pytest.raises(Refused):
        CLIENTS[client](front.bootstrap, mechanism, "alice", bearer("alice", seconds=-60) if bears else "wrong")


def test_java_logs_in_at_the_node(front: EmbeddedServer, tmp_path: Path) -> None:
    assert "producer_send_success" in produce(front, properties(tmp_path, "alice", "alice", "sesame"))
    with pytest.raises(RuntimeError, match="invalid credentials"):
        java_topics(front, properties(tmp_path, "wrong", "alice", "wrong"))


def java_topics(server: EmbeddedServer, login: str) -> str:
    return run_tool(TOPIC_COMMAND, "--bootstrap-server", server.bootstrap, "--command-config", login, "--list")


def test_java_finds_nodes_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `nodes = "sni"`, three nodes are behind one port, and clients log in themselves."""
    files = TlsFiles(tmp_path)
    files.server = files.issue("front", "CN=front", hosts=("front.test", "*.front.test"))
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"127.0.0.1 {name}.front.test\n" for name in ("broker-1", "broker-2", "broker-3")))
    with hosts.open("a") as file:
        file.write("127.0.0.1 front.test\n")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djdk.net.hosts.file={hosts}")
    node = [
        "broker.nodes=3",
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["SCRAM-SHA-512"]',
        "listeners.default." + users_setting(alice="sesame", gateway=OWN_PASSWORD),
    ]
    (tmp_path / "password").write_text(OWN_PASSWORD)
    (tmp_path / "password").chmod(0o600)
    port = lasting_port()
    settings = [line for line in files.server_settings() if "trust_store" not in line] + [
        f"listeners.default.bind=127.0.0.1:{port}",
        f"listeners.default.advertise=front.test:{port}",
        "gateway.nodes=sni",
        "gateway.node_ports=",
        "gateway.upstream.security_protocol=SASL_PLAINTEXT",
        "gateway.upstream.sasl_mechanism=SCRAM-SHA-512",
        "gateway.upstream.sasl_username=gateway",
        f"gateway.upstream.sasl_password_file={tmp_path / 'password'}",
        "gateway.upstream.login=client",
    ]
    login = properties(tmp_path, "alice", "alice", "sesame")
    text = Path(login).read_text().replace("SASL_PLAINTEXT", "SASL_SSL")
    Path(login).write_text(f"{text}ssl.truststore.type=PEM\nssl.truststore.location={files.ca}\n")
    with EmbeddedServer(node) as behind, gateway(behind.bootstrap.split(",")[0], settings):
        tool = ("--bootstrap-server", f"front.test:{port}", "--command-config", login, "--topic", "named")
        run_tool(TOPIC_COMMAND, *tool, "--create", "--partitions", "12")
        run_tool("org.apache.kafka.tools.VerifiableProducer", *tool, "--max-messages", "60", "--repeating-keys", "60")
        consumed = run_tool(
            "org.apache.kafka.tools.VerifiableConsumer", *tool, "--group-id", "g", "--max-messages", "60", "--verbose"
        )
        events = [json.loads(line) for line in consumed.splitlines()]
        records = [one for one in events if one["name"] == "record_data"]
        assert {one["partition"] for one in records} == {*range(12)}, "the partitions of all nodes"
        assert sorted(int(one["value"]) for one in records) == [*range(60)]
