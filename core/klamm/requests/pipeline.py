"""`RequestPipeline`, which handles one request from its frame to its answer.

```
frame ─► parse ─► route ─┬─► execute ─────────────────────────────────────► encode ─► chunks
                         │   decode ► filters ► handler ► filters ► charge     ▲
                         │      │ too much for this thread                     │
                         └──────┴─► queue ─► execute on a handler's thread     │
                                     handler returns later() ─► respond() ─────┘
```
The pipeline uses no sockets, selectors or threads. A processor calls `submit`, a handler thread calls `run_queued`, and
any thread that has the request's context may call `respond`. A result is the chunks of the answer, LATER, NO_RESPONSE
or CloseConnection.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from klamm.api.context import ConnectionContext, RequestContext
from klamm.api.filters import Hold
from klamm.api.observer import RequestOutcome
from klamm.api.pending import LATER, NotInlineError
from klamm.requests.execution import encode_unsupported, execute, finish
from klamm.requests.ledger import ANSWERED, RequestLedger
from klamm.requests.listener_parts import RequestParts
from klamm.requests.pending import GO_ON, CloseConnection, InvalidRequestError, PendingRequest, RequestStage, Result
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER, free_in_pieces
from klamm.wire.api_keys import ApiKey
from klamm.wire.chunks import Buffer, close_chunks
from klamm.wire.errors import ErrorCode
from klamm.wire.headers import decode_request_header
from klamm.wire.primitives import WireError

log = logging.getLogger("klamm.requests")

_OUTCOME_IF_LOST: Final = {
    RequestStage.RUNNING: None,
    RequestStage.COMPLETED: RequestOutcome.LOST_AFTER,
    RequestStage.CANCELLED: RequestOutcome.LOST_BEFORE,
}


class RequestPipeline:
    """The pipeline of one processor. `ChannelLifecycle` submits requests on the processor's thread.

    The processor's thread calls `enqueue(request)`, which puts a request into the queue of the handlers, or keeps it
    until the queue has room. Any thread calls `deliver(request)`, which passes an answered request to the processor's
    thread. Neither function blocks.
    """

    def __init__(
        self,
        parts: RequestParts,
        ledger: RequestLedger,
        enqueue: Callable[[PendingRequest], None],
        deliver: Callable[[PendingRequest], None],
    ) -> None:
        self._parts = parts
        self._find_route = parts.routes.find
        self._ledger = ledger
        self._enqueue = enqueue
        self._deliver = deliver
        # Protects `stage` and `lost` of requests that other threads may answer.
        self._handed_over = Lock()
        self._lost: set[PendingRequest] = set()
        self.end = ledger.end
        self.end_untimed = ledger.end_untimed

    # ---- on the processor's thread

    def submit(
        self, frame: Buffer, channel: Any, connection: ConnectionContext, now_ns: int, network_ns: int = 0
    ) -> tuple[PendingRequest, Result]:
        """Start the request in a frame. Return its result, or LATER if `deliver` will be called with the request.

        Raises InvalidRequestError if the request cannot be answered. The request has then ended, and the caller must
        close the connection.
        """
        request = self._parse(frame, channel, connection, now_ns)
        if network_ns:
            request.network_ns = network_ns
        if len(frame) > request.route.inline_max_bytes and request.supported:
            self._ledger.begin_queued(request, now_ns)
            return self._put_in_queue(request)
        self._ledger.begin(request, now_ns)
        try:
            result: Result = execute(request, self._parts) if request.supported else encode_unsupported(request)
        except NotInlineError as error:
            request.large = request.large or error.large
            self._ledger.requeue(request, now_ns)
            return self._put_in_queue(request)
        except BaseException:
            self._end_failed(request)
            raise
        if result is not LATER:
            if request.stage is not RequestStage.COMPLETED:
                request.stage = RequestStage.COMPLETED
                return request, result
            # Another thread has answered it through its context.
            close_result(result)
            result = LATER
        self._ledger.park(request)
        return request, result

    def _put_in_queue(self, request: PendingRequest) -> tuple[PendingRequest, Result]:
        request.inline = False
        try:
            self._enqueue(request)
        except BaseException:
            self._end_failed(request)
            raise
        return request, LATER

    def _parse(self, frame: Buffer, channel: Any, connection: ConnectionContext, now_ns: int) -> PendingRequest:
        try:
            api_key, api_version, correlation_id, client_id, body_offset = decode_request_header(frame)
        except WireError as error:
            raise InvalidRequestError(f"malformed request header: {error}") from error
        context = RequestContext(connection, ANSWERED, api_key, api_version, correlation_id, client_id, len(frame))
        if connection.client_id is None:
            connection.client_id = client_id
        route = self._find_route(api_key)
        if route is None:
            self._ledger.refuse_unserved(context, int(ErrorCode.UNSUPPORTED_VERSION), now_ns)
            raise InvalidRequestError(f"API key {api_key} is not served by this listener")
        request = PendingRequest(context, self, route, frame, body_offset, channel)
        context.responder = request
        if not route.min_version <= api_version <= route.max_version:
            if api_key != ApiKey.API_VERSIONS:
                self._ledger.refuse_unserved(context, int(ErrorCode.UNSUPPORTED_VERSION), now_ns)
                raise InvalidRequestError(
                    f"{route.name} version {api_version} is not served, only {route.min_version} to {route.max_version}"
                )
            request.supported = False
        return request

    def _end_failed(self, request: PendingRequest) -> None:
        request.outcome = RequestOutcome.FAILED
        self.end((request,), RequestOutcome.FAILED)

    def lose(self, request: PendingRequest) -> None:
        """Record that the connection of a queued or running request has closed. A queued request will never run."""
        with self._handed_over:
            request.lost = True
            cancelled = request.stage is RequestStage.QUEUED
            if cancelled:
                request.transition_to(RequestStage.CANCELLED)
            else:
                # The request may have its answer already, which is on its way here and will be dropped.
                held = RequestOutcome.LOST_BEFORE if request.result is GO_ON else None
                request.outcome = request.outcome or held or _OUTCOME_IF_LOST[request.stage]
                if request.outcome is RequestOutcome.LOST_AFTER and isinstance(request.result, CloseConnection):
                    request.outcome = RequestOutcome.LOST_DURING
                self._lost.add(request)
        if cancelled:
            self.end((request,), RequestOutcome.LOST_BEFORE)

    def drop(self, request: PendingRequest) -> None:
        """Drop an answer that cannot be sent."""
        close_result(request.result)
        self._lost.discard(request)
        if not request.ended:
            request.lost = True
            self.end((request,), request.outcome or RequestOutcome.LOST_DURING)

    def close(self) -> None:
        """End the requests of lost connections whose handlers have not answered. Called when the processor ends."""
        lost, self._lost = self._lost, set()
        for request in lost:
            if not request.ended:
                self.end((request,), request.outcome or RequestOutcome.LOST_DURING)

    # ---- on a handler's thread

    def run_queued(self, request: PendingRequest) -> int:
        """Execute a request from the queue, and deliver its result. Return the time at which the handler ended."""
        with self._handed_over:
            if request.stage is RequestStage.CANCELLED:
                return self._parts.clock.monotonic_ns()
            request.transition_to(RequestStage.RUNNING)
        try:
            result = self._execute_large(request) if request.large else self._execute_small(request)
        except InvalidRequestError as error:
            self._complete(request, CloseConnection(str(error), error.last_bytes))
        except BaseException as failure:
            self._complete(request, CloseConnection(str(failure) or repr(failure)))
            raise
        else:
            if result is LATER:
                request.parked = True
            else:
                self._complete(request, result)
        return self._parts.clock.monotonic_ns()

    def _execute_small(self, request: PendingRequest) -> Result:
        try:
            return execute(request, self._parts)
        except NotInlineError:
            request.large = True
        # Outside the `except` block, where the exception would keep the decoded message in memory.
        return self._execute_large(request)

    def _execute_large(self, request: PendingRequest) -> Result:
        schedule = self._parts.listener.services.scheduler.schedule
        with SHARED_INTERPRETER.turn(schedule, may_wait=request.route.may_wait):
            result = execute(request, self._parts)
            if result is not LATER and self._parts.observers is None:
                free_in_pieces(request.take_messages())
            return result

    # ---- on any thread

    def respond(self, request: PendingRequest, response: Any) -> None:
        """Answer a request whose handler returned `later()`; see `RequestContext.respond`."""
        if not self._claim(request):
            raise RuntimeError(f"correlation_id={request.context.correlation_id}: answered twice")
        self._finish(request, response)

    def _finish(self, request: PendingRequest, response: Any, passed: int | None = None) -> None:
        result: Result
        try:
            result = finish(request, self._parts, response, passed)
        except InvalidRequestError as error:
            result = CloseConnection(str(error), error.last_bytes)
        except Exception as failure:
            log.exception("api=%s: the answer cannot be encoded", request.route.name)
            result = CloseConnection(str(failure) or repr(failure))
        if result is not LATER:
            request.result = result
            self._deliver(request)

    def hold_request(self, request: PendingRequest, held: Hold) -> None:
        """Keep a request that a filter holds. It goes to the handlers when the hold ends."""
        request.result = GO_ON
        self._hold(held, lambda: self._deliver(request))

    def hold_response(self, request: PendingRequest, held: Hold) -> None:
        """Keep a response that a filter holds until the hold ends.

        Then the response passes the other filters. Responses pass filters in reverse order, so these are the filters
        that the listener names before this one.
        """
        self._claim(request)
        self._hold(held, lambda: self._finish(request, request.response, request.next_filter))

    def _hold(self, held: Hold, go_on: Callable[[], None]) -> None:
        schedule, until = self._parts.listener.services.scheduler.schedule, held.until
        if until is None:
            schedule(held.delay_ms, go_on)
            return
        timer = schedule(held.delay_ms, until.release)

        def released() -> None:
            timer.cancel()
            go_on()

        until.when_released(released)

    def go_on(self, request: PendingRequest) -> None:
        """Pass a held request to the handlers. Called on the processor's thread when the hold has ended."""
        with self._handed_over:
            if request.stage is not RequestStage.RUNNING:
                # The filter has answered the request through its context.
                return
            request.result = None
            request.inline = False
            request.transition_to(RequestStage.QUEUED)
        self._enqueue(request)

    def close_connection(self, request: PendingRequest, reason: str) -> None:
        """Close the connection of a request instead of answering the request."""
        self._complete(request, CloseConnection(reason))

    def give_up(self, request: PendingRequest, reason: str) -> None:
        """Close the connection of a request, because the queue has raised an exception for the request."""
        with self._handed_over:
            if request.stage is not RequestStage.QUEUED:
                return
            request.transition_to(RequestStage.CANCELLED)
        request.result = CloseConnection(reason)
        self._deliver(request)

    def _claim(self, request: PendingRequest) -> bool:
        with self._handed_over:
            if request.stage is not RequestStage.RUNNING:
                return False
            request.transition_to(RequestStage.COMPLETED)
            return True

    def _complete(self, request: PendingRequest, result: Result) -> None:
        if self._claim(request):
            request.result = result
            self._deliver(request)
        else:
            # Another thread has answered it through its context.
            close_result(result)


def close_result(result: Result | None) -> None:
    """Close the files of an answer that will not be sent."""
    if isinstance(result, list):
        close_chunks(result)
