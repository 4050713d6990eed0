"""Runs librdkafka: confluent-kafka, and kcat with the same settings as arguments."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.security.profiles import Outcome, Profile

_REFUSALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}


def settings(bootstrap: str, profile: Profile) -> dict[str, str]:
    """Return librdkafka's configuration for a profile."""
    found = {"bootstrap.servers": bootstrap, "security.protocol": profile.security_protocol}
    files = {
        "ssl.ca.location": profile.ca,
        "ssl.certificate.location": profile.certificate,
        "ssl.key.location": profile.key,
    }
    found |= {key: str(path) for key, path in files.items() if path is not None}
    if profile.mechanism is not None:
        found["sasl.mechanisms"] = profile.mechanism
        if profile.username:
            found |= {"sasl.username": profile.username, "sasl.password": profile.password}
    return found


def confluent(bootstrap: str, profile: Profile, topic: str) -> Outcome:
    """Produce one record and read it back."""
    errors: list[KafkaError] = []
    configuration: dict[str, Any] = settings(bootstrap, profile) | {"error_cb": errors.append}
    if profile.mechanism == "OAUTHBEARER":
        configuration["oauth_cb"] = lambda _: (profile.token, time.time() + 3600, "", {})
    delivered: list[KafkaError | None] = []
    producer = Producer(configuration | {"message.timeout.ms": int(profile.give_up_s * 1000)})
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _message: delivered.append(error))
    deadline = time.monotonic() + profile.give_up_s
    while not delivered and time.monotonic() < deadline:
        producer.poll(0.05)
        if any(error.code() in _REFUSALS for error in errors):
            producer.purge()
            return Outcome.REFUSED
    if not delivered or delivered[0] is not None:
        producer.purge()
        return Outcome.NOTHING
    consumer = Consumer(configuration | {"group.id": f"group-of-{topic}", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        message = consumer.poll(profile.give_up_s)
        if message is None:
            return Outcome.NOTHING
        if message.error() is not None:
            raise KafkaException(message.error())
        assert message.value() == b"value"
        return Outcome.WORKS
    finally:
        consumer.close()


def kcat(bootstrap: str, profile: Profile, topic: str) -> Outcome:
    """Produce one record and read it back, with kcat."""
    common = ["-b", bootstrap, "-t", topic, "-p", "0", "-E"]
    for key, value in settings(bootstrap, profile).items():
        if key != "bootstrap.servers":
            common += ["-X", f"{key}={value}"]
    common += ["-X", f"message.timeout.ms={int(profile.give_up_s * 1000)}"]
    done = _run(["kcat", "-P", *common], "value\n", profile.give_up_s)
    if done.returncode:
        refused = "SASL authentication error" in done.stderr or "mechanism handshake failed" in done.stderr
        return Outcome.REFUSED if refused else Outcome.NOTHING
    done = _run(["kcat", "-C", *common, "-o", "beginning", "-c", "1", "-q"], "", profile.give_up_s)
    return Outcome.WORKS if done.stdout == "value\n" else Outcome.NOTHING


def _run(command: list[str], text: str, give_up_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=give_up_s + 4, check=False)
    except subprocess.TimeoutExpired as error:
        shown = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else (error.stderr or "")
        return subprocess.CompletedProcess(command, 1, "", shown)
