"""Tests of handler threads, and of requests that end while they wait for a thread."""

import gc

from klamm.requests.handler_pool import KafkaRequestHandlerPool
from klamm.requests.pending import PendingRequest
from klamm.requests.request_channel import RequestChannel
from klamm.testing.simulated import Steps
from klamm.wire.messages import heartbeat
from klamm_dispatch.schedulers import Fifo
from tests.unit.requests.requests_harness import Line, handler, ping
from tests.waiting import wait_until


def test_a_queued_request_whose_connection_is_lost_is_skipped_without_a_log_line(caplog):
    line = Line(handler(heartbeat, lambda request, context: heartbeat.HeartbeatResponse(), blocking=True))
    channel = RequestChannel(Fifo(None, 10))
    lost, kept = (line.submit(ping())[0] for _ in range(2))
    for request in (lost, kept):
        assert channel.send_request(request.context, lambda: None)
    line.pipeline.lose(lost)
    pool = KafkaRequestHandlerPool(channel, line.clock)
    pool.resize(1)
    wait_until(lambda: line.delivered)
    assert pool.shutdown(10)
    assert list(line.delivered) == [kept]
    assert not caplog.records


def pending_requests():
    gc.collect()
    return sum(isinstance(each, PendingRequest) for each in gc.get_objects())


def serve_one():
    """Return the pool of a handler thread whose only request has been answered."""
    line = Line(handler(heartbeat, lambda request, context: heartbeat.HeartbeatResponse(), blocking=True))
    channel = RequestChannel(Fifo(None, 10))
    assert channel.send_request(line.submit(ping())[0].context, lambda: None)
    pool = KafkaRequestHandlerPool(channel, line.clock)
    pool.resize(1)
    wait_until(lambda: line.delivered)
    return pool


def test_a_waiting_thread_keeps_no_reference_to_its_last_request():
    before = pending_requests()
    pool = serve_one()
    wait_until(lambda: pending_requests() == before)
    assert pool.shutdown(10)


def test_a_handler_that_was_removed_takes_no_further_step():
    line = Line(handler(heartbeat, lambda request, context: heartbeat.HeartbeatResponse(), blocking=True))
    channel = RequestChannel(Fifo(None, 100))
    steps = Steps(seed=1)
    pool = KafkaRequestHandlerPool(channel, line.clock, steps)
    pool.resize(8)
    pool.resize(1)
    steps.run_until_idle()
    assert pool.size == 1
    for _ in range(20):
        assert channel.send_request(line.submit(ping())[0].context, lambda: None)
    steps.trace.clear()
    steps.run_until_idle()
    assert len(line.delivered) == 20
    assert len({name for _moment_ns, name in steps.trace}) == 1
