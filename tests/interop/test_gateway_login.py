"""`upstream.login = "client"`: real clients log in through the gateway, and the node behind it decides.

The node is klamm's broker: what its mechanisms do beside Kafka's is the subject of `test_sasl`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from klamm.testing import EmbeddedServer
from tests.contract.gateway_nodes import gateway
from tests.interop.test_sasl import CLIENTS, KEY, Refused, bearer
from tests.sasl_client import users_setting

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
