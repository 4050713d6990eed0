"""A server that reads requests late does not remove a group member whose heartbeat already waits to be read."""

import threading

from klamm import ErrorCode
from klamm.testing import EmbeddedServer
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.sync_group import SyncGroupRequest

SESSION_MS = 300


def test_a_heartbeat_that_arrived_in_time_counts_even_if_it_is_read_late():
    settings = ["broker.group.min.session.timeout.ms=100", "broker.group.initial.rebalance.delay.ms=0"]
    with EmbeddedServer([*settings, "listeners.default.gates=[]"]) as server, server._connect() as client:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        joined = client.call(JoinGroupRequest("g", SESSION_MS, 60_000, "", None, "x", protocols), 3)
        member_id = joined.member_id
        client.call(SyncGroupRequest("g", joined.generation_id, member_id), 3)
        services = server.server.services
        looked, asked = [], services.served_until_ns

        def look():
            looked.append(asked())
            return looked[-1]

        services.served_until_ns = look
        (processor,) = server.server.listeners[0].processors
        (channel, *_) = processor.channels
        go_on, held = threading.Event(), threading.Event()

        def hold(_):
            held.set()
            go_on.wait(60)

        processor.inbox.call_soon(channel, hold, None)
        assert held.wait(60)
        sent = threading.Thread(target=lambda: answers.append(client.call(heartbeat, 3)))
        answers = []
        heartbeat = HeartbeatRequest("g", joined.generation_id, member_id)
        sent.start()
        server.wait_until(lambda: len(looked) >= 2, "the session's end is put off")
        go_on.set()
        sent.join(60)
        assert answers[0].error_code == ErrorCode.NONE

        describe = DescribeGroupsRequest(["g"])
        server.wait_until(lambda: client.call(describe, 5).groups[0].group_state == "Empty", "now it is silent")
