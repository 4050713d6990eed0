"""The settings with which client libraries connect. The keys are those of each library.

Tests, and the control server for tests in other languages, call `settings_for` on any thread.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.config.problems import did_you_mean


class Login(NamedTuple):
    """The login of a user over TLS; `mechanism` is a SASL mechanism, e.g. `SCRAM-SHA-512`."""

    ca_file: Path
    mechanism: str
    user: str
    password: str


def settings_for(client: str, bootstrap: str, login: Login | None = None) -> dict[str, Any]:
    """Return the settings with which a client library connects to a server. Raises ValueError for an unknown library.

    For `go`, these are plain values, because franz-go, kafka-go and sarama build objects from them.
    """
    make = _CLIENTS.get(client)
    if make is None:
        hint = did_you_mean(client, _CLIENTS)
        raise ValueError(f'there are settings for {", ".join(_CLIENTS)}, not for "{client}"{hint}')
    return make(bootstrap, login)


def _librdkafka(bootstrap: str, login: Login | None) -> dict[str, Any]:
    # Without this, a client prints a line about its telemetry id.
    settings = {"bootstrap.servers": bootstrap, "enable.metrics.push": False}
    if login is None:
        return settings
    return settings | {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(login.ca_file),
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


def _java(bootstrap: str, login: Login | None) -> dict[str, Any]:
    settings = {"bootstrap.servers": bootstrap}
    if login is None:
        return settings
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return settings | {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(login.ca_file),
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": f'{module} required username="{login.user}" password="{login.password}";',
    }


def _kafka_python(bootstrap: str, login: Login | None) -> dict[str, Any]:
    if login is None:
        return {"bootstrap_servers": bootstrap}
    return {**_python_login(bootstrap, login), "ssl_cafile": str(login.ca_file)}


def _aiokafka(bootstrap: str, login: Login | None) -> dict[str, Any]:
    if login is None:
        return {"bootstrap_servers": bootstrap}
    context = ssl.create_default_context(cafile=str(login.ca_file))
    return {**_python_login(bootstrap, login), "ssl_context": context}


def _python_login(bootstrap: str, login: Login) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


def _kafkajs(bootstrap: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"brokers": bootstrap.split(",")}
    if login is None:
        return settings
    sasl = {"mechanism": login.mechanism.lower(), "username": login.user, "password": login.password}
    return settings | {"ssl": {"ca": [login.ca_file.read_text(encoding="ascii")]}, "sasl": sasl}


def _go(bootstrap: str, login: Login | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"brokers": bootstrap.split(",")}
    if login is None:
        return settings
    return settings | {
        "ca_file": str(login.ca_file),
        "mechanism": login.mechanism,
        "username": login.user,
        "password": login.password,
    }


_CLIENTS: Final[dict[str, Callable[[str, Login | None], dict[str, Any]]]] = {
    "confluent-kafka": _librdkafka,
    "confluent-kafka-javascript": _librdkafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
    "kafkajs": _kafkajs,
    "go": _go,
}
