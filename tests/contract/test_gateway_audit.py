"""Tests of audit events of requests that a gateway forwards: the node, the times, and unknown outcomes."""

import time

import pytest

from klamm.testing import RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages import heartbeat
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_spark.terminal.formats import text
from tests.audit_spool import events_of
from tests.contract.gateway_nodes import FakeNode, gateway, response, upstream_connections

NODE_ID = 7
HEARTBEAT = HeartbeatResponse(0, 0).encode(4)
CREATE_TOPICS = CreateTopicsResponse().encode(5)


@pytest.fixture
def audited(tmp_path):
    """Yield `audited(node)`, which returns a gateway before the node.

    `audited.events(front)` stops it and returns the requests' events by API.
    """

    class Audited:
        spool = tmp_path / "spool"

        def __call__(self, node, *settings):
            own = [
                'listeners.default.observers=["audit"]', f"listeners.default.audit.spool={self.spool}",
                "listeners.default.audit.node=node-1", "listeners.default.audit.sync_intents=none",
            ]  # fmt: skip
            return gateway(node.bootstrap, [*own, *settings], first_node_id=NODE_ID)

        def events(self, front):
            front.stop()
            return {one["api_name"]: one for one in events_of(self.spool) if one["kind"] == "request"}

    return Audited()


def test_an_event_names_the_node_and_has_the_times_of_both_sides(audited):
    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        # This is much longer than the 50 ms below, because it may start before the gateway has recorded the sending.
        time.sleep(0.5)
        body = HEARTBEAT if key == heartbeat.API_KEY else CREATE_TOPICS
        sock.sendall(response(correlation_id, key, version, body))

    with FakeNode(serve, NODE_ID) as node:
        front = audited(node).start()
        with RawClient(front.address()) as client:
            client.call(ApiVersionsRequest("test", "1"), 3)
            client.call(HeartbeatRequest("g"), 4)
            client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
        events = audited.events(front)
    assert "upstream_node_id" not in events["ApiVersions"]
    for name in ("Heartbeat", "CreateTopics"):
        event = events[name]
        assert (event["upstream_node_id"], event["outcome"]) == (NODE_ID, "ok")
        assert 50 <= event["remote_time_ms"] <= event["total_time_ms"]
        local_ms = event["total_time_ms"] - event["remote_time_ms"]
        assert event["local_time_ms"] <= local_ms + 0.01, "the node's time does not count here"
        assert f" node={NODE_ID} remote_ms={event['remote_time_ms']:.3f}" in text(event)


def test_the_outcome_of_a_request_is_unknown_if_its_node_fails(audited):
    with FakeNode(lambda node, sock, frame: node.cut(), NODE_ID) as node:
        front = audited(node).start()
        with RawClient(front.address()) as client:
            client.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
            assert client.at_end()
        event = audited.events(front)["CreateTopics"]
    assert (event["outcome"], event["reason"], event["upstream_node_id"]) == ("unknown", "failed", NODE_ID)


def test_a_request_that_could_not_be_sent_to_a_node_has_failed(audited):
    with FakeNode(node_id=NODE_ID) as node:
        front = audited(node).start()
    # The node is down from here on.
    with RawClient(front.address()) as client:
        client.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
        assert client.at_end()
    event = audited.events(front)["CreateTopics"]
    assert (event["outcome"], event["reason"]) == ("error", "failed")
    assert "upstream_node_id" not in event


def test_a_client_that_leaves_while_the_node_works_is_recorded(audited):
    with FakeNode(node_id=NODE_ID) as node:
        front = audited(node).start()
        with RawClient(front.address()) as client:
            client.send(HeartbeatRequest("g"), 4)
            front.wait_until(lambda: node.frames)
        front.wait_until(lambda: upstream_connections(front) == 0)
        event = audited.events(front)["Heartbeat"]
    assert (event["outcome"], event["reason"], event["upstream_node_id"]) == ("unknown", "lost_during", NODE_ID)


@pytest.mark.parametrize("dispatch", ["hybrid", "pool"], ids=["on the loop", "on a handler's thread"])
def test_the_event_of_a_request_without_a_response_names_the_node(audited, dispatch):
    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        if key == heartbeat.API_KEY:
            sock.sendall(response(correlation_id, key, version, HEARTBEAT))

    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(300_000))])
    with FakeNode(serve, NODE_ID) as node:
        front = audited(node, f"listeners.default.dispatch={dispatch}").start()
        with RawClient(front.address()) as client:
            client.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9)
            client.call(HeartbeatRequest("g"), 4)
        events = audited.events(front)
    assert len(node.frames) == 2
    assert events["Produce"]["upstream_node_id"] == NODE_ID
