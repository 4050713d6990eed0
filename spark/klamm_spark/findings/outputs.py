"""Outputs for findings besides their file: a webhook, mail and a topic.

Each output gets each finding at least once, in order. The finding's `uid` shows if it comes again.
"""

from __future__ import annotations

import importlib.util
import json
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from klamm_spark.errors import LakeError
from klamm_spark.findings.bodies import mail, pagerduty, slack
from klamm_spark.findings.log import FindingLog
from klamm_spark.settings.findings import DetectSettings

_TIMEOUT_S: Final = 10
_FIRST_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 60.0
_REFUSED: Final = frozenset({400, 413, 415, 422})
"""HTTP statuses that mean that the service will never accept this finding."""
_PERMANENT: Final = 500
"""SMTP codes from this one on mean that the server will never accept this mail."""


class DeliveryError(Exception):
    """Raised if an output does not accept a finding now. The finding is sent again later."""


class RefusedError(Exception):
    """Raised if an output will never accept a finding."""


class Output(Protocol):
    """A destination of findings."""

    name: str

    def send(self, uid: str, finding: bytes) -> None:
        """Send a finding in JSON. Raises DeliveryError, RefusedError."""
        ...


class Webhook:
    """Posts findings to a URL."""

    name = "webhook"

    def __init__(
        self, url: str, headers: Mapping[str, str], body: Callable[[bytes], bytes] = lambda finding: finding
    ) -> None:
        self._url = url
        self._body = body
        self._headers = {"Content-Type": "application/json", **headers}

    def send(self, uid: str, finding: bytes) -> None:
        """Post a finding. The header Idempotency-Key has its uid."""
        headers = {**self._headers, "Idempotency-Key": uid}
        request = urllib.request.Request(self._url, self._body(finding), headers, method="POST")
        try:
            urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _REFUSED:
                raise RefusedError(f"HTTP status {error.code}") from error
            raise DeliveryError(f"HTTP status {error.code}") from error
        except OSError as error:
            raise DeliveryError(str(error)) from error


class Mail:
    """Mails findings. Each mail opens its own connection, because there are few findings."""

    name = "mail"

    def __init__(self, settings: DetectSettings) -> None:
        """Read the password. Raises LakeError if its file cannot be read."""
        self._settings = settings
        host, _, port = settings.smtp.rpartition(":")
        self._server = host, int(port)
        self._password = ""
        if settings.smtp_password_file is not None:
            try:
                self._password = settings.smtp_password_file.read_text(encoding="utf-8").rstrip("\n")
            except (OSError, ValueError) as error:
                raise LakeError(f"[audit.detect] smtp_password_file: {error}") from error

    def send(self, uid: str, finding: bytes) -> None:
        """Mail a finding. The message's id has its uid."""
        settings = self._settings
        message = mail(finding, settings.email_from, settings.email_to)
        try:
            with smtplib.SMTP(*self._server, timeout=_TIMEOUT_S) as server:
                server.ehlo()
                # Never send a password without TLS.
                if server.has_extn("starttls") or settings.smtp_user:
                    server.starttls(context=ssl.create_default_context())
                if settings.smtp_user:
                    server.login(settings.smtp_user, self._password)
                server.send_message(message)
        except smtplib.SMTPDataError as error:
            kind = RefusedError if error.smtp_code >= _PERMANENT else DeliveryError
            raise kind(str(error)) from error
        except OSError as error:
            raise DeliveryError(str(error)) from error


class Topic:
    """Produces findings to a topic, with their uid as the key."""

    name = "topic"

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        """Connect to the cluster. Raises LakeError if confluent-kafka is missing or refuses the properties."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise LakeError("findings in a topic need confluent-kafka: pip install confluent-kafka")
        from confluent_kafka import KafkaException, Producer

        settings = {"enable.idempotence": True, "message.timeout.ms": _TIMEOUT_S * 1000, "log_level": 0}
        try:
            self._producer = Producer({**settings, **properties})
        except KafkaException as error:
            raise LakeError(f"[audit.detect] kafka: {error.args[0].str()}") from error
        self._topic = topic

    def send(self, uid: str, finding: bytes) -> None:
        """Produce a finding, and wait until the broker has it."""
        problems: list[str] = []
        taken: list[str] = []
        self._producer.produce(
            self._topic,
            finding,
            uid,
            on_delivery=lambda error, message: (taken if error is None else problems).append(str(error)),
        )
        self._producer.flush(2 * _TIMEOUT_S)
        if not taken:
            raise DeliveryError(problems[0] if problems else "the broker does not answer")


def outputs_of(settings: DetectSettings) -> list[Output]:
    """Return the configured outputs. Raises LakeError."""
    found: list[Output] = []
    if settings.webhook:
        found.append(Webhook(settings.webhook, settings.webhook_headers, _body_of(settings)))
    if settings.email_to:
        if not settings.smtp:
            raise LakeError('[audit.detect] email_to needs smtp = "HOST:PORT"')
        found.append(Mail(settings))
    if settings.topic:
        if not settings.kafka:
            raise LakeError('[audit.detect] topic needs kafka = { "bootstrap.servers" = "HOST:PORT" }')
        found.append(Topic(settings.topic, settings.kafka))
    return found


def _body_of(settings: DetectSettings) -> Callable[[bytes], bytes]:
    if settings.webhook_format == "slack":
        return slack
    if settings.webhook_format == "pagerduty":
        if not settings.pagerduty_routing_key:
            raise LakeError('[audit.detect] webhook_format = "pagerduty" needs pagerduty_routing_key')
        return partial(pagerduty, settings.pagerduty_routing_key)
    return lambda finding: finding


class Deliveries:
    """Sends each output the findings that it lacks.

    After a failure, an output waits longer each time. It does not delay the other outputs.
    """

    def __init__(
        self,
        log: FindingLog,
        outputs: Sequence[Output],
        say: Callable[[str], None],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._outputs = outputs
        self._say = say
        self._monotonic_s = monotonic_s
        self._waits: dict[str, tuple[float, float]] = {}
        # From now on, each of them gets every finding.
        for output in outputs:
            log.add_output(output.name)

    def run(self) -> bool:
        """Send the findings that can be sent now. Return True if every output has all of them. Raises OSError."""
        done = [self._run(output) for output in self._outputs]
        return all(done)

    def _run(self, output: Output) -> bool:
        until, wait_s = self._waits.get(output.name, (0.0, _FIRST_WAIT_S))
        if self._monotonic_s() < until:
            return False
        for finding in self._log.undelivered(output.name):
            try:
                output.send(json.loads(finding)["metadata"]["uid"], finding)
            except RefusedError as error:
                self._say(f"the {output.name} refuses a finding, which is not sent again: {error}")
            except DeliveryError as error:
                self._waits[output.name] = self._monotonic_s() + wait_s, min(2 * wait_s, _MAX_WAIT_S)
                self._say(f"the {output.name} does not take findings, next try in {wait_s:g} s: {error}")
                return False
        self._waits.pop(output.name, None)
        return True
