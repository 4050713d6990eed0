"""Tests of large Fetch responses that observers read while the bytes pass the gateway.

Clients and the audit must get the same as if the gateway decoded the responses.
"""

import logging
import random

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from klamm.wire.messages.fetch import PartitionData as Partition
from klamm.wire.records import Record, encode_batch
from klamm_gateway.forwarded_request import ForwardedRequest
from tests.audit_spool import events_of
from tests.contract.gateway_nodes import FakeNode, gateway, response, upstream_connections
from tests.fetch_responses import VERSIONS, fetch_response

GUARDS = [
    "listeners.default.authorizer=static",
    'listeners.default.static.rules=["allow User:* ALL TOPIC:*"]',
    'listeners.default.throttles=["client_quota"]',
]
BATCH = bytes(encode_batch([Record(number, 1000, None, bytes(1000), ()) for number in range(70)]))


@pytest.fixture
def audited(tmp_path):
    """Return `audited(node, *settings)`, which returns a gateway with an authorizer, quotas and the audit.

    It is not started.
    """

    def make(node, *settings):
        spool = [
            'listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path / 'spool'}",
            "listeners.default.audit.node=node-1",
        ]  # fmt: skip
        return gateway(node.bootstrap, [*GUARDS, *spool, *settings])

    make.spool = tmp_path / "spool"
    return make


def fetch(client, version, topics):
    """Send a fetch and return the body of the response."""
    named = [
        FetchTopic(*((topic.topic,) if version < 13 else ("", topic.topic_id)), [FetchPartition()]) for topic in topics
    ]
    client.send(FetchRequest(topics=named), version)
    return client.receive_frame()[4 + (version >= 12) :]


def served(audited, bodies, monkeypatch, *, decoded):
    """Return what a client gets for each body, and the audit's events."""
    if decoded:
        monkeypatch.setattr(ForwardedRequest, "_may_stream", lambda request: False)
    waiting = iter(bodies)

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        sock.sendall(response(correlation_id, key, version, next(waiting)[1]))

    received = []
    with FakeNode(serve) as node:
        front = audited(node).start()
        topic_ids = {bytes([number + 1]) * 16: f"topic-{number}" for number in range(3)}
        for topic_id, name in topic_ids.items():
            front.api_set().cluster.note_topic(topic_id, name)
        with RawClient(front.address()) as client:
            for version, body in bodies:
                received.append(fetch(client, version, FetchResponse.decode(version, body).responses))
        front.stop()
    return received, [one for one in events_of(audited.spool) if one["kind"] == "request"]


def comparable(event):
    """Return an event without fields that differ between two requests, and without the number of records.

    Records are not counted while a response passes.
    """
    kept = {
        name: value
        for name, value in event.items()
        if not name.endswith(("time_ms", "_us", "_port", "_id")) and name not in ("boot", "seq")
    }
    resources = [{**one, "records": None} for one in event["resources"]]
    return {**kept, "resources": resources, "node": event["upstream_node_id"]}


def test_clients_and_the_audit_get_what_decoding_gives(audited, monkeypatch, seed):
    choose = random.Random(seed)
    bodies = []
    for version in VERSIONS:
        made = fetch_response(choose, version, lambda: BATCH * choose.choice([1, 3]), topics=[1, 3], partitions=[2])
        bodies.append((version, made.encode(version)))
    streamed, streamed_events = served(audited, bodies, monkeypatch, decoded=False)
    whole, all_events = served(audited, bodies, monkeypatch, decoded=True)
    assert streamed == whole == [body for _version, body in bodies]
    whole_events = all_events[len(streamed_events) :]
    assert len(streamed_events) == len(whole_events) == len(VERSIONS)
    for one, other in zip(streamed_events, whole_events, strict=True):
        assert comparable(one) == comparable(other)
        assert any(resource.get("bytes", 0) >= 2 * len(BATCH) for resource in one["resources"])
    assert {one["outcome"] for one in streamed_events} <= {"ok", "error"}


def throttled_times(front, node_ms, records, pieces=1):
    """Return the throttle times of two Fetch responses that pass the gateway.

    The node sends the throttle time `node_ms`. It sends the first `pieces - 1` bytes one by one.
    """

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        partitions = [Partition(records=records)]
        body = FetchResponse(node_ms, responses=[FetchableTopicResponse("t", partitions=partitions)])
        whole = response(correlation_id, key, version, body.encode(version))
        for position in range(pieces - 1):
            sock.sendall(whole[position : position + 1])
        sock.sendall(whole[pieces - 1 :])

    slow = 'listeners.default.client_quota.users={"<default>" = {consumer_byte_rate = 1000}}'
    with FakeNode(serve) as node, front(node, slow) as running, RawClient(running.address()) as client:
        answers = [FetchResponse.decode(12, fetch(client, 12, [FetchableTopicResponse("t")])) for _ in range(2)]
    assert all(bytes(one.responses[0].partitions[0].records) == records for one in answers)
    return [one.throttle_time_ms for one in answers]


def quotas_alone(node, *settings):
    return gateway(node.bootstrap, ['listeners.default.throttles=["client_quota"]', *settings])


@pytest.fixture(params=["looked at", "opaque"])
def limited(request, audited):
    """Return a function that makes a gateway with quotas. In one of its forms an observer also reads the responses."""
    return audited if request.param == "looked at" else quotas_alone


@pytest.mark.parametrize("size", [1, 3], ids=["whole", "streamed"])
def test_clients_get_the_throttle_time_of_the_gateways_quota(limited, size):
    first_ms, second_ms = throttled_times(limited, 0, BATCH * size)
    assert first_ms == 0
    assert second_ms > 0


@pytest.mark.parametrize("size", [1, 3], ids=["whole", "streamed"])
def test_clients_get_the_throttle_time_of_the_node_if_it_is_longer(limited, size):
    assert throttled_times(limited, 600_000, BATCH * size) == [600_000, 600_000]


def test_the_throttle_time_is_set_even_if_a_node_sends_single_bytes(limited):
    assert throttled_times(limited, 0, BATCH * 3, pieces=16)[1] > 0


def errors(front):
    found = front.server.services.metrics.collect(lambda name: name.endswith("ErrorsPerSec"))
    return {sample.labels["error"]: sample.value for family in found for sample in family.samples}


def test_errors_of_partitions_in_large_responses_are_counted_and_recorded(audited):
    partitions = [Partition(0, records=BATCH * 3), Partition(1, 3)]

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        body = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
        sock.sendall(response(correlation_id, key, version, body.encode(version)))

    with FakeNode(serve) as node:
        front = audited(node).start()
        with RawClient(front.address()) as client:
            fetch(client, 12, [FetchableTopicResponse("t")])
        front.wait_until(lambda: errors(front).get("UNKNOWN_TOPIC_OR_PARTITION") == 1)
        front.stop()
    (event,) = (one for one in events_of(audited.spool) if one["kind"] == "request")
    assert (event["outcome"], event["error_name"]) == ("error", "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize("lie", [b"\xff" * 9, b"\x7f" * 9], ids=["negative", "large"])
def test_a_wrong_size_at_the_end_of_a_response_closes_both_connections(audited, lie, caplog):
    """The client has the records of the first partition before the gateway reads the wrong size."""

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        partitions = [Partition(0, records=BATCH * 3), Partition(1, records=BATCH)]
        body = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)]).encode(version)
        at = body.rindex(BATCH) - 4
        sock.sendall(response(correlation_id, key, version, body[:at] + lie + body[at + len(lie) :]))

    with FakeNode(serve) as node, audited(node) as front:
        with RawClient(front.address()) as client, caplog.at_level(logging.WARNING, "klamm.gateway"):
            with pytest.raises(ConnectionError):
                fetch(client, 11, [FetchableTopicResponse("t")])
            EmbeddedServer.wait_until(lambda: not upstream_connections(front))
        assert "invalid_response: malformed response" in caplog.text
