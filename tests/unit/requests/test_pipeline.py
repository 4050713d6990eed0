"""Tests of requests from frame to response: inline, queued, waiting, refused, malformed, unsupported."""

import threading

import pytest

from klamm import Answer, ErrorCode, KafkaError, RequestFilter, RequestOutcome
from klamm.api.pending import LATER, NO_RESPONSE
from klamm.requests.pending import CloseConnection, InvalidRequestError, RequestStage
from klamm.wire.messages import api_versions, heartbeat, metadata, produce
from tests.unit.requests.requests_harness import Line, handler, ping, produced, response_in

PONG = heartbeat.HeartbeatResponse(throttle_time_ms=5)


def pong(request, context):
    return PONG


def later(request, context):
    return context.later()


def error_of(chunks, version=4):
    return ErrorCode(response_in(chunks, heartbeat.HeartbeatResponse, version).error_code)


def run(line):
    """Run a waiting request on a handler's thread. Return the responses."""
    line.pipeline.run_queued(line.queue.popleft())
    return line.delivered.popleft()


# ---- where requests run


@pytest.mark.parametrize("version", [0, 3, 4])
def test_an_inline_request_is_answered_at_once(version):
    line = Line(handler(heartbeat, pong))
    request, chunks = line.submit(ping(), version)
    expected = heartbeat.HeartbeatResponse(throttle_time_ms=5 if version else 0)
    assert response_in(chunks, heartbeat.HeartbeatResponse, version) == expected
    assert request.context.client_id == line.connection.client_id == "client"
    assert not line.queue
    assert not line.delivered


def test_the_handler_gets_the_decoded_message_and_the_header():
    seen = []
    line = Line(handler(heartbeat, lambda request, context: seen.append((request, context)) or PONG))
    line.submit(ping(), 3)
    ((message, context),) = seen
    assert message == ping()
    assert (context.api_key, context.api_version, context.correlation_id) == (heartbeat.API_KEY, 3, 77)
    assert context.size_bytes == len(line.frame(ping(), 3))


@pytest.mark.parametrize(
    ("mode", "options", "inline"),
    [
        ("hybrid", {"blocking": False}, True),
        ("hybrid", {"blocking": True}, False),
        ("hybrid", {"blocking": True, "inline_max_bytes": 10}, False),
        ("hybrid", {"blocking": True, "inline_max_bytes": 1000}, True),
        ("inline", {"blocking": True}, True),
        ("pool", {"blocking": False}, False),
    ],
)
def test_an_api_that_may_block_goes_to_a_handlers_thread(mode, options, inline):
    line = Line(handler(heartbeat, pong, **options), mode=mode)
    request, result = line.submit(ping())
    if inline:
        assert not line.queue
    else:
        assert result is LATER
        assert list(line.queue) == [request]
        result = run(line).result
    assert response_in(result, heartbeat.HeartbeatResponse, 4) == PONG


def test_a_waiting_request_is_answered_from_another_thread():
    line = Line(handler(heartbeat, later))
    request, result = line.submit(ping())
    assert result is LATER
    assert request.parked
    thread = threading.Thread(target=request.context.respond, args=(PONG,))
    thread.start()
    thread.join()
    assert list(line.delivered) == [request]
    assert response_in(request.result, heartbeat.HeartbeatResponse, 4) == PONG


def test_a_queued_request_may_also_wait():
    line = Line(handler(heartbeat, later, blocking=True))
    request, _ = line.submit(ping())
    line.pipeline.run_queued(line.queue.popleft())
    assert request.parked
    assert not line.delivered
    request.context.respond(KafkaError(ErrorCode.ILLEGAL_GENERATION))
    assert error_of(line.delivered.popleft().result) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("ended", [False, True])
def test_a_second_answer_raises(ended):
    line = Line(handler(heartbeat, later))
    request, _ = line.submit(ping())
    request.context.respond(PONG)
    if ended:
        line.pipeline.end((request,), RequestOutcome.ANSWERED)
    with pytest.raises(RuntimeError, match="correlation_id=77: answered twice"):
        request.context.respond(PONG)
    assert len(line.delivered) == 1


@pytest.mark.parametrize("blocking", [False, True])
def test_an_answer_before_the_handler_has_returned_is_the_answer(blocking):
    def both(request, context):
        context.respond(PONG)
        return heartbeat.HeartbeatResponse(error_code=1)

    line = Line(handler(heartbeat, both, blocking=blocking))
    assert line.submit(ping())[1] is LATER
    if blocking:
        line.pipeline.run_queued(line.queue.popleft())
    assert response_in(line.delivered.popleft().result, heartbeat.HeartbeatResponse, 4) == PONG
    assert not line.delivered


def test_a_handler_may_close_the_connection_once():
    line = Line(handler(heartbeat, later))
    request, _ = line.submit(ping())
    request.context.close_connection("enough")
    request.context.close_connection("again")
    assert [one.result for one in line.delivered] == [CloseConnection("enough")]


def test_a_request_without_response_gets_none():
    line = Line(handler(produce, lambda request, context: context.no_response()))
    _, result = line.submit(produced(0), 9)
    assert result is NO_RESPONSE


# ---- requests that cannot be served


@pytest.mark.parametrize("frame", [b"", b"\0\x0c", b"\0\x0c\0\4\0\0\0\1\0\x7f"])
def test_a_malformed_header_closes_the_connection(frame):
    line = Line(handler(heartbeat, pong))
    with pytest.raises(InvalidRequestError, match="malformed request header"):
        line.submit(None, frame=frame)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_malformed_body_closes_the_connection(blocking):
    line = Line(handler(heartbeat, pong, blocking=blocking))
    frame = line.frame(ping(), 4)[:-5]
    reason = "malformed Heartbeat v4 request: .+"
    if blocking:
        line.submit(None, frame=frame)
        request = run(line)
        assert isinstance(request.result, CloseConnection)
        assert request.result.reason.startswith("malformed Heartbeat v4 request: ")
        line.pipeline.end((request,), RequestOutcome.FAILED)
    else:
        with pytest.raises(InvalidRequestError, match=reason):
            line.submit(None, frame=frame)
    assert line.events.outcomes == [RequestOutcome.FAILED]
    assert line.events.ended[0].request is None
    assert line.events.ended[0].error_code == ErrorCode.INVALID_REQUEST


def test_an_api_that_is_not_served_closes_the_connection():
    line = Line(handler(heartbeat, pong))
    with pytest.raises(InvalidRequestError, match="API key 3 is not served by this listener"):
        line.submit(metadata.MetadataRequest([]), 12)
    (event,) = line.events.ended
    assert (event.outcome, event.error_code) == (RequestOutcome.FAILED, ErrorCode.UNSUPPORTED_VERSION)
    assert event.context.api_name == "Metadata"


@pytest.mark.parametrize("api_key", [-1, 128, 32767, -32768])
def test_an_api_key_outside_the_table_closes_the_connection(api_key):
    line = Line(handler(heartbeat, pong))
    frame = api_key.to_bytes(2, "big", signed=True) + line.frame(ping(), 0)[2:]
    with pytest.raises(InvalidRequestError, match="is not served by this listener"):
        line.submit(None, frame=frame)


@pytest.mark.parametrize("version", [-1, 99])
def test_a_version_that_is_not_served_closes_the_connection(version):
    line = Line(handler(heartbeat, pong))
    frame = line.frame(ping(), 0)
    frame = frame[:2] + version.to_bytes(2, "big", signed=True) + frame[4:]
    with pytest.raises(InvalidRequestError, match=f"Heartbeat version {version} is not served, only 0 to 4"):
        line.submit(None, frame=frame)
    assert line.events.outcomes == [RequestOutcome.FAILED]


@pytest.mark.parametrize("mode", ["hybrid", "pool"])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(mode):
    line = Line(handler(heartbeat, pong), mode=mode)
    frame = line.frame(api_versions.ApiVersionsRequest("x", "1"), 4)
    request, result = line.submit(None, frame=frame[:2] + b"\0\x63" + frame[4:])
    if result is LATER:
        result = run(line).result
    response = response_in(result, api_versions.ApiVersionsResponse, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [(18, 0, 5)]
    line.pipeline.end((request,), RequestOutcome.ANSWERED)
    assert line.metric("RequestsPerSec") == {("ApiVersions", "unknown"): 1}


# ---- failures


def raising(error):
    def handle(request, context):
        raise error

    return handle


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.ILLEGAL_GENERATION), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_an_error_of_a_handler_is_answered(blocking, error, code, caplog):
    line = Line(handler(heartbeat, raising(error), blocking=blocking))
    _, result = line.submit(ping())
    if blocking:
        result = run(line).result
    assert error_of(result) is code
    assert ("api=Heartbeat version=4 correlation_id=77: handler failed" in caplog.text) == (
        code is ErrorCode.UNKNOWN_SERVER_ERROR
    )


def test_a_response_that_cannot_be_encoded_is_an_unknown_error():
    line = Line(handler(heartbeat, lambda request, context: heartbeat.HeartbeatResponse(error_code="no number")))
    _, result = line.submit(ping())
    assert error_of(result) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_base_exception_of_a_handler_closes_its_connection_and_reaches_the_thread():
    line = Line(handler(heartbeat, raising(SystemExit(3)), blocking=True))
    line.submit(ping())
    with pytest.raises(SystemExit):
        line.pipeline.run_queued(line.queue.popleft())
    assert line.delivered.popleft().result == CloseConnection("3")


@pytest.mark.parametrize("how", ["inline", "queued", "parked"])
def test_a_produce_without_acks_that_fails_closes_the_connection(how):
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    handle = later if how == "parked" else raising(error)
    line = Line(handler(produce, handle, blocking=how == "queued"))
    reason = "Produce without a response failed: NOT_LEADER_OR_FOLLOWER"
    if how == "inline":
        with pytest.raises(InvalidRequestError, match=reason):
            line.submit(produced(0), 9)
    else:
        request, _ = line.submit(produced(0), 9)
        if how == "queued":
            run(line)
        else:
            request.context.respond(error)
        assert request.result == CloseConnection(reason)
        line.pipeline.end((request,), RequestOutcome.FAILED)
    (event,) = line.events.ended
    assert (event.outcome, event.error_code) == (RequestOutcome.FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_produce_with_acks_that_fails_is_answered_for_each_partition():
    line = Line(handler(produce, raising(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))))
    _, result = line.submit(produced(1), 9)
    response = response_in(result, produce.ProduceResponse, 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- lost connections


def test_a_queued_request_whose_connection_is_lost_never_runs():
    ran = []
    line = Line(handler(heartbeat, lambda request, context: ran.append(request) or PONG, blocking=True))
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    assert request.stage is RequestStage.CANCELLED
    line.pipeline.run_queued(line.queue.popleft())
    assert not ran
    assert not line.delivered
    assert line.events.outcomes == [RequestOutcome.LOST_BEFORE]


def test_an_answer_for_a_lost_connection_is_dropped():
    line = Line(handler(heartbeat, later))
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    assert line.events.outcomes == []
    request.context.respond(PONG)
    line.pipeline.drop(line.delivered.popleft())
    assert line.events.outcomes == [RequestOutcome.LOST_DURING]
    request.context.respond(PONG)
    request.context.close_connection("late")
    assert not line.delivered


def test_files_of_an_answer_that_is_not_sent_are_closed():
    closed = []

    class Region:
        size_bytes = 0

        def close(self):
            closed.append(self)

    line = Line(handler(heartbeat, later))
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    request.stage = RequestStage.COMPLETED
    request.result = [b"head", Region()]
    line.pipeline.drop(request)
    assert len(closed) == 1


def test_a_failing_queue_closes_the_connection():
    line = Line(handler(heartbeat, pong, blocking=True))
    request, _ = line.submit(ping())
    line.pipeline.give_up(request, "the queue failed")
    assert line.delivered.popleft().result == CloseConnection("the queue failed")
    line.pipeline.run_queued(line.queue.popleft())
    assert not line.delivered


# ---- filters


class Note(RequestFilter):
    """A filter that records its calls. It appends `name` to the group ids of requests."""

    def __init__(self, name, notes, api_keys=None, blocking=False):
        super().__init__(None)
        self.name, self.notes = name, notes
        self._api_keys, self._blocking = api_keys, blocking

    @property
    def api_keys(self):
        return self._api_keys

    @property
    def blocking(self):
        return self._blocking

    def on_request(self, message, context):
        self.notes.append(f"{self.name} request")
        message.group_id += self.name
        return message

    def on_response(self, response, context):
        self.notes.append(f"{self.name} response {response.error_code}")
        response.throttle_time_ms += 1
        return response


class Acts(Note):
    """A filter that does something else with requests."""

    def __init__(self, name, notes, act):
        super().__init__(name, notes)
        self.act = act

    def on_request(self, message, context):
        super().on_request(message, context)
        return self.act(message)


class ActsOnResponses(Note):
    def __init__(self, name, notes, act):
        super().__init__(name, notes)
        self.act = act

    def on_response(self, response, context):
        super().on_response(response, context)
        return self.act(response)


def throwing(error):
    def act(message):
        raise error

    return act


@pytest.mark.parametrize("how", ["inline", "queued", "parked"])
def test_requests_pass_filters_in_order_and_responses_in_reverse(how):
    notes = []

    def handle(request, context):
        notes.append(f"handler {request.group_id}")
        return later(request, context) if how == "parked" else PONG

    line = Line(handler(heartbeat, handle, blocking=how == "queued"), filters=[Note("a", notes), Note("b", notes)])
    request, result = line.submit(ping())
    if how == "queued":
        result = run(line).result
    elif how == "parked":
        request.context.respond(PONG)
        result = line.delivered.popleft().result
    assert notes == ["a request", "b request", "handler groupab", "b response 0", "a response 0"]
    assert response_in(result, heartbeat.HeartbeatResponse, 4).throttle_time_ms == 7
    assert PONG.throttle_time_ms == 5, "the handler's object is shared"


class Keeps(Note):
    """A filter that keeps the responses that it got. It returns `shared` if that is set."""

    def __init__(self, name, shared=None):
        super().__init__(name, [])
        self.got, self.shared = [], shared

    def on_response(self, response, context):
        self.got.append(response)
        return super().on_response(response, context) if self.shared is None else self.shared


def test_filters_share_one_copy_of_a_response():
    filters = [Keeps("a"), Keeps("b"), Keeps("c")]
    _, result = Line(handler(heartbeat, pong), filters=filters).submit(ping())
    first, *others = [one.got[0] for one in filters]
    assert all(one is first for one in others)
    assert response_in(result, heartbeat.HeartbeatResponse, 4).throttle_time_ms == 8
    assert PONG.throttle_time_ms == 5, "the handler's object is shared"


def test_a_substituted_response_is_copied_for_the_filter_before_it():
    shared = heartbeat.HeartbeatResponse(throttle_time_ms=20)
    line = Line(handler(heartbeat, pong), filters=[Keeps("a"), Keeps("b", shared)])
    for _ in range(2):
        _, result = line.submit(ping())
        assert response_in(result, heartbeat.HeartbeatResponse, 4).throttle_time_ms == 21


def test_a_filter_without_a_method_for_responses_gets_no_copy():
    class RequestsAlone(RequestFilter):
        def on_request(self, message, context):
            return message

    line = Line(handler(heartbeat, pong), filters=[RequestsAlone(None)])
    request, _ = line.submit(ping())
    line.ledger.end([request], RequestOutcome.ANSWERED)
    assert line.events.ended[0].response is PONG


@pytest.mark.parametrize(
    ("act", "code", "outcome"),
    [
        (lambda message: Answer(heartbeat.HeartbeatResponse(error_code=27)), 27, RequestOutcome.ANSWERED),
        (throwing(KafkaError(ErrorCode.POLICY_VIOLATION)), ErrorCode.POLICY_VIOLATION, RequestOutcome.REFUSED),
        (throwing(ZeroDivisionError("bug")), ErrorCode.UNKNOWN_SERVER_ERROR, RequestOutcome.REFUSED),
    ],
    ids=["answered", "refused", "raised"],
)
@pytest.mark.parametrize("blocking", [False, True])
def test_an_answer_of_a_filter_passes_back_only_through_those_before_it(blocking, act, code, outcome):
    notes = []
    filters = [Note("a", notes), Acts("b", notes, act), Note("c", notes)]
    line = Line(handler(heartbeat, lambda *_: notes.append("handler"), blocking=blocking), filters=filters)
    request, result = line.submit(ping())
    if blocking:
        result = run(line).result
    assert notes == ["a request", "b request", f"a response {int(code)}"]
    assert error_of(result) == code
    line.pipeline.end((request,), RequestOutcome.ANSWERED)
    assert line.events.outcomes == [outcome]
    assert line.events.ended[0].error_code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.POLICY_VIOLATION), ErrorCode.POLICY_VIOLATION),
        (ZeroDivisionError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_that_a_filter_raises_for_a_response_replaces_it(error, code):
    notes = []
    filters = [Note("a", notes), ActsOnResponses("b", notes, throwing(error))]
    line = Line(handler(heartbeat, pong), filters=filters)
    _, result = line.submit(ping())
    assert error_of(result) is code
    assert notes[-1] == f"a response {int(code)}"


def test_an_error_response_of_the_handler_passes_the_filters():
    notes = []
    line = Line(handler(heartbeat, raising(KafkaError(ErrorCode.ILLEGAL_GENERATION))), filters=[Note("a", notes)])
    _, result = line.submit(ping())
    assert error_of(result) is ErrorCode.ILLEGAL_GENERATION
    assert notes == ["a request", f"a response {int(ErrorCode.ILLEGAL_GENERATION)}"]


def test_a_request_without_response_passes_no_filter_back():
    notes = []

    class Silent(Note):
        def on_request(self, message, context):
            return message

    filters = [Silent("a", notes)]
    line = Line(handler(produce, lambda request, context: context.no_response()), filters=filters)
    _, result = line.submit(produced(0), 9)
    assert result is NO_RESPONSE
    assert notes == []


def test_apis_that_no_filter_names_are_not_copied():
    notes = []
    line = Line(
        handler(heartbeat, pong),
        handler(metadata, lambda *_: metadata.MetadataResponse()),
        filters=[Note("a", notes, api_keys={heartbeat.API_KEY}, blocking=True)],
    )
    other, named = line.routes.find(metadata.API_KEY), line.routes.find(heartbeat.API_KEY)
    assert (other.on_request, other.on_response) == ((), ())
    assert other.inline_max_bytes == 65536
    assert len(named.on_request) == len(named.on_response) == 1
    assert named.inline_max_bytes == -1, "it may block"
    line.submit(metadata.MetadataRequest([]), 12)
    assert notes == []
