"""Runs Java's kafka-clients: one JVM tries a list of profiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.interop.clients.java import java_command
from tests.interop.java_programs import programs
from tests.interop.security.profiles import Outcome, Profile

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def properties(bootstrap: str, profile: Profile, folder: Path, name: str) -> str:
    """Return the properties file of a client with this profile. Files that it names are written to `folder`."""
    lines = {"bootstrap.servers": bootstrap, "security.protocol": profile.security_protocol}
    if profile.tls:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(profile.ca)}
    if profile.certificate is not None and profile.key is not None:
        store = folder / f"{name}.keystore.pem"
        store.write_text(profile.key.read_text() + profile.certificate.read_text())
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    if profile.mechanism is not None:
        lines["sasl.mechanism"] = profile.mechanism
        options = f' username="{profile.username}" password="{profile.password}"' if profile.username else ""
        lines["sasl.jaas.config"] = f"{_MODULES[profile.mechanism]} required{options};"
    if profile.token:
        token = folder / f"{name}.token"
        token.write_text(profile.token)
        lines["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        lines["sasl.login.callback.handler.class"] = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        )
    give_up_ms = str(int(profile.give_up_s * 1000))
    lines |= {"max.block.ms": give_up_ms, "delivery.timeout.ms": give_up_ms, "request.timeout.ms": give_up_ms}
    lines |= {"default.api.timeout.ms": give_up_ms, "linger.ms": "0", "auto.offset.reset": "earliest"}
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def java(attempts: dict[str, tuple[str, Profile]], folder: Path) -> dict[str, Outcome]:
    """Try `topic → (bootstrap, profile)`: produce a record and read it back. Return the outcomes by topic."""
    files = []
    for topic, (bootstrap, profile) in attempts.items():
        file = folder / f"{topic}.properties"
        file.write_text(properties(bootstrap, profile, folder, topic))
        files.append(str(file))
    allowed = ",".join(token.as_uri() for token in sorted(folder.glob("*.token")))
    command = java_command("SecurityProbe", *files, classes=programs())
    command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"the probe ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {topic: Outcome(outcome) for topic, outcome, _detail in rows}
