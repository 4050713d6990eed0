"""`Routes`: the APIs of one listener, each with all data that its requests need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from klamm.api.api_set import ApiHandler
from klamm.api.context import RequestContext
from klamm.api.filters import RequestFilter
from klamm.api.forwarding import OpaqueRequest, OpaqueResponse
from klamm.requests.limits import INLINE_MAX_BYTES, INLINE_MAX_ELEMENTS, MAX_KEYS, RequestLimits, request_limits
from klamm.wire.api_keys import ApiKey, find_spec
from klamm.wire.error_counts import error_counter, has_only_own_code
from klamm.wire.response_errors import has_errors_inside

log = logging.getLogger("klamm.requests")

_INLINE_ALWAYS: Final = 1 << 31
_NO_LIMITS_SET: Final = request_limits()
_INLINE_NEVER: Final = -1
_NEVER_FLEXIBLE: Final = 1 << 15

_LOADED: Final = frozenset(
    {
        "count_errors",
        "decode",
        "handle",
        "has_errors_inside",
        "has_records",
        "only_own_code",
        "request_class",
        "response_class",
    }
)

RequestStep = Callable[[Any, RequestContext], Any]


class FilterCalls(NamedTuple):
    """The APIs and methods of an open request filter; see `klamm.RequestFilter`. `renames` is True if it changes names.

    `on_response` is None if the filter does not override it, because the method would not change the response.
    """

    api_keys: Collection[int] | None
    blocking: bool
    on_request: RequestStep
    on_response: RequestStep | None
    renames: bool = False

    @classmethod
    def of(cls, part: RequestFilter) -> FilterCalls:
        """Return the calls of a filter. Raises the exceptions of the filter's properties."""
        renames = type(part).topic_name is not RequestFilter.topic_name
        own = getattr(part.on_response, "__func__", None) is not RequestFilter.on_response
        return cls(part.api_keys, part.blocking, part.on_request, part.on_response if own else None, renames)


class StartCalls(NamedTuple):
    """The APIs of an observer that is notified before a handler runs, and the function to call.

    The function returns the message. See `RequestObserver.starting`.
    """

    api_keys: Collection[int]
    start: RequestStep


class Readers(NamedTuple):
    """The parts other than filters that read all requests of a listener.

    `authorizer` and `observers` are True if the listener has them. `prepare` is the function of `preparing`.
    """

    authorizer: bool = False
    observers: bool = False
    prepare: RequestStep | None = None


class Route:
    """One API of a listener.

    - `inline_max_bytes` is the size of the largest frame whose request runs on the processor's thread; -1 means none. A
      smaller request with more than `inline_max_elements` elements goes to the handlers too.
    - `max_elements` and `max_answer_bytes` are the limits of a request and its answer on any thread.
    - `may_wait` is `ApiHandler.blocking`.
    - `flexible_from` is the first version with a flexible response header.
    - `on_request` and `on_response` are the methods of the filters that see this API, in the order of their calls. At
      its end, `on_request` also has the functions that prepare the authorizer and notify observers.
    - `renamed_by` is the position of the last filter that changes names, -1 if there is none.
    - `opaque` is True if requests are not decoded. `keeps_frame` is True if a request keeps its frame after it was
      decoded, because the handler may forward the frame.
    - `response_wanted` is True if a filter or an observer needs the response as a message, `response_filtered` if a
      filter does.
    """

    __slots__ = (
        "_handler",
        "api_key",
        "count_errors",
        "decode",
        "flexible_from",
        "handle",
        "has_errors_inside",
        "has_records",
        "inline_max_bytes",
        "inline_max_elements",
        "keeps_frame",
        "loaded",
        "max_answer_bytes",
        "max_elements",
        "max_version",
        "may_wait",
        "min_version",
        "name",
        "on_request",
        "on_response",
        "only_own_code",
        "opaque",
        "renamed_by",
        "request_class",
        "response_class",
        "response_filtered",
        "response_wanted",
    )

    def __init__(
        self,
        handler: ApiHandler,
        mode: str,
        filters: Sequence[FilterCalls],
        limits: RequestLimits = _NO_LIMITS_SET,
        starts: Sequence[StartCalls] = (),
        readers: Readers = Readers(),  # noqa: B008
    ) -> None:
        self._handler = handler
        self.loaded = False
        self.api_key = handler.api_key
        self.name = handler.name
        self.min_version = handler.min_version
        self.max_version = handler.max_version
        # All versions of ApiVersions have response header v0, because the client does not know yet which versions the
        # server supports. An API that klamm does not know is opaque, and its body begins after the correlation id.
        spec = None if handler.api_key == ApiKey.API_VERSIONS else find_spec(handler.api_key)
        self.flexible_from = _NEVER_FLEXIBLE if spec is None else spec.flexible_from
        wanted = [one for one in filters if one.api_keys is None or handler.api_key in one.api_keys]
        notified = [one.start for one in starts if handler.api_key in one.api_keys]
        self.on_request: tuple[RequestStep, ...] = (
            *(one.on_request for one in wanted),
            *([] if readers.prepare is None else [readers.prepare]),
            *notified,
        )
        self.on_response: tuple[RequestStep | None, ...] = tuple(one.on_response for one in wanted)
        self.renamed_by = max((number for number, one in enumerate(wanted) if one.renames), default=-1)
        blocked = bool(notified) or any(one.blocking for one in wanted)
        self.response_filtered = bool(wanted)
        self.keeps_frame = handler.opaque and not wanted
        self.response_wanted = self.response_filtered or readers.observers
        self.opaque = handler.opaque and not (self.on_request or self.response_wanted or readers.authorizer)
        self.may_wait = handler.blocking
        self.inline_max_bytes = _inline_max_bytes(handler, mode, blocked)
        if self.opaque or (handler.opaque and mode == "hybrid" and not self.on_request):
            # A large opaque request costs no more than a small one, because it is not decoded.
            self.inline_max_bytes = _INLINE_ALWAYS
        self.max_elements = limits.max_elements[handler.api_key]
        self.max_answer_bytes = limits.max_answer_bytes[handler.api_key]
        self.inline_max_elements = (
            self.max_elements if mode == "inline" else min(self.max_elements, INLINE_MAX_ELEMENTS)
        )

    def __getattr__(self, name: str) -> Any:
        """Load the modules of the API, and return an attribute that `load` has set.

        The modules are imported at the first request, because a start needs only few of them.
        """
        if name not in _LOADED:
            raise AttributeError(name)
        self.load()
        return object.__getattribute__(self, name)

    def load(self) -> None:
        """Import the modules of the API."""
        module, self.handle = self._handler.load()
        if self.opaque:
            self._load_opaque()
            return
        self.request_class = module.__dict__[f"{self.name}Request"]
        response_class = self.response_class = module.__dict__[f"{self.name}Response"]
        self.has_records = hasattr(response_class, "encode_chunks")
        self.count_errors = error_counter(response_class)
        self.only_own_code = has_only_own_code(response_class)
        self.has_errors_inside = has_errors_inside(response_class)
        self.decode = self.request_class.decode
        self.loaded = True

    def _load_opaque(self) -> None:
        self.request_class, self.response_class = OpaqueRequest, OpaqueResponse
        self.has_records = True
        self.count_errors = error_counter(OpaqueResponse)
        self.only_own_code = self.has_errors_inside = False
        self.decode = OpaqueRequest.decode
        self.loaded = True


def _inline_max_bytes(handler: ApiHandler, mode: str, blocked: bool) -> int:
    if mode == "pool" or (blocked and mode != "inline"):
        return _INLINE_NEVER
    if mode == "inline":
        return _INLINE_ALWAYS
    if not handler.blocking:
        return INLINE_MAX_BYTES
    return min(handler.inline_max_bytes, INLINE_MAX_BYTES) or _INLINE_NEVER


class Routes:
    """The routes of one listener, by API key. `mode` is the setting `dispatch`: `hybrid`, `inline` or `pool`.

    The listener makes it. Any thread may look a route up; a route loads its code at its first request.
    """

    __slots__ = ("_by_key",)

    def __init__(
        self,
        handlers: Iterable[ApiHandler],
        mode: str,
        filters: Sequence[FilterCalls] = (),
        limits: RequestLimits = _NO_LIMITS_SET,
        starts: Sequence[StartCalls] = (),
        readers: Readers = Readers(),  # noqa: B008
    ) -> None:
        self._by_key: list[Route | None] = [None] * MAX_KEYS
        for handler in handlers:
            self._by_key[handler.api_key] = Route(handler, mode, filters, limits, starts, readers)

    def find(self, api_key: int) -> Route | None:
        """Return the route of an API; None if this listener does not serve it."""
        return self._by_key[api_key] if 0 <= api_key < MAX_KEYS else None

    def load_one(self) -> bool:
        """Import the modules of one API that are not loaded yet; return True if there was one.

        Raises the exceptions of the import. All modules are loaded soon after the start, because later their files may
        have been replaced, or no descriptor may be free to open them.
        """
        for route in self._by_key:
            if route is not None and not route.loaded:
                route.load()
                return True
        return False

    @property
    def served(self) -> list[tuple[int, range]]:
        """Return the keys and the versions of all served APIs."""
        return [
            (route.api_key, range(route.min_version, route.max_version + 1))
            for route in self._by_key
            if route is not None
        ]
