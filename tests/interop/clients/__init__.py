"""The real clients of the tests, each behind the interface `Client`."""

from __future__ import annotations

from tests.interop.clients.aio import AioKafka
from tests.interop.clients.base import Client
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.kafka_python import KafkaPython
from tests.interop.clients.kcat import Kcat

CLIENTS: dict[str, Client] = {
    client.name: client for client in (Confluent(), KafkaPython(), AioKafka(), Kcat(), Java())
}

__all__ = ["CLIENTS", "Client"]
