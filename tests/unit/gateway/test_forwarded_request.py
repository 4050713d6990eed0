"""Tests of the threads on which responses of a node are decoded, changed and encoded.

Small responses are handled at once, large ones on a thread of the gateway.
"""

from types import SimpleNamespace

import pytest

from klamm.forwarding import OpaqueResponse
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from klamm_gateway.forwarded_request import UNCHANGED, ForwardedRequest

VERSION = 9


class Workers:
    """Workers whose work waits until the test runs it."""

    def __init__(self):
        self.waiting = []

    def submit(self, work, key):
        self.waiting.append(work)

    def run(self):
        while self.waiting:
            self.waiting.pop(0)()


class Exchange:
    """A request of this size that waits for the response of a node."""

    def __init__(self, size_bytes, *changes):
        self.workers, self.responses = Workers(), []
        services = SimpleNamespace(scheduler=SimpleNamespace(schedule=lambda delay_ms, call: None))
        context = SimpleNamespace(
            api_key=ApiKey.OFFSET_FETCH,
            api_version=VERSION,
            correlation_id=1,
            size_bytes=size_bytes,
            response_wanted=False,
            response_filtered=False,
            listener=SimpleNamespace(throttles=(), services=services),
            connection=SimpleNamespace(connection_id="c"),
            respond=self.responses.append,
        )
        self.request = ForwardedRequest(context, self.workers, changes)


def body_of(topics):
    named = [OffsetFetchResponseTopics(f"t{number}", partitions=[]) for number in range(topics)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics=named)]).encode(VERSION)


def with_refused(response):
    response.groups[0].topics += [
        OffsetFetchResponseTopics(f"refused-{number}", partitions=[OffsetFetchResponsePartitions(0, -1, -1, "", 29)])
        for number in range(1000)
    ]
    return response


@pytest.mark.parametrize(
    ("size_bytes", "topics", "waits"),
    [(4096, 10, False), (4097, 10, True), (100, 250, True), (100, 2000, True)],
    ids=["small", "large request", "many elements", "many bytes"],
)
def test_large_responses_are_decoded_on_a_thread_of_the_gateway(size_bytes, topics, waits):
    body = body_of(topics)
    exchange = Exchange(size_bytes, lambda response: UNCHANGED)
    exchange.request.completed(body)
    assert bool(exchange.workers.waiting) is waits
    exchange.workers.run()
    assert [bytes(response.body) for response in exchange.responses] == [body]


def test_refusals_of_a_large_request_are_not_encoded_on_a_network_thread():
    exchange = Exchange(30_000, with_refused)
    exchange.request.completed(body_of(1))
    assert exchange.responses == []
    exchange.workers.run()
    (response,) = exchange.responses
    assert len(OffsetFetchResponse.decode(VERSION, response.body).groups[0].topics) == 1001


def test_without_changes_no_response_is_decoded():
    exchange = Exchange(30_000)
    exchange.request.completed(b"whatever")
    assert exchange.workers.waiting == []
    assert [type(response) for response in exchange.responses] == [OpaqueResponse]
