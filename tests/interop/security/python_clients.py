"""Runs kafka-python and aiokafka, each attempt in its own process, because their errors appear only in their logs."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import ssl
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokenProvider

from tests.interop.security.profiles import PATIENCE_S, Outcome, Profile

_REFUSALS = ("AuthenticationFailed", "SaslAuthenticationFailed", "UnsupportedSaslMechanism")


def _ssl_context(profile: Profile) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=profile.ca)
    if profile.certificate is not None:
        context.load_cert_chain(profile.certificate, profile.key)
    return context


def _common(bootstrap: str, profile: Profile) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": profile.security_protocol,
    }
    if profile.tls:
        found["ssl_context"] = _ssl_context(profile)
    if profile.mechanism is not None:
        found["sasl_mechanism"] = profile.mechanism
        if profile.username:
            found |= {"sasl_plain_username": profile.username, "sasl_plain_password": profile.password}
    return found


class _Refusals(logging.Handler):
    """A log handler that looks for the server's messages about wrong credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or any(word in record.getMessage() for word in _REFUSALS)


_refusals = _Refusals()
_processes = multiprocessing.get_context("forkserver")


def _outcome(error: BaseException) -> Outcome:
    text = f"{type(error).__name__} {error}"
    return Outcome.REFUSED if _refusals.seen or any(word in text for word in _REFUSALS) else Outcome.NOTHING


class _Token(KafkaTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}


class _AioToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def isolated(client: str) -> Callable[[str, Profile, str], Outcome]:
    """Run one of the functions below in its own process."""

    def attempt(bootstrap: str, profile: Profile, topic: str) -> Outcome:
        # The process is forked from one that has imported this module, because the import takes longer than an attempt.
        _processes.set_forkserver_preload([__name__])
        found, given = _processes.Pipe(duplex=False)
        process = _processes.Process(target=_report, args=(given, client, bootstrap, profile, topic))
        process.start()
        given.close()
        try:
            if not found.poll(PATIENCE_S * 2):
                raise TimeoutError(f"{client} is still at it: {profile}")
            outcome: Outcome | str = found.recv()
        finally:
            process.kill()
            process.join()
        if isinstance(outcome, str):
            raise RuntimeError(outcome)
        return outcome

    return attempt


def _report(given: Connection, client: str, bootstrap: str, profile: Profile, topic: str) -> None:
    """Send the outcome, or the traceback of an exception."""
    logging.getLogger().addHandler(_refusals)
    try:
        if client == "kafka-python":
            outcome = _kafka_python(bootstrap, profile, topic)
        else:
            outcome = asyncio.run(_aiokafka(bootstrap, profile, topic))
    except Exception:
        given.send(traceback.format_exc())
    else:
        given.send(outcome)


def _kafka_python(bootstrap: str, profile: Profile, topic: str) -> Outcome:
    """Produce one record and read it back."""
    common = _common(bootstrap, profile)
    if profile.mechanism == "OAUTHBEARER":
        common["sasl_oauth_token_provider"] = _Token(profile.token)
    give_up_ms = int(profile.give_up_s * 1000)
    try:
        producer = KafkaProducer(**common, max_block_ms=give_up_ms, bootstrap_timeout_ms=give_up_ms)
    except (KafkaError, OSError) as error:
        return _outcome(error)
    try:
        producer.send(topic, b"value", partition=0).get(profile.give_up_s)
    except (KafkaError, OSError) as error:
        return _outcome(error)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(**common, consumer_timeout_ms=give_up_ms, auto_offset_reset="earliest")
    try:
        consumer.assign([TopicPartition(topic, 0)])
        return Outcome.WORKS if next(iter(consumer)).value == b"value" else Outcome.NOTHING
    finally:
        consumer.close()


async def _aiokafka(bootstrap: str, profile: Profile, topic: str) -> Outcome:
    common = _common(bootstrap, profile) | {"request_timeout_ms": int(profile.give_up_s * 1000)}
    if profile.mechanism == "OAUTHBEARER":
        common["sasl_oauth_token_provider"] = _AioToken(profile.token)
    producer = AIOKafkaProducer(**common)
    try:
        await asyncio.wait_for(producer.start(), profile.give_up_s)
        await asyncio.wait_for(producer.send_and_wait(topic, b"value", partition=0), profile.give_up_s)
    except (AioKafkaError, OSError, TimeoutError) as error:
        return _outcome(error)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(**common, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([AioTopicPartition(topic, 0)])
        message = await asyncio.wait_for(consumer.getone(), profile.give_up_s)
        return Outcome.WORKS if message.value == b"value" else Outcome.NOTHING
    finally:
        await consumer.stop()
