"""Tests of the limits of a request: its thread, its number of elements, the size of its answer."""

import gc

import pytest

from klamm import ErrorCode, KafkaError, RequestOutcome
from klamm.api.pending import LATER
from klamm.requests.limits import DEFAULT_MAX_BYTES, request_limits
from klamm.requests.pending import CloseConnection, InvalidRequestError
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import describe_groups, fetch, find_coordinator, heartbeat, join_group, metadata
from tests.unit.requests.requests_harness import Line, handler, ping, response_in


def run(line):
    line.pipeline.run_queued(line.queue.popleft())
    return line.delivered.popleft()


def answering(response):
    calls = []

    def handle(request, context):
        calls.append(request)
        return response

    return calls, handle


def topics(count, name="t"):
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=f"{name}{n}") for n in range(count)])


@pytest.mark.parametrize(("mode", "inline"), [("hybrid", False), ("inline", True)])
def test_a_frame_above_64_kib_does_not_run_on_the_network_thread(mode, inline):
    calls, handle = answering(metadata.MetadataResponse())
    line = Line(handler(metadata, handle), mode=mode)
    request = topics(300, "n" * 240)
    assert len(line.frame(request, 12)) > 65536
    _, result = line.submit(request, 12)
    assert (result is not LATER) is inline
    assert bool(calls) is inline
    if not inline:
        assert response_in(run(line).result, metadata.MetadataResponse, 12) == metadata.MetadataResponse()
        assert calls == [request]


@pytest.mark.parametrize(("count", "inline"), [(100, True), (101, False)])
def test_a_request_of_many_elements_goes_to_the_handlers(count, inline):
    calls, handle = answering(metadata.MetadataResponse())
    line = Line(handler(metadata, handle))
    request, result = line.submit(topics(count), 12)
    assert bool(calls) is inline
    if not inline:
        assert result is LATER
        assert list(line.queue) == [request]
        assert response_in(run(line).result, metadata.MetadataResponse, 12) == metadata.MetadataResponse()
        assert calls == [topics(count)]
    line.pipeline.end((request,), RequestOutcome.ANSWERED)
    assert line.metric("RequestsPerSec") == {("Metadata", "12"): 1}
    assert line.events.outcomes == [RequestOutcome.ANSWERED]


def test_a_large_request_runs_in_its_own_turn_and_frees_its_messages():
    running = []

    def handle(request, context):
        running.append(SHARED_INTERPRETER.running)
        return metadata.MetadataResponse()

    for count, large in ((100, 0), (101, 1)):
        line = Line(handler(metadata, handle, blocking=True), observed=False)
        request, _ = line.submit(topics(count), 12)
        run(line)
        assert running.pop() == large
        assert (request.message is None) is bool(large)
    assert not SHARED_INTERPRETER.running


def test_a_large_request_of_an_observed_listener_frees_its_messages_at_its_end():
    line = Line(handler(metadata, lambda request, context: metadata.MetadataResponse()))
    request, _ = line.submit(topics(101), 12)
    run(line)
    line.pipeline.end((request,), RequestOutcome.ANSWERED)
    assert request.message is None
    (event,) = line.events.ended
    assert len(event.request.topics) == 101


def test_an_error_does_not_hold_the_messages_of_its_request():
    def handle(request, context):
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    line = Line(handler(metadata, handle, blocking=True), observed=False)
    line.submit(topics(101, "held"), 12)
    gc.collect()
    gc.disable()
    try:
        run(line)
        found = [one.name for one in gc.get_objects() if isinstance(one, metadata.MetadataRequestTopic)]
        assert "held0" not in found
    finally:
        gc.enable()


def test_a_handler_may_leave_the_network_thread_if_its_request_is_costly():
    calls = []

    def handle(request, context):
        calls.append(request)
        context.leave_processor()
        return heartbeat.HeartbeatResponse()

    line = Line(handler(heartbeat, handle))
    _, result = line.submit(ping())
    assert result is LATER
    assert len(calls) == 1
    assert response_in(run(line).result, heartbeat.HeartbeatResponse, 4) == heartbeat.HeartbeatResponse()
    assert calls == [ping(), ping()]


def test_a_request_that_left_the_network_thread_ends_with_its_connection():
    line = Line(handler(heartbeat, lambda request, context: context.leave_processor()))
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    assert line.events.outcomes == [RequestOutcome.LOST_BEFORE]
    line.pipeline.run_queued(line.queue.popleft())
    assert not line.delivered


def test_too_many_elements_get_an_error_if_the_answer_has_a_field_for_it():
    calls, handle = answering(join_group.JoinGroupResponse())
    line = Line(handler(join_group, handle), limits=request_limits(max_elements={"JoinGroup": 60}))
    protocols = [join_group.JoinGroupRequestProtocol(f"the-protocol-{n}", b"") for n in range(61)]
    request, result = line.submit(join_group.JoinGroupRequest("g", protocols=protocols), 9)
    answer = response_in(result, join_group.JoinGroupResponse, 9)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert calls == []
    line.pipeline.end((request,), RequestOutcome.ANSWERED)
    assert line.events.outcomes == [RequestOutcome.FAILED]
    assert line.limits.counts.counters["request_elements"].value == 1


@pytest.mark.parametrize(
    ("module", "version", "message"),
    [
        (metadata, 12, topics(2000)),
        (fetch, 4, fetch.FetchRequest(topics=[fetch.FetchTopic(f"t{n}") for n in range(2000)])),
        (
            find_coordinator,
            4,
            find_coordinator.FindCoordinatorRequest(coordinator_keys=[f"group-{n}" for n in range(2000)]),
        ),
    ],
)
def test_too_many_elements_close_the_connection_if_the_answer_has_no_error_field(module, version, message):
    line = Line(handler(module, None), limits=request_limits(max_elements={"default": 90}))
    with pytest.raises(InvalidRequestError, match="more than 90 elements .request_max_elements"):
        line.submit(message, version)
    assert line.events.outcomes == [RequestOutcome.FAILED]


def test_elements_are_counted_on_a_handlers_thread_too():
    line = Line(handler(metadata, None, blocking=True), limits=request_limits(max_elements={"Metadata": 3000}))
    line.submit(topics(3001), 12)
    assert run(line).result == CloseConnection(
        "Metadata v12 request has more than 3000 elements (request_max_elements)"
    )


def test_an_answer_that_is_too_large_becomes_an_error():
    groups = [describe_groups.DescribedGroup(group_id=f"group-{n}") for n in range(100)]
    _, handle = answering(describe_groups.DescribeGroupsResponse(groups=groups))
    line = Line(handler(describe_groups, handle), limits=request_limits(max_answer_bytes={"default": 500}))
    request, result = line.submit(describe_groups.DescribeGroupsRequest(["g"]), 6)
    (answer,) = response_in(result, describe_groups.DescribeGroupsResponse, 6).groups
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "exceed 500 bytes (response_max_bytes)" in answer.error_message
    assert line.limits.counts.counters["response_bytes"].value == 1


def test_a_handler_may_notice_early_that_its_answer_will_be_too_large():
    made = []

    def handle(request, context):
        for size_bytes in range(0, 1000, 100):
            made.append(size_bytes)
            try:
                context.check_answer_bytes(size_bytes)
            except KafkaError:
                raise AssertionError("errors of one element are caught by handlers") from None

    line = Line(handler(heartbeat, handle), limits=request_limits(max_answer_bytes={"Heartbeat": 500}))
    _, result = line.submit(ping())
    assert response_in(result, heartbeat.HeartbeatResponse, 4).error_code == ErrorCode.INVALID_REQUEST
    assert made[-1] == 600


def test_limits_differ_by_api():
    own = request_limits(socket_max_bytes=50 << 20, token_max_bytes=300_000)
    assert own.bytes_of(ApiKey.PRODUCE) == 50 << 20
    assert own.bytes_of(ApiKey.SASL_AUTHENTICATE) == 300_000
    assert own.bytes_of(ApiKey.HEARTBEAT) == 4 << 20
    assert own.bytes_of(ApiKey.FETCH) == 16 << 20
    assert own.bytes_of(ApiKey.CREATE_DELEGATION_TOKEN) == 64 << 10
    assert own.bytes_of(ApiKey.METADATA) == own.bytes_of(-5) == own.bytes_of(999) == DEFAULT_MAX_BYTES
    set_to = request_limits(max_bytes={"default": 1 << 20, "Metadata": 5, "Produce": 200_000})
    assert set_to.bytes_of(ApiKey.PRODUCE) == 200_000
    assert set_to.bytes_of(ApiKey.METADATA) == 65536, "the least there is"
    assert set_to.bytes_of(ApiKey.FETCH) == 1 << 20
    assert request_limits().max_elements[ApiKey.DESCRIBE_CONFIGS] == 20_000
    assert request_limits(max_elements={"default": 7}).max_elements[ApiKey.DESCRIBE_CONFIGS] == 7
