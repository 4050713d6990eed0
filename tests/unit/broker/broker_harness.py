"""A broker without a network, for unit tests: requests and responses pass the wire format, and the clock is manual."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from klamm import (
    ANONYMOUS,
    Address,
    ApiHandler,
    ConnectionContext,
    KafkaError,
    ListenerContext,
    RequestContext,
    ServerContext,
    ServerServices,
)
from klamm.api.pending import LATER, NO_RESPONSE
from klamm.config import DescribedConfig
from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from klamm.wire.error_responses import error_response
from klamm.wire.messages import create_topics, fetch, produce
from klamm.wire.records import Record, encode_batch
from klamm_broker.broker import Broker
from klamm_broker.broker_settings import BrokerSettings


class Reply:
    """The outcome of a request. It is also the responder that the broker answers."""

    def __init__(self, module: Any, request: Any, version: int) -> None:
        self._module = module
        self._request = request
        self._version = version
        self.change: Callable[[Any], Any] = lambda response: response
        """The response after the filters."""
        self.answers: list[Any] = []
        self.no_response = False
        self.closed: str | None = None

    def settle(self, outcome: Any) -> None:
        """Use the value that a handler has returned, or its exception."""
        if outcome is LATER:
            return
        if outcome is NO_RESPONSE:
            self.no_response = True
            return
        if isinstance(outcome, KafkaError):
            outcome = error_response(self._request, self._version, outcome.error_code, outcome.message)
        elif isinstance(outcome, Exception):
            raise outcome
        body = self.change(outcome).encode(self._version)
        response_class = getattr(self._module, f"{self._module.NAME}Response")
        self.answers.append(response_class.decode(self._version, body))

    def respond(self, _request: RequestContext, response: Any) -> None:
        assert not self.answers, "answered twice"
        self.settle(response)

    def close_connection(self, _request: RequestContext, reason: str) -> None:
        self.closed = reason

    def run_request(self, request: RequestContext, started_ns: int) -> int:
        raise AssertionError(request)

    @property
    def pending(self) -> bool:
        """True if there is no response yet."""
        return not self.answers and not self.no_response and self.closed is None

    @property
    def response(self) -> Any:
        """The only response, decoded."""
        assert len(self.answers) == 1, "not answered"
        return self.answers[0]


class BrokerHarness:
    """A data directory, and the broker that is open on it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.listener = ListenerContext("default", Address("127.0.0.1", 9092), Address("kafka.example.com", 9192))
        self.principal = ANONYMOUS
        self.server_configs: Sequence[DescribedConfig] = ()
        self._random = itertools.count(1)
        self.broker: Broker
        self._handlers: dict[int, ApiHandler] = {}

    def open(self, **settings: Any) -> Broker:
        """Open a broker on the directory, with these settings."""
        self.scheduler = Scheduler(self.clock)
        self.broker = self.make_broker(BrokerSettings(**settings))
        self.broker.open(self.server_context())
        self._handlers = {handler.api_key: handler for handler in self.broker.handlers()}
        return self.broker

    def make_broker(self, settings: BrokerSettings) -> Broker:
        """Return a broker that is not open yet."""
        return Broker(settings)

    def server_context(self) -> ServerContext:
        """The server as the broker sees it."""
        return ServerContext(
            self.data_dir,
            self.clock,
            self.scheduler,
            {"default": self.listener},
            self._random_bytes,
            services=self.listener.services,
            configs=lambda: self.server_configs,
        )

    def _random_bytes(self, count: int) -> bytes:
        return next(self._random).to_bytes(count, "big")

    def reopen(self, **settings: Any) -> Broker:
        """Stop in order and start again, like a new process."""
        self.broker.close()
        self.listener.services = ServerServices(self.clock)
        return self.open(**settings)

    def advance_ms(self, milliseconds: float) -> None:
        """Let time pass, and run everything that is due."""
        self.clock.advance_ms(milliseconds)
        self.scheduler.run_due()
        self.broker.maintenance.run_due()

    def send(self, request: Any, version: int, client_id: str = "test-client") -> Reply:
        """Pass a request to its handler through the wire format. Return the outcome at once."""
        handler = self._handlers[request.API_KEY]
        assert handler.min_version <= version <= handler.max_version
        module = handler.module
        decoded = getattr(module, f"{module.NAME}Request").decode(version, bytearray(request.encode(version)))
        reply = Reply(module, decoded, version)
        context = self.context(reply, request.API_KEY, version, client_id)
        try:
            reply.settle(self.handle(handler, decoded, context, reply))
        except KafkaError as error:
            reply.settle(error)
        return reply

    def handle(self, handler: ApiHandler, request: Any, context: RequestContext, reply: Reply) -> Any:
        """Return the handler's return value."""
        return handler.handle(request, context)

    def context(self, reply: Reply, api_key: int, version: int, client_id: str = "test-client") -> RequestContext:
        """Return the context of a request on a connection of its own."""
        address = Address("127.0.0.1", 40_000)
        connection = ConnectionContext("test", self.listener, self.listener.bound, address, self.principal)
        return RequestContext(connection, reply, api_key, version, 1, client_id)

    def call(self, request: Any, version: int, client_id: str = "test-client") -> Any:
        """Return the response of a request that is answered at once, or by tasks that are due now."""
        reply = self.send(request, version, client_id)
        if reply.pending:
            self.scheduler.run_due()
        return reply.response

    # Methods that most tests use

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic with a request. Return its id. Underscores in the names of configs stand for dots."""
        response = self.call(
            create_topics.CreateTopicsRequest(
                [
                    create_topics.CreatableTopic(
                        name,
                        partitions,
                        1,
                        [],
                        [
                            create_topics.CreatableTopicConfig(key.replace("_", "."), value)
                            for key, value in configs.items()
                        ],
                    )
                ]
            ),
            7,
        )
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, **batch: Any) -> Any:
        """Append one batch with these values. Return the partition's response."""
        return self.produce_batches(topic, records(*values, **batch), partition=partition, acks=acks)

    def produce_batches(self, topic: str, batches: bytes | None, *, partition: int = 0, acks: int = -1) -> Any:
        """Append these bytes. Return the partition's response."""
        data = produce.PartitionProduceData(partition, batches)
        response = self.call(
            produce.ProduceRequest(None, acks, 1000, [produce.TopicProduceData(topic, partition_data=[data])]), 9
        )
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, partition: int = 0) -> Any:
        """Fetch without waiting. Return the partition's data."""
        response = self.call(fetch_request(topic, (partition, offset)), 12)
        return response.responses[0].partitions[0]


def records(*values: bytes, **batch: Any) -> bytes:
    """Return one batch; see `encode_batch`."""
    return bytes(encode_batch([Record(value=value, timestamp_ms=1_700_000_000_000) for value in values], **batch))


def fetch_request(
    topic: str | bytes,
    *offsets: tuple[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> fetch.FetchRequest:
    """Return a request for `(partition, offset)` pairs of one topic, by its name or by its id."""
    partitions = [
        fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for partition, offset in offsets
    ]
    named = fetch.FetchTopic(topic_id=topic) if isinstance(topic, bytes) else fetch.FetchTopic(topic)
    named.partitions = partitions
    return fetch.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[named] if offsets else [], **fields)
