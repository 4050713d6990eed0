"""Every client with right, wrong and no credentials on the five listeners of examples/security/klamm.toml.

For two mechanisms confluent-kafka with a newer librdkafka replaces Debian's kcat 1.7.1. With SCRAM, kcat also fails
against Apache Kafka 4.4.0. With OAUTHBEARER it makes only unsigned tokens, which klamm refuses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from klamm.testing import EmbeddedServer
from tests.interop.security import java, librdkafka, python_clients
from tests.interop.security.profiles import PATIENCE_S, Outcome, Profile
from tests.tls_files import TlsFiles

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
EXAMPLE = Path(__file__).parents[3] / "examples" / "security" / "klamm.toml"
LISTENERS = ("plain", "tls", "mutual", "scram", "secure")
PASSWORD = "correct horse"  # noqa: S105
ISSUER, AUDIENCE = "https://issuer.example.com", "klamm"
WORKS, REFUSED, NOTHING = Outcome.WORKS, Outcome.REFUSED, Outcome.NOTHING

CLIENTS: dict[str, Callable[[str, Profile, str], Outcome]] = {
    "confluent-kafka": librdkafka.confluent,
    "kcat": librdkafka.kcat,
    "kafka-python": python_clients.isolated("kafka-python"),
    "aiokafka": python_clients.isolated("aiokafka"),
}
CANNOT_TELL = {("aiokafka", "OAUTHBEARER")}
"""Clients that take any answer to their token for success. They notice a refusal only by the end of the connection."""
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Case:
    """One attempt, and its required outcome."""

    name: str
    listener: str
    profile: Profile
    expected: Outcome


@dataclass(frozen=True, slots=True)
class Setup:
    """A running server, and the data that clients need to log in."""

    server: EmbeddedServer
    cases: dict[str, Case]

    def bootstrap(self, listener: str) -> str:
        """Return the address of a listener."""
        host, port = self.server.address(listener)
        return f"{host}:{port}"


def _token(key: RSAKey, **claims: Any) -> str:
    now = int(time.time())
    return jwt.encode(
        {"alg": "RS256", "kid": key.kid},
        {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600} | claims,
        key,
    )


def _cases(files: TlsFiles, unknown: TlsFiles, key: RSAKey, other_key: RSAKey) -> Iterator[Case]:
    plain = Profile()
    tls = Profile("SSL", ca=files.ca)
    alice = files.issue("alice", "CN=alice,OU=tests,O=klamm")
    mallory = unknown.issue("mallory", "CN=alice,OU=tests,O=klamm")
    yield Case("plain", "plain", plain, WORKS)
    yield Case("tls", "tls", tls, WORKS)
    yield Case("tls, unknown authority", "tls", replace(tls, ca=unknown.ca), NOTHING)
    yield Case("tls, plain text", "tls", plain, NOTHING)
    mutual = replace(tls, certificate=alice.certificate, key=alice.key)
    yield Case("mutual", "mutual", mutual, WORKS)
    yield Case(
        "mutual, certificate of an unknown authority",
        "mutual",
        replace(mutual, certificate=mallory.certificate, key=mallory.key),
        NOTHING,
    )
    yield Case("mutual, no certificate", "mutual", tls, NOTHING)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        scram = Profile("SASL_PLAINTEXT", mechanism=mechanism, username="alice", password=PASSWORD)
        yield Case(f"{mechanism}", "scram", scram, WORKS)
        yield Case(f"{mechanism}, wrong password", "scram", replace(scram, password="wrong"), REFUSED)
        yield Case(f"{mechanism}, unknown user", "scram", replace(scram, username="nobody"), REFUSED)
    yield Case("scram, anonymous", "scram", plain, NOTHING)
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        secure = Profile("SASL_SSL", ca=files.ca, mechanism=mechanism, username="alice", password=PASSWORD)
        yield Case(f"TLS + {mechanism}", "secure", secure, WORKS)
        yield Case(f"TLS + {mechanism}, wrong password", "secure", replace(secure, password="wrong"), REFUSED)
    bearer = Profile("SASL_SSL", ca=files.ca, mechanism="OAUTHBEARER", token=_token(key))
    yield Case("TLS + OAUTHBEARER", "secure", bearer, WORKS)
    yield Case(
        "TLS + OAUTHBEARER, expired",
        "secure",
        replace(bearer, token=_token(key, exp=int(time.time()) - 600)),
        REFUSED,
    )
    yield Case("TLS + OAUTHBEARER, other audience", "secure", replace(bearer, token=_token(key, aud="other")), REFUSED)
    yield Case("TLS + OAUTHBEARER, other key", "secure", replace(bearer, token=_token(other_key)), REFUSED)
    yield Case("secure, mechanism that is not offered", "secure", replace(secure, mechanism="SCRAM-SHA-256"), REFUSED)
    yield Case("secure, no SASL", "secure", tls, NOTHING)
    yield Case("secure, plain text", "secure", plain, NOTHING)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("security")
    files = TlsFiles(folder / "tls")
    # Certificate and key are in one file, as `klamm certs` writes them.
    files.server.certificate.write_bytes(files.server.both.read_bytes())
    unknown = TlsFiles(folder / "stranger", "unknown CA")
    key = RSAKey.generate_key(2048, {"kid": "one"})
    other_key = RSAKey.generate_key(2048, {"kid": "one"})
    (folder / "jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    command = [sys.executable, "-m", "klamm", "users", "add", str(folder / "users"), "alice"]
    subprocess.run(command, input=PASSWORD + "\n", text=True, check=True, timeout=30)
    file = folder / "klamm.toml"
    example, tokens = EXAMPLE.read_text(), EXAMPLE.with_name("tokens.toml").read_text()
    # One listener serves passwords and tokens.
    mechanisms = example.replace('["PLAIN", "SCRAM-SHA-512"]', '["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]')
    oauth = tokens[tokens.index("[listeners.tokens.sasl.OAUTHBEARER]") :].replace(".tokens.", ".secure.")
    file.write_text(f"{mechanisms}\n{oauth}")
    ports = [f"listeners.{name}.bind=127.0.0.1:0" for name in LISTENERS]
    with EmbeddedServer([*ports, "num.partitions=1"], file=file) as server:
        yield Setup(server, {case.name: case for case in _cases(files, unknown, key, other_key)})


@pytest.mark.parametrize("client", CLIENTS)
def test_client_logs_in_with_each_mechanism(setup: Setup, client: str) -> None:
    expected = {
        name: NOTHING if case.expected is REFUSED and (client, case.profile.mechanism) in CANNOT_TELL else case.expected
        for name, case in setup.cases.items()
    }

    def attempt(case: Case) -> Outcome:
        mechanism = case.profile.mechanism or ""
        stand_in = client == "kcat" and (mechanism == "OAUTHBEARER" or mechanism.startswith("SCRAM"))
        connect = CLIENTS["confluent-kafka" if stand_in else client]
        for profile in (case.profile, replace(case.profile, give_up_s=PATIENCE_S)):
            found = connect(setup.bootstrap(case.listener), profile, f"matrix-{next(_numbers)}")
            # On a busy machine a client may give up before it gets an answer.
            if found is not NOTHING or expected[case.name] is NOTHING:
                break
        return found

    # Refused clients try again for a while. Side by side this takes the time of one.
    with ThreadPoolExecutor(len(setup.cases)) as pool:
        outcomes = dict(zip(setup.cases, pool.map(attempt, setup.cases.values()), strict=True))
    assert outcomes == expected


def test_java_client_logs_in_with_each_mechanism(setup: Setup, tmp_path: Path) -> None:
    topics = {f"matrix-java-{number}": case for number, case in enumerate(setup.cases.values())}
    attempts = {topic: (setup.bootstrap(case.listener), case.profile) for topic, case in topics.items()}
    found = java.java(attempts, tmp_path)
    again = {
        topic: (bootstrap, replace(profile, give_up_s=PATIENCE_S))
        for topic, (bootstrap, profile) in attempts.items()
        if found[topic] is NOTHING and topics[topic].expected is not NOTHING
    }
    if again:
        found |= java.java(again, tmp_path)
    wrong = {case.name: found[topic] for topic, case in topics.items() if found[topic] is not case.expected}
    assert wrong == {}
