"""`PendingRequest`: a request with the server's own data about it. The pipeline creates it; plugins see its context.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from klamm.api.context import RequestContext
from klamm.api.filters import Hold
from klamm.api.observer import RequestOutcome
from klamm.api.pending import Pending
from klamm.requests.routes import Route
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER
from klamm.runtime.transitions import IllegalTransitionError
from klamm.wire.chunks import Buffer, Chunk
from klamm.wire.error_counts import ErrorCounts


class RequestStage(enum.Enum):
    """The stage of a request.

    ```
    QUEUED ◄─► RUNNING ──► COMPLETED
       │                   (answered, by the handler's return value or through its context)
       └──► CANCELLED      (connection lost, or the queue failed: the handler never runs)
    ```
    A request that a filter has held goes from RUNNING back to QUEUED. A request that runs on its processor's thread
    starts as RUNNING.
    """

    __hash__ = object.__hash__

    QUEUED = enum.auto()
    RUNNING = enum.auto()
    COMPLETED = enum.auto()
    CANCELLED = enum.auto()


_S = RequestStage
STAGE_TRANSITIONS: Final[dict[RequestStage, frozenset[RequestStage]]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.COMPLETED, _S.QUEUED}),
    _S.COMPLETED: frozenset(),
    _S.CANCELLED: frozenset(),
}


class CloseConnection(NamedTuple):
    """The result of a request that cannot be answered: its connection is closed, and `reason` goes to the log.

    `last_bytes` are sent before the close.
    """

    reason: str
    last_bytes: bytes = b""


GO_ON: Final = Pending("GO_ON")
"""The result of a request that a filter has held until now. The request goes to the handlers."""


Result: TypeAlias = "list[Chunk] | Pending | CloseConnection"


class InvalidRequestError(Exception):
    """Raised if a request cannot be answered. The connection is closed, as in Kafka, and the message goes to the log.

    `last_bytes` are sent before the close.
    """

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes


class RequestOwner(Protocol):
    """The pipeline that has created a request."""

    def run_queued(self, request: PendingRequest) -> int: ...

    def respond(self, request: PendingRequest, response: Any) -> None: ...

    def close_connection(self, request: PendingRequest, reason: str) -> None: ...

    def hold_request(self, request: PendingRequest, held: Hold) -> None: ...

    def hold_response(self, request: PendingRequest, held: Hold) -> None: ...


class PendingRequest:
    """One request on its way through the pipeline.

    - `frame` and `body_offset` locate the undecoded body. The handler gets `message` and returns `response`.
    - `result` is the result of a request that is answered later: the whole frame in chunks, NO_RESPONSE or
      CloseConnection.
    - `channel` is the request's connection. Only the network layer uses it.
    - Times are monotonic nanoseconds. `received_ns` is 0 for a request that is not timed. `weight` is the number of
      requests that its times represent in the metrics. `network_ns` is the time spent on reading the request, if
      throttles charge for it.
    - `streamed` is the message of a response that is sent while it arrives. It is complete when the response is
      complete.
    - `named` is the response with the names that the handler knows, if a filter changes names.
    - `failed_step` is the method of a filter that has raised. A held message continues with the filter at
      `next_filter`.
    - `outcome` is set if the outcome is known before the answer is sent.
    - `upstream_node_id` is the node of another cluster that got the request.
    - `failed` is True if the answer is an error, `parked` if the handler answers later, `inline` if the request runs on
      its processor's thread.
    - `lost` is True if the connection is closed, `ended` if the ledger has recorded the end, `large` if the request has
      more elements than a processor's thread decodes.
    """

    # Class attributes, because most requests change only few of these values.
    stage = _S.RUNNING
    supported = True
    message: Any = None
    response: Any = None
    response_bytes = 0
    received_ns = 0
    handler_start_ns = 0
    local_end_ns = 0
    completed_ns = 0
    dequeued_ns = 0
    network_ns = 0
    weight = 0
    error_code = 0
    errors: ErrorCounts | None = None
    outcome: RequestOutcome | None = None
    failed_step: Callable[..., Any] | None = None
    next_filter = 0
    failed = False
    inline = True
    large = False
    ended = False
    parked = False
    lost = False
    upstream_node_id: int | None = None
    streamed: Any = None
    named: Any = None

    def __init__(
        self, context: RequestContext, owner: RequestOwner, route: Route, frame: Any, body_offset: int, channel: Any
    ) -> None:
        self.context = context
        self.owner = owner
        self.route = route
        self.frame = frame
        self.body_offset = body_offset
        self.channel = channel
        # Not a class attribute, because compiled code would lose the default of an attribute of this type.
        self.result: Result | None = None

    @property
    def waits(self) -> bool:
        """Return True if the handler runs or has run, and answers later.

        False for a request that a filter or the queue holds.
        """
        return self.parked and self.stage is RequestStage.RUNNING and self.result is not GO_ON

    @property
    def response_wanted(self) -> bool:
        """Return True if a filter or an observer needs the response as a message."""
        return self.route.response_wanted

    @property
    def response_filtered(self) -> bool:
        """Return True if a filter needs the response as a message, and may change it."""
        return self.route.response_filtered

    @property
    def size_bytes(self) -> int:
        """Return the size of the frame, without its size field."""
        return self.context.size_bytes

    def take_messages(self) -> list[Any]:
        """Remove the messages of the request and return them."""
        taken = [self.message, self.response, self.named]
        self.message = self.response = self.named = None
        return taken

    def transition_to(self, stage: RequestStage) -> None:
        """Change the stage. Raises IllegalTransitionError for a transition that is not in the table."""
        if stage not in STAGE_TRANSITIONS[self.stage]:
            raise IllegalTransitionError(f"{self.context.api_name}: {self.stage} to {stage}")
        self.stage = stage

    def respond(self, context: RequestContext, response: Any) -> None:
        """See `RequestContext.respond`."""
        self.owner.respond(self, response)

    def close_connection(self, context: RequestContext, reason: str) -> None:
        """See `RequestContext.close_connection`."""
        self.owner.close_connection(self, reason)


def pending_of(context: RequestContext) -> PendingRequest | None:
    """Return the request of a context; None if the request has ended, e.g. because its connection was closed."""
    responder = context.responder
    return responder if isinstance(responder, PendingRequest) else None


def request_frame(context: RequestContext) -> Buffer | None:
    """Return the frame of a request, without its size field, for an `opaque` handler that got the request as a message.

    Return None if a filter may have changed the message.
    """
    request = context.responder
    return request.frame if type(request) is PendingRequest and request.route.keeps_frame else None


def note_upstream_node(context: RequestContext, node_id: int | None) -> None:
    """Record the node of another cluster to which a request is sent, for observers and the audit.

    Call this before the request is sent. Call it with None if the request must wait or will not be sent: if its
    connection is then lost, the request ends as LOST_BEFORE. Has no effect on a request that has ended.
    """
    request = context.responder
    if type(request) is PendingRequest:
        request.upstream_node_id = node_id
        request.outcome = RequestOutcome.LOST_BEFORE if node_id is None else None


def large_response(context: RequestContext) -> AbstractContextManager[None]:
    """Wait for the turn of large requests, and keep the turn while the block decodes a large response.

    Call this on a thread of the handler set. See `SharedInterpreter.turn`.
    """
    return SHARED_INTERPRETER.turn(context.listener.services.scheduler.schedule, may_wait=False)
