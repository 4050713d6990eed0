"""Handler sets, which decide the APIs that a listener answers, and answer them.

An `ApiSet` is a class whose methods are marked with `@handles(module, versions=...)`. klamm answers ApiVersions from
the marks. It reads them once, when a listener is built, so that each request is a plain call of the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from klamm.api.context import ConnectionContext, ListenerContext, RequestContext, ServerContext
from klamm.api.contracts import HANDLES, handler_problem
from klamm.api.part import Part
from klamm.shared.features import Features

Handler = Callable[[Any, "RequestContext"], Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """One API as a handler set serves it.

    `load`              returns the generated message module and the handler. Called at the API's first request, so that
                        the start need not import them.
    `blocking`          True if the handler may wait for a disk, a lock or a peer: it runs on a request handler thread.
    `inline_max_bytes`  requests of a blocking API up to this frame size in bytes run on the processor's thread, because
                        they do not wait.
    `advertised`        True if ApiVersions lists the API.
    `opaque`            if no filter, observer or authorizer needs the contents, the handler gets a
                        `klamm.forwarding.OpaqueRequest`, on the processor's thread whatever its size. If
                        `ListenerContext.reads_requests` is False, it always gets one, so klamm need not know the API or
                        its versions; `load` then returns None instead of the module.
    """

    api_key: int
    name: str
    min_version: int
    max_version: int
    load: Callable[[], tuple[Any, Handler]]
    blocking: bool = True
    inline_max_bytes: int = 0
    advertised: bool = True
    opaque: bool = False

    @property
    def module(self) -> Any:
        """Return the generated message module; see `load`."""
        return self.load()[0]

    @property
    def handle(self) -> Handler:
        """Return the handler; see `load`."""
        return self.load()[1]


class _Mark(NamedTuple):
    module: Any
    versions: range
    blocking: bool
    inline_max_bytes: int
    advertised: bool


class Finding(NamedTuple):
    """A line of `klamm doctor`: subject, finding and remedy. A finding without a remedy is not a problem."""

    subject: str
    text: str
    remedy: str = ""


_MARK: Final = HANDLES


def handles(
    module: Any,
    *,
    versions: range,
    blocking: bool = True,
    inline_max_bytes: int = 0,
    advertised: bool = True,
) -> Callable[[F], F]:
    """Mark a method (or a function `(api_set, request, context)`) as the handler of one API.

    `module` is the generated message module (`klamm.wire.messages.produce`); `versions` are the served versions, which
    ApiVersions lists. `advertised=False` serves an API that ApiVersions does not list. For the rest see
    `ApiHandler`.

    The handler returns a response message, `context.later()` or `context.no_response()`. If it raises `KafkaError`,
    klamm answers with that error, in the form of the request's version.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, _Mark(module, versions, blocking, inline_max_bytes, advertised))
        return function

    return mark


_Host: TypeAlias = "ServerContext"


class ApiSet(Part[_Host]):
    """Base class of handler sets. One instance may serve several listeners, which then share its state.

    The order of calls: `open` → `handlers` → `listener_opened` for each listener → requests → `close`, which comes
    after the last request and makes everything durable.

    With `pipelined`, a connection's requests start while earlier ones still wait for their answers; the answers are
    sent in order. `ConnectionContext.link` is then the connection's loop, and the connection stays on this loop.
    """

    pipelined: bool = False

    def listener_opened(self, listener: ListenerContext) -> None:
        """Called when a listener that names this set has its final address (port 0 is resolved).

        An exception stops the start.
        """

    def connection_closed(self, connection: ConnectionContext) -> None:
        """Called when a connection of a listener that names this set has closed.

        Called once for each connection, on the thread of its processor, and must not wait. A request of the connection
        may still run on another thread; its answer is dropped. An exception is logged.
        """

    def describe(self) -> str:
        """Return one line for the start message of `klamm serve`, e.g. the number of recovered topics."""
        return ""

    def examine(self, listeners: Sequence[ListenerContext]) -> Iterable[Finding]:  # noqa: ARG002
        """Return the findings of `klamm doctor` about this set and the listeners that name it.

        Called on a set that has not been opened, while no listener listens. May wait for the network. An exception
        becomes a finding too.
        """
        return ()

    def features(self) -> Features:
        """Return the features that ApiVersions reports. Called once, after `open`.

        To change a feature later, set its `current`.
        """
        return Features()

    def topic_names(self) -> Callable[[bytes], str | None] | None:
        """Return a function that maps a topic id to its name, or to None if the id is unknown. Filters use it.

        Called once for each listener, after `open`. Any thread may call the function. If a set returns None instead of
        a function, filters learn the names from the responses that they see.
        """
        return None

    def is_meant(self, cluster_id: str, node_id: int, connection: ConnectionContext) -> bool:  # noqa: ARG002
        """Return True if this is the node of the cluster that the client meant to reach (KIP-1242).

        The handler of ApiVersions calls it on any thread, and answers REBOOTSTRAP_REQUIRED for False. A set that has no
        cluster id and node id returns True.
        """
        return True

    def handlers_of(self, listener: ListenerContext) -> Iterable[ApiHandler]:  # noqa: ARG002
        """Return the APIs served on one listener; called once for each. A set whose listeners differ overrides this."""
        return self.handlers()

    def handlers(self) -> Iterable[ApiHandler]:
        """Return the served APIs: the methods with `@handles` marks. A set with one module per API overrides this."""
        for name in dir(type(self)):
            function = getattr(type(self), name, None)
            if hasattr(function, _MARK):
                yield from bind_handlers([getattr(self, name)])


def bind_handlers(functions: Iterable[Callable[..., Any]], *leading: Any) -> Iterator[ApiHandler]:
    """Return the `ApiHandler`s of marked functions; `leading` arguments are bound before `(request, context)`.

    Raises TypeError for a function that does not take these arguments.
    """
    for function in functions:
        mark: _Mark = getattr(function, _MARK)
        problem = handler_problem(function, len(leading))
        if problem is not None:
            raise TypeError(f"{function.__module__}.{function.__qualname__}{problem}")
        handle: Handler = _bind(function, leading) if leading else function
        yield ApiHandler(
            api_key=int(mark.module.API_KEY),
            name=mark.module.NAME,
            min_version=mark.versions.start,
            max_version=mark.versions.stop - 1,
            load=partial(_loaded, mark.module, handle),
            blocking=mark.blocking,
            inline_max_bytes=mark.inline_max_bytes,
            advertised=mark.advertised,
        )


def _loaded(module: Any, handle: Handler) -> tuple[Any, Handler]:
    return module, handle


def _bind(function: Callable[..., Any], leading: tuple[Any, ...]) -> Callable[..., Any]:
    # A call of a bound method is the cheapest way to pass an argument; `partial` is the next best.
    if len(leading) == 1:
        bound: Callable[..., Any] = function.__get__(leading[0])
        return bound
    return partial(function, *leading)
