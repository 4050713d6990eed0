"""Users of the variable log in, others do not, and a wrong variable ends the start."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import klamm_environment_users
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer

SETTINGS = [
    "listeners.default.authenticator=sasl",
    'listeners.default.sasl.mechanisms=["SCRAM-SHA-256", "PLAIN"]',
    'listeners.default.sasl.credential_stores=["environment_users"]',
]


def topics_as(server, password, mechanism, timeout_s=10):
    client = AdminClient(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "ann",
            "sasl.password": password,
        }
    )
    return client.list_topics(timeout=timeout_s).topics


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_user_of_the_variable_logs_in(monkeypatch, mechanism):
    monkeypatch.setenv("KLAMM_USERS", "ann:secret bob:other")
    with EmbeddedServer(SETTINGS, plugins=[klamm_environment_users]) as server:
        assert topics_as(server, "secret", mechanism) == {}


def test_a_wrong_password_is_refused(monkeypatch):
    monkeypatch.setenv("KLAMM_USERS", "ann:secret")
    with (
        EmbeddedServer(SETTINGS, plugins=[klamm_environment_users]) as server,
        pytest.raises(KafkaException),
    ):
        topics_as(server, "guessed", "SCRAM-SHA-256", timeout_s=1)


@pytest.mark.parametrize(
    ("value", "problem"), [("", "names no user"), ("ann:secret bob", "entry 2 is not USER:PASSWORD")]
)
def test_a_wrong_variable_ends_the_start(monkeypatch, value, problem):
    monkeypatch.setenv("KLAMM_USERS", value)
    with pytest.raises(StartError, match=problem):
        EmbeddedServer(SETTINGS, plugins=[klamm_environment_users]).start()
