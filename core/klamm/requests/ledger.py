"""`RequestLedger`, which records the beginning and the end of each request.

Each processor has one, and only the processor's thread uses it. The ledger decides at the beginning of a request
whether the request is timed. It passes the same stage times to the metrics, the slow-request log and the observers.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from klamm.api.context import ListenerContext, RequestContext
from klamm.api.observer import RequestEvent, RequestOutcome, StageTimes
from klamm.metrics.requests import RequestCount, RequestRecorder
from klamm.requests.observers import RequestObservers
from klamm.requests.pending import PendingRequest, RequestStage
from klamm.requests.slow_requests import SlowLog
from klamm.runtime.clock import Clock
from klamm.runtime.shared_interpreter import free_in_pieces
from klamm.wire.response_errors import first_error

_FREED_AFTER_MS: Final = 10.0
_MAY_BE_KNOWN_BEFORE: Final = frozenset({RequestOutcome.ANSWERED, RequestOutcome.NO_ANSWER, RequestOutcome.LOST_AFTER})


class AlreadyEndedError(Exception):
    """Raised if a request is ended twice, which is a bug."""


class _Answered:
    """The responder of requests that have been answered."""

    def respond(self, context: RequestContext, response: Any) -> NoReturn:
        raise RuntimeError(f"correlation_id={context.correlation_id}: answered twice")

    def close_connection(self, context: RequestContext, reason: str) -> None:
        """Do nothing: the request has already ended."""


class _Lost:
    """The responder of requests whose connection is lost."""

    def respond(self, context: RequestContext, response: Any) -> None:
        """Do nothing, because the client is disconnected."""

    def close_connection(self, context: RequestContext, reason: str) -> None:
        """Do nothing, because the connection is closed."""


ANSWERED: Final = _Answered()
LOST: Final = _Lost()


class RequestLedger:
    """A processor's ledger. Without observers, throttles and metrics it times only queued requests."""

    def __init__(
        self,
        clock: Clock,
        listener: ListenerContext,
        recorder: RequestRecorder | None,
        slow_log: SlowLog | None,
        observers: RequestObservers | None,
    ) -> None:
        self._monotonic_ns = clock.monotonic_ns
        self._listener = listener
        self._recorder = recorder
        self._apis = recorder.apis if recorder is not None else None
        self._slow_log = slow_log
        self._observers = observers

    def count_of(self, request: PendingRequest) -> RequestCount | None:
        """Return the count of a request's API and version; None if requests are not counted."""
        if self._recorder is None:
            return None
        api = self._recorder.apis[request.route.api_key]
        return api.by_version[request.context.api_version] if request.supported else api.unknown

    def begin(self, request: PendingRequest, now_ns: int) -> None:
        """Count a new request that will run on this thread, and decide whether it is timed."""
        if self._apis is not None:
            # `count_of`, inlined: this runs for every request.
            api = self._apis[request.route.api_key]
            count = api.by_version[request.context.api_version] if request.supported else api.unknown
            until_sample = count.until_sample = count.until_sample - 1
            if until_sample < 0:
                request.weight = count.sample(now_ns)
                request.received_ns = now_ns
                return
        if self._observers is not None or self._listener.throttles:
            request.received_ns = now_ns

    def begin_queued(self, request: PendingRequest, now_ns: int) -> None:
        """Count a new request that goes to the handlers.

        All such requests are timed, because the queue takes far longer than the reading of the clock.
        """
        request.stage = RequestStage.QUEUED
        request.received_ns = now_ns
        count = self.count_of(request)
        if count is not None:
            count.until_sample -= 1
            request.weight = count.sample(now_ns) if count.until_sample < 0 else count.one()

    def requeue(self, request: PendingRequest, now_ns: int) -> None:
        """Note that a request that has started on this thread moves to the handlers."""
        request.stage = RequestStage.QUEUED
        request.handler_start_ns = request.local_end_ns = 0
        if not request.received_ns:
            request.received_ns = now_ns
            count = self.count_of(request)
            if count is not None:
                request.weight = count.one()

    def park(self, request: PendingRequest) -> None:
        """Note that a request that ran on this thread waits. From now on all requests of its API are timed.

        Opaque requests do not start this timing, because all of them wait.
        """
        request.parked = True
        if request.route.opaque:
            return
        count = self.count_of(request)
        if count is not None:
            count.time_all()

    def end_untimed(self, request: PendingRequest) -> None:
        """End a request that was answered on this thread and is neither timed nor observed. Otherwise like `end`."""
        request.ended = True
        request.context.responder = ANSWERED
        if request.errors is not None and self._recorder is not None:
            self._recorder.count_errors(request.route.api_key, request.errors)

    def end(self, requests: Sequence[PendingRequest], outcome: RequestOutcome) -> None:
        """End requests of one connection. Raises AlreadyEndedError for a request that has ended before."""
        end_ns = self._monotonic_ns()
        events: list[RequestEvent] = []
        for request in requests:
            if request.ended:
                raise AlreadyEndedError(f"{request.context.api_name}: {outcome}")
            request.ended = True
            context = request.context
            if request.streamed is not None:
                note_streamed(request)
            context.responder = LOST if request.lost else ANSWERED
            if request.errors is not None and self._recorder is not None:
                self._recorder.count_errors(request.route.api_key, request.errors)
            if not request.received_ns:
                continue
            times = _stage_times(request, end_ns)
            if request.weight:
                self._record(request, times)
            if self._observers is not None:
                own = request.outcome if request.outcome and outcome in _MAY_BE_KNOWN_BEFORE else outcome
                events.append(
                    RequestEvent(
                        context,
                        own,
                        request.error_code,
                        request.message,
                        request.response,
                        request.response_bytes,
                        times,
                        request.upstream_node_id,
                    )
                )
        if events:
            assert self._observers is not None
            self._observers.completed(events)
        for request in requests:
            if request.large and request.message is not None:
                self._free_later(request.take_messages())

    def _free_later(self, messages: list[Any]) -> None:
        # The scheduler's thread frees them, because other clients would wait if this thread did.
        self._listener.services.scheduler.schedule(_FREED_AFTER_MS, lambda: free_in_pieces(messages))

    def refuse_unserved(self, context: RequestContext, error_code: int, now_ns: int) -> None:
        """Record the beginning and the end of a request whose API or version this listener does not serve."""
        if self._observers is not None:
            times = StageTimes(now_ns, now_ns, now_ns, now_ns, now_ns, now_ns)
            event = RequestEvent(context, RequestOutcome.FAILED, error_code, None, None, 0, times)
            self._observers.completed([event])

    def _record(self, request: PendingRequest, times: StageTimes) -> None:
        assert self._recorder is not None
        context = request.context
        api = self._recorder.apis[request.route.api_key]
        api.times.record(times, context.throttle_time_ms, context.size_bytes, request.weight)
        if self._slow_log is not None:
            self._slow_log.note(context, times)


def note_streamed(request: PendingRequest) -> None:
    """Note the errors of a response that was sent while it arrived. Called when the response is complete."""
    message = request.streamed
    request.errors = request.route.count_errors(message)
    request.error_code = first_error(message)


def _stage_times(request: PendingRequest, end_ns: int) -> StageTimes:
    """Return stage times without gaps. A skipped stage gets a duration of zero."""
    received_ns = request.received_ns
    start_ns = max(request.handler_start_ns, received_ns) if request.handler_start_ns else end_ns
    local_end_ns = max(request.local_end_ns, start_ns) if request.local_end_ns else end_ns
    completed_ns = max(request.completed_ns, local_end_ns) if request.completed_ns else end_ns
    dequeued_ns = max(request.dequeued_ns, completed_ns) if request.dequeued_ns else completed_ns
    return StageTimes(received_ns, start_ns, local_end_ns, completed_ns, dequeued_ns, max(end_ns, dequeued_ns))
