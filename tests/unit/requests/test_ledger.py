"""Each request ends exactly once in every way: for observers, metrics, and threads that answer it again."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm import ErrorCode, KafkaError, RequestFilter, RequestOutcome
from klamm.api.pending import LATER, NO_RESPONSE
from klamm.requests.ledger import AlreadyEndedError
from klamm.requests.pending import CloseConnection, InvalidRequestError, RequestStage, pending_of
from klamm.wire.messages import heartbeat, produce
from tests.unit.requests.requests_harness import Line, handler, ping, produced

O = RequestOutcome  # noqa: E741
MS = 1_000_000


def pong(request, context):
    return heartbeat.HeartbeatResponse()


def later(request, context):
    return context.later()


def failing(request, context):
    raise ZeroDivisionError("bug")


class RefusesAll(RequestFilter):
    def on_request(self, message, context):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)


# ---- one by one


def answered(line):
    request, _ = line.submit(ping())
    line.pipeline.end((request,), O.ANSWERED)


def no_answer(line):
    request, result = line.submit(produced(0), 9)
    assert result is NO_RESPONSE
    line.pipeline.end((request,), O.NO_ANSWER)


def lost_before(line):
    request, _ = line.submit(ping())
    line.pipeline.lose(request)


def lost_during(line):
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    request.context.respond(heartbeat.HeartbeatResponse())
    line.pipeline.drop(line.delivered.popleft())


def never_answered(line):
    request, _ = line.submit(ping())
    line.pipeline.lose(request)
    line.pipeline.close()


def lost_after(line):
    request, _ = line.submit(ping())
    line.pipeline.end((request,), O.LOST_AFTER)


def lost_with_its_answer(line):
    request, _ = line.submit(ping())
    request.context.respond(heartbeat.HeartbeatResponse())
    line.pipeline.lose(request)
    line.pipeline.drop(line.delivered.popleft())


def lost_after_the_queue_failed(line):
    request, _ = line.submit(ping())
    line.pipeline.give_up(request, "the queue failed")
    line.pipeline.lose(request)
    line.pipeline.drop(line.delivered.popleft())


def closed(line):
    request, _ = line.submit(ping())
    request.context.close_connection("enough")
    line.pipeline.end((line.delivered.popleft(),), O.FAILED)


ENDS = [
    (handler(heartbeat, pong), {}, answered, O.ANSWERED),
    (handler(produce, lambda request, context: context.no_response()), {}, no_answer, O.NO_ANSWER),
    (handler(heartbeat, pong), {"filters": [RefusesAll(None)]}, answered, O.REFUSED),
    (handler(heartbeat, failing), {}, answered, O.FAILED),
    (handler(heartbeat, later), {}, closed, O.FAILED),
    (handler(heartbeat, pong, blocking=True), {}, lost_before, O.LOST_BEFORE),
    (handler(heartbeat, pong, blocking=True), {}, lost_after_the_queue_failed, O.LOST_BEFORE),
    (handler(heartbeat, later), {}, lost_during, O.LOST_DURING),
    (handler(heartbeat, later), {}, never_answered, O.LOST_DURING),
    (handler(heartbeat, pong), {}, lost_after, O.LOST_AFTER),
    (handler(heartbeat, later), {}, lost_with_its_answer, O.LOST_AFTER),
    (handler(heartbeat, failing), {}, lost_after, O.FAILED),
]


@pytest.mark.parametrize(("api", "options", "go", "outcome"), ENDS, ids=[f"{e[2].__name__}-{e[3].name}" for e in ENDS])
@pytest.mark.parametrize("observed", [True, False])
def test_each_outcome_is_observed_and_counted_once(api, options, go, outcome, observed):
    line = Line(api, observed=observed, **options)
    go(line)
    assert line.events.outcomes == ([outcome] if observed else [])
    assert sum(line.metric("RequestsPerSec").values()) == 1
    (value,) = line.metric("TotalTimeMs").values()
    assert value.count == 1


def test_the_cases_contain_all_outcomes():
    assert {outcome for *_, outcome in ENDS} == set(O)


def test_ending_a_request_twice_raises():
    line = Line(handler(heartbeat, pong))
    request, _ = line.submit(ping())
    line.pipeline.end((request,), O.ANSWERED)
    with pytest.raises(AlreadyEndedError, match="Heartbeat"):
        line.pipeline.end((request,), O.LOST_AFTER)
    assert line.events.outcomes == [O.ANSWERED]


def test_requests_that_end_together_are_observed_in_their_order():
    line = Line(handler(heartbeat, pong))
    requests = [line.submit(ping())[0] for _ in range(3)]
    line.pipeline.end(requests, O.ANSWERED)
    assert [event.context for event in line.events.ended] == [request.context for request in requests]


def test_an_event_has_request_response_and_times():
    line = Line(handler(heartbeat, later, blocking=True))
    clock = line.clock
    clock.advance_ms(1)
    request, _ = line.submit(ping())
    clock.advance_ms(2)
    line.pipeline.run_queued(line.queue.popleft())
    clock.advance_ms(3)
    response = heartbeat.HeartbeatResponse(error_code=25)
    request.context.respond(response)
    clock.advance_ms(4)
    request.dequeued_ns = clock.monotonic_ns()
    clock.advance_ms(5)
    line.pipeline.end((request,), O.ANSWERED)
    (event,) = line.events.ended
    assert (event.request, event.response, event.error_code) == (ping(), response, 25)
    assert event.response_bytes == len(response.encode(4))
    times = event.times
    assert (times.request_queue_ns, times.local_ns, times.remote_ns) == (2 * MS, 0, 3 * MS)
    assert (times.response_queue_ns, times.send_ns, times.total_ns) == (4 * MS, 5 * MS, 14 * MS)
    assert line.metric("ErrorsPerSec")["Heartbeat", "UNKNOWN_MEMBER_ID"] == 1


def test_a_stage_that_was_not_entered_took_no_time():
    line = Line(handler(heartbeat, pong, blocking=True))
    line.clock.advance_ms(1)
    request, _ = line.submit(ping())
    line.clock.advance_ms(7)
    line.pipeline.lose(request)
    times = line.events.ended[0].times
    assert (times.request_queue_ns, times.total_ns) == (7 * MS, 7 * MS)
    assert times.local_ns == times.remote_ns == times.response_queue_ns == times.send_ns == 0


def test_without_observers_throttles_and_metrics_nothing_is_timed():
    line = Line(handler(heartbeat, pong), observed=False, counted=False)
    request, _ = line.submit(ping())
    assert request.received_ns == request.handler_start_ns == request.completed_ns == 0
    line.pipeline.end_untimed(request)
    assert request.ended


# ---- in any order


class Connection:
    """A channel, as requests see it."""

    def __init__(self):
        self.open = True
        self.in_flight = None
        self.sending = []


ACTS = ["answer", "later", "fail", "refuse", "error", "both", "none", "none and fail", "close", "garbage"]


class Refuses(RequestFilter):
    def on_request(self, message, context):
        if act_of(message) == "refuse":
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        return message


def act_of(message):
    return message.group_id if isinstance(message, heartbeat.HeartbeatRequest) else message.transactional_id


class Requests(RuleBasedStateMachine):
    """Acts as the processor of two connections, as the handlers, and as threads that answer later."""

    def __init__(self):
        super().__init__()
        self.ran = set()
        apis = [handler(module, self.handle, blocking=True, inline_max_bytes=200) for module in (heartbeat, produce)]
        self.line = Line(*apis, filters=[Refuses(None)])
        self.pipeline = self.line.pipeline
        self.connections = [Connection(), Connection()]
        self.submitted = 0
        self.parked = []
        self.responded = set()
        self.current = None

    def handle(self, request, context):
        self.ran.add(context)
        match act_of(request):
            case "later":
                self.parked.append(context)
                return context.later()
            case "both":
                context.respond(heartbeat.HeartbeatResponse())
                return heartbeat.HeartbeatResponse()
            case "fail" | "none and fail":
                raise ZeroDivisionError("on purpose")
            case "error":
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            case "close":
                context.close_connection("on purpose")
                return context.later()
            case "none":
                return context.no_response()
        return heartbeat.HeartbeatResponse()

    @rule(number=st.integers(0, 1), act=st.sampled_from(ACTS), queued=st.booleans())
    def submit(self, number, act, queued):
        connection = self.connections[number]
        if not connection.open:
            connection = self.connections[number] = Connection()
        if connection.in_flight is not None:
            return
        padding = "x" * 300 if queued else ""
        if act.startswith("none"):
            message = produce.ProduceRequest(
                act, 0, topic_data=[produce.TopicProduceData("t" + padding, partition_data=[])]
            )
            frame = self.line.frame(message, 9)
        else:
            frame = self.line.frame(heartbeat.HeartbeatRequest(act, 1, "m" + padding), 4)
        if act == "garbage":
            frame = frame[:-3]
        self.submitted += 1
        try:
            request, result = self.pipeline.submit(
                frame, connection, self.line.connection, self.line.clock.monotonic_ns()
            )
        except InvalidRequestError:
            assert act in ("garbage", "none and fail")
            self.close_connection(connection)
            return
        assert (result is LATER) == (queued or act in ("later", "close", "both"))
        if result is LATER:
            connection.in_flight = request
        elif result is NO_RESPONSE:
            self.pipeline.end((request,), O.NO_ANSWER)
        else:
            connection.sending.append(request)

    @precondition(lambda self: self.line.queue)
    @rule(pick=st.integers(0, 5))
    def run_queued(self, pick):
        queue = self.line.queue
        queue.rotate(-(pick % len(queue)))
        request = queue.popleft()
        if pending_of(request.context) is not None:
            self.pipeline.run_queued(request)

    @precondition(lambda self: self.parked)
    @rule(
        pick=st.integers(0, 5),
        answer=st.sampled_from(
            [heartbeat.HeartbeatResponse(), NO_RESPONSE, KafkaError(ErrorCode.ILLEGAL_GENERATION), ValueError("no")]
        ),
    )
    def respond(self, pick, answer):
        context = self.parked[pick % len(self.parked)]
        lost_and_ended = pending_of(context) is None
        if context in self.responded and not lost_and_ended:
            with pytest.raises(RuntimeError, match="answered twice"):
                context.respond(answer)
            return
        try:
            context.respond(answer)
        except RuntimeError:
            assert context in self.responded
        self.responded.add(context)

    @precondition(lambda self: self.parked)
    @rule(pick=st.integers(0, 5))
    def close_connection_of(self, pick):
        context = self.parked[pick % len(self.parked)]
        context.close_connection("on purpose")
        self.responded.add(context)

    @precondition(lambda self: any(one.stage is RequestStage.QUEUED for one in self.line.queue))
    @rule()
    def the_queue_fails(self):
        request = next(one for one in self.line.queue if one.stage is RequestStage.QUEUED)
        self.pipeline.give_up(request, "the queue failed")

    @precondition(lambda self: self.line.delivered)
    @rule()
    def take_an_answer(self):
        request = self.line.delivered.popleft()
        connection = request.channel
        if not connection.open or connection.in_flight is not request:
            self.pipeline.drop(request)
            return
        connection.in_flight = None
        if isinstance(request.result, CloseConnection):
            self.pipeline.end((request,), O.FAILED)
            self.close_connection(connection)
        elif request.result is NO_RESPONSE:
            self.pipeline.end((request,), O.NO_ANSWER)
        else:
            connection.sending.append(request)

    @rule(number=st.integers(0, 1))
    def sent(self, number):
        requests, self.connections[number].sending = self.connections[number].sending, []
        if requests:
            self.pipeline.end(requests, O.ANSWERED)

    @rule(number=st.integers(0, 1))
    def lose(self, number):
        self.close_connection(self.connections[number])

    @rule()
    def time_passes(self):
        self.line.clock.advance_ms(1)

    def close_connection(self, connection):
        if not connection.open:
            return
        connection.open = False
        requests, connection.sending = connection.sending, []
        if requests:
            self.pipeline.end(requests, O.LOST_AFTER)
        if connection.in_flight is not None:
            request, connection.in_flight = connection.in_flight, None
            self.pipeline.lose(request)

    @invariant()
    def none_has_ended_twice_or_as_what_it_was_not(self):
        ended = self.line.events.ended
        assert len({id(event.context) for event in ended}) == len(ended)
        for event in ended:
            ran = event.context in self.ran
            if event.outcome in (O.LOST_BEFORE, O.REFUSED):
                assert not ran
            if event.outcome in (O.ANSWERED, O.NO_ANSWER, O.LOST_DURING, O.LOST_AFTER):
                assert ran
            times = event.times
            assert list(times) == sorted(times)

    def teardown(self):
        for connection in self.connections:
            self.close_connection(connection)
        while self.line.queue:
            self.run_queued(0)
        while self.line.delivered:
            self.take_an_answer()
        self.pipeline.close()
        self.none_has_ended_twice_or_as_what_it_was_not()
        assert len(self.line.events.ended) == self.submitted
        assert sum(self.line.metric("RequestsPerSec").values()) == self.submitted
        for context in self.parked:
            assert pending_of(context) is None


Requests.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRequests = Requests.TestCase
