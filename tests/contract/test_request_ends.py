"""For every way in which a request can end, observers, metrics and the slow-request log are notified once."""

import logging
import threading
from collections import Counter

import pytest

from klamm import ErrorCode, KafkaError, Provider, RequestFilter, RequestObserver, RequestOutcome, hookimpl
from klamm.network.poller import WRITE
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

HEARTBEAT, CREATE_TOPICS = 12, 19
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec"
SEEN = []


class Noting(RequestObserver):
    def completed(self, event):
        SEEN.append((event.context.api_name, event.outcome))
        assert event.times.total_ns >= 0


class NoGroupNamedRefused(RequestFilter):
    api_keys = (HEARTBEAT,)

    def on_request(self, message, context):
        if message.group_id == "refused":
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return message


class Parts:
    @hookimpl
    def klamm_request_observers(self):
        yield Provider("noting", f"{__name__}:Noting")

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("refusing", f"{__name__}:NoGroupNamedRefused")


class Served:
    """A server with one handler. Its clients are closed at the end."""

    def __init__(self, settings, client_options):
        self._client_options = client_options
        self.clients = []
        self.embedded = EmbeddedServer(settings, plugins=[Plugin(), Parts()]).start()
        self.api_set = self.embedded.api_set("trying")
        (self.processor,) = self.embedded.server.listeners[0].processors

    def connect(self):
        self.clients.append(RawClient(self.embedded.address(), timeout_s=10, **self._client_options))
        return self.clients[-1]

    def close_channel(self, chosen):
        """Close the only channel that `chosen` accepts, on the thread of its processor."""
        (channel,) = [channel for channel in self.processor.channels if chosen(channel)]
        done = threading.Event()

        def close(_):
            self.processor._reactor.lifecycle.close(channel, "the test closes it")
            done.set()

        self.processor.inbox.call_soon(channel, close, None)
        assert done.wait(60)

    def stop(self):
        self.api_set.release.set()
        for client in self.clients:
            client.close()
        self.embedded.stop()

    def counted(self):
        """Return how many requests of each API the metrics have counted."""
        families = self.embedded.server.services.metrics.collect()
        samples = [sample for family in families if family.name == REQUESTS for sample in family.samples]
        return Counter({sample.labels["request"]: sample.value for sample in samples})


@pytest.fixture(params=["hybrid", "pool"])
def served(request, on_channel, client_options):
    SEEN.clear()
    settings = [
        "listeners.default.api_set=trying",
        'listeners.default.observers=["noting"]',
        'listeners.default.filters=["refusing"]',
        "listeners.default.slow_log.default=0",
        f"listeners.default.dispatch={request.param}",
        "server.io_threads=1",
        *on_channel(),
    ]
    one = Served(settings, client_options)
    yield one
    one.stop()


def heartbeat(group):
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


def framed(request, version):
    frame = encode_request_header(request.API_KEY, version, 7, "c") + request.encode(version)
    return len(frame).to_bytes(4, "big") + frame


def answered(served):
    served.connect().call(heartbeat("plain"), 4)
    return {("Heartbeat", RequestOutcome.ANSWERED): 1}


def answered_with_an_error(served):
    answer = served.connect().call(heartbeat("kafka-error"), 4)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {("Heartbeat", RequestOutcome.ANSWERED): 1}


def refused_by_a_filter(served):
    assert served.connect().call(heartbeat("refused"), 4).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    return {("Heartbeat", RequestOutcome.REFUSED): 1}


def failed_in_the_handler(served):
    assert served.connect().call(heartbeat("raise"), 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    return {("Heartbeat", RequestOutcome.FAILED): 1}


def failed_by_closing(served):
    served.connect().send(heartbeat("close"), 4)
    return {("Heartbeat", RequestOutcome.FAILED): 1}


def failed_as_it_is_malformed(served):
    served.connect().send_frame(encode_request_header(HEARTBEAT, 4, 7, "c") + b"\xff")
    return {("Heartbeat", RequestOutcome.FAILED): 1}


def failed_as_it_is_not_served(served):
    served.connect().send_frame(encode_request_header(CREATE_TOPICS, 5, 7, "c"))
    return {("CreateTopics", RequestOutcome.FAILED): 1}


def without_an_answer(served):
    served.connect().send(heartbeat("no-response"), 4)
    return {("Heartbeat", RequestOutcome.NO_ANSWER): 1}


def answered_later(served):
    client = served.connect()
    client.send(SyncGroupRequest(group_id="later"), 5)
    wait_until(lambda: served.api_set.parked)
    served.api_set.parked[0].respond(SyncGroupResponse())
    client.receive_frame()
    return {("SyncGroup", RequestOutcome.ANSWERED): 1}


def lost_before_the_handler(served):
    """The only handler is busy when the connection is closed, so this request never runs."""
    busy, client = served.connect(), served.connect()
    busy.send(heartbeat("block"), 4)
    assert served.api_set.arrived.acquire(timeout=60)
    client.send(heartbeat("raise"), 4)
    wait_until(lambda: served.embedded.server.request_channel.size() == 1)
    served.close_channel(lambda channel: channel.in_flight is not None and channel.in_flight.stage.name == "QUEUED")
    served.api_set.release.set()
    busy.receive_frame()
    return {("Heartbeat", RequestOutcome.LOST_BEFORE): 1, ("Heartbeat", RequestOutcome.ANSWERED): 1}


def lost_during_the_handler(served):
    served.connect().send(SyncGroupRequest(group_id="later"), 5)
    wait_until(lambda: served.api_set.parked)
    served.close_channel(lambda channel: channel.in_flight is not None)
    served.api_set.parked[0].respond(SyncGroupResponse())
    return {("SyncGroup", RequestOutcome.LOST_DURING): 1}


def lost_during_the_handler_until_the_server_stops(served):
    served.connect().send(SyncGroupRequest(group_id="never"), 5)
    wait_until(lambda: served.api_set.parked)
    served.embedded.server.stop(deadline_ms=0)
    return {("SyncGroup", RequestOutcome.LOST_DURING): 1}


def lost_before_the_last_byte_left(served):
    client = served.connect()
    client.send(SyncGroupRequest(group_id="large"), 5)
    wait_until(lambda: served.api_set.parked)
    served.api_set.parked[0].respond(SyncGroupResponse(assignment=bytes(30_000_000)))
    wait_until(lambda: any(channel.send is not None for channel in served.processor.channels))
    client.close()
    return {("SyncGroup", RequestOutcome.LOST_AFTER): 1}


def lost_while_others_were_behind_it(served):
    """The client disconnects while it gets a response, and further requests have arrived."""
    client = served.connect()
    client.send_bytes(framed(SyncGroupRequest(group_id="large"), 5) + framed(heartbeat("plain"), 4) * 3)
    wait_until(lambda: served.api_set.parked)
    wait_until(lambda: [len(channel.receive.frames) for channel in served.processor.channels] == [3])
    served.api_set.parked[0].respond(SyncGroupResponse(assignment=bytes(30_000_000)))
    # The first write must have returned. If it failed, it would close the channel at once, together with the later
    # requests.
    wait_until(lambda: any(channel.interest & WRITE for channel in served.processor.channels))
    client.close()
    wait_until(
        lambda: not served.processor._reactor.connection_count and not served.processor._reactor.selector.closing
    )
    return {("SyncGroup", RequestOutcome.LOST_AFTER): 1, ("Heartbeat", RequestOutcome.LOST_AFTER): 3}


WAYS = [
    answered,
    answered_with_an_error,
    refused_by_a_filter,
    failed_in_the_handler,
    failed_by_closing,
    failed_as_it_is_malformed,
    failed_as_it_is_not_served,
    without_an_answer,
    answered_later,
    lost_before_the_handler,
    lost_during_the_handler,
    lost_during_the_handler_until_the_server_stops,
    lost_before_the_last_byte_left,
    lost_while_others_were_behind_it,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_end_of_a_request_is_notified_once(served, caplog, way):
    caplog.set_level(logging.WARNING, "klamm.slow_requests")
    expected = way(served)
    wait_until(lambda: len(SEEN) >= sum(expected.values()))
    # From here on no further notification is possible.
    served.stop()
    assert Counter(SEEN) == expected
    of_apis = Counter()
    for (api, _outcome), count in expected.items():
        of_apis[api] += count
    # Unsupported APIs have no metrics of their own, because clients could invent their names.
    del of_apis["CreateTopics"]
    assert served.counted() == of_apis
    logged = Counter(record.args[4] for record in caplog.records if record.name == "klamm.slow_requests")
    assert logged == of_apis


def test_the_cases_contain_every_outcome():
    said = {name for way in WAYS for name in way.__code__.co_names}
    assert [outcome.name for outcome in RequestOutcome if outcome.name not in said] == []
